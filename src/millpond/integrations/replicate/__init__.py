"""Replicate, as a provider; the local renderer has the same API."""

from millpond.integrations.replicate.replicate import Replicate

__all__ = ["Replicate"]
