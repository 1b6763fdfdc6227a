"""Limits: reads and changes of limits and their keys. Claims enforce them in the database (see limits.sql)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from millpond import values
from millpond.engine.access.access import write_audit
from millpond.errors import InvalidError, NotFoundError
from millpond.limits import PER_MAX, check_numbers
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.store.db import Connection
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.queue", "limits")

COUNT_MAX: Final = 10_000
"""Jobs are counted up to this number."""
PAGE_MAX: Final = 200
_KEYS: Final = 200
"""How many keys are looked at in one transaction."""
_VALUE_MAX: Final = 1_000

LimitReason = Literal["at_once", "starts", "closed"]
"""Why no job may start under a key: enough are running, enough have started, or the key is closed."""


@dataclass(frozen=True, slots=True)
class LimitRecord:
    """A limit as it applies. Counts end at ``COUNT_MAX``."""

    name: str
    at_once: int | None
    starts: int | None
    per: timedelta | None
    key: Sequence[str]
    is_changed: bool
    """Whether an operator has changed the numbers that the app declares."""
    changed_at: datetime | None
    changed_by: str | None
    kinds: Sequence[str]
    running: int
    waiting: int


@dataclass(frozen=True, slots=True)
class LimitKey:
    """A value of the key of a limit."""

    value: str
    running: int
    waiting: int
    started: int | None
    """How many jobs have started in the last period."""
    closed_until: datetime | None
    more_at: datetime | None
    """When more jobs may start, if that depends on time alone."""


@dataclass(frozen=True, slots=True)
class LimitWait:
    """What a ready job waits for."""

    job_id: UUID
    limit: str
    value: str
    reason: LimitReason
    since: datetime
    more_at: datetime | None


class Limits:
    """The limits of all apps that share the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def list(self) -> list[LimitRecord]:
        return [LimitRecord(**row) for row in await self._engine.db.run(SQL["list"], None, COUNT_MAX)]

    async def read(self, name: str) -> LimitRecord:
        found = await self._engine.db.run(SQL["list"], name, COUNT_MAX)
        if not found:
            raise _absent(name)
        return LimitRecord(**found[0])

    async def keys(self, name: str, *, after: str | None = None, limit: int = 50) -> Sequence[LimitKey]:
        """The keys that jobs run under or wait for, or that are closed, in order, after a value."""
        values.check_limit(limit, PAGE_MAX)
        await self.read(name)
        rows = await self._engine.db.run(SQL["keys"], name, "" if after is None else after, after is not None, limit)
        return [LimitKey(**row) for row in rows]

    def may_apply(self, kind: str) -> bool:
        """Whether jobs of a kind may wait for a limit."""
        known = self._engine.app.kinds.get(kind)
        return known is None or bool(known.limits)

    async def waits(self, job_ids: Sequence[UUID]) -> dict[UUID, LimitWait]:
        """What those of these jobs that a limit holds back wait for."""
        return {row["job_id"]: LimitWait(**row) for row in await self._engine.db.run(SQL["waits"], list(job_ids))}

    async def look_again(self) -> int:
        """Make jobs ready that a limit no longer holds back, and notify the workers. Returns how many queues grew."""
        done = 0
        while grown := [row["queue"] for row in await self._engine.db.run(SQL["look_again"], _KEYS)]:
            self._engine.notify_requeued(grown)
            done += len(grown)
        return done

    async def prune(self, limit: int) -> int:
        """Forget keys that were not used for longer than any period."""
        return len(await self._engine.db.run(SQL["prune"], PER_MAX, limit))

    # Operators

    async def change(
        self,
        name: str,
        *,
        at_once: int | None,
        starts: int | None,
        per: timedelta | str | float | None,
        actor: str,
    ) -> LimitRecord:
        """Apply other numbers than the app declares, until it declares others."""
        if at_once is None and starts is None:
            raise InvalidError("A limit needs at_once, or starts and per.", field="at_once")
        period = check_numbers(at_once, starts, per)

        return await self._renumber("limit.changed", actor, name, SQL["change"], at_once, starts, period, actor)

    async def reset(self, name: str, *, actor: str) -> LimitRecord:
        """Apply the numbers that the app declares again."""
        return await self._renumber("limit.reset", actor, name, SQL["reset"])

    async def close(self, name: str, value: str, duration: timedelta, *, actor: str) -> None:
        """Let no job start under a key for a while, in all processes; a longer closure stays as it is."""
        await self._set(name, value, duration, actor)

    async def open(self, name: str, value: str, *, actor: str) -> None:
        """Let jobs start under a key that was closed."""
        await self._set(name, value, None, actor)
        self._engine.look_again_soon()

    async def close_for(self, job_id: UUID, name: str, duration: timedelta) -> None:
        """Likewise for the key of a running job."""
        await self._engine.db.run(SQL["close_for"], job_id, name, duration)

    async def _set(self, name: str, value: str, duration: timedelta | None, actor: str) -> None:
        await self.read(name)
        if len(value) > _VALUE_MAX:
            raise InvalidError(f"The value has more than {_VALUE_MAX:,} characters.", field="value")
        data = {"value": value, "seconds": None if duration is None else duration.total_seconds()}

        async def work(tx: Connection) -> None:
            await fetch(tx, SQL["close"], f"{name}:{value}", name, duration)
            action = "limit.opened" if duration is None else "limit.closed"
            await write_audit(tx, actor, action, subject=name, data=data)

        await self._engine.db.transact(work)

    async def _renumber(self, action: str, actor: str, name: str, query: NamedQuery, *numbers: Any) -> LimitRecord:
        async def work(tx: Connection) -> LimitRecord:
            changed = await fetch(tx, query, name, *numbers)
            if changed is None:
                raise _absent(name)
            await fetch(tx, SQL["renumber"], name, changed["before"])
            limit = LimitRecord(**(await fetch(tx, SQL["list"], name, COUNT_MAX))[0])
            per = None if limit.per is None else limit.per.total_seconds()
            data = {"at_once": limit.at_once, "starts": limit.starts, "per_seconds": per}
            await write_audit(tx, actor, action, subject=name, data=data)
            return limit

        limit = await self._engine.db.transact(work)
        self._engine.look_again_soon()
        return limit


def _absent(name: str) -> NotFoundError:
    return NotFoundError(f"There is no limit {name[:80]!r}.", field="name")
