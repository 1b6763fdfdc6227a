"""Homes: where the tables of each tenant are.

Most tenants live beside the queue, in central. One that lives in another database has its jobs and its money there;
its dispatches stay in central. How a verb spans the two is said in split.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from millpond import logs
from millpond.engine.split import Everywhere, Split, passed_over
from millpond.errors import BusyError, SettingsError, UnavailableError
from millpond.store.db import Database
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
    from datetime import timedelta

    from millpond.store.db import Connection, Door, Row
    from millpond.store.queries import Query

    Step = Callable[[str], Awaitable[object]]

SQL: Final = queries("millpond.engine", "homes")

PATIENCE: Final = 10.0
"""For how many seconds another database is waited for."""
_PROBE_EVERY: Final = 1.0


class Home(Database):
    """The database of tenants that live elsewhere. While it cannot be reached it refuses at once."""

    def __init__(self, dsn: str, pool: Any) -> None:
        super().__init__(dsn, pool)
        self.tenants: list[str] = []
        self.is_up = True
        self._steps: list[Step] = []
        self._looking_after: asyncio.Task[None] | None = None

    async def run(self, query: Query, *arguments: Any) -> Any:
        with self._watched():
            return await super().run(query, *arguments)

    async def read(self, query: Query, *arguments: Any) -> Any:
        with self._watched():
            return await super().read(query, *arguments)

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncGenerator[Connection]:
        with self._watched():
            async with super().transaction(**options) as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        with self._watched():
            async with super().connection() as connection:
                yield connection

    async def close(self) -> None:
        if self._looking_after is not None:
            self._looking_after.cancel()
        await super().close()

    def prepare(self, step: Step) -> asyncio.Task[None]:
        """Have something done to it, its address is told, before it is used; now, or when it can be reached."""
        self._steps.append(step)
        self.is_up = False
        return self._look_after()

    def _look_after(self) -> asyncio.Task[None]:
        if self._looking_after is None or self._looking_after.done():
            self._looking_after = asyncio.create_task(self._await_return())
        return self._looking_after

    @contextlib.contextmanager
    def _watched(self) -> Any:
        """Whoever finds it gone has it looked after; the others need not find out by themselves."""
        if not self.is_up:
            raise UnavailableError("The database of this tenant cannot be reached.")
        try:
            yield
        except BusyError:
            raise
        except UnavailableError:
            self._look_after()
            raise

    async def _await_return(self) -> None:
        while True:
            try:
                async with super().connection() as connection:
                    while self._steps:
                        await self._steps[0](self.dsn)
                        del self._steps[0]
                    await connection.fetchval("select millpond.clock()")
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                if self.is_up or self._steps:
                    # What cannot be read of an address is quoted, and may be a piece of its password.
                    said = type(error).__name__ if isinstance(error, ValueError) else str(error)
                    logs.emit("home.unreachable", tenants=self.tenants, error=said)
                self.is_up = False
                await asyncio.sleep(_PROBE_EVERY)
            else:
                if self._steps:  # one more meanwhile
                    continue
                if not self.is_up:
                    logs.emit("home.reached", tenants=self.tenants)
                self.is_up = True
                return


class Homes:
    """The databases of all tenants: central, and those of the tenants that live elsewhere."""

    def __init__(self, central: Database, away: Iterable[Home] = ()) -> None:
        self.central = central
        self.away = tuple(away)
        self.splits = {tenant: split for split in map(self._split, self.away) for tenant in split.home.tenants}
        self.everywhere: Door = Everywhere(self) if self.away else central
        """For the verbs that are about the jobs of many tenants."""

    @classmethod
    async def open(cls, central: Database, databases: Mapping[str, str], *, size: int, step: Step) -> Homes:
        """Know the databases of these tenants, and have the step done to each.

        One that cannot be reached does not keep the others waiting: it is prepared when it can be.
        """
        homes: dict[str, Home] = {}
        for tenant, dsn in sorted(databases.items()):
            if dsn not in homes:
                homes[dsn] = await Home.open(dsn, size=size, patience=PATIENCE)
            homes[dsn].tenants.append(tenant)
        await _settle(central, list(databases))
        made = cls(central, homes.values())
        await made.prepare(step)
        return made

    async def beside(self, central: Database, *, size: int, cut: timedelta) -> Homes:
        """The same databases over connections of its own; they are prepared already, or will be."""
        away = [await Home.open(home.dsn, size=size, patience=PATIENCE, cut=cut) for home in self.away]
        for own, home in zip(away, self.away, strict=True):
            own.tenants = home.tenants
        return Homes(central, away)

    async def prepare(self, step: Step) -> None:
        """Have something done to each database beside central, now or when it can be reached."""
        if self.away:
            await asyncio.wait([home.prepare(step) for home in self.away], timeout=PATIENCE)

    async def close(self) -> None:
        for split in set(self.splits.values()):
            await split.close()
        for home in self.away:
            await home.close()

    @property
    def all(self) -> tuple[Database, ...]:
        return (self.central, *self.away)

    def of(self, tenant: str) -> Database:
        """Where the tables of a tenant are."""
        split = self.splits.get(tenant)
        return self.central if split is None else split.home

    def door(self, tenant: str) -> Door:
        """Where the verbs of a tenant's jobs are run."""
        return self.splits.get(tenant, self.central)

    async def gather(self, query: Query, *arguments: Any) -> list[Row]:
        """The rows of all databases that can be reached."""
        found: list[Row] = list(await self.central.run(query, *arguments))
        for home in self.away:
            with passed_over():
                found += await home.run(query, *arguments)
        return found

    async def find(self, query: Query, *arguments: Any) -> Row | None:
        """The row of the one database that has it; that may be one that cannot be reached, so none is passed over."""
        for db in self.all:
            row: Row | None = await db.run(query, *arguments)
            if row is not None:
                return row
        return None

    def _split(self, home: Home) -> Split:
        return Split(self.central, home)


async def _settle(central: Database, tenants: list[str]) -> None:
    """Refuse settings by which somebody's jobs would be in two places."""
    known = {row["tenant"] for row in await central.run(SQL["known"])}
    if forgotten := sorted(known.difference(tenants)):
        raise SettingsError(
            f"MILLPOND_TENANT_DATABASES: {', '.join(forgotten)} live in another database, and it does not say in which."
        )
    moving = sorted(set(tenants) - known)
    if settled := [row["tenant"] for row in await central.run(SQL["settled_here"], moving)]:
        raise SettingsError(
            f"MILLPOND_TENANT_DATABASES: {', '.join(settled)} still have accounts in the central database.",
            hint="Move their rows first: docs/how-to/move-a-tenant-out.md.",
        )
    if moving:
        await central.run(SQL["settle_in"], moving)
