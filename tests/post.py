"""What tests of webhooks share: an engine that may call this machine, and receivers of every sort."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from millpond import webhooks
from millpond.engine.engine import Engine
from millpond.engine.webhooks import deliveries
from millpond.engine.webhooks.vault import Vault
from millpond.outbound import Outbound
from millpond.services.courier import Courier, courier
from millpond.settings import Settings
from millpond.store.db import Database
from millpond.webhooks import Hook
from tests.clocks import Clock
from tests.doubles.receivers import Received, Receivers, receivers
from tests.factories import TENANT, Factory
from tests.faults.dumps import wipe
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.webhooks.deliveries import Claimed, DeliveryRecord
    from millpond.engine.webhooks.endpoints import EndpointRecord

VAULT = Vault([b"0123456789abcdef0123456789abcdef"])
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
LOOPBACK = "loopback"


@dataclass(slots=True)
class Post:
    """An engine, its verbs, and whom it tells."""

    make: Factory
    there: Receivers

    @property
    def engine(self) -> Engine:
        return self.make.engine

    async def clear(self) -> None:
        await wipe(self.engine.db)
        if self.make.clock.offset:
            await self.make.clock.advance(-self.make.clock.offset)
        self.there.received.clear()
        self.there.tries.clear()
        self.there.failed.clear()

    def courier(self, **settings: Any) -> Courier:
        return courier(self.engine, Settings(**settings))

    async def deliver(self, **settings: Any) -> int:
        """What a courier sends that knows nobody yet."""
        return await self.courier(**settings).run_once()

    async def pass_time(self, by: timedelta) -> int:
        await self.make.clock.advance(by)
        return await self.deliver()

    def hook(self, mode: str = "healthy", name: str = "one", **query: Any) -> Hook:
        events = query.pop("events", None)
        return Hook(url=self.there.url(mode, name, **query), secret=SECRET, events=events)

    async def endpoint(self, mode: str = "healthy", name: str = "one", **options: Any) -> EndpointRecord:
        query = options.pop("query", {})
        made, _ = await self.engine.endpoints.make(
            TENANT, url=self.there.url(mode, name, **query), secret=options.pop("secret", SECRET), **options
        )
        return made

    def names(self, name: str = "one") -> list[str]:
        """What a receiver was told of, each with a good signature, in the order in which it came."""
        return [self.read(each)["type"] for each in self.there.of(name)]

    @staticmethod
    def read(each: Received, secret: str = SECRET) -> Any:
        return webhooks.verify(each.body, each.headers, secret)

    async def newest(self, **filters: Any) -> DeliveryRecord:
        found = await self.engine.deliveries.list(TENANT, limit=1, **filters)
        return await self.engine.deliveries.read(TENANT, found[0].delivery_id)

    async def states(self) -> list[str]:
        """Of all deliveries, the oldest event first."""
        found = await self.engine.deliveries.list(TENANT, limit=200)
        return [each.state for each in sorted(found, key=lambda each: (each.at, each.seq or 0))]


async def taken(db: Database, limit: int, lease: timedelta) -> list[Claimed]:
    """What is due, in the hand of one who sends nothing."""
    return await deliveries.claim(db, dict.fromkeys(await deliveries.due(db, "", limit), limit), limit, lease)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[Post]:
    db = await Database.open(dsn, size=6)
    engine = Engine(db, app, vault=VAULT, outbound=Outbound(LOOPBACK))
    try:
        async with receivers() as there:
            yield Post(Factory(engine, Clock(db)), there)
    finally:
        await engine.close()
