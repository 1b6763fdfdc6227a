"""The renderer beside ``up`` and ``serve``: started by the first connection to it, and restarted when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import secrets
import socket
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from millpond.errors import SettingsError
from millpond.product import Companion, Started, Supervisor
from millpond_products.settings import ProductSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from millpond.kinds import Kind

HOST: Final = "127.0.0.1"
PORT: Final = 8688
INSTALL: Final = "pip install 'millpond-products[renderer]'"
_PARTS: Final = ("av", "espeakng_loader", "PIL")
"""The modules that the extra installs."""


def missing() -> str | None:
    return None if all(find_spec(part) for part in _PARTS) else INSTALL


def is_wanted(settings: ProductSettings, kinds: Iterable[Kind]) -> bool:
    """Whether there are kinds that need a provider, and no other provider is configured."""
    return not _has_provider(settings) and any(kind.needs for kind in kinds)


def _has_provider(settings: ProductSettings) -> bool:
    return settings.replicate_api_token is not None or settings.replicate_url != ProductSettings.replicate_url


@contextlib.contextmanager
def start(settings: ProductSettings, allow: str) -> Generator[Started]:
    """Listen on any free local port, because only processes on this machine call it.

    This process keeps the socket open, so that callers wait while the renderer starts or restarts.
    """
    if _has_provider(settings):
        field = "replicate_url" if settings.replicate_api_token is None else "replicate_api_token"
        raise SettingsError(
            "Another provider is already configured.", field=field, hint="Unset it, or omit the renderer."
        )
    token = settings.renderer_token or secrets.token_urlsafe(24)
    with socket.create_server((HOST, 0)) as sock:
        url = f"http://{HOST}:{sock.getsockname()[1]}"
        command = [sys.executable, "-m", "millpond_products.renderer", "--allow", allow, "--socket", str(sock.fileno())]
        kept = Supervisor(command, os.environ | {"MILLPOND_RENDERER_TOKEN": token}, (sock.fileno(),), 1)

        async def run(stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
            await _first_call(sock, stop)
            await kept.run(stop, on_ready)

        known = dataclasses.replace(settings, replicate_url=url, replicate_api_token=token)
        yield Started(settings=known, run=run, lines={"renderer": f"{url}, on this machine"})


async def _first_call(sock: socket.socket, stop: asyncio.Event) -> None:
    """Wait for the first connection, or for ``stop``."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_reader(sock.fileno(), called.set)
    waiting = [asyncio.create_task(event.wait()) for event in (called, stop)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        loop.remove_reader(sock.fileno())
        for task in waiting:
            task.cancel()


RENDERER: Final = Companion(name="renderer", start=start, missing=missing, is_wanted=is_wanted)
