"""Workers: the fleet, whose workers come over HTTP with a token of their own.

A worker registers with the fleet's secret and gets a token, of which the digest alone is kept. All it does with a job
names that job's lease, which must be its own and must not have run out. Polls of workers with the same routes wait
together: one look at the line serves them all, and none of them holds a connection to the database meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

import msgspec

from millpond import ids, logs, values
from millpond.engine import access, credentials, jobs
from millpond.engine.artifacts import named_in
from millpond.engine.batcher import Batcher
from millpond.engine.dispatches import Lanes
from millpond.engine.halls import Hall
from millpond.engine.leases import Want
from millpond.errors import (
    ArtifactMissingError,
    FleetFullError,
    ForbiddenError,
    InputError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    MoveDeniedError,
    NotFoundError,
    UnauthorizedError,
    UnknownRouteError,
    WorkerAliveError,
    WorkerRevokedError,
    WorkerUnapprovedError,
)
from millpond.kinds import Kind
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries
from millpond.work import End, Lease, Note, Pulse, Return

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from millpond.engine.access import Principal
    from millpond.engine.engine import Engine
    from millpond.engine.jobs import JobRecord
    from millpond.settings import Settings
    from millpond.store.db import Connection, Database, Row
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "workers")

WORKER_TOPIC: Final = "worker:"
UNKNOWN: Final = "unknown"
"""The address of somebody of whom none is known."""
LIST_MAX: Final = 10_000
FORGET_AFTER: Final = timedelta(days=1)
"""When a worker that is silent is forgotten."""
FORGET_REVOKED_AFTER: Final = timedelta(days=30)
"""When one is forgotten that was thrown out: until then its name is barred."""

ERROR_TEXT_MAX: Final = 2_000
REASON_MAX: Final = 500
LOG_MAX: Final = 8_192
LEVEL_MAX: Final = 20

_KEEP: Final = 10.0
"""For how many seconds what is known of a worker is believed."""
_RENEW: Final = 5.0
_KEEP_BAD: Final = 2.0
_KNOWN_MAX: Final = 20_000
_BAD_MAX: Final = 1_000
_HEAR_EVERY: Final = 10.0
_TEND_PAUSE: Final = 1.0
_GATHER: Final = 0.05
"""Heartbeats that come one by one wait for the next of these moments: then they share a statement."""
_BUSY: Final = 400
"""With more of them in a second they share one as they come."""
_LEASES_MAX: Final = 50_000
_INPUTS_MAX: Final = 64 * 1024 * 1024
_CODE: Final = re.compile(r"[a-z0-9_.:-]{1,64}", re.IGNORECASE)

Status = Literal["unapproved", "idle", "busy", "draining", "silent", "revoked"]
Key = tuple[UUID, UUID]
"""A job and the token under which it is held."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the fleet is kept."""

    workers_max: int = 50
    is_open: bool = True
    """Whether a worker that registers is let in without an operator."""
    lease: timedelta = timedelta(seconds=900)
    heartbeat: timedelta = timedelta(seconds=30)
    silence: timedelta = timedelta(seconds=60)
    """After how long a worker may be replaced by another of its name."""

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        return cls(
            settings.fleet_max,
            settings.fleet_approval == "auto",
            settings.fleet_lease,
            settings.fleet_heartbeat,
            settings.worker_silence,
        )


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker of the fleet, as it is known by its token."""

    id: str
    worker: str
    routes: tuple[str, ...]
    slots: int
    is_approved: bool = True
    is_draining: bool = False
    is_revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker of the fleet as operators see it."""

    id: str
    worker: str
    hint: str
    slots: int
    capabilities: Any
    fleet: str
    address: str | None
    registered_at: datetime
    heard_at: datetime
    approved_at: datetime | None
    draining_at: datetime | None
    revoked_at: datetime | None
    is_alive: bool
    routes: tuple[str, ...]
    leases: int
    jobs: int
    granted_at: datetime | None
    expires_at: datetime | None
    polled_at: datetime | None
    """When it last asked for jobs."""

    @property
    def status(self) -> Status:
        """The first of these that fits."""
        marks: tuple[tuple[object, Status], ...] = (
            (self.revoked_at, "revoked"),
            (not self.is_alive, "silent"),
            (self.approved_at is None, "unapproved"),
            (self.draining_at, "draining"),
            (self.jobs, "busy"),
        )
        for mark, status in marks:
            if mark:
                return status
        return "idle"


@dataclass(slots=True)
class _Known:
    """What memory holds of a token that is good."""

    record: WorkerRecord
    renew_at: float
    good_until: float
    hear_at: float = 0.0
    address: str = ""


@dataclass(frozen=True, slots=True)
class _Bad:
    """What memory holds of a token that is not; it is told apart from a worker that is known and may not come."""

    good_until: float


@dataclass(frozen=True, slots=True)
class _Beat:
    """What a worker says that it is at."""

    worker: str
    jobs: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a job."""

    worker: str
    tenant: str
    epoch: int
    is_canceling: bool


class Workers:
    """The fleet of one database."""

    def __init__(self, engine: Engine, rules: Rules | None = None) -> None:
        self._engine = engine
        self.rules = rules or Rules()
        self._known: dict[bytes, _Known] = {}
        self._bad: dict[bytes, _Bad] = {}
        self._changes = 0
        """How often a worker was changed: what was looked up while it happened may be out of date."""
        self._registering = asyncio.Lock()
        """Registrations take turns. Those of a whole fleet at once would each hold a connection as they wait."""
        self._halls: dict[tuple[str, ...], Hall] = {}
        self._leases = _Leases()
        self._heard: dict[str, str] = {}
        self._polled: set[str] = set()
        """Who asked for jobs since it was last written down who was heard from."""
        self._closed: set[UUID] = set()
        self._tending: asyncio.Task[None] | None = None
        self._lookups: Batcher[bytes, _Known | _Bad] = Batcher(self._look_up)
        self._beats: Batcher[_Beat, dict[Key, bool]] = Batcher(self._beat)
        self._pace = _Pace()
        self._holders: Batcher[Key, Holder | None] = Batcher(self._look_at_holders)
        self._reads: Batcher[tuple[str, UUID], JobRecord] = Batcher(self._read)

    async def close(self) -> None:
        """Write down who was heard from, and let those go who wait."""
        for hall in self._halls.values():
            hall.close()
        if self._tending is not None:
            self._tending.cancel()
        await self._tend()

    # Coming and going

    async def open_route(self, route: str) -> None:
        """Let workers of the fleet be bound to a queue; it is made if it is missing."""
        await self._engine.db.run(SQL["open_route"], values.check_name(route, field="route"))

    async def register(
        self,
        *,
        worker: str,
        routes: Sequence[str],
        slots: int = 1,
        capabilities: Any = None,
        fleet: Principal,
        address: str,
        identity: Any = None,
    ) -> tuple[WorkerRecord, str]:
        """Let a worker in, and give it its token, which is told this once.

        A name is one worker's. While that one lives another is refused; once it is silent it is replaced, and what it
        held goes back. ``identity`` is what is known of its machine, for the audit.
        """
        _check_fleet(fleet)
        name = values.check_name(worker, field="worker")
        chosen = _checked_routes(routes)
        told = None if capabilities is None else values.encode(capabilities, field="capabilities")
        token, worker_id = credentials.new_worker_token(), ids.text("worker", new_id())
        async with self._registering, self._engine.db.transaction() as tx:
            await fetch(tx, SQL["lock_fleet"])
            await _check_routes(tx, chosen)
            old = await self._make_room(tx, name)
            is_approved = self.rules.is_open
            marks = credentials.digest(token), credentials.hint(token)
            columns = slots, told, fleet.actor, address, is_approved, list(chosen)
            await fetch(tx, SQL["add"], worker_id, name, *marks, *columns)
            data: dict[str, Any] = {"worker": name, "routes": chosen, "slots": slots, "is_approved": is_approved}
            more = {"replaces": old, "identity": identity}
            data |= {word: value for word, value in more.items() if value is not None}
            await _write_audit(tx, fleet.actor, "worker.registered", worker_id, address=address, **data)
        logs.emit("worker.registered", worker=name, worker_id=worker_id, replaces=old)
        if old is not None:
            await self._gone(old)
        return WorkerRecord(worker_id, name, chosen, slots, is_approved), token

    async def _make_room(self, tx: Connection, name: str) -> str | None:
        """See to it that a worker of this name may come; tells whom it replaces."""
        namesake = await fetch(tx, SQL["namesake"], name, self.rules.silence)
        if namesake is not None:
            if namesake["is_revoked"]:
                raise WorkerRevokedError(
                    f"The worker {name!r} was revoked.", field="worker", hint="An operator may approve it again."
                )
            if namesake["alive_seconds"] > 0:
                raise WorkerAliveError(
                    f"A worker named {name!r} is registered and was heard from a moment ago.",
                    field="worker",
                    hint="Give each worker a name of its own.",
                    retry_after=int(namesake["alive_seconds"]) + 1,
                )
            await fetch(tx, SQL["remove"], namesake["id"])
        alive = (await fetch(tx, SQL["alive"], self.rules.silence))["workers"]
        if alive >= self.rules.workers_max:
            raise FleetFullError(
                f"The fleet has {alive:,} workers, and may have {self.rules.workers_max:,}.",
                hint="MILLPOND_FLEET_MAX is the limit.",
                limit=self.rules.workers_max,
                retry_after=max(1, round(self.rules.silence.total_seconds())),
            )
        return None if namesake is None else str(namesake["id"])

    async def deregister(self, worker: WorkerRecord, *, address: str = UNKNOWN) -> None:
        """Let a worker go; what it holds goes back."""
        async with self._engine.db.transaction() as tx:
            if await fetch(tx, SQL["remove"], worker.id) is None:
                return
            told = {"address": address, "worker": worker.worker}
            await _write_audit(tx, worker.id, "worker.deregistered", worker.id, **told)
        logs.emit("worker.deregistered", worker=worker.worker, worker_id=worker.id)
        await self._gone(worker.id)

    async def _gone(self, worker_id: str) -> int:
        """Nobody comes with its token any more: tell the others, and give back what it holds."""
        self._change(worker_id)
        tokens = [row["token"] for row in await self._engine.db.run(SQL["tokens_of"], worker_id)]
        for token in tokens:
            await self._engine.abandon(token)
        self._leases.drop(tokens)
        return len(tokens)

    async def drop_others(self, worker: WorkerRecord, held: Iterable[UUID]) -> None:
        """Give back what was leased to a worker beside these, by a poll whose answer it never heard."""
        known = set(held)
        tokens = [row["token"] for row in await self._engine.db.run(SQL["tokens_of"], worker.id)]
        for token in tokens:
            if token not in known:
                await self._engine.abandon(token)
        self._leases.drop(token for token in tokens if token not in known)

    async def authenticate(self, token: str, address: str = UNKNOWN) -> WorkerRecord:
        """Who shows this token. One that is known costs no query; whoever shows one is heard."""
        digest = credentials.digest(token)
        known = self._known.get(digest)
        now = time.monotonic()
        if known is None or now >= known.good_until:
            known = await self._admit(token, digest, now)
        elif now >= known.renew_at:
            known.renew_at = known.good_until
            access.forget_failure(self._lookups.add(digest))
        record = known.record
        if record.is_revoked:
            raise WorkerRevokedError(hint="Ask your operator.")
        if now >= known.hear_at or address != known.address:
            known.hear_at, known.address = now + min(_HEAR_EVERY, self.rules.silence.total_seconds() / 6), address
            self._heard[record.id] = address
            self._tend_soon()
        if not record.is_approved:
            raise WorkerUnapprovedError(hint="An operator approves it with: millpond workers approve.")
        return record

    async def _admit(self, token: str, digest: bytes, now: float) -> _Known:
        if not credentials.is_worker_token(token):
            raise UnauthorizedError(
                "It is not a worker's token, or not all of one.",
                hint="A worker's token begins with mpw_; it is given at POST /v1/worker/register.",
            )
        found: _Known | _Bad | None = self._bad.get(digest)
        if found is None or now >= found.good_until:
            found = await self._lookups.add(digest)
        if isinstance(found, _Bad):
            raise UnauthorizedError(
                "No worker has this token any more: it was replaced, or its worker has left.", hint="Register anew."
            )
        return found

    async def _look_up(self, digests: Sequence[bytes]) -> list[_Known | _Bad | Exception]:
        changes = self._changes
        rows = {row["digest"]: row for row in await self._engine.db.run(SQL["find"], list(set(digests)))}
        found = {digest: self._judge(digest, rows.get(digest)) for digest in set(digests)}
        if changes == self._changes:
            for digest, entry in found.items():
                if isinstance(entry, _Known):
                    access.keep(self._known, digest, entry, _KNOWN_MAX)
                else:
                    self._known.pop(digest, None)
                    access.keep(self._bad, digest, entry, _BAD_MAX)
        return [found[digest] for digest in digests]

    def _judge(self, digest: bytes, row: Row | None) -> _Known | _Bad:
        now = time.monotonic()
        if row is None:
            return _Bad(now + _KEEP_BAD)
        record = WorkerRecord(
            row["id"],
            row["worker"],
            tuple(row["routes"]),
            row["slots"],
            row["is_approved"],
            row["is_draining"],
            row["is_revoked"],
        )
        left = _KEEP if row["seconds_left"] is None else min(_KEEP, row["seconds_left"])
        before = self._known.get(digest)
        heard = (0.0, "") if before is None else (before.hear_at, before.address)
        return _Known(record, now + _RENEW, now + left, *heard)

    def hear(self, topics: frozenset[str]) -> None:
        """The bell: forget workers that somebody has changed, and look again where jobs have come."""
        changed = {topic[len(WORKER_TOPIC) :] for topic in topics if topic.startswith(WORKER_TOPIC)}
        if changed:
            self._changes += 1
            self._bad.clear()
            for digest, known in list(self._known.items()):
                if known.record.id in changed:
                    del self._known[digest]
        for hall in self._halls.values():
            hall.hear(topics, changed)

    def _change(self, worker_id: str) -> None:
        topic = f"{WORKER_TOPIC}{worker_id}"
        self.hear(frozenset((topic,)))
        self._engine.bell.ring({topic})

    # Jobs

    @property
    def waiting(self) -> int:
        """How many polls wait in this process."""
        return sum(hall.guests for hall in self._halls.values())

    async def poll(self, worker: WorkerRecord, want: int, wait: float, *, address: str = UNKNOWN) -> list[Lease]:
        """Up to so many jobs, as soon as there is one; none when the time is up, or the worker was changed meanwhile.

        Who stops waiting is given nothing: what was already on its way goes back.
        """
        self._polled.add(worker.id)
        if worker.is_draining or not worker.routes:
            return []
        hall = self._halls.get(worker.routes)
        if hall is None:
            hall = self._halls[worker.routes] = Hall(self._engine, self.rules.lease, Lanes(worker.routes))
        given = await hall.ask(Want(worker.id, want, address), wait)
        if not given and not wait:  # what stands behind the place where claims begin is found only by the whole look
            hall.lanes.hurry()
            given = await hall.ask(Want(worker.id, want, address), 0)
        for lease in given:
            self._leases.keep(worker.id, lease)
        return given

    async def heartbeat(self, worker: WorkerRecord, jobs: Sequence[Key]) -> Pulse:
        """Prolong the leases of these jobs, and learn which of them must stop and which are lost."""
        held = await self.beat(worker, jobs)
        return Pulse(
            frozenset(job_id for (job_id, _), is_canceling in held.items() if is_canceling),
            frozenset(key[0] for key in jobs if key not in held),
            worker.is_draining,
        )

    async def beat(self, worker: WorkerRecord, jobs: Sequence[Key]) -> dict[Key, bool]:
        """Prolong leases; tells which are held, and whether their jobs must stop. No jobs cost nothing."""
        if not jobs:
            return {}
        if not self._pace.is_busy(now := time.monotonic()):
            await asyncio.sleep(_GATHER - now % _GATHER)
        return await self._beats.add(_Beat(worker.id, jobs))

    async def _beat(self, beats: Sequence[_Beat]) -> list[dict[Key, bool] | Exception]:
        items = [(job_id, token, beat.worker) for beat in beats for job_id, token in beat.jobs]
        columns = [list(column) for column in zip(*items, strict=True)]
        found: dict[str, dict[Key, bool]] = {}
        for row in await self._engine.db.run(SQL["beat"], *columns, self.rules.lease):
            found.setdefault(row["worker"], {})[row["job_id"], row["token"]] = row["is_canceling"]
        return [_own(found.get(beat.worker, {}), beat.jobs) for beat in beats]

    async def lease(self, worker: WorkerRecord, job_id: UUID, token: UUID) -> Lease:
        """The job that this worker holds under this token now, as the database says."""
        await self.holder(worker, job_id, token)
        return await self._find(worker, job_id, token)

    async def holder(self, worker: WorkerRecord, job_id: UUID, token: UUID) -> Holder:
        holder = await self._holders.add((job_id, token))
        if holder is None or holder.worker != worker.id:
            raise _lost(job_id)
        return holder

    async def _look_at_holders(self, keys: Sequence[Key]) -> list[Holder | Exception | None]:
        columns = [list(column) for column in zip(*set(keys), strict=True)]
        found = {
            (row["job_id"], row["token"]): Holder(row["worker"], row["tenant"], row["epoch"], row["is_canceling"])
            for row in await self._engine.db.run(SQL["holders"], *columns)
        }
        return [found.get(key) for key in keys]

    async def _find(self, worker: WorkerRecord, job_id: UUID, token: UUID) -> Lease:
        """A lease that was this worker's: known from the poll in this process, otherwise read.

        Whether it still is one is for the statement to say that writes by its token.
        """
        known = self._leases.get(worker.id, job_id, token)
        if known is not None:
            return known
        holder = await self.holder(worker, job_id, token)
        job = await self._reads.add((holder.tenant, job_id))
        if job.epoch != holder.epoch:
            raise _lost(job_id)
        lease = Lease(
            job_id,
            token,
            job.tenant,
            job.account,
            job.kind,
            job.queue,
            job.state,
            job.epoch,
            job.attempts,
            job.run,
            job.price,
            job.progress,
            job.stage,
            values.encode(job.input, field="input"),
            None if job.memo is None else values.encode(job.memo, field="memo"),
            None if job.answer is None else values.encode(job.answer, field="answer"),
            job.created_at,
            job.expires_at,
        )
        self._leases.keep(worker.id, lease)
        return lease

    async def _read(self, wanted: Sequence[tuple[str, UUID]]) -> list[JobRecord | Exception]:
        """Jobs that other processes have handed out, those of many callers at once."""
        homes: dict[Database, set[UUID]] = {}
        for tenant, job_id in wanted:
            homes.setdefault(self._engine.home(tenant), set()).add(job_id)
        found: dict[tuple[str, UUID], JobRecord] = {}
        for home, job_ids in homes.items():
            found |= {(job.tenant, job.job_id): job for job in await jobs.read_many(home, list(job_ids))}
        return [found.get(key) or _lost(key[1]) for key in wanted]

    async def note(self, worker: WorkerRecord, job_id: UUID, token: UUID, notes: Iterable[Any]) -> bool:
        """Write progress, stages and lines of log; tells whether the job must stop."""
        lease = await self._find(worker, job_id, token)
        kind = self._engine.app.kinds.get(lease.kind)
        written = [_note(lease, kind, n, item) for n, item in enumerate(notes)]
        try:
            return bool(written) and await self._engine.note(*written)
        except LeaseLostError:
            self._leases.forget(lease)
            raise

    async def complete(
        self,
        worker: WorkerRecord,
        job_id: UUID,
        token: UUID,
        output: Any = None,
        *,
        artifacts: Sequence[Any] = (),
        captured: int | None = None,
        address: str = UNKNOWN,
    ) -> str:
        """End a job that is done; tells its state. What was done before is told again.

        Its files are looked at first: one that is not in storage as it should be is an error, and the lease stays.
        """
        text = values.encode(output, field="output")
        try:
            lease = await self._find(worker, job_id, token)
            if captured is not None and captured > lease.price:
                raise InvalidError(f"The job's price is {lease.price}.", field="captured")
            self._check_output(lease, output, artifacts)
            unlisted = set(named_in(text)) - {file.id for file in artifacts}
            if artifacts or unlisted:
                await self.holder(worker, job_id, token)
                await self._confirm(lease, artifacts)
                await self._confirm_unlisted(lease, unlisted)
            state = await self._engine.finish(End(lease, "succeeded", text, captured=captured, origin=address))
        except LeaseLostError:
            return await self.repeated(worker, job_id, token, "succeeded")
        self._over(lease)
        return state

    def _check_output(self, lease: Lease, output: Any, files: Sequence[Any]) -> None:
        """Where a kind says which files its output is made of, they must be among those that are looked at."""
        kind = self._engine.app.kinds.get(lease.kind)
        if kind is None or kind.output_files is None:
            return
        named = set(kind.output_files(output))
        if not named or not named <= {file.id for file in files}:
            raise ArtifactMissingError("The output names no file that this attempt has stored.", field="output")

    async def _confirm(self, lease: Lease, files: Sequence[Any]) -> None:
        store = self._engine.artifacts
        for n, file in enumerate(files):
            artifact_id = ids.parse("art", file.id)
            record = await store.read(lease.tenant, artifact_id)
            if record.job_id != lease.job_id or record.epoch != lease.epoch:
                raise NotFoundError(f"{file.id!r} was not made under this lease.", field=f"artifacts[{n}].id")
            await store.confirm(lease.tenant, artifact_id, size=file.size, sha256=file.sha256)

    async def _confirm_unlisted(self, lease: Lease, named: Iterable[str]) -> None:
        """What the output names and this attempt was to store must be there too, listed or not."""
        store = self._engine.artifacts
        for record in await store.find(lease.tenant, [ids.parse("art", name) for name in named]) if named else ():
            if (record.job_id, record.epoch) == (lease.job_id, lease.epoch):
                await store.confirm(lease.tenant, record.artifact_id)

    async def fail(
        self,
        worker: WorkerRecord,
        job_id: UUID,
        token: UUID,
        error: dict[str, Any],
        *,
        outcome: Literal["failed", "blocked", "canceled"] = "failed",
        retry: bool = False,
        retry_after: float | None = None,
        address: str = UNKNOWN,
    ) -> str:
        """End a job that did not succeed, or send it back for another attempt; tells its fate."""
        told = shortened(error)
        try:
            lease = await self._find(worker, job_id, token)
            if retry and outcome == "failed":
                pause = self._pause(lease, retry_after)
                fate = await self._engine.give_back(Return(lease, "attempt", told, pause, origin=address))
            else:
                fate = await self._finish(End(lease, outcome, error=told, origin=address))
        except LeaseLostError:
            await self.repeated(worker, job_id, token, outcome)
            return outcome
        self._over(lease)
        return fate

    async def _finish(self, end: End) -> str:
        try:
            await self._engine.finish(end)
        except MoveDeniedError as denied:  # Its lifecycle has no arrow for such an end; every job that runs can fail.
            if end.outcome == "failed":
                raise
            return await self._finish(End(end.lease, "failed", error=denied.as_dict(), origin=end.origin))
        return end.outcome

    def _pause(self, lease: Lease, retry_after: float | None) -> timedelta | None:
        if retry_after is not None:
            return timedelta(seconds=retry_after) if retry_after > 0 else None
        kind = self._engine.app.kinds.get(lease.kind) or Kind(name=lease.kind)
        return kind.backoff.delay(lease.attempts + 1, random.random())  # noqa: S311 - jitter

    async def requeue(
        self, worker: WorkerRecord, job_id: UUID, token: UUID, reason: str = "", *, address: str = UNKNOWN
    ) -> str:
        """Send a job back because its worker cannot go on: not an attempt of its own; tells its fate."""
        lease = await self._find(worker, job_id, token)
        message = f"Requeued: {values.printable(reason, REASON_MAX)}" if reason else "Requeued: its worker had to go."
        error = {"code": "interrupted", "message": message}
        try:
            fate = await self._engine.give_back(Return(lease, "interruption", error, origin=address))
        finally:
            self._over(lease)
        return fate

    async def park(self, worker: WorkerRecord, job_id: UUID, token: UUID, memo: Any = None) -> str:
        """Put a job aside until its answer comes; tells its state."""
        lease = await self._find(worker, job_id, token)
        state = await self._engine.park(lease, memo)
        self._over(lease)
        return state

    async def abandon(self, leases: Iterable[Lease]) -> None:
        """Give back what a worker was given and never heard of."""
        for token in {lease.token for lease in leases}:
            await self._engine.abandon(token)
            self._leases.drop([token])

    async def repeated(self, worker: WorkerRecord, job_id: UUID, token: UUID, outcome: str) -> str:
        """Where this very end was told before: the state it led to. Otherwise the lease is lost."""
        ended = await self._engine.db.run(SQL["was_ended"], worker.id, ids.text("job", job_id), str(token), outcome)
        if ended is None:
            self._leases.drop([token])
            raise _lost(job_id)
        return (await self._engine.read(ended["tenant"], job_id)).state

    def _over(self, lease: Lease) -> None:
        """The job is out of its worker's hands: a lease of which it was the last is closed soon."""
        self._leases.forget(lease)
        if lease.token not in self._leases:
            self._closed.add(lease.token)
            self._tend_soon()

    # Operators

    async def list(self) -> list[WorkerView]:
        """The fleet, by name."""
        return [_view(row) for row in await self._engine.db.run(SQL["list"], None, self.rules.silence, LIST_MAX)]

    async def get(self, worker_id: str) -> WorkerView:
        rows = await self._engine.db.run(SQL["list"], _worker_id(worker_id), self.rules.silence, 1)
        if not rows:
            raise NotFoundError("There is no such worker.", field="id")
        return _view(rows[0])

    async def approve(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Let a worker in that waits, or one that was revoked."""
        return await self._order(SQL["approve"], worker_id, actor, address)

    async def revoke(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Throw a worker out, now: its token is refused, its name barred, and what it holds goes back."""
        await self._order(SQL["revoke"], worker_id, actor, address)
        await self._gone(_worker_id(worker_id))
        return await self.get(worker_id)

    async def drain(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Give a worker no more jobs; it finishes what it has."""
        return await self._order(SQL["drain"], worker_id, actor, address)

    async def resume(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Give a worker that drains jobs again."""
        return await self._order(SQL["resume"], worker_id, actor, address)

    async def rotate(
        self,
        worker_id: str,
        *,
        overlap: timedelta | str | float | None = None,
        actor: str,
        address: str = UNKNOWN,
    ) -> tuple[WorkerView, str]:
        """A new token for a worker. The old one is refused from now on, or when the overlap is over."""
        stays = None if overlap is None else values.duration(overlap, field="overlap")
        token = credentials.new_worker_token()
        columns = credentials.digest(token), credentials.hint(token), stays
        data = {"hint": credentials.hint(token)}
        return await self._order(SQL["rotate"], worker_id, actor, address, *columns, data=data), token

    async def assign(self, worker_id: str, routes: Sequence[str], *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Give a worker other routes; what it holds it finishes."""
        chosen = _checked_routes(routes)
        return await self._order(SQL["assign"], worker_id, actor, address, list(chosen), data={"routes": chosen})

    async def _order(
        self, verb: Query, worker_id: str, actor: str, address: str, *columns: Any, data: dict[str, Any] | None = None
    ) -> WorkerView:
        """One change of one worker, with its line in the audit; every process is told."""
        named = _worker_id(worker_id)
        async with self._engine.db.transaction() as tx:
            found = await fetch(tx, SQL["lock"], named)
            if found is None:
                raise NotFoundError("There is no such worker.", field="id")
            if verb is SQL["assign"]:
                await _check_routes(tx, columns[0])
                await fetch(tx, SQL["unassign"], named)
            await fetch(tx, verb, named, *columns)
            told = {"address": address, "worker": found["worker"], **(data or {})}
            await _write_audit(tx, actor, _PAST[verb.name], named, **told)
        self._change(named)
        return await self.get(named)

    # Looking after things

    def _tend_soon(self) -> None:
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend_later())

    async def _tend_later(self) -> None:
        while self._heard or self._closed:
            await asyncio.sleep(_TEND_PAUSE)  # so that many are written at once
            await self._tend()

    async def _tend(self) -> None:
        """Write who was heard from, and close leases of which nothing is left; what gets lost is no loss."""
        heard, self._heard = self._heard, {}
        closed, self._closed = self._closed, set()
        polled = [worker_id in self._polled for worker_id in heard]
        self._polled.difference_update(heard)
        with contextlib.suppress(MillpondError):
            if heard:
                await self._engine.db.run(SQL["hear"], list(heard), list(heard.values()), polled)
            if closed:
                await self._engine.close_leases(closed)

    async def sweep(self, most: int = 200) -> int:
        """Give back what workers hold that have left or were revoked, and forget those long silent."""
        astray = [row["token"] for row in await self._engine.db.run(SQL["astray"], most)]
        for token in astray:
            await self._engine.abandon(token)
        forgotten = await self._engine.db.run(SQL["forget"], FORGET_AFTER, FORGET_REVOKED_AFTER)
        for row in forgotten:
            logs.emit("worker.forgotten", worker=row["worker"], worker_id=row["id"])
            self._change(row["id"])
        return len(astray) + len(forgotten)


@dataclass(slots=True)
class _Pace:
    """Whether heartbeats come thick and fast, in this second or in the last."""

    second: int = 0
    count: int = 0
    was_busy: bool = False

    def is_busy(self, now: float) -> bool:
        if int(now) != self.second:
            self.was_busy = int(now) == self.second + 1 and self.count > _BUSY
            self.second, self.count = int(now), 0
        self.count += 1
        return self.was_busy or self.count > _BUSY


class _Leases:
    """The leases that were handed out in this process, as many as are worth their memory."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[str, Lease]] = {}
        self._tokens: Counter[UUID] = Counter()
        self._size = 0

    def __contains__(self, token: UUID) -> bool:
        return token in self._tokens

    def keep(self, worker_id: str, lease: Lease) -> None:
        key = lease.job_id, lease.token
        self._pop(key)
        self._known[key] = worker_id, lease
        self._tokens[lease.token] += 1
        self._size += len(lease.input)
        while len(self._known) > _LEASES_MAX or self._size > _INPUTS_MAX:
            self._pop(next(iter(self._known)))

    def get(self, worker_id: str, job_id: UUID, token: UUID) -> Lease | None:
        """Only for the worker that was given it."""
        found = self._known.get((job_id, token))
        return found[1] if found is not None and found[0] == worker_id else None

    def forget(self, lease: Lease) -> None:
        self._pop((lease.job_id, lease.token))

    def drop(self, tokens: Iterable[UUID]) -> None:
        dropped = {token for token in tokens if token in self._tokens}
        for key in [key for key in self._known if key[1] in dropped] if dropped else ():
            self._pop(key)

    def _pop(self, key: Key) -> None:
        found = self._known.pop(key, None)
        if found is not None:
            self._size -= len(found[1].input)
            self._tokens[key[1]] -= 1
            if not self._tokens[key[1]]:
                del self._tokens[key[1]]


_PAST: Final = {
    "workers.approve": "worker.approved",
    "workers.revoke": "worker.revoked",
    "workers.drain": "worker.drained",
    "workers.resume": "worker.resumed",
    "workers.rotate": "worker.rotated",
    "workers.assign": "worker.assigned",
}


def shortened(error: dict[str, Any]) -> dict[str, Any]:
    """An error as a worker tells it, made fit to be kept: whatever is wrong with it, it is not refused."""
    code, message = error.get("code"), error.get("message")
    told = {
        "code": code if isinstance(code, str) and _CODE.fullmatch(code) else "handler_failed",
        "message": values.printable(message if isinstance(message, str) else str(message), ERROR_TEXT_MAX)
        if message
        else "The worker gave no reason.",
    }
    whole = {**error, **told}
    try:
        if len(values.encode(whole, field="error")) <= _ERROR_MAX:
            return whole
    except InvalidError:
        pass
    return told


_ERROR_MAX: Final = 16_384


def _note(lease: Lease, kind: Kind | None, n: int, item: Any) -> Note:
    """A note as it is written: what is long is shortened, what is missing is an error."""
    match item.type:
        case "progress" if item.value is not None:
            return Note(lease, item.number, "progress", _json({"progress": item.value}), value=item.value)
        case "stage" if item.stage is not None:
            if kind is not None and item.stage not in kind.stages:
                raise InputError(
                    f"{item.stage!r} is not a stage of {lease.kind!r}.",
                    field=f"notes[{n}].stage",
                    hint=f"Its stages: {', '.join(kind.stages) or 'none'}.",
                )
            return Note(lease, item.number, "stage", _json({"stage": item.stage}), stage=item.stage)
        case "log" if item.text is not None:
            level, text = values.printable(item.level or "info", LEVEL_MAX), values.printable(item.text, LOG_MAX)
            return Note(lease, item.number, "log", _json({"level": level, "text": text}))
        case _:
            field = {"progress": "value", "stage": "stage", "log": "text"}[item.type]
            raise InvalidError("It is required.", field=f"notes[{n}].{field}")


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.encode(data).decode()


def _own(held: dict[Key, bool], jobs: Sequence[Key]) -> dict[Key, bool]:
    return {key: held[key] for key in jobs if key in held}


def _check_fleet(fleet: Principal) -> None:
    if fleet.tenant is not None:
        raise ForbiddenError(
            "The key is for one tenant; a worker of the fleet runs the jobs of all.",
            hint="Make a worker key without a tenant.",
        )


def _checked_routes(routes: Sequence[str]) -> tuple[str, ...]:
    if not routes:
        raise InvalidError("A worker serves one route at least.", field="routes")
    return tuple(sorted({values.check_name(route, field=f"routes[{n}]") for n, route in enumerate(routes)}))


async def _check_routes(tx: Connection, routes: Sequence[str]) -> None:
    known = {row["route"] for row in await fetch(tx, SQL["known_routes"], list(routes))}
    for n, route in enumerate(routes):
        if route not in known:
            raise UnknownRouteError(
                f"There is no route {route!r}.", field=f"routes[{n}]", hint="GET /v1/routes lists them."
            )


def _worker_id(given: str) -> str:
    return ids.text("worker", ids.parse("worker", given))


def _view(row: Row) -> WorkerView:
    fields: dict[str, Any] = dict(row)
    fields["routes"] = tuple(fields["routes"])
    fields["capabilities"] = None if row["capabilities"] is None else msgspec.json.decode(row["capabilities"])
    return WorkerView(**fields)


async def _write_audit(tx: Connection, actor: str, action: str, subject: str, **data: Any) -> None:
    await access.write_audit(tx, actor, action, subject=subject, data=data)


def _lost(job_id: UUID) -> LeaseLostError:
    logs.emit("lease.lost", job_id=job_id)
    return LeaseLostError()
