"""Errands: something that an operator has done to many jobs at once, as work in the background.

An order names an action and a filter. A steward takes it up, walks over the jobs that fit, some at a time, and does to
each what the single verb would do. Only jobs that were there when it was ordered are met: what it makes itself is not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, values, wire
from millpond.engine import lines
from millpond.engine.access import write_audit
from millpond.engine.lines import FIRST, LAST, Count, Sought
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    UnknownKindError,
)
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.engine.lines import Line
    from millpond.storage import Signed
    from millpond.store.db import Database, Row
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "errands")

ACTS: Final = ("retry", "cancel", "refund", "priority")
"""What is done to each job; what an errand does besides is read."""
READS: Final = ("export", "verify")
PAGE_MAX: Final = 200
FILE_KEPT: Final = timedelta(days=7)
"""How long the file of an export is kept."""
URL_LIFETIME: Final = timedelta(hours=1)
SKEW: Final = timedelta(minutes=1)
"""How far the clocks of two machines may be apart."""
_FOLDER: Final = "errands/"
_PRUNE_MAX: Final = 100
_ARGUMENTS: Final = {"priority": "priority", "format": "export"}
"""What an order may say for one action alone."""
CONTENT_TYPES: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class ErrandRecord:
    """An errand as it stands."""

    errand_id: UUID
    tenant: str | None
    actor: str
    action: wire.ErrandAction
    filter: wire.JobFilter
    arguments: dict[str, Any]
    state: wire.ErrandState
    place: UUID | None
    in_hand: list[UUID] | None
    ends: list[int] | None
    looked: int
    matched: int
    done: int
    refused: int
    refusals: list[wire.Refusal]
    estimate: int | None
    has_file: bool
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    is_aborting: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def id(self) -> str:
        return ids.text("errand", self.errand_id)

    @property
    def sought(self) -> Sought:
        """Its filter, read: the times in it were made fast when it was ordered."""
        return lines.sought(self.filter, self.tenant, self.created_at)


class LostError(Exception):
    """Somebody else is at the errand."""


@dataclass(slots=True)
class Hold:
    """An errand that this process is at, and the token that says so."""

    errand: ErrandRecord
    token: UUID


class Errands:
    """The errands of all operators."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Operators

    async def order(
        self,
        order: wire.MakeErrand,
        *,
        tenant: str | None,
        bound: str | None,
        actor: str,
        key: str | None = None,
    ) -> tuple[ErrandRecord, bool]:
        """Have something done; tells whether the key was used before, and the first answer is given again.

        ``tenant`` is whose jobs are meant, ``bound`` whose the operator may see: that alone narrows nothing.
        """
        if key is not None:
            values.check_key(key)
        arguments = self._check(order, bound)
        digest = hashlib.sha256(msgspec.json.encode((order, tenant), order="deterministic")).digest()
        db = self._engine.db
        if key is not None and (known := await db.run(SQL["known"], actor, key)) is not None:
            return await self._again(known, digest, tenant), True
        wanted = await self._fast(order.filter, tenant)
        estimate = await self._estimate(order.action, wanted)
        place = await self._newest(tenant)
        async with db.transaction() as tx:
            traits = (tenant, actor, key, digest, order.action, _text(wanted), _text(arguments), estimate)
            row = await fetch(tx, SQL["order"], *traits, place)
            if row is not None:
                made = _record(row)
                told = {"action": order.action, "filter": _brief(wanted), **arguments}
                await write_audit(tx, actor, "errand.ordered", tenant=tenant, subject=made.id, data=told)
                return made, False
            known = await fetch(tx, SQL["known"], actor, key)
        return await self._again(known, digest, tenant), True

    async def _again(self, known: Row, digest: bytes, tenant: str | None) -> ErrandRecord:
        if known["digest"] != digest:
            raise IdempotencyConflictError(field="Idempotency-Key", errand_id=ids.text("errand", known["id"]))
        return await self.read(known["id"], tenant=tenant)

    def _check(self, order: wire.MakeErrand, bound: str | None) -> dict[str, Any]:
        """What an order says beside its filter, checked."""
        for name, action in _ARGUMENTS.items():
            if getattr(order, name) is not None and order.action != action:
                raise InvalidError(f"It is for the action {action!r} alone.", field=name)
        narrows = {
            name
            for name, value in msgspec.structs.asdict(order.filter).items()
            if value is not None and not (name == "tenant" and value == bound)
        }
        if order.action in ACTS and not narrows and not order.all:
            raise InvalidError(
                f"An empty filter means every job: nothing says which to {order.action}.",
                field="filter",
                hint="Name what they have in common, or confirm it with all: true.",
            )
        match order.action:
            case "priority":
                if order.priority is None:
                    raise InvalidError("It is required.", field="priority")
                return _given(priority=values.check_priority(order.priority), reason=order.reason)
            case "refund" if order.reason is None:
                raise InvalidError("It is required: it stands in the ledger.", field="reason")
            case "export":
                self._engine.artifacts.store  # noqa: B018 - it says so where there is none
                return _given(format=order.format or "ndjson", reason=order.reason)
            case "verify" if narrows - {"since"}:
                field = f"filter.{min(narrows - {'since'})}"
                raise InvalidError("What is verified can be narrowed by since alone.", field=field)
            case _:
                return _given(reason=order.reason)

    async def _fast(self, given: wire.JobFilter, tenant: str | None) -> wire.JobFilter:
        """A filter that means the same tomorrow: lengths of time are times, and what it names is there."""
        present = await self.present()
        try:
            lines.sought(given, tenant, present)
        except (InvalidError, NotFoundError) as error:
            field = "ids" if isinstance(error, NotFoundError) else error.field
            raise InvalidError(error.message, field=f"filter.{field}", hint=error.hint) from None
        is_one = given.kind is not None and "*" not in given.kind and given.kind not in self._engine.app.kinds
        if is_one and await self._engine.db.run(SQL["kind"], given.kind) is None:
            raise UnknownKindError(f"There is no kind {given.kind!r}.", field="filter.kind")
        times = {
            name: lines.moment(value, present, field=name).isoformat()
            for name in ("since", "until")
            if (value := getattr(given, name)) is not None
        }
        return msgspec.structs.replace(given, tenant=tenant, **times)

    async def _estimate(self, action: str, wanted: wire.JobFilter) -> int | None:
        """About how many jobs it will be about: what is counted is known by kind, state and tenant alone."""
        if wanted.ids is not None:
            return len(set(wanted.ids))
        others = {"account", "phase", "outcome", "error", "fingerprint", "stage", "since", "until"}
        if action == "verify" or any(getattr(wanted, name) is not None for name in others):
            return None
        counts = await self._engine.tallies.counts(wanted.tenant)
        return sum(
            count.n for count in counts if wanted.state in {None, count.state} and _is_of(count.kind, wanted.kind)
        )

    async def _newest(self, tenant: str | None) -> UUID:
        """Where the walk begins: above the highest id there is. Times are no help, for each database has its own clock.

        Of a database that is away nothing is known: what is in it has an id that was made before now.
        """
        homes = self._engine.homes
        found = [FIRST]
        for db in homes.all if tenant is None else (homes.of(tenant),):
            try:
                row = await db.run(SQL["newest"])
            except UnavailableError:
                found.append(ids.first(await self.present() + SKEW))
            else:
                found += [] if row is None else [UUID(int=row["id"].int + 1)]
        return max(found)

    async def preview(self, wanted: wire.JobFilter, *, tenant: str | None) -> Count:
        """How many jobs an errand would be about, and some of them."""
        fast = await self._fast(wanted, tenant)
        return await self._engine.lines.count(lines.sought(fast, tenant, await self.present()))

    async def present(self) -> datetime:
        return (await self._engine.db.run(SQL["present"]))["present"]

    async def read(self, errand_id: UUID | str, *, tenant: str | None = None) -> ErrandRecord:
        number = ids.parse("errand", errand_id)
        row = await self._engine.db.run(SQL["read"], number, tenant)
        if row is None:
            raise _absent(number)
        return _record(row)

    async def list_errands(
        self, *, tenant: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[ErrandRecord]:
        """One page, the newest first; the next one is before the last id of this one."""
        values.check_limit(limit, PAGE_MAX)
        rows: Sequence[Row] = await self._engine.db.run(SQL["list"], tenant, before or LAST, limit)
        return [_record(row) for row in rows]

    async def abort(self, errand_id: UUID | str, *, tenant: str | None = None, actor: str) -> ErrandRecord:
        """Have it stop between two jobs; what is done stays done. To say so twice changes nothing."""
        number = ids.parse("errand", errand_id)
        known = await self.read(number, tenant=tenant)
        async with self._engine.db.transaction() as tx:
            row = await fetch(tx, SQL["abort"], number, tenant)
            if row is not None and not known.is_aborting:
                await write_audit(tx, actor, "errand.aborted", tenant=known.tenant, subject=known.id)
        after = await self.read(number, tenant=tenant)
        if row is None and after.state != "aborted":
            raise ConflictError(f"The errand is over: it is {after.state!r}.", field="id", state=after.state)
        return after

    def url(self, errand: ErrandRecord) -> Signed | None:
        """Where its file can be had, for a while."""
        if errand.state != "done" or not errand.has_file or not self._engine.artifacts.has_store:
            return None
        form = errand.arguments["format"]
        return self._engine.artifacts.store.sign_get(
            path(errand.errand_id, form),
            lifetime=URL_LIFETIME,
            filename=filename(errand),
            content_type=CONTENT_TYPES[form],
        )

    # Stewards

    async def take(self, what: Iterable[str], lease: timedelta) -> Hold | None:
        """The errand that has waited longest, for so long; it is held on to by `hold`."""
        token = new_id()
        row = await self._engine.db.run(SQL["take"], token, lease, list(what))
        return None if row is None else Hold(_record(row), token)

    async def glance(self, hold: Hold) -> bool:
        """Whether it must stop."""
        return bool((await self._own(SQL["glance"], hold))["is_aborting"])

    async def hold(self, hold: Hold, lease: timedelta) -> None:
        await self._own(SQL["hold"], hold, lease)

    async def begin(self, hold: Hold, seen: Mapping[UUID, int], place: UUID | None, looked: int) -> None:
        """Write down which jobs are acted on next, before any is, and where the walk goes on; none: it is through.

        ``seen`` tells which end of each job is meant, as `ends` does.
        """
        await self._own(SQL["begin"], hold, list(seen), list(seen.values()), place or FIRST, looked, len(seen))

    async def ends(self, some: Iterable[Line]) -> dict[UUID, int]:
        """Which end of each job was seen, by the run that ended so; 0 where it had not ended."""
        seen = {line.job_id: line for line in some}
        runs = await self.runs(seen.values())
        return {
            job_id: run if finished_at == seen[job_id].finished_at and finished_at is not None else 0
            for job_id, (run, finished_at) in runs.items()
        }

    async def runs(self, some: Iterable[Line]) -> dict[UUID, tuple[int, datetime | None]]:
        """Which run each job is in, and when that ended."""
        own: dict[Database, list[UUID]] = {}
        for line in some:
            own.setdefault(self._engine.home(line.tenant), []).append(line.job_id)
        rows = [row for db, job_ids in own.items() for row in await db.run(SQL["runs"], job_ids)]
        return {row["id"]: (row["run"], row["finished_at"]) for row in rows}

    async def save(self, hold: Hold, done: int, refused: int, refusals: Sequence[wire.Refusal]) -> None:
        await self._own(SQL["save"], hold, done, refused, _text(refusals))

    async def restart(self, hold: Hold, *, has_file: bool) -> None:
        await self._own(SQL["restart"], hold, has_file)

    async def release(self, hold: Hold) -> None:
        await self._own(SQL["release"], hold)

    async def finish(
        self, hold: Hold, state: wire.ErrandState, *, result: Any = None, error: dict[str, Any] | None = None
    ) -> None:
        """It is over, and how."""
        errand = hold.errand
        async with self._engine.db.transaction() as tx:
            made = (None if given is None else _text(given) for given in (result, error))
            row = await fetch(tx, SQL["finish"], errand.errand_id, hold.token, state, *made)
            if row is None:
                raise LostError
            told = {"state": state, **{name: row[name] for name in ("looked", "matched", "done", "refused")}}
            await write_audit(tx, errand.actor, "errand.finished", tenant=errand.tenant, subject=errand.id, data=told)

    async def was_retried(self, errand: ErrandRecord, line: Line, key: str) -> bool:
        """Whether the errand has made a new job of this one."""
        own = (line.tenant, line.account, key, errand.id)
        return bool((await self._engine.home(line.tenant).run(SQL["retried"], *own))["is_retried"])

    async def was_refunded(self, line: Line, reference: str) -> bool:
        own = (line.tenant, line.account, reference, line.job_id)
        return bool((await self._engine.home(line.tenant).run(SQL["refunded"], *own))["is_refunded"])

    async def _own(self, query: Query, hold: Hold, *arguments: Any) -> Any:
        row = await self._engine.db.run(query, hold.errand.errand_id, hold.token, *arguments)
        if row is None:
            raise LostError
        return row

    # The pruner

    async def prune(self, retention: timedelta) -> int:
        """Remove the files that are past their time, and forget what was over long ago."""
        done = 0
        if self._engine.artifacts.has_store:
            old: Sequence[Row] = await self._engine.db.run(SQL["with_file"], FILE_KEPT, _PRUNE_MAX)
            for row in old:
                await self._engine.artifacts.store.delete(path(row["id"], row["format"]))
            await self._engine.db.run(SQL["without_file"], [row["id"] for row in old])
            done += len(old)
        return done + len(await self._engine.db.run(SQL["forget"], retention, _PRUNE_MAX))


def path(errand_id: UUID, form: str) -> str:
    """Where in storage the file of an export is."""
    return f"{_FOLDER}{ids.text('errand', errand_id)}.{form}"


def filename(errand: ErrandRecord) -> str:
    """What the file of an export is called where it is saved."""
    return f"jobs-{errand.created_at:%Y%m%d-%H%M%S}.{errand.arguments['format']}"


def _is_of(kind: str, wanted: str | None) -> bool:
    if wanted is None or not wanted.endswith("*"):
        return wanted in {None, kind}
    return kind.startswith(wanted[:-1])


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _brief(wanted: wire.JobFilter) -> dict[str, Any]:
    """A filter for the audit: many ids are told as how many."""
    told: dict[str, Any] = msgspec.to_builtins(wanted)
    if wanted.ids is not None:
        told["ids"] = len(wanted.ids)
    return told


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _record(row: Row) -> ErrandRecord:
    fields = dict(row)
    for name in ("arguments", "result", "error"):
        fields[name] = None if fields[name] is None else msgspec.json.decode(fields[name])
    fields["filter"] = msgspec.json.decode(fields["filter"], type=wire.JobFilter)
    fields["refusals"] = msgspec.json.decode(fields["refusals"], type=list[wire.Refusal])
    return ErrandRecord(fields.pop("id"), **fields)


def _absent(errand_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no errand {ids.text('errand', errand_id)!r}.", field="id")
