"""The renderer as a process: starts its parts, and closes them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import uvicorn

from millpond.product import Outbound
from millpond_products.renderer.app import RendererApi
from millpond_products.renderer.folder import Folder
from millpond_products.renderer.hooks import Hooks, secret_of
from millpond_products.renderer.predictions import Predictions
from millpond_products.renderer.presses import Presses

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

PRESSES: Final = 2
WAITING_MAX: Final = 200
LIFETIME: Final = 3_600.0
_DRAIN_SECONDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RendererOptions:
    """The options of a renderer."""

    token: str = field(repr=False)
    """The token of the clients. The secret that signs webhooks is derived from it."""
    url: str | None = None
    """The URL for clients; by default, the listening address."""
    allow: str = ""
    """The private addresses from which images may be fetched. Webhooks may always be sent to this machine."""
    presses: int = PRESSES
    waiting_max: int = WAITING_MAX
    lifetime: timedelta = timedelta(seconds=LIFETIME)
    seconds_max: float = 300.0
    """The time limit of a prediction."""


async def serve(
    options: RendererOptions, sock: socket.socket, stop: asyncio.Event, on_ready: Callable[[], object] = lambda: None
) -> None:
    """Serve until ``stop`` is set. Unfinished predictions are lost, as in a crash."""
    url = (options.url or address_of(sock)).rstrip("/")
    secret = secret_of(options.token)
    folder = Folder()
    to_hooks = Outbound(",".join(filter(None, ["loopback", options.allow])))
    to_images = Outbound(options.allow)
    hooks = Hooks(to_hooks, secret)
    presses = Presses(options.presses, seconds=options.seconds_max)
    predictions = Predictions(
        url, presses, hooks, folder, to_images, waiting_max=options.waiting_max, lifetime=options.lifetime
    )
    api = RendererApi(
        url,
        token=options.token,
        secret=secret,
        predictions=predictions,
        folder=folder,
        hooks_outbound=to_hooks,
        images_outbound=to_images,
    )
    server = _Server(_config(api), on_ready)
    tasks = [asyncio.create_task(predictions.sweep()), asyncio.create_task(server.stop_with(stop))]
    try:
        await server.serve([sock])
    finally:
        for task in tasks:
            task.cancel()
        await predictions.close()
        await presses.close()
        await hooks.close()
        await to_hooks.close()
        await to_images.close()
        folder.close()


def address_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "127.0.0.1" if sock.family == socket.AF_INET else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(api: RendererApi) -> uvicorn.Config:
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    return uvicorn.Config(
        api.app(),
        loop="none",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=1_000,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def stop_with(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.should_exit = True
