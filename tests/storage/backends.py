"""Stores behind servers, and plain HTTP to them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.api.server import listen, serve
from millpond.storage.files import FileServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.storage import Signed
    from millpond.storage.local import Local

MINUTE = timedelta(minutes=1)


@dataclass(slots=True)
class Backend:
    """A store, and plain HTTP to its server, as a browser or a worker would speak it."""

    name: str
    store: Any
    http: httpx2.AsyncClient

    async def send(self, signed: Signed, content: Any = None, **changes: Any) -> httpx2.Response:
        """A signed request, with what a test changes about it."""
        headers = {**signed.headers, **changes.pop("headers", {})}
        method = changes.pop("method", signed.method)
        return await self.http.request(method, changes.pop("url", signed.url), content=content, headers=headers)

    def sign_put(self, path: str, body: bytes, **options: Any) -> Signed:
        given = {"lifetime": MINUTE, "content_type": "image/png", "size": len(body)} | options
        return self.store.sign_put(path, **given)

    async def put(self, path: str, body: bytes, **options: Any) -> httpx2.Response:
        return await self.send(self.sign_put(path, body, **options), body)

    async def get(self, path: str, *, headers: dict[str, str] | None = None, **options: Any) -> httpx2.Response:
        return await self.send(self.store.sign_get(path, **{"lifetime": MINUTE} | options), headers=headers or {})


@asynccontextmanager
async def file_server(store: Local) -> AsyncIterator[None]:
    """The file server of a store, on a socket of its own; the store learns where."""
    sock = listen("127.0.0.1", 0)
    store.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    stop, ready = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(
        serve(FileServer(store), host="", port=0, sock=sock, stop=stop, on_ready=ready.set, drain=1)
    )
    try:
        await ready.wait()
        yield
    finally:
        stop.set()
        await serving
