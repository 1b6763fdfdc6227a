"""Workers: the fleet, whose workers connect over HTTP, each with a token of its own.

A worker registers with the fleet secret and gets a token, of which only the digest is stored. All requests about a job
contain the job's lease token; the lease must be the worker's own and must not have expired. Polls of workers with the
same routes wait together: one claim serves many of them, and none of them holds a database connection meanwhile.
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
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from uuid import UUID

import msgspec

from millpond import ids, logs, values
from millpond.engine.access import access, credentials
from millpond.engine.batcher import Batcher
from millpond.engine.fleet.poll_groups import PollGroup
from millpond.engine.jobs import jobs
from millpond.engine.jobs.artifacts import named_in
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import ClaimRequest
from millpond.errors import (
    ArtifactMissingError,
    ConflictError,
    FleetFullError,
    ForbiddenError,
    InputError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    NotFoundError,
    TransitionDeniedError,
    UnauthorizedError,
    UnknownRouteError,
    WorkerAliveError,
    WorkerRevokedError,
    WorkerUnapprovedError,
)
from millpond.kinds import Kind
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries
from millpond.work import CHUNK_MAX, Chunk, End, HeartbeatAnswer, Lease, Note, Return

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from millpond.engine.access.access import Principal
    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import JobRecord
    from millpond.settings import Settings
    from millpond.store.db import Connection, Database, Row
    from millpond.store.queries import NamedQuery
    from millpond.wire import EmittedChunk

SQL: Final = queries("millpond.engine.fleet", "workers")

WORKER_TOPIC: Final = "worker:"
UNKNOWN: Final = "unknown"
"""The address of a caller whose address is not known."""
LIST_MAX: Final = 10_000
FORGET_AFTER: Final = timedelta(days=1)
"""A worker that has been silent for this long is deleted."""
FORGET_REVOKED_AFTER: Final = timedelta(days=30)
"""A revoked worker is deleted after this long: until then its name cannot be used."""

ERROR_TEXT_MAX: Final = 2_000
REASON_MAX: Final = 500
LOG_MAX: Final = 8_192
LEVEL_MAX: Final = 20

_KEEP_BAD: Final = 2.0
_KNOWN_MAX: Final = 20_000
_BAD_MAX: Final = 1_000
_HEAR_EVERY: Final = 10.0
_TEND_PAUSE: Final = 1.0
_GATHER: Final = 0.05
"""Heartbeats wait until the next multiple of this many seconds, so that they share a statement."""
_BUSY: Final = 400
"""With more heartbeats in a second they do not wait: they share statements as they come."""
_LEASES_MAX: Final = 50_000
_INPUTS_MAX: Final = 64 * 1024 * 1024
_CODE: Final = re.compile(r"[a-z0-9_.:-]{1,64}", re.IGNORECASE)

Status = Literal["unapproved", "idle", "busy", "draining", "unready", "lost", "revoked"]
Key = tuple[UUID, UUID]
"""A job and its lease token."""


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """The settings of the fleet."""

    workers_max: int = 50
    is_open: bool = True
    """Whether a worker is approved when it registers, without an operator."""
    lease: timedelta = timedelta(seconds=900)
    heartbeat: timedelta = timedelta(seconds=30)
    silence: timedelta = timedelta(seconds=60)
    """How long a worker must be silent before another one may take its name."""

    @classmethod
    def of(cls, settings: Settings) -> FleetSettings:
        return cls(
            settings.fleet_max,
            settings.fleet_approval == "auto",
            settings.fleet_lease,
            settings.fleet_heartbeat,
            settings.worker_silence,
        )


class WorkerRecord(msgspec.Struct, frozen=True):
    """A fleet worker, as authenticated by its token."""

    id: str
    worker: str
    routes: tuple[str, ...]
    slots: int
    is_approved: bool = True
    is_draining: bool = False
    is_revoked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as operators see it. A direct worker, which connects to the database, has no hint, fleet and routes."""

    id: str
    worker: str
    is_fleet: bool
    hint: str | None
    slots: int
    capabilities: Any
    fleet: str | None
    address: str | None
    registered_at: datetime
    heard_at: datetime
    approved_at: datetime | None
    draining_at: datetime | None
    revoked_at: datetime | None
    is_alive: bool
    routes: tuple[str, ...]
    queues: tuple[str, ...]
    """The queues from which it takes jobs; the routes of a fleet worker."""
    leases: int
    jobs: int
    granted_at: datetime | None
    expires_at: datetime | None
    polled_at: datetime | None
    """When it last polled for jobs."""
    unready_at: datetime | None
    unready_reason: str | None
    """Why it takes no jobs at present, as it reported."""

    @property
    def version(self) -> str | None:
        """The version of Millpond that the worker has reported."""
        given: Any = self.capabilities
        reported: dict[str, Any] = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        found = reported.get("millpond")
        return found if isinstance(found, str) else None

    @property
    def status(self) -> Status:
        """The first status that applies."""
        marks: tuple[tuple[object, Status], ...] = (
            (self.revoked_at, "revoked"),
            (not self.is_alive, "lost"),
            (self.approved_at is None, "unapproved"),
            (self.draining_at, "draining"),
            (self.unready_at, "unready"),
            (self.jobs, "busy"),
        )
        for mark, status in marks:
            if mark:
                return status
        return "idle"


@dataclass(slots=True)
class _Known:
    """The cache entry of a valid token."""

    record: WorkerRecord
    renew_at: float
    good_until: float
    hear_at: float = 0.0
    address: str = ""


@dataclass(frozen=True, slots=True)
class _Bad:
    """The cache entry of an invalid token. The worker of a valid one may still be revoked or unapproved."""

    good_until: float


@dataclass(frozen=True, slots=True)
class _Beat:
    """A heartbeat: the jobs that a worker reports as its own."""

    worker: str
    jobs: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Holder:
    """The worker that holds a job, and the state of that job."""

    worker: str
    tenant: str
    epoch: int
    is_canceling: bool


class Workers:
    """The fleet of one database."""

    def __init__(self, engine: Engine, settings: FleetSettings | None = None) -> None:
        self._engine = engine
        self.settings = settings or FleetSettings()
        self._known: dict[bytes, _Known] = {}
        self._bad: dict[bytes, _Bad] = {}
        self._changes = 0
        """The number of changes to workers so far: a lookup during which it grows may be out of date."""
        self._registering = asyncio.Lock()
        """Registrations take turns. Otherwise those of a whole fleet would each hold a connection while they wait."""
        self._poll_groups: dict[tuple[str, ...], PollGroup] = {}
        self._leases = _Leases()
        self._heard: dict[str, str] = {}
        self._polled: set[str] = set()
        """The workers that polled since their `heard_at` was last written."""
        self._closed: set[UUID] = set()
        self._tending: asyncio.Task[None] | None = None
        self._lookups: Batcher[bytes, _Known | _Bad] = Batcher(self._look_up)
        self._beats: Batcher[_Beat, dict[Key, bool]] = Batcher(self._beat)
        self._pace = _Pace()
        self._holders: Batcher[Key, Holder | None] = Batcher(self._look_at_holders)
        self._reads: Batcher[tuple[str, UUID], JobRecord] = Batcher(self._read)

    async def close(self) -> None:
        """End the waiting polls, and store which workers were heard from."""
        self.end_polls()
        if self._tending is not None:
            self._tending.cancel()
        await self._tend()

    # Registration

    async def open_route(self, route: str) -> None:
        """Make a queue a route of the fleet; the queue is created if it is missing."""
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
        """Register a worker; return it with its token, which is shown only once.

        A name belongs to one worker. While that worker is alive, another one is rejected; once it is silent, it is
        replaced, and its jobs are requeued. ``identity`` is what is known of the worker's machine, for the audit.
        """
        _check_fleet(fleet)
        name = values.check_name(worker, field="worker")
        chosen = _checked_routes(routes)
        encoded = None if capabilities is None else values.encode(capabilities, field="capabilities")
        token, worker_id = credentials.new_worker_token(), ids.text("worker", new_id())
        async with self._registering, self._engine.db.transaction() as tx:
            await fetch(tx, SQL["lock_fleet"])
            await _check_routes(tx, chosen)
            old = await self._make_room(tx, name)
            is_approved = self.settings.is_open
            marks = credentials.digest(token), credentials.hint(token)
            columns = slots, encoded, fleet.actor, address, is_approved, list(chosen)
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
        """Check that a worker with this name may register; return the worker that was removed for it."""
        namesake = await fetch(tx, SQL["namesake"], name, self.settings.silence)
        if namesake is not None:
            if namesake["is_revoked"]:
                raise WorkerRevokedError(
                    f"The worker {name!r} was revoked.", field="worker", hint="An operator can approve it again."
                )
            if namesake["alive_seconds"] > 0:
                raise WorkerAliveError(
                    f"A worker named {name!r} is registered and sends heartbeats.",
                    field="worker",
                    hint="Give each worker a unique name.",
                    retry_after=int(namesake["alive_seconds"]) + 1,
                )
            await fetch(tx, SQL["remove"], namesake["id"])
        alive = (await fetch(tx, SQL["alive"], self.settings.silence))["workers"]
        if alive >= self.settings.workers_max:
            raise FleetFullError(
                f"The fleet has {alive:,} workers; the limit is {self.settings.workers_max:,}.",
                hint="The limit is set by MILLPOND_FLEET_MAX.",
                limit=self.settings.workers_max,
                retry_after=max(1, round(self.settings.silence.total_seconds())),
            )
        return None if namesake is None else str(namesake["id"])

    async def deregister(self, worker: WorkerRecord, *, address: str = UNKNOWN) -> None:
        """Remove a worker; its jobs are requeued."""
        async with self._engine.db.transaction() as tx:
            if await fetch(tx, SQL["remove"], worker.id) is None:
                return
            data = {"address": address, "worker": worker.worker}
            await _write_audit(tx, worker.id, "worker.deregistered", worker.id, **data)
        logs.emit("worker.deregistered", worker=worker.worker, worker_id=worker.id)
        await self._gone(worker.id)

    async def _gone(self, worker_id: str) -> int:
        """Drop a removed worker from the caches of all processes; give back its leases, and return their number."""
        self._change(worker_id)
        tokens = [row["token"] for row in await self._engine.db.run(SQL["tokens_of"], worker_id)]
        for token in tokens:
            await self._engine.abandon(token)
        self._leases.drop(tokens)
        return len(tokens)

    async def drop_others(self, worker: WorkerRecord, held: Iterable[UUID]) -> None:
        """Give back a worker's leases other than these: they are from a poll whose response did not arrive."""
        known = set(held)
        tokens = [row["token"] for row in await self._engine.db.run(SQL["tokens_of"], worker.id)]
        for token in tokens:
            if token not in known:
                await self._engine.abandon(token)
        self._leases.drop(token for token in tokens if token not in known)

    async def authenticate(self, token: str, address: str = UNKNOWN) -> WorkerRecord:
        """The worker that has this token. A cached token costs no query; each call counts as a sign of life."""
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
            raise WorkerRevokedError(hint="Ask an operator.")
        if now >= known.hear_at or address != known.address:
            known.hear_at, known.address = now + min(_HEAR_EVERY, self.settings.silence.total_seconds() / 6), address
            self._heard[record.id] = address
            self._tend_soon()
        if not record.is_approved:
            raise WorkerUnapprovedError(hint="An operator can approve the worker with: millpond workers approve.")
        return record

    def is_known(self, token: str) -> bool:
        """Whether this process has accepted this token, and has not noticed that it became invalid."""
        return credentials.digest(token) in self._known

    async def _admit(self, token: str, digest: bytes, now: float) -> _Known:
        if not credentials.is_worker_token(token):
            raise UnauthorizedError(
                "The worker token is malformed or incomplete.",
                hint="A worker token begins with mpw_ and is returned by POST /v1/worker/register.",
            )
        found: _Known | _Bad | None = self._bad.get(digest)
        if found is None or now >= found.good_until:
            found = await self._lookups.add(digest)
        if isinstance(found, _Bad):
            raise UnauthorizedError(
                "The worker token is no longer valid: it was replaced, or its worker has left.", hint="Register again."
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
        left = access.KEEP if row["seconds_left"] is None else min(access.KEEP, row["seconds_left"])
        before = self._known.get(digest)
        heard = (0.0, "") if before is None else (before.hear_at, before.address)
        return _Known(record, now + access.RENEW, now + left, *heard)

    def hear(self, topics: frozenset[str]) -> None:
        """Called by the notifier: drop changed workers from the cache, and wake polls for which jobs have arrived."""
        changed = {topic[len(WORKER_TOPIC) :] for topic in topics if topic.startswith(WORKER_TOPIC)}
        if changed:
            self._changes += 1
            self._bad.clear()
            for digest, known in list(self._known.items()):
                if known.record.id in changed:
                    del self._known[digest]
        for group in self._poll_groups.values():
            group.hear(topics, changed)

    def _change(self, worker_id: str) -> None:
        topic = f"{WORKER_TOPIC}{worker_id}"
        self.hear(frozenset((topic,)))
        self._engine.notifier.notify({topic})

    # Jobs

    @property
    def waiting(self) -> int:
        """How many polls wait in this process."""
        return sum(group.waiters for group in self._poll_groups.values())

    def end_polls(self) -> None:
        """Answer the waiting polls now, without jobs."""
        for group in self._poll_groups.values():
            group.close()

    async def poll(self, worker: WorkerRecord, want: int, wait: float, *, address: str = UNKNOWN) -> list[Lease]:
        """Up to ``want`` jobs, as soon as there is one; none if the time is up or the worker was changed meanwhile.

        If the caller is canceled, jobs that were already claimed for it are given back.
        """
        self._polled.add(worker.id)
        if worker.is_draining or not worker.routes:
            return []
        group = self._poll_groups.get(worker.routes)
        if group is None:
            group = self._poll_groups[worker.routes] = PollGroup(
                self._engine, self.settings.lease, Lanes(worker.routes)
            )
        given = await group.ask(ClaimRequest(worker.id, want, address), wait)
        if not given and not wait:  # jobs behind the place where claims begin are found only by a claim of all
            group.lanes.poll_all_soon()
            given = await group.ask(ClaimRequest(worker.id, want, address), 0)
        for lease in given:
            self._leases.keep(worker.id, lease)
        return given

    async def heartbeat(self, worker: WorkerRecord, jobs: Sequence[Key]) -> HeartbeatAnswer:
        """Extend the leases of these jobs; return which of them must stop, and which are lost."""
        held = await self.beat(worker, jobs)
        return HeartbeatAnswer(
            frozenset(job_id for (job_id, _), is_canceling in held.items() if is_canceling),
            frozenset(key[0] for key in jobs if key not in held),
            worker.is_draining,
        )

    async def beat(self, worker: WorkerRecord, jobs: Sequence[Key]) -> dict[Key, bool]:
        """Extend leases; return the jobs that are held, and whether each must stop. Without jobs there is no query."""
        if not jobs:
            return {}
        if not self._pace.is_busy(now := time.monotonic()):
            await asyncio.sleep(_GATHER - now % _GATHER)
        return await self._beats.add(_Beat(worker.id, jobs))

    async def _beat(self, beats: Sequence[_Beat]) -> list[dict[Key, bool] | Exception]:
        items = [(job_id, token, beat.worker) for beat in beats for job_id, token in beat.jobs]
        columns = [list(column) for column in zip(*items, strict=True)]
        found: dict[str, dict[Key, bool]] = {}
        for row in await self._engine.db.run(SQL["beat"], *columns, self.settings.lease):
            found.setdefault(row["worker"], {})[row["job_id"], row["token"]] = row["is_canceling"]
        return [_own(found.get(beat.worker, {}), beat.jobs) for beat in beats]

    async def report_readiness(self, worker: WorkerRecord, reason: str | None) -> None:
        """Store why a worker takes no jobs at present; None if it takes jobs again."""
        shown = None if reason is None else values.printable(reason, REASON_MAX)
        if await self._engine.db.run(SQL["set_readiness"], worker.id, shown):
            event = "worker.ready" if shown is None else "worker.unready"
            logs.emit(event, worker=worker.worker, worker_id=worker.id, reason=shown)

    async def report_resources(self, worker: WorkerRecord, resources: Sequence[str]) -> None:
        """Store which resources a worker has loaded, among its capabilities."""
        await self._engine.db.run(SQL["set_resources"], worker.id, list(resources))

    async def lease(self, worker: WorkerRecord, job_id: UUID, token: UUID) -> Lease:
        """The job that this worker holds with this lease token now, as the database says."""
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
        """A lease that this worker was given: cached by the poll in this process, otherwise read.

        The statement that later writes with its token checks whether it is still held.
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
            parent_id=job.parent_id,
            has_steps=job.depth is not None and job.epoch > 1,
        )
        self._leases.keep(worker.id, lease)
        return lease

    async def _read(self, wanted: Sequence[tuple[str, UUID]]) -> list[JobRecord | Exception]:
        """Read jobs that other processes have leased, for many callers at once."""
        own: dict[Database, set[UUID]] = {}
        for tenant, job_id in wanted:
            own.setdefault(self._engine.database(tenant), set()).add(job_id)
        found: dict[tuple[str, UUID], JobRecord] = {}
        for database, job_ids in own.items():
            found |= {(job.tenant, job.job_id): job for job in await jobs.read_many(database, list(job_ids))}
        return [found.get(key) or _lost(key[1]) for key in wanted]

    async def note(self, worker: WorkerRecord, job_id: UUID, token: UUID, notes: Iterable[Any]) -> bool:
        """Write progress, stages and log lines; return whether the job must stop."""
        lease = await self._find(worker, job_id, token)
        kind = self._engine.app.kinds.get(lease.kind)
        written = [_note(lease, kind, n, item) for n, item in enumerate(notes)]
        try:
            return bool(written) and await self._engine.note(*written)
        except LeaseLostError:
            self._leases.forget(lease)
            raise

    async def emit(
        self, worker: WorkerRecord, texts: Sequence[tuple[UUID, UUID, Sequence[EmittedChunk]]]
    ) -> list[bool | MillpondError]:
        """Write text that jobs of this worker emit: of each, the id, the lease token and the numbered pieces.

        Each result is whether the job must stop, or why its text was not written.
        """
        found = await asyncio.gather(*(self._chunks(worker, *text) for text in texts))
        groups = [group for group in found if not isinstance(group, MillpondError)]
        written = iter(await self._engine.emit(*groups))
        results = [group if isinstance(group, MillpondError) else next(written) for group in found]
        for group, result in zip(found, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, MillpondError):
                raise result
            if isinstance(result, LeaseLostError) and not isinstance(group, MillpondError):
                self._leases.forget(group[0].lease)
        return cast("list[bool | MillpondError]", results)

    async def _chunks(
        self, worker: WorkerRecord, job_id: UUID, token: UUID, pieces: Sequence[EmittedChunk]
    ) -> list[Chunk] | MillpondError:
        try:
            lease = await self._find(worker, job_id, token)
            return [Chunk(lease, piece.number, _checked_piece(piece.text, n)) for n, piece in enumerate(pieces)]
        except MillpondError as error:
            return error

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
        """End a job that has succeeded, and return its state. A repeated call returns the same state.

        Its files are checked first: if one is not in storage as announced, that is an error, and the lease stays.
        """
        text = values.encode(output, field="output")
        try:
            lease = await self._find(worker, job_id, token)
            if captured is not None and captured > lease.price:
                raise InvalidError(f"The charge must not exceed the price of the job, {lease.price}.", field="captured")
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
        """If a kind declares which files its output names, they must be among the files that are checked."""
        kind = self._engine.app.kinds.get(lease.kind)
        if kind is None or kind.output_files is None:
            return
        named = set(kind.output_files(output))
        if not named or not named <= {file.id for file in files}:
            raise ArtifactMissingError("The output names no file that was stored in this attempt.", field="output")

    async def _confirm(self, lease: Lease, files: Sequence[Any]) -> None:
        store = self._engine.artifacts
        for n, file in enumerate(files):
            artifact_id = ids.parse("art", file.id)
            record = await store.read(lease.tenant, artifact_id)
            if record.job_id != lease.job_id or record.epoch != lease.epoch:
                raise NotFoundError(
                    f"The artifact {file.id!r} was not created under this lease.", field=f"artifacts[{n}].id"
                )
            await store.confirm(lease.tenant, artifact_id, size=file.size, sha256=file.sha256)

    async def _confirm_unlisted(self, lease: Lease, named: Iterable[str]) -> None:
        """Files of this attempt that the output names must be in storage too, listed or not."""
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
        """End a job that did not succeed, or requeue it for another attempt; return its fate."""
        detail = shortened(error)
        try:
            lease = await self._find(worker, job_id, token)
            if retry and outcome == "failed":
                pause = self._pause(lease, retry_after)
                fate = await self._engine.give_back(Return(lease, "attempt", detail, pause, origin=address))
            else:
                fate = await self._finish(End(lease, outcome, error=detail, origin=address))
        except LeaseLostError:
            await self.repeated(worker, job_id, token, outcome)
            return outcome
        self._over(lease)
        return fate

    async def _finish(self, end: End) -> str:
        try:
            await self._engine.finish(end)
        except TransitionDeniedError as denied:  # The lifecycle has no such transition; every running job can fail.
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
        """Requeue a job because its worker cannot continue, as an interruption, not an attempt; return its fate."""
        lease = await self._find(worker, job_id, token)
        message = (
            f"Requeued: {values.printable(reason, REASON_MAX)}" if reason else ("Requeued: the worker was interrupted.")
        )
        error = {"code": "interrupted", "message": message}
        try:
            fate = await self._engine.give_back(Return(lease, "interruption", error, origin=address))
        finally:
            self._over(lease)
        return fate

    async def park(self, worker: WorkerRecord, job_id: UUID, token: UUID, memo: Any = None) -> str:
        """Park a job until it is answered, and return its state."""
        lease = await self._find(worker, job_id, token)
        state = await self._engine.park(lease, memo)
        self._over(lease)
        return state

    async def abandon(self, leases: Iterable[Lease]) -> None:
        """Give back leases that were granted to a worker but never reached it."""
        for token in {lease.token for lease in leases}:
            await self._engine.abandon(token)
            self._leases.drop([token])

    async def repeated(self, worker: WorkerRecord, job_id: UUID, token: UUID, outcome: str) -> str:
        """The state of the job, if this worker has reported this end before. Otherwise the lease is lost."""
        ended = await self._engine.db.run(SQL["was_ended"], worker.id, ids.text("job", job_id), str(token), outcome)
        if ended is None:
            self._leases.drop([token])
            raise _lost(job_id)
        return (await self._engine.read(ended["tenant"], job_id)).state

    def _over(self, lease: Lease) -> None:
        """Forget the lease of a job that its worker no longer holds. A lease without jobs is closed soon."""
        self._leases.forget(lease)
        if lease.token not in self._leases:
            self._closed.add(lease.token)
            self._tend_soon()

    # Operators

    async def list(self) -> list[WorkerView]:
        """All workers, by name."""
        return [_view(row) for row in await self._engine.db.run(SQL["list"], None, self.settings.silence, LIST_MAX)]

    async def get(self, worker_id: str) -> WorkerView:
        rows = await self._engine.db.run(SQL["list"], _worker_id(worker_id), self.settings.silence, 1)
        if not rows:
            raise NotFoundError("The worker does not exist.", field="id")
        return _view(rows[0])

    async def approve(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Approve a worker that waits for approval, or that was revoked."""
        return await self._order(SQL["approve"], worker_id, actor, address)

    async def revoke(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Revoke a worker at once: its token is rejected, its name cannot be used, and its jobs are requeued."""
        await self._order(SQL["revoke"], worker_id, actor, address)
        await self._gone(_worker_id(worker_id))
        return await self.get(worker_id)

    async def drain(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Give a worker no more jobs; it finishes what it has."""
        return await self._order(SQL["drain"], worker_id, actor, address)

    async def resume(self, worker_id: str, *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Give jobs to a draining worker again."""
        return await self._order(SQL["resume"], worker_id, actor, address)

    async def rotate(
        self,
        worker_id: str,
        *,
        overlap: timedelta | str | float | None = None,
        actor: str,
        address: str = UNKNOWN,
    ) -> tuple[WorkerView, str]:
        """Make a new token for a worker. The old one is rejected at once, or after the overlap."""
        stays = None if overlap is None else values.duration(overlap, field="overlap")
        token = credentials.new_worker_token()
        columns = credentials.digest(token), credentials.hint(token), stays
        data = {"hint": credentials.hint(token)}
        return await self._order(SQL["rotate"], worker_id, actor, address, *columns, data=data), token

    async def assign(self, worker_id: str, routes: Sequence[str], *, actor: str, address: str = UNKNOWN) -> WorkerView:
        """Assign other routes to a worker; it finishes the jobs that it holds."""
        chosen = _checked_routes(routes)
        return await self._order(SQL["assign"], worker_id, actor, address, list(chosen), data={"routes": chosen})

    async def _order(
        self,
        verb: NamedQuery,
        worker_id: str,
        actor: str,
        address: str,
        *columns: Any,
        data: dict[str, Any] | None = None,
    ) -> WorkerView:
        """Apply one change to a worker, audit it, and notify all processes."""
        named = _worker_id(worker_id)
        async with self._engine.db.transaction() as tx:
            found = await fetch(tx, SQL["lock"], named)
            if found is None:
                raise NotFoundError("The worker does not exist.", field="id")
            if not found["is_fleet"] and verb not in _OF_ALL:
                raise ConflictError(
                    f"The worker {found['worker']!r} connects to the database: it has no token and no routes.",
                    field="id",
                    hint="It can be drained and resumed. To remove it, stop its process.",
                )
            if verb is SQL["assign"]:
                await _check_routes(tx, columns[0])
                await fetch(tx, SQL["unassign"], named)
            await fetch(tx, verb, named, *columns)
            details = {"address": address, "worker": found["worker"], **(data or {})}
            await _write_audit(tx, actor, _PAST[verb.name], named, **details)
        self._change(named)
        return await self.get(named)

    # Maintenance

    def _tend_soon(self) -> None:
        if self._tending is None or self._tending.done():
            self._tending = asyncio.create_task(self._tend_later())

    async def _tend_later(self) -> None:
        while self._heard or self._closed:
            await asyncio.sleep(_TEND_PAUSE)  # so that many are written at once
            await self._tend()

    async def _tend(self) -> None:
        """Store which workers were heard from, and close leases without jobs. A lost write does no harm."""
        heard, self._heard = self._heard, {}
        closed, self._closed = self._closed, set()
        polled = [worker_id in self._polled for worker_id in heard]
        self._polled.difference_update(heard)
        with contextlib.suppress(MillpondError):
            if heard:
                await self._engine.db.run(SQL["hear"], list(heard), list(heard.values()), polled)
            if closed:
                await self._engine.close_leases(closed)

    async def sweep(self, limit: int = 200) -> int:
        """Requeue the jobs of workers that have left or were revoked, and delete workers that were silent for long."""
        astray = [row["token"] for row in await self._engine.db.run(SQL["astray"], limit)]
        for token in astray:
            await self._engine.abandon(token)
        forgotten = await self._engine.db.run(SQL["forget"], FORGET_AFTER, FORGET_REVOKED_AFTER)
        for row in forgotten:
            logs.emit("worker.forgotten", worker=row["worker"], worker_id=row["id"])
            self._change(row["id"])
        return len(astray) + len(forgotten)


@dataclass(slots=True)
class _Pace:
    """Whether heartbeats are frequent, in this second or in the last."""

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
    """A cache of the leases that were granted in this process, bounded in number and size."""

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
        """The lease, only for the worker to which it was granted."""
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


_OF_ALL: Final = (SQL["drain"], SQL["resume"])
"""What can be done to direct workers too; the rest concerns tokens and routes."""

_PAST: Final = {
    "workers.approve": "worker.approved",
    "workers.revoke": "worker.revoked",
    "workers.drain": "worker.drained",
    "workers.resume": "worker.resumed",
    "workers.rotate": "worker.rotated",
    "workers.assign": "worker.assigned",
}


def shortened(error: dict[str, Any]) -> dict[str, Any]:
    """A worker's error, shortened so that it can be stored: even a malformed one is not rejected."""
    code, message = error.get("code"), error.get("message")
    checked = {
        "code": code if isinstance(code, str) and _CODE.fullmatch(code) else "handler_failed",
        "message": values.printable(message if isinstance(message, str) else str(message), ERROR_TEXT_MAX)
        if message
        else "No reason was given.",
    }
    whole = {**error, **checked}
    try:
        if len(values.encode(whole, field="error")) <= _ERROR_MAX:
            return whole
    except InvalidError:
        pass
    return checked


_ERROR_MAX: Final = 16_384


def _note(lease: Lease, kind: Kind | None, n: int, item: Any) -> Note:
    """A note as it is stored: long texts are shortened, a missing value is an error."""
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
            raise InvalidError("The argument is required.", field=f"notes[{n}].{field}")


def _checked_piece(text: str, n: int) -> str:
    field = f"chunks[{n}].text"
    if (size := values.check_text(text, field=field)) > CHUNK_MAX:
        raise InvalidError(f"The text has {size:,} bytes; the limit is {CHUNK_MAX:,}.", field=field)
    if not size:
        raise InvalidError("The text is empty.", field=field)
    return text


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.encode(data).decode()


def _own(held: dict[Key, bool], jobs: Sequence[Key]) -> dict[Key, bool]:
    return {key: held[key] for key in jobs if key in held}


def _check_fleet(fleet: Principal) -> None:
    if fleet.tenant is not None:
        raise ForbiddenError(
            "The key is limited to one tenant, but fleet workers run the jobs of all tenants.",
            hint="Create a worker key without a tenant.",
        )


def _checked_routes(routes: Sequence[str]) -> tuple[str, ...]:
    if not routes:
        raise InvalidError("A worker must serve at least one route.", field="routes")
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
    fields["routes"] = tuple(row["routes"])
    fields["queues"] = tuple(row["queues"] or row["routes"])
    fields["capabilities"] = None if row["capabilities"] is None else msgspec.json.decode(row["capabilities"])
    return WorkerView(**fields)


async def _write_audit(tx: Connection, actor: str, action: str, subject: str, **data: Any) -> None:
    await access.write_audit(tx, actor, action, subject=subject, data=data)


def _lost(job_id: UUID) -> LeaseLostError:
    logs.emit("lease.lost", job_id=job_id)
    return LeaseLostError()
