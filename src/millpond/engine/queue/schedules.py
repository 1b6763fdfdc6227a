"""Schedules: what submits jobs at due times. Operators create and change them, or the code of an app declares them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, logs, schedules, values
from millpond.engine.access.access import write_audit
from millpond.engine.jobs import jobs
from millpond.engine.queue import registry
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    LifecycleError,
    NotFoundError,
)
from millpond.schedules import Schedule, Timing
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.schedules import ScheduleSource, ScheduleState
    from millpond.store.db import Connection, Row

SQL: Final = queries("millpond.engine.queue", "schedules")

PAGE_MAX: Final = 200
SCHEDULES_MAX: Final = 10_000
"""The limit of schedules of a tenant."""
LATE: Final = timedelta(minutes=1)
"""A due time that is this long ago was missed: it follows the catch-up policy of its schedule."""
_FIRST: Final = UUID(int=0)
_CHOICES: Final = ("cron", "every", "at")
_OF_TIMING: Final = frozenset({*_CHOICES, "zone", "jitter"})


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule as it is stored."""

    schedule_id: UUID
    declared: Schedule
    source: ScheduleSource
    due_at: datetime | None
    """The next due time; None if it is paused or orphaned, or never due again."""
    next_at: datetime | None
    """When it fires: the next due time with its jitter."""
    paused_at: datetime | None
    orphaned_at: datetime | None
    created_at: datetime
    updated_at: datetime

    @property
    def id(self) -> str:
        return ids.text("sched", self.schedule_id)

    @property
    def state(self) -> ScheduleState:
        if self.orphaned_at is not None:
            return "orphaned"
        if self.paused_at is not None:
            return "paused"
        return "ended" if self.due_at is None else "active"


class Schedules:
    """The schedules of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Reading

    async def present(self) -> datetime:
        return (await self._engine.db.run(SQL["present"]))["present"]

    async def read(
        self, schedule: UUID | str, *, tenant: str | None = None, account: str | None = None
    ) -> ScheduleRecord:
        """One schedule; with a tenant or an account, only if it is theirs."""
        row = await self._engine.db.run(SQL["read"], ids.parse("sched", schedule), tenant, account)
        if row is None:
            raise _absent(schedule)
        return record(row)

    async def list(
        self,
        *,
        tenant: str | None = None,
        account: str | None = None,
        kind: str | None = None,
        name: str | None = None,
        source: ScheduleSource | None = None,
        state: ScheduleState | None = None,
        after: UUID | None = None,
        limit: int = PAGE_MAX,
    ) -> list[ScheduleRecord]:
        """One page, the oldest first; for the next page, pass the last id of this one as ``after``."""
        values.check_limit(limit, PAGE_MAX)
        filters = (tenant, account, kind, name, source, state)
        return list(map(record, await self._engine.db.run(SQL["list"], after or _FIRST, *filters, limit)))

    async def overdue(self) -> int:
        """How many schedules should have fired a while ago: nobody fires them."""
        return (await self._engine.db.run(SQL["overdue"], LATE))["schedules"]

    async def preview(self, timing: Timing, count: int) -> list[datetime]:
        """The next due times of a schedule with this timing, if it was created now."""
        present = await self.present()
        timing = replace(timing, since=present)
        _first(timing, present)
        return timing.upcoming(present, count)

    # Operators

    async def make(self, declared: Schedule, *, actor: str, key: str | None = None) -> tuple[ScheduleRecord, bool]:
        """Create a schedule. Return it, and whether the key was used before: then it is the one created first.

        The kind, the input and the timing are checked, and the price is computed, but nothing is charged.
        """
        if key is not None:
            values.check_key(key)
        self.check(declared)
        digest = _digest(declared)

        async def work(tx: Connection) -> tuple[ScheduleRecord, bool]:
            if key is not None and (known := await fetch(tx, SQL["known"], actor, key)) is not None:
                return _replay(known, digest), True
            if (await fetch(tx, SQL["count"], declared.tenant))["schedules"] >= SCHEDULES_MAX:
                raise ConflictError(f"The tenant has {SCHEDULES_MAX:,} schedules, which is the limit.")
            present = (await fetch(tx, SQL["present"]))["present"]
            begun = replace(declared, timing=replace(declared.timing, since=present))
            row = await _insert(
                tx, begun, _first(begun.timing, present), present, ("api", None, None, actor, key, digest)
            )
            if row is not None:
                made = record(row)
                await _audit(tx, actor, "schedule.created", made, {"name": declared.name, "kind": declared.kind})
                return made, False
            known = None if key is None else await fetch(tx, SQL["known"], actor, key)
            if known is None:
                raise ConflictError(f"The tenant has a schedule with the name {declared.name!r}.", field="name")
            return _replay(known, digest), True

        return await self._engine.db.transact(work)

    async def update(
        self,
        schedule: UUID | str,
        changes: Mapping[str, Any],
        *,
        tenant: str | None = None,
        account: str | None = None,
        actor: str,
    ) -> ScheduleRecord:
        """Change fields of a schedule. If its timing changes, its next due time is counted from now."""
        async with self._engine.db.transaction() as tx:
            before, present = await self._locked(tx, schedule, tenant, account)
            if before.source == "code":
                raise ConflictError(
                    "The schedule is declared in the code of an app, which would undo the change.",
                    field="id",
                    hint="Change it in the code, or create another one.",
                )
            declared = _changed(before.declared, changes, present)
            self.check(declared)
            due_at, next_at = before.due_at, before.next_at
            if declared.timing != before.declared.timing:
                first = _first(declared.timing, present)
                due_at, next_at = (None, None) if before.paused_at else next_fire(declared, first, before.schedule_id)
            row = await fetch(tx, SQL["update"], before.schedule_id, *_columns(declared), due_at, next_at)
            await _audit(tx, actor, "schedule.updated", before, {"changed": sorted(changes)})
            return record(row)

    async def pause(
        self, schedule: UUID | str, *, tenant: str | None = None, account: str | None = None, actor: str
    ) -> ScheduleRecord:
        """Pause a schedule. Its due times are not made up for when it is resumed."""
        async with self._engine.db.transaction() as tx:
            before, _ = await self._locked(tx, schedule, tenant, account)
            row = await fetch(tx, SQL["pause"], before.schedule_id)
            if before.paused_at is None:
                await _audit(tx, actor, "schedule.paused", before)
            return record(row)

    async def resume(
        self, schedule: UUID | str, *, tenant: str | None = None, account: str | None = None, actor: str
    ) -> ScheduleRecord:
        """Resume a paused schedule with its next due time from now on."""
        async with self._engine.db.transaction() as tx:
            before, present = await self._locked(tx, schedule, tenant, account)
            if before.orphaned_at is not None:
                raise ConflictError(
                    "The schedule is orphaned: the code of its app no longer declares it.",
                    field="id",
                    hint="Declare it again, or delete it.",
                )
            if before.paused_at is None:
                return before
            first = next(before.declared.timing.after(present), None)
            row = await fetch(
                tx, SQL["resume"], before.schedule_id, *next_fire(before.declared, first, before.schedule_id)
            )
            await _audit(tx, actor, "schedule.resumed", before)
            return record(row)

    async def delete(
        self, schedule: UUID | str, *, tenant: str | None = None, account: str | None = None, actor: str
    ) -> None:
        """Delete a schedule. Its jobs remain."""
        async with self._engine.db.transaction() as tx:
            before, _ = await self._locked(tx, schedule, tenant, account)
            if before.source == "code" and before.orphaned_at is None:
                raise ConflictError(
                    "The schedule is declared in the code of an app, which would create it again.",
                    field="id",
                    hint="Remove it from the code, or pause it.",
                )
            await fetch(tx, SQL["delete"], before.schedule_id)
            await fetch(tx, SQL["withdraw"], before.schedule_id)
            await _audit(tx, actor, "schedule.deleted", before, {"name": before.declared.name})

    async def _locked(
        self, tx: Connection, schedule: UUID | str, tenant: str | None, account: str | None
    ) -> tuple[ScheduleRecord, datetime]:
        row = await fetch(tx, SQL["lock"], ids.parse("sched", schedule), tenant, account)
        if row is None:
            raise _absent(schedule)
        return record(row), row["present"]

    def check(self, declared: Schedule) -> None:
        """Refuse a schedule whose jobs would be refused whatever the balance is: its kind or input is invalid."""
        jobs.prepare(
            self._engine.app.kinds,
            declared.kind,
            declared.input_at(schedules.SOME_TIME),
            tenant=declared.tenant,
            account=declared.account,
            priority=declared.priority,
            expires_in=declared.expires_in,
            tags=declared.job_tags,
        )

    # The code of an app

    async def declare(self) -> None:
        """Store the schedules that the app declares; those that it no longer declares are orphaned.

        It is safe to repeat, also from several processes at once. A due time that has passed meanwhile is kept: no
        process was there to fire it, and its catch-up policy decides.
        """
        app = self._engine.app
        declared = {(each.tenant, each.name): each for each in app.schedules}
        if not app.kinds:
            return
        for each in declared.values():
            self._check_declared(each)
        kinds = sorted(app.kinds)
        names = [tenant for tenant, _ in declared], [name for _, name in declared]

        async def write(tx: Connection) -> None:
            present = (await fetch(tx, SQL["present"]))["present"]
            known = {(row["tenant"], row["name"]): row for row in await fetch(tx, SQL["declared"], *names)}
            for name, each in declared.items():
                await self._store(tx, each, known.get(name), present, (app.name, kinds))
            for row in await fetch(tx, SQL["orphan"], app.name, kinds, *names):
                logs.emit("schedule.orphaned", tenant=row["tenant"], schedule=row["name"])

        await registry.in_turn(self._engine.db, write)

    def _check_declared(self, declared: Schedule) -> None:
        try:
            self.check(declared)
        except InvalidError as error:
            raise LifecycleError(f"Schedule {declared.name!r}: {error}") from error

    async def _store(
        self,
        tx: Connection,
        declared: Schedule,
        row: Row | None,
        present: datetime,
        owner: tuple[str | None, Sequence[str]],
    ) -> None:
        if row is None:
            declared = replace(declared, timing=replace(declared.timing, since=present))
            first = next(declared.timing.after(present), None)
            await _insert(tx, declared, first, present, ("code", *owner, None, None, None))
            logs.emit("schedule.declared", tenant=declared.tenant, schedule=declared.name)
            return
        before = record(row)
        since = _since(declared.timing, before.declared.timing, present)
        declared = replace(declared, timing=replace(declared.timing, since=since))
        if before.source == "code" and before.orphaned_at is None and before.declared == declared:
            if (row["app"], row["app_kinds"]) != (owner[0], list(owner[1])):
                await fetch(tx, SQL["declare"], before.schedule_id, *owner)
            return
        due_at, next_at = before.due_at, before.next_at
        if declared.timing != before.declared.timing or before.orphaned_at is not None:
            first = None if before.paused_at else next(declared.timing.after(present), None)
            due_at, next_at = next_fire(declared, first, before.schedule_id)
        await fetch(tx, SQL["declare"], before.schedule_id, *owner)
        await fetch(tx, SQL["update"], before.schedule_id, *_columns(declared), due_at, next_at)
        logs.emit("schedule.declared", tenant=declared.tenant, schedule=declared.name)


def record(row: Row | Mapping[str, Any]) -> ScheduleRecord:
    return ScheduleRecord(
        row["schedule_id"],
        Schedule(
            row["name"],
            row["kind"],
            Timing(row["cron"], row["every"], row["at"], row["zone"], row["jitter"], row["since"]),
            tenant=row["tenant"],
            account=row["account"],
            input=jobs.decode(row["input"]),
            due_field=row["due_field"],
            overlap=row["overlap"],
            catch_up=row["catch_up"],
            catch_up_max=row["catch_up_max"],
            priority=row["priority"],
            expires_in=row["expires_in"],
            tags=jobs.decode(row["tags"]),
        ),
        row["source"],
        row["due_at"],
        row["next_at"],
        row["paused_at"],
        row["orphaned_at"],
        row["created_at"],
        row["updated_at"],
    )


async def _insert(
    tx: Connection, declared: Schedule, first: datetime | None, present: datetime, origin: tuple[object, ...]
) -> Row | None:
    """Insert a schedule that is due first at this time. None: its name or its key is taken."""
    schedule_id = new_id()
    return await fetch(
        tx,
        SQL["make"],
        schedule_id,
        declared.tenant,
        declared.name,
        *_columns(declared),
        *origin,
        *next_fire(declared, first, schedule_id),
        present,
    )


def _columns(declared: Schedule) -> tuple[Any, ...]:
    """The columns that may change, in the order of the statements."""
    timing = declared.timing
    return (
        declared.account,
        declared.kind,
        msgspec.json.encode(declared.input).decode(),
        declared.due_field,
        timing.cron,
        timing.every,
        timing.at,
        timing.zone,
        timing.jitter,
        timing.since,
        declared.overlap,
        declared.catch_up,
        declared.catch_up_max,
        declared.priority,
        declared.expires_in,
        msgspec.json.encode(declared.tags).decode(),
    )


def _first(timing: Timing, present: datetime) -> datetime:
    """The first due time; a schedule that is never due is refused."""
    first = next(timing.after(present), None)
    if first is None:
        field = next(name for name in _CHOICES if getattr(timing, name) is not None)
        raise InvalidError("The schedule never fires: it has no due time in the future.", field=field)
    return first


def next_fire(
    declared: Schedule, due_at: datetime | None, schedule_id: UUID
) -> tuple[datetime | None, datetime | None]:
    """A due time, and when it fires."""
    return due_at, None if due_at is None else declared.timing.delayed(due_at, schedule_id)


def _changed(declared: Schedule, changes: Mapping[str, Any], present: datetime) -> Schedule:
    """A schedule with changes. Of a cron expression, an interval and a single time, a new one replaces the old one."""
    of_timing = {name: value for name, value in changes.items() if name in _OF_TIMING}
    timing = declared.timing
    if not of_timing.keys().isdisjoint(_CHOICES):
        zone = timing.zone if "cron" in of_timing else schedules.ZONE
        kept: dict[str, Any] = {"zone": zone, "jitter": timing.jitter, "since": timing.since}
        timing = Timing(**kept | of_timing)
    elif of_timing:
        timing = replace(timing, **of_timing)
    timing = replace(timing, since=_since(timing, declared.timing, present))
    rest = {name: value for name, value in changes.items() if name not in _OF_TIMING}
    return replace(declared, timing=timing, **rest)


def _since(timing: Timing, before: Timing, present: datetime) -> datetime:
    """From when intervals are counted: from now on if they have changed."""
    return before.since if timing.every == before.every else present


def _digest(declared: Schedule) -> bytes:
    """What a repeated request is compared with."""
    return hashlib.sha256(msgspec.json.encode(declared, order="deterministic")).digest()


def _replay(known: Row, digest: bytes) -> ScheduleRecord:
    if known["digest"] != digest:
        raise IdempotencyConflictError(field="Idempotency-Key", schedule_id=ids.text("sched", known["schedule_id"]))
    return record(known)


async def _audit(
    tx: Connection, actor: str, action: str, schedule: ScheduleRecord, data: Mapping[str, Any] | None = None
) -> None:
    await write_audit(tx, actor, action, tenant=schedule.declared.tenant, subject=schedule.id, data=data)


def _absent(schedule: UUID | str) -> NotFoundError:
    given = schedule if isinstance(schedule, str) else ids.text("sched", schedule)
    return NotFoundError(f"There is no schedule {given[:60]!r}.", field="id")
