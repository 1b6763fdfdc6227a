"""The providers of a deployment: Replicate where there is a token, else the local renderer, which speaks like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.replicate import Replicate

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.providers import Provider
    from millpond.settings import Settings


def providers(settings: Settings) -> list[Provider]:
    if settings.replicate_api_token:
        return [Replicate(settings.replicate_url, settings.replicate_api_token)]
    if settings.renderer_url and settings.renderer_token:
        return [Replicate(settings.renderer_url, settings.renderer_token)]
    return []


def provide(engine: Engine, settings: Settings, own_url: str | None = None) -> None:
    """Give an engine its providers, and say where they call back.

    ``own_url`` is where this very machine reaches the API: good enough for a renderer that is on it, and for no other.
    """
    for provider in providers(settings):
        engine.providers.add(provider)
    engine.providers.public_url = settings.public_url or (None if settings.replicate_api_token else own_url)
    engine.providers.file_max = settings.upload_max
