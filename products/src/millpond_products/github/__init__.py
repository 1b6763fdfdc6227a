"""A client of GitHub's REST API, for handlers."""

from millpond_products.github.github import GitHub

__all__ = ["GitHub"]
