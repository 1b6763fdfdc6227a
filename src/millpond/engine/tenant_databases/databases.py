"""Tenant databases: where the tables of each tenant are.

Most tenants are in the central database, beside the queue. A tenant with a database of its own has its jobs and credits
there; its dispatches stay in central. remote.py describes how a verb spans the two.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millpond import logs
from millpond.engine.composition import batches
from millpond.engine.jobs import jobs
from millpond.engine.tenant_databases.remote import AllDatabasesExecutor, RemoteExecutor, skip_unavailable
from millpond.errors import BusyError, MillpondError, SettingsError, UnavailableError
from millpond.store.db import Database
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.engine import NotifierProtocol
    from millpond.engine.jobs.jobs import Submission, Submitted
    from millpond.store.db import Connection, Executor, Row
    from millpond.store.queries import NamedQuery

    Step = Callable[[str], Awaitable[object]]

SQL: Final = queries("millpond.engine.tenant_databases", "databases")

Result = TypeVar("Result")

PATIENCE: Final = 10.0
"""How many seconds to wait for a tenant database."""
_PROBE_EVERY: Final = 1.0


class RemoteDatabase(Database):
    """A database of tenants outside of central. While it cannot be reached, calls fail at once."""

    def __init__(self, dsn: str, pool: Any) -> None:
        super().__init__(dsn, pool)
        self.tenants: list[str] = []
        self.is_up = True
        self._steps: list[Step] = []
        self._probing: asyncio.Task[None] | None = None

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        with self._watched():
            return await super().run(query, *arguments)

    async def read(self, query: NamedQuery, *arguments: Any) -> Any:
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
        if self._probing is not None:
            self._probing.cancel()
        await super().close()

    def prepare(self, step: Step) -> asyncio.Task[None]:
        """Run a step, with the address as its argument, before the database is used: now, or once it can be reached."""
        self._steps.append(step)
        self.is_up = False
        return self._probe()

    def _probe(self) -> asyncio.Task[None]:
        if self._probing is None or self._probing.done():
            self._probing = asyncio.create_task(self._probe_until_up())
        return self._probing

    @contextlib.contextmanager
    def _watched(self) -> Any:
        """Start probing if a call cannot reach the database. Until it is back, other calls fail without trying."""
        if not self.is_up:
            raise UnavailableError("The database of this tenant cannot be reached.")
        try:
            yield
        except BusyError:
            raise
        except UnavailableError:
            self._probe()
            raise

    async def _probe_until_up(self) -> None:
        while True:
            try:
                async with super().connection() as connection:
                    while self._steps:
                        await self._steps[0](self.dsn)
                        del self._steps[0]
                    await connection.fetchval("select millpond.clock()")
            except Exception as error:  # noqa: BLE001 - any error is retried
                if self.is_up or self._steps:
                    # A ValueError quotes what it cannot parse of the address, which may be part of the password.
                    reason = type(error).__name__ if isinstance(error, ValueError) else str(error)
                    logs.emit("tenant_database.unreachable", tenants=self.tenants, error=reason)
                self.is_up = False
                await asyncio.sleep(_PROBE_EVERY)
            else:
                if self._steps:  # another step was added meanwhile
                    continue
                if not self.is_up:
                    logs.emit("tenant_database.reached", tenants=self.tenants)
                self.is_up = True
                return


class TenantDatabases:
    """The databases of all tenants: central, and the remote ones."""

    def __init__(self, central: Database, remote: Iterable[RemoteDatabase] = ()) -> None:
        self.central = central
        self.remote = tuple(remote)
        self.executors = {
            tenant: executor for executor in map(self._executor, self.remote) for tenant in executor.database.tenants
        }
        self.executor_for_all: Executor = AllDatabasesExecutor(self) if self.remote else central
        """For verbs about the jobs of many tenants."""

    @classmethod
    async def open(cls, central: Database, addresses: Mapping[str, str], *, size: int, step: Step) -> TenantDatabases:
        """Open the databases of these tenants, and run the step on each.

        One that cannot be reached does not delay the others: it is prepared once it can be reached.
        """
        databases: dict[str, RemoteDatabase] = {}
        for tenant, dsn in sorted(addresses.items()):
            if dsn not in databases:
                databases[dsn] = await RemoteDatabase.open(dsn, size=size, patience=PATIENCE)
            databases[dsn].tenants.append(tenant)
        await _settle(central, list(addresses))
        made = cls(central, databases.values())
        await made.prepare(step)
        return made

    async def beside(self, central: Database, *, size: int, cut: timedelta) -> TenantDatabases:
        """The same databases over connections of their own; the steps are run by the original, or were already."""
        remote = [
            await RemoteDatabase.open(database.dsn, size=size, patience=PATIENCE, cut=cut) for database in self.remote
        ]
        for own, database in zip(remote, self.remote, strict=True):
            own.tenants = database.tenants
        return TenantDatabases(central, remote)

    async def prepare(self, step: Step) -> None:
        """Run a step on each remote database, now or once it can be reached."""
        if self.remote:
            await asyncio.wait([database.prepare(step) for database in self.remote], timeout=PATIENCE)

    async def close(self) -> None:
        for executor in set(self.executors.values()):
            await executor.close()
        for database in self.remote:
            await database.close()

    @property
    def all(self) -> tuple[Database, ...]:
        return (self.central, *self.remote)

    def of(self, tenant: str) -> Database:
        """The database with the tables of a tenant."""
        executor = self.executors.get(tenant)
        return self.central if executor is None else executor.database

    def executor(self, tenant: str) -> Executor:
        """The executor of the verbs of a tenant's jobs."""
        return self.executors.get(tenant, self.central)

    async def submit(self, items: Sequence[Submission], notifier: NotifierProtocol) -> list[Submitted | Exception]:
        """Submit jobs of tenants that share a database, and notify their queues."""
        queues = {item.queue for item in items}
        remote = self.executors.get(items[0].tenant)
        if remote is not None:
            answers = await remote.dispatch(items, await jobs.submit(remote, items))
            notifier.notify(queues)
            return answers
        topics = notifier.payload_for_statement(queues)
        submitted = await jobs.submit(self.central, items, topics)
        notifier.notify(queues, is_sent=topics is not None)
        return submitted

    async def enqueue(
        self, items: Sequence[Submission], answers: Sequence[Submitted], notifier: NotifierProtocol
    ) -> None:
        """Queue jobs that were just submitted in the tenant's database, and notify their queues."""
        remote = self.executors.get(items[0].tenant)
        if remote is not None:
            await remote.dispatch(items, answers)
        notifier.notify({item.queue for item in items})

    async def grown_by(self, tenant: str, job_ids: Sequence[UUID]) -> set[str]:
        """The queues of those of these jobs that became ready with the end of others."""
        remote = self.executors.get(tenant)
        return await (batches.ready_queues(self.central, job_ids) if remote is None else remote.restore(job_ids))

    def tenants_of(self, db: Database) -> list[str] | None:
        """The tenants whose own database this is; None for central."""
        return db.tenants if isinstance(db, RemoteDatabase) else None

    def holding(self, tenant: str | None) -> tuple[Database, ...]:
        """The database with the tables of a tenant; without a tenant, all databases."""
        return self.all if tenant is None else (self.of(tenant),)

    def may_hold(self, db: Database, tenant: str | None) -> bool:
        """Whether a database is one of those."""
        return tenant is None or self.of(tenant) is db

    async def each(
        self, work: Callable[[Database], Awaitable[Result]], tenant: str | None = None, *, is_whole: bool = False
    ) -> list[Result]:
        """The results of the work on the database of a tenant or, without one, on all databases, central first.

        Of all, a remote one that cannot be reached is skipped, and that is logged, so that it does not delay the
        others. With ``is_whole``, that is an error, as it is for one tenant.
        """
        results: list[Result] = []
        for db in self.holding(tenant):
            is_needed = is_whole or tenant is not None or db is self.central
            with contextlib.nullcontext() if is_needed else skip_unavailable():
                results.append(await work(db))
        return results

    async def gather(self, query: NamedQuery, *arguments: Any, of: str | None = None) -> list[Row]:
        """The rows of a tenant's database or, without a tenant, of all databases that can be reached."""
        return [row for rows in await self.each(lambda db: db.run(query, *arguments), of) for row in rows]

    async def repair(self, owed_for: timedelta, limit: int) -> set[str]:
        """Make the dispatches that have been owed for this long, and mend what is out of step among the next jobs.

        Returns the queues that have grown. A failure of one database does not stop the others.
        """
        grown: set[str] = set()
        for executor in dict.fromkeys(self.executors.values()):
            if executor.database.is_up:
                try:
                    grown |= await executor.ensure(owed_for, limit)
                    grown |= await executor.sweep(limit)
                except UnavailableError:  # The database is probed until it is back.
                    pass
                except MillpondError as error:
                    logs.emit("service.failed", service="ensurer", error=f"{type(error).__name__}: {error}")
        return grown

    async def restore(self, tenant: str, job_id: UUID) -> set[str]:
        """Make the dispatch of a job if it is owed; return the queues that have grown."""
        remote = self.executors.get(tenant)
        return set() if remote is None else await remote.restore([job_id])

    async def find(self, query: NamedQuery, *arguments: Any) -> Row | None:
        """The row of the one database that has it. That may be one that cannot be reached, so none is skipped."""
        for db in self.all:
            row: Row | None = await db.run(query, *arguments)
            if row is not None:
                return row
        return None

    def _executor(self, database: RemoteDatabase) -> RemoteExecutor:
        return RemoteExecutor(self.central, database)


async def _settle(central: Database, tenants: list[str]) -> None:
    """Reject settings by which a tenant's jobs would be in two databases."""
    known = {row["tenant"] for row in await central.run(SQL["known"])}
    if forgotten := sorted(known.difference(tenants)):
        raise SettingsError(
            f"MILLPOND_TENANT_DATABASES does not name the database of {', '.join(forgotten)}, whose jobs "
            "are not in the central database."
        )
    moving = sorted(set(tenants) - known)
    if settled := [row["tenant"] for row in await central.run(SQL["settled_here"], moving)]:
        raise SettingsError(
            f"MILLPOND_TENANT_DATABASES: {', '.join(settled)} still have accounts in the central database.",
            hint="Move their rows first: docs/how-to/move-a-tenant.md.",
        )
    if moving:
        await central.run(SQL["settle_in"], moving)
