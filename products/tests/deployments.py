"""A real server with all products under their names, or with one of them alone at the root."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.api.jobs.callbacks import callbacks_url
from millpond.api.product import prepare
from millpond.api.server import listen, serve
from millpond.cli.apps import chosen
from millpond.cli.deployment import parts, url_of
from millpond.cli.processes import run_in_order
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.integrations.replicate import Replicate
from millpond.outbound import Outbound
from millpond.storage.files import FileServer
from millpond.storage.local import Local
from millpond_products.settings import ProductSettings
from tests.doubles.replicate import TOKEN
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from millpond.cli.apps import Selection

NOWHERE = "http://127.0.0.1:9"
"""Where nobody listens. What jobs call is there, so that none of them leaves this machine."""


@dataclass(slots=True)
class Deployment:
    """A server that runs, and keys for it."""

    engine: Engine
    url: str
    http: httpx2.AsyncClient
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def key(self, **options: Any) -> str:
        return (await self.engine.access.make_key(actor="test", **options))[1]


@asynccontextmanager
async def running_deployment(
    dsn: str,
    folder: Path,
    *,
    alone: str | None = None,
    selection: Selection | None = None,
    roles: tuple[str, ...] = ("api",),
    provider_url: str = NOWHERE,
    **said: Any,
) -> AsyncIterator[Deployment]:
    """``said`` are settings; a ``selection`` is served as it is."""
    files, sock = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    url = url_of(sock)
    store = Local(folder, url_of(files))
    usual = ProductSettings(
        rate_limit=1_000_000,
        failure_limit=1_000_000,
        streams_per_key=100_000,
        streams_per_account=100_000,
        poll_limit=1_000_000,
        github_url=NOWHERE,
        itunes_url=NOWHERE,
        grace=timedelta(seconds=0.5),
    )
    settings = dataclasses.replace(usual, **said)
    selection = selection or chosen(None, ["all"] if alone is None else [alone], at_root=alone is not None)
    engine = await Engine.open(
        dsn,
        selection.app,
        storage=store,
        outbound=Outbound("loopback"),
        vault=Vault([b"0123456789abcdef0123456789abcdef"]),
        providers=[Replicate(provider_url, TOKEN)],
    )
    engine.providers.callbacks_url = callbacks_url(url)
    await prepare(engine, selection.products)
    for product in selection.products:
        if product.seed is not None:
            await product.seed(engine)
    ready = asyncio.Event()
    running = parts(engine, settings, roles, sock, ready.set, selection)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http:
        deployment = Deployment(engine, url, http)
        serving = asyncio.gather(
            serve(FileServer(store), host="", port=0, sock=files, stop=deployment.stop, drain=1),
            run_in_order(running, deployment.stop),
        )
        try:
            await ready.wait()
            yield deployment
        finally:
            deployment.stop.set()
            await serving
            await engine.close()
