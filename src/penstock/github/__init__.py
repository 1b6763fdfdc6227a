"""GitHub's REST API, as handlers ask it."""

from penstock.github.github import GitHub

__all__ = ["GitHub"]
