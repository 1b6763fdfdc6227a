"""Bulk operations: actions on many jobs, which an operator orders and which run in the background.

An order names an action and a filter. A bulk runner claims it, walks over the jobs that match in batches, and does to
each what the same action on a single job does. It acts only on jobs that existed when it was ordered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, values, wire
from millpond.engine.access.access import write_audit
from millpond.engine.reads import summaries
from millpond.engine.reads.summaries import FIRST, LAST, MatchCount, ParsedFilter
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
    from millpond.engine.reads.summaries import JobSummary
    from millpond.storage import Signed
    from millpond.store.db import Database, Row
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.bulk", "operations")

ACTS: Final = ("retry", "cancel", "refund", "priority")
"""The actions that change each job; all others only read."""
READS: Final = ("export", "verify")
PAGE_MAX: Final = 200
FILE_KEPT: Final = timedelta(days=7)
"""How long the file of an export is kept."""
URL_LIFETIME: Final = timedelta(hours=1)
SKEW: Final = timedelta(minutes=1)
"""How far the clocks of two machines may be apart."""
_FOLDER: Final = "bulk/"
_PRUNE_MAX: Final = 100
_ARGUMENTS: Final = {"priority": "priority", "format": "export", "even_if_succeeded": "retry"}
"""The arguments that only one action takes, and that action."""
CONTENT_TYPES: Final = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}


@dataclass(frozen=True, slots=True)
class BulkOperationRecord:
    """A bulk operation and its progress."""

    operation_id: UUID
    tenant: str | None
    actor: str
    action: wire.BulkOperationAction
    filter: wire.JobFilter
    arguments: dict[str, Any]
    state: wire.BulkOperationState
    place: UUID | None
    in_hand: list[UUID] | None
    ends: list[int] | None
    examined: int
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
        return ids.text("bulk", self.operation_id)

    @property
    def sought(self) -> ParsedFilter:
        """Its parsed filter. Relative times in it were resolved when it was ordered."""
        return summaries.sought(self.filter, self.tenant, self.created_at)


class LostError(Exception):
    """Another process has claimed the operation."""


@dataclass(slots=True)
class Claim:
    """A bulk operation that this process has claimed, and the token of the claim."""

    operation: BulkOperationRecord
    token: UUID


class BulkOperations:
    """The bulk operations of all operators."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Operators

    async def order(
        self,
        order: wire.MakeBulkOperation,
        *,
        tenant: str | None,
        bound: str | None,
        actor: str,
        key: str | None = None,
    ) -> tuple[BulkOperationRecord, bool]:
        """Order a bulk operation. Return it, and whether the key was used before: then it is the one ordered first.

        ``tenant`` is the tenant whose jobs are meant. ``bound`` is the tenant that the operator is restricted to: a
        filter for that tenant alone does not count as a condition.
        """
        if key is not None:
            values.check_key(key)
        arguments = self._check(order, bound)
        digest = hashlib.sha256(msgspec.json.encode((order, tenant), order="deterministic")).digest()
        db = self._engine.db
        if key is not None and (known := await db.run(SQL["known"], actor, key)) is not None:
            return await self._replay(known, digest, tenant), True
        resolved = await self._resolve(order.filter, tenant)
        estimate = await self._estimate(order.action, resolved)
        place = await self._newest(tenant)
        async with db.transaction() as tx:
            columns = (tenant, actor, key, digest, order.action, _text(resolved), _text(arguments), estimate)
            row = await fetch(tx, SQL["order"], *columns, place)
            if row is not None:
                made = _record(row)
                data = {"action": order.action, "filter": _audit_filter(resolved), **arguments}
                await write_audit(tx, actor, "bulk.ordered", tenant=tenant, subject=made.id, data=data)
                return made, False
            known = await fetch(tx, SQL["known"], actor, key)
        return await self._replay(known, digest, tenant), True

    async def _replay(self, known: Row, digest: bytes, tenant: str | None) -> BulkOperationRecord:
        if known["digest"] != digest:
            raise IdempotencyConflictError(field="Idempotency-Key", operation_id=ids.text("bulk", known["id"]))
        return await self.read(known["id"], tenant=tenant)

    def _check(self, order: wire.MakeBulkOperation, bound: str | None) -> dict[str, Any]:
        """Validate an order, and return its arguments beside the filter."""
        for name, action in _ARGUMENTS.items():
            if getattr(order, name) is not None and order.action != action:
                raise InvalidError(f"The argument is allowed only for the action {action!r}.", field=name)
        narrows = {
            name
            for name, value in msgspec.structs.asdict(order.filter).items()
            if value is not None and not (name == "tenant" and value == bound)
        }
        if order.action in ACTS and not narrows and not order.all:
            raise InvalidError(
                f"The filter is empty and would {order.action} every job.",
                field="filter",
                hint="Add a condition, or confirm the empty filter with all: true.",
            )
        match order.action:
            case "priority":
                if order.priority is None:
                    raise InvalidError("The argument is required.", field="priority")
                return _given(priority=values.check_priority(order.priority), reason=order.reason)
            case "retry":
                return _given(even_if_succeeded=order.even_if_succeeded, reason=order.reason)
            case "refund" if order.reason is None:
                raise InvalidError("The reason is required; it is recorded in the ledger.", field="reason")
            case "export":
                self._engine.artifacts.store  # noqa: B018 - raises if there is no storage
                return _given(format=order.format or "ndjson", reason=order.reason)
            case "verify" if narrows - {"since"}:
                field = f"filter.{min(narrows - {'since'})}"
                raise InvalidError("A verification can be limited by since only.", field=field)
            case _:
                return _given(reason=order.reason)

    async def _resolve(self, given: wire.JobFilter, tenant: str | None) -> wire.JobFilter:
        """Validate a filter, and resolve its durations to points in time, so that its meaning does not change later."""
        present = await self.present()
        try:
            summaries.sought(given, tenant, present)
        except (InvalidError, NotFoundError) as error:
            field = "ids" if isinstance(error, NotFoundError) else error.field
            raise InvalidError(error.message, field=f"filter.{field}", hint=error.hint) from None
        is_one = given.kind is not None and "*" not in given.kind and given.kind not in self._engine.app.kinds
        if is_one and await self._engine.db.run(SQL["kind"], given.kind) is None:
            raise UnknownKindError(f"There is no kind {given.kind!r}.", field="filter.kind")
        times = {
            name: summaries.point_in_time(value, present, field=name).isoformat()
            for name in ("since", "until")
            if (value := getattr(given, name)) is not None
        }
        return msgspec.structs.replace(given, tenant=tenant, **times)

    async def _estimate(self, action: str, wanted: wire.JobFilter) -> int | None:
        """About how many jobs will match; none if unknown: the counters only know kind, state and tenant."""
        if wanted.ids is not None:
            return len(set(wanted.ids))
        others = set(wire.JobFilter.__struct_fields__) - {"tenant", "kind", "state"}
        if action == "verify" or any(getattr(wanted, name) is not None for name in others):
            return None
        counts = await self._engine.counters.counts(wanted.tenant)
        return sum(
            count.n for count in counts if wanted.state in {None, count.state} and _is_of(count.kind, wanted.kind)
        )

    async def _newest(self, tenant: str | None) -> UUID:
        """Where the walk starts: above the highest existing id. Times do not help: each database has its own clock.

        If a database is unavailable, the walk starts at the present time instead: its jobs have earlier ids.
        """
        found = [FIRST]
        for db in self._engine.tenant_databases.holding(tenant):
            try:
                row = await db.run(SQL["newest"])
            except UnavailableError:
                found.append(ids.first(await self.present() + SKEW))
            else:
                found += [] if row is None else [UUID(int=row["id"].int + 1)]
        return max(found)

    async def preview(self, wanted: wire.JobFilter, *, tenant: str | None) -> MatchCount:
        """How many jobs a bulk operation with this filter would match, and a sample of them."""
        resolved = await self._resolve(wanted, tenant)
        return await self._engine.summaries.count(summaries.sought(resolved, tenant, await self.present()))

    async def present(self) -> datetime:
        return (await self._engine.db.run(SQL["present"]))["present"]

    async def read(self, operation_id: UUID | str, *, tenant: str | None = None) -> BulkOperationRecord:
        number = ids.parse("bulk", operation_id)
        row = await self._engine.db.run(SQL["read"], number, tenant)
        if row is None:
            raise _absent(number)
        return _record(row)

    async def list_operations(
        self, *, tenant: str | None = None, state: str | None = None, before: UUID | None = None, limit: int = 50
    ) -> list[BulkOperationRecord]:
        """One page, the newest first; for the next page, pass the last id of this one as ``before``."""
        values.check_limit(limit, PAGE_MAX)
        rows: Sequence[Row] = await self._engine.db.run(SQL["list"], tenant, before or LAST, state, limit)
        return [_record(row) for row in rows]

    async def abort(self, operation_id: UUID | str, *, tenant: str | None = None, actor: str) -> BulkOperationRecord:
        """Ask it to stop between two jobs. What is done stays done, and a repeated request changes nothing."""
        number = ids.parse("bulk", operation_id)
        known = await self.read(number, tenant=tenant)
        async with self._engine.db.transaction() as tx:
            row = await fetch(tx, SQL["abort"], number, tenant)
            if row is not None and not known.is_aborting:
                await write_audit(tx, actor, "bulk.aborted", tenant=known.tenant, subject=known.id)
        after = await self.read(number, tenant=tenant)
        if row is None and after.state != "aborted":
            raise ConflictError(
                f"The bulk operation has already ended: it is {after.state!r}.", field="id", state=after.state
            )
        return after

    def url(self, operation: BulkOperationRecord) -> Signed | None:
        """A signed request for the file of an export, valid for a limited time; none if there is no file."""
        if operation.state != "done" or not operation.has_file or not self._engine.artifacts.has_store:
            return None
        form = operation.arguments["format"]
        return self._engine.artifacts.store.sign_get(
            path(operation.operation_id, form),
            lifetime=URL_LIFETIME,
            filename=filename(operation),
            content_type=CONTENT_TYPES[form],
        )

    # Bulk runners

    async def take(self, what: Iterable[str], lease: timedelta) -> Claim | None:
        """Claim the operation that has waited longest, for the duration of ``lease``; `renew` extends the claim."""
        token = new_id()
        row = await self._engine.db.run(SQL["take"], token, lease, list(what))
        return None if row is None else Claim(_record(row), token)

    async def is_aborting(self, claim: Claim) -> bool:
        """Whether the operation must stop."""
        return bool((await self._own(SQL["is_aborting"], claim))["is_aborting"])

    async def renew(self, claim: Claim, lease: timedelta) -> None:
        await self._own(SQL["renew"], claim, lease)

    async def begin(self, claim: Claim, seen: Mapping[UUID, int], place: UUID | None, examined: int) -> None:
        """Store which jobs are acted on next, before any is, and where the walk continues; no ``place`` if it is over.

        ``seen`` has the end of each job that is meant, as returned by `ends`.
        """
        await self._own(SQL["begin"], claim, list(seen), list(seen.values()), place or FIRST, examined, len(seen))

    async def ends(self, some: Iterable[JobSummary]) -> dict[UUID, int]:
        """The end of each job that was seen, identified by the job's run; 0 if the job had not ended."""
        seen = {job.job_id: job for job in some}
        runs = await self.runs(seen.values())
        return {
            job_id: run if finished_at == seen[job_id].finished_at and finished_at is not None else 0
            for job_id, (run, finished_at) in runs.items()
        }

    async def runs(self, some: Iterable[JobSummary]) -> dict[UUID, tuple[int, datetime | None]]:
        """The current run of each job, and when it ended."""
        own: dict[Database, list[UUID]] = {}
        for job in some:
            own.setdefault(self._engine.database(job.tenant), []).append(job.job_id)
        rows = [row for db, job_ids in own.items() for row in await db.run(SQL["runs"], job_ids)]
        return {row["id"]: (row["run"], row["finished_at"]) for row in rows}

    async def save(self, claim: Claim, done: int, refused: int, refusals: Sequence[wire.Refusal]) -> None:
        await self._own(SQL["save"], claim, done, refused, _text(refusals))

    async def restart(self, claim: Claim, *, has_file: bool) -> None:
        await self._own(SQL["restart"], claim, has_file)

    async def release(self, claim: Claim) -> None:
        await self._own(SQL["release"], claim)

    async def finish(
        self, claim: Claim, state: wire.BulkOperationState, *, result: Any = None, error: dict[str, Any] | None = None
    ) -> None:
        """Record that the operation has ended, with its state and its result or error."""
        operation = claim.operation
        async with self._engine.db.transaction() as tx:
            texts = (None if given is None else _text(given) for given in (result, error))
            row = await fetch(tx, SQL["finish"], operation.operation_id, claim.token, state, *texts)
            if row is None:
                raise LostError
            data = {"state": state, **{name: row[name] for name in ("examined", "matched", "done", "refused")}}
            await write_audit(
                tx, operation.actor, "bulk.finished", tenant=operation.tenant, subject=operation.id, data=data
            )

    async def was_retried(self, operation: BulkOperationRecord, job: JobSummary, key: str) -> bool:
        """Whether the bulk operation has retried this job as a new one."""
        own = (job.tenant, job.account, key, operation.id)
        return bool((await self._engine.database(job.tenant).run(SQL["retried"], *own))["is_retried"])

    async def was_refunded(self, job: JobSummary, reference: str) -> bool:
        own = (job.tenant, job.account, reference, job.job_id)
        return bool((await self._engine.database(job.tenant).run(SQL["refunded"], *own))["is_refunded"])

    async def _own(self, query: NamedQuery, claim: Claim, *arguments: Any) -> Any:
        row = await self._engine.db.run(query, claim.operation.operation_id, claim.token, *arguments)
        if row is None:
            raise LostError
        return row

    # The pruner

    async def prune(self, retention: timedelta) -> int:
        """Delete files that were kept long enough, and bulk operations that ended long ago."""
        done = 0
        if self._engine.artifacts.has_store:
            old: Sequence[Row] = await self._engine.db.run(SQL["with_file"], FILE_KEPT, _PRUNE_MAX)
            for row in old:
                await self._engine.artifacts.store.delete(path(row["id"], row["format"]))
            await self._engine.db.run(SQL["without_file"], [row["id"] for row in old])
            done += len(old)
        return done + len(await self._engine.db.run(SQL["forget"], retention, _PRUNE_MAX))


def path(operation_id: UUID, form: str) -> str:
    """The path of an export's file in storage."""
    return f"{_FOLDER}{ids.text('bulk', operation_id)}.{form}"


def filename(operation: BulkOperationRecord) -> str:
    """The name under which the file of an export is downloaded."""
    return f"jobs-{operation.created_at:%Y%m%d-%H%M%S}.{operation.arguments['format']}"


def _is_of(kind: str, wanted: str | None) -> bool:
    if wanted is None or not wanted.endswith("*"):
        return wanted in {None, kind}
    return kind.startswith(wanted[:-1])


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _audit_filter(wanted: wire.JobFilter) -> dict[str, Any]:
    """A filter for the audit, with the number of ids instead of the ids."""
    fields: dict[str, Any] = msgspec.to_builtins(wanted)
    if wanted.ids is not None:
        fields["ids"] = len(wanted.ids)
    return fields


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _record(row: Row) -> BulkOperationRecord:
    fields = dict(row)
    for name in ("arguments", "result", "error"):
        fields[name] = None if fields[name] is None else msgspec.json.decode(fields[name])
    fields["filter"] = msgspec.json.decode(fields["filter"], type=wire.JobFilter)
    fields["refusals"] = msgspec.json.decode(fields["refusals"], type=list[wire.Refusal])
    return BulkOperationRecord(fields.pop("id"), **fields)


def _absent(operation_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no bulk operation {ids.text('bulk', operation_id)!r}.", field="id")
