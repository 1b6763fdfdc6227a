"""GitHub's REST API, as handlers ask it."""

from millpond.github.github import GitHub

__all__ = ["GitHub"]
