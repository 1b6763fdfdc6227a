"""Replicate, as a provider."""
