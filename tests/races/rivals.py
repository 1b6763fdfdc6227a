"""Two connections at one job: a verb in an open transaction, and a rival that meets its locks."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from millpond.store.db import connect, fetch, translated
from tests.checks import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from asyncpg.transaction import Transaction

    from millpond.store.db import Connection, Database
    from millpond.store.queries import NamedQuery


@dataclass(slots=True)
class Held:
    """A database for the verbs of one side: what they write and lock stays so until it commits."""

    db: Database
    connection: Connection
    transaction: Transaction
    rivals: list[asyncio.Task[Any]] = field(default_factory=list)

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        with translated():
            return await fetch(self.connection, query, *arguments)

    async def meet(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Let a rival make its call, and prove that it waits for us."""
        rival = asyncio.create_task(call)
        self.rivals.append(rival)
        await until(lambda: self._blocks(rival))
        return rival

    async def commit(self) -> None:
        await self.transaction.commit()

    async def rollback(self) -> None:
        await self.transaction.rollback()

    async def _blocks(self, rival: asyncio.Task[Any]) -> bool:
        assert not rival.done(), f"it did not wait: {rival}"
        async with self.db.transaction() as tx:
            return await tx.fetchval(
                "select count(*) >= $2 from pg_stat_activity a where a.datname = current_database()"
                " and a.wait_event_type = 'Lock' and $1 = any(pg_blocking_pids(a.pid))",
                self.connection.get_server_pid(),
                len(self.rivals),
            )


@asynccontextmanager
async def held(db: Database) -> AsyncIterator[Any]:
    """An open transaction of its own, as a database; given up at the end of the block unless it committed."""
    connection = await connect(db.dsn)
    transaction = connection.transaction()
    await transaction.start()
    side = Held(db, connection, transaction)
    try:
        yield side
    finally:
        await connection.close()
        for rival in side.rivals:
            rival.cancel()


async def outcome_of(call: Coroutine[Any, Any, Any]) -> Any:
    """What a verb answers, or the class of its refusal."""
    try:
        answer = await call
    except Exception as error:  # noqa: BLE001 - a refusal is an answer
        return type(error)
    return type(answer) if isinstance(answer, Exception) else answer
