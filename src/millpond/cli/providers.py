"""The providers of a deployment: Replicate, or another server with its API, if its token is set."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from millpond.api.jobs.callbacks import callbacks_url
from millpond.integrations.replicate import Replicate

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.providers import Provider
    from millpond.settings import Settings


def providers(settings: Settings) -> list[Provider]:
    if settings.replicate_api_token:
        return [Replicate(settings.replicate_url, settings.replicate_api_token)]
    return []


def provide(engine: Engine, settings: Settings, own_url: str | None = None) -> None:
    """Add the providers to an engine, and set the URL of their callbacks.

    ``own_url`` is the URL of the API on this machine; only a provider on the same machine can send callbacks to it.
    """
    for provider in providers(settings):
        engine.providers.add(provider)
    reachable = settings.public_url or (own_url if _is_here(settings.replicate_url) else None)
    engine.providers.callbacks_url = callbacks_url(reachable)
    engine.providers.file_max = settings.upload_max


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == "localhost" or host.startswith("127.") or host == "::1"
