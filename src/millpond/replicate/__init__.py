"""Replicate, as a provider; the local renderer speaks the same words."""

from millpond.replicate.replicate import Replicate

__all__ = ["Replicate"]
