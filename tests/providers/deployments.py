"""A product whose jobs a provider runs, with all that runs it: the API, a worker, the services, on a real database."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2

from millpond.api.jobs.callbacks import callbacks_url
from millpond.api.product import Product, bound, prepare
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.errors import TransientError
from millpond.integrations.replicate import Replicate
from millpond.kinds import Kind
from millpond.lifecycle import STANDARD
from millpond.providers import Ask, Provided
from millpond.retry import Backoff
from millpond.services.expirer import expirer
from millpond.services.reaper import reaper
from millpond.services.reconciler import reconciler
from millpond.services.scheduler import scheduler
from millpond.services.service import run_services
from millpond.settings import Settings
from millpond.worker.worker import Worker
from tests.api.sites import Site, running_site
from tests.doubles.replicate import TOKEN, Script
from tests.factories import ACCOUNT, TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from millpond.engine.jobs.jobs import JobRecord
    from millpond.providers import Provider
    from millpond.storage import Storage
    from tests.doubles.replicate import Replicate as Double

PRICE = 5
OWN = {"predictions": "job_id in (select id from millpond.jobs where account = $1)"}
OWN["callbacks"] = f"prediction_id in (select id from millpond.predictions where {OWN['predictions']})"
"""Which rows of tables that know no account are an account's."""
OFTEN = timedelta(seconds=0.05)
SOON = Backoff(first=timedelta(seconds=0.05), longest=timedelta(seconds=0.1))


def _ask(given: Any) -> Ask:
    return Ask(given.get("model", "acme/painter"), given)


def kind(name: str = "paint", **traits: Any) -> Kind:
    provided = Provided(provider=traits.pop("by", "replicate"), ask=_ask)
    traits = {"price": PRICE, "expires_in": timedelta(hours=1), "backoff": SOON, "lapses_max": 50} | traits
    return Kind(name=name, runs="provider", provider=provided, **traits)


PAGES = ("page-1", "page-2")
ALBUM = Kind(
    name="album",
    price=PRICE,
    needs=("replicate",),
    expires_in=timedelta(hours=1),
    backoff=SOON,
    lapses_max=50,
    takes_whole_input=True,
)


def _album(engine: Engine, _: Settings) -> dict[str, Any]:
    """Two pages at once, and then a cover; ``scripts`` says what becomes of each."""

    async def make(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        scripts = given.get("scripts", {})
        asks = {
            part: Ask("acme/painter", {"part": part, "script": given["script"] | scripts.get(part, {})})
            for part in (*PAGES, "cover")
        }
        pages = await engine.providers.ask_all(job, "replicate", {part: asks[part] for part in PAGES})
        await job.progress(0.6)
        if given.get("stumbles") and job.attempt == 1:
            raise TransientError("It stumbled between two parts.")
        cover = await engine.providers.ask(job, "replicate", asks["cover"], "cover")
        return {
            "files": [file.id for made in (*pages.values(), cover) for file in made.files],
            "said": cover.output,
            "saved": len(job.saved),
        }

    return {ALBUM.name: {None: make}}


PRODUCT = Product(lifecycle=STANDARD, kinds=(ALBUM,), title="Albums", handlers=_album)


def make_app(*kinds: Kind) -> Millpond:
    app = Millpond()
    for each in kinds or (kind(), ALBUM):
        app.add(each)

    @app.kind("plain")
    def plain(job: Any) -> None:
        """Needs nobody."""

    return app


def planned(given: dict[str, Any]) -> Script:
    """The script of a prediction is in its input."""
    return Script(**given.get("script", {}))


@dataclass(slots=True)
class Deployment:
    """What a test of a provider's jobs holds in its hand."""

    engine: Engine
    double: Double
    site: Site | None = None
    http: httpx2.AsyncClient | None = None
    account: str = ACCOUNT
    """Whose jobs it sees: tests that share a place have an account each."""

    @property
    def owner(self) -> dict[str, Any]:
        return {"tenant": TENANT, "account": self.account}

    async def submit(self, kind: str = "paint", **script: Any) -> UUID:
        """A job that is paid for, whose prediction does what the script says."""
        await self.engine.grant(TENANT, self.account, PRICE)
        return await self.give(kind, {"script": script})

    async def give(self, kind: str, given: dict[str, Any]) -> UUID:
        return (await self.engine.submit(kind, given, **self.owner)).job_id

    async def read(self, job_id: UUID) -> JobRecord:
        return await self.engine.read(TENANT, job_id)

    async def ended(self, job_id: UUID, seconds: float = PATIENCE) -> JobRecord:
        return await self.until(job_id, lambda job: job.phase == "ended", seconds)

    async def until(self, job_id: UUID, holds: Callable[[JobRecord], bool], seconds: float = PATIENCE) -> JobRecord:
        async with asyncio.timeout(seconds):
            while not holds(job := await self.read(job_id)):
                await asyncio.sleep(0.02)
        return job

    async def rows(self, table: str, **match: Any) -> list[dict[str, Any]]:
        """The rows of a table that are the account's, as they are."""
        where = " and ".join([OWN.get(table, "account = $1"), *(f"{name} = ${n}" for n, name in enumerate(match, 2))])
        query = f"select * from millpond.{table} where {where}"
        async with self.engine.db.connection() as connection:
            return [dict(row) for row in await connection.fetch(query, self.account, *match.values())]

    async def settled(self) -> None:
        """Until no prediction is anybody's business any more."""
        async with asyncio.timeout(PATIENCE):
            while any(row["due_at"] is not None for row in await self.rows("predictions")):
                await self.poll_now()
                await asyncio.sleep(0.05)

    async def ended_soon(self, job_id: UUID) -> JobRecord:
        """A job that has ended; whatever is due some time is due now, again and again, until then."""
        async with asyncio.timeout(PATIENCE):
            while (job := await self.read(job_id)).phase != "ended":
                await self.poll_now()
                await asyncio.sleep(0.05)
        return job

    async def poll_now(self) -> None:
        """What is due some time is due now."""
        own = f"due_at is not null and {OWN['predictions']}"
        due = f"update millpond.predictions set due_at = millpond.clock() where {own}"
        async with self.engine.db.connection() as connection:
            await connection.execute(due, self.account)

    async def balance(self) -> tuple[int, int]:
        found = await self.engine.balance(TENANT, self.account)
        return found.available, found.held


@contextlib.asynccontextmanager
async def running_deployment(
    dsn: str,
    files: Storage,
    double: Double,
    app: Millpond | None = None,
    *,
    with_site: bool = True,
    with_worker: bool = True,
    with_services: bool = True,
    with_provider: bool = True,
    provider: Provider | None = None,
    product: Product = PRODUCT,
    settings: Settings | None = None,
    slots: int = 10,
    **options: Any,
) -> AsyncIterator[Deployment]:
    """All of it, for as long as the block lasts; every invariant must hold when it is over."""
    providers = [provider or Replicate(double.url, TOKEN)] if with_provider else []
    engine = await Engine.open(dsn, app or make_app(), storage=files, providers=providers, **options)
    await prepare(engine, [product])
    made = Deployment(engine, double)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(engine.close)
        if with_site:
            made.site = await stack.enter_async_context(running_site(engine))
            engine.providers.callbacks_url = callbacks_url(made.site.url)
        stop = asyncio.Event()
        running: list[Any] = []
        if with_worker:
            source = engine.source(heartbeat=timedelta(seconds=0.5))
            worker = Worker(
                source, bound(engine, settings or Settings(), (product,)), slots=slots, grace=timedelta(seconds=1)
            )
            running.append(worker.run(stop))
        if with_services:
            running.append(run_services(services(engine), stop))
        tasks = [asyncio.ensure_future(part) for part in running]
        try:
            yield made
        finally:
            stop.set()
            await asyncio.gather(*tasks)
        assert await engine.verify() == []


def services(engine: Engine) -> list[Any]:
    return [
        reconciler(engine, every=OFTEN),
        expirer(engine, every=OFTEN),
        scheduler(engine, every=OFTEN),
        reaper(engine, every=OFTEN),
    ]
