"""A real server with all blueprints under their names, or with one of them alone at the root."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.api.blueprint import prepare
from millpond.api.server import listen, serve
from millpond.cli.apps import chosen
from millpond.cli.deployment import parts, url_of
from millpond.cli.processes import run_in_order
from millpond.engine.engine import Engine
from millpond.engine.vault import Vault
from millpond.outbound import Outbound
from millpond.replicate import Replicate
from millpond.settings import Settings
from millpond.storage.files import FileServer
from millpond.storage.local import Local
from tests.doubles.replicate import TOKEN
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.cli.apps import Product

NOWHERE = "http://127.0.0.1:9"
"""Where nobody listens. What jobs call is there, so that none of them leaves this machine."""


@dataclass(slots=True)
class Place:
    """A server that runs, and keys for it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]


@asynccontextmanager
async def running_place(
    dsn: str,
    folder: Path,
    *,
    alone: str | None = None,
    product: Product | None = None,
    roles: tuple[str, ...] = ("api",),
    provider_url: str = NOWHERE,
    **said: Any,
) -> AsyncIterator[Place]:
    """``said`` are settings; a ``product`` is served as it is."""
    files, sock = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    url = url_of(sock)
    store = Local(folder, url_of(files))
    usual = Settings(
        rate_limit=1_000_000,
        poll_limit=1_000_000,
        github_url=NOWHERE,
        itunes_url=NOWHERE,
        grace=timedelta(seconds=0.5),
    )
    settings = dataclasses.replace(usual, **said)
    product = product or chosen(None, alone)
    engine = await Engine.open(
        dsn,
        product.app,
        storage=store,
        outbound=Outbound("loopback"),
        vault=Vault([b"0123456789abcdef0123456789abcdef"]),
        providers=[Replicate(provider_url, TOKEN)],
    )
    engine.providers.public_url = url
    await prepare(engine, product.blueprints)
    for blueprint in product.blueprints:
        if blueprint.seed is not None:
            await blueprint.seed(engine)
    ready = asyncio.Event()
    running = parts(engine, settings, roles, sock, ready.set, product)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http:
        place = Place(engine, url, http)
        serving = asyncio.gather(
            serve(FileServer(store), host="", port=0, sock=files, stop=place.stop, drain=1),
            run_in_order(running, place.stop),
        )
        try:
            await ready.wait()
            yield place
        finally:
            place.stop.set()
            await serving
            await engine.close()
