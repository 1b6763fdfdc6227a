"""Fires: what schedules do at their due times.

First a commit in central decides: it writes a fire for each due time, and moves the schedule to the next one. Then the
job is submitted, in the database of its tenant, and the fire is settled. A process that dies in between leaves a
pending fire, which the next one submits with the same id and the same idempotency key: it is one job in any case.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from millpond import ids, kinds, logs, values
from millpond.engine.access.access import write_audit
from millpond.engine.jobs.jobs import SCHEDULES
from millpond.engine.queue import schedules
from millpond.engine.queue.schedules import LATE, ScheduleRecord
from millpond.errors import ConflictError, IdempotencyConflictError, InvalidError, MillpondError, StoreError
from millpond.retry import DATABASE
from millpond.schedules import due_key
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import SubmitRequest
    from millpond.schedules import Cause, FireOutcome
    from millpond.store.db import Connection, Database, Row

SQL: Final = queries("millpond.engine.queue", "fires")

PAGE_MAX: Final = 200
BACKFILL_MAX: Final = 1_000
"""The limit of due times of one backfill."""
COUNTED_MAX: Final = 1_000
"""How far the due times are counted that are skipped together."""
_BATCH: Final = 100
_FIRES_MAX: Final = 2_000
"""When so many fires are decided on, the other schedules wait for the next commit."""
_PATIENCE: Final = timedelta(seconds=5)
"""How long the process that decided on a fire has to submit it, before another one does."""
_OVERLAPS: Final = "The job of the previous due time had not ended."
_MISSED: Final = "No process was there to fire it in time."
_LAST: Final = UUID(int=2**128 - 1)

FIRED: Final[Counter[str]] = Counter()
"""How many due times this process has settled since it started, by outcome."""


@dataclass(slots=True)
class Lateness:
    """How long after their due times, including the jitter, this process has submitted jobs."""

    count: int = 0
    seconds: float = 0.0


LATENESS: Final = Lateness()


@dataclass(frozen=True, slots=True)
class FireRecord:
    """What a schedule did at a due time, or from one due time until another."""

    fire_id: UUID
    schedule_id: UUID
    tenant: str
    due_at: datetime
    cause: Cause
    outcome: FireOutcome
    job_id: UUID | None
    reason: str | None
    """Why nothing was submitted: ``overlap``, ``catch_up``, or the code of an error."""
    message: str | None
    until: datetime | None
    """The last one of several due times that were skipped together."""
    times: int
    actor: str | None
    tries: int | None
    """How many processes have taken it while it is pending."""
    at: datetime

    @property
    def is_taken_over(self) -> bool:
        """Whether another process may have submitted the job."""
        return self.tries is not None and self.tries > 1

    @property
    def id(self) -> str:
        return ids.text("fire", self.fire_id)


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of the job of a fire."""

    state: str
    phase: str
    outcome: str | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The due times that have come: those that fire, and those that were missed and are not made up for."""

    fired: tuple[datetime, ...]
    skipped: tuple[datetime, datetime, int] | None
    """The first one, the last one, and how many."""
    next: datetime | None


@dataclass(frozen=True, slots=True)
class Backfill:
    """The due times of a period, and how many of them have no job and are fired."""

    due_times: int
    fires: int


@dataclass(frozen=True, slots=True)
class _Settlement:
    fire: FireRecord
    outcome: FireOutcome
    job_id: UUID | None = None
    reason: str | None = None
    message: str | None = None


@dataclass(slots=True)
class _Round:
    """What came of some pending fires."""

    settled: list[_Settlement] = field(default_factory=list[_Settlement])
    postponed: list[FireRecord] = field(default_factory=list[FireRecord])
    errors: dict[UUID, Exception] = field(default_factory=dict[UUID, Exception])

    def submitted(self, fire: FireRecord, job_id: UUID) -> None:
        self.settled.append(_Settlement(fire, "submitted", job_id))

    def skipped(self, fire: FireRecord) -> None:
        self.settled.append(_Settlement(fire, "skipped", None, "overlap", _OVERLAPS))

    def failed(self, fire: FireRecord, error: Exception) -> None:
        """Record that a submit was refused; what the database is to blame for is tried again."""
        self.errors[fire.fire_id] = error
        if isinstance(error, StoreError):
            self.postponed.append(fire)
            return
        known = error if isinstance(error, MillpondError) else MillpondError()
        self.settled.append(_Settlement(fire, "failed", None, known.code, values.printable(str(known))))
        if known is not error:
            logs.emit("service.failed", service="firer", error=f"{type(error).__name__}: {error}")


class Fires:
    """The fires of all schedules."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Reading

    async def list(
        self,
        schedule: ScheduleRecord,
        *,
        outcome: FireOutcome | None = None,
        before: UUID | None = None,
        limit: int = PAGE_MAX,
    ) -> list[FireRecord]:
        """One page, the last fire first; for the next page, pass the last id of this one as ``before``."""
        values.check_limit(limit, PAGE_MAX)
        rows = await self._engine.db.run(SQL["list"], schedule.schedule_id, before or _LAST, outcome, limit)
        return list(map(_record, rows))

    async def last(self, schedule_ids: Iterable[UUID]) -> dict[UUID, FireRecord]:
        """The last fire of each of these schedules."""
        rows = await self._engine.db.run(SQL["last"], list(schedule_ids))
        return {row["schedule_id"]: _record(row) for row in rows}

    async def jobs(self, fires: Iterable[FireRecord]) -> dict[UUID, JobState]:
        """The jobs of these fires that exist, by their ids."""
        wanted: dict[Database, set[UUID]] = defaultdict(set)
        for fire in fires:
            if fire.job_id is not None:
                wanted[self._engine.database(fire.tenant)].add(fire.job_id)
        found = [await _states(database, job_ids) for database, job_ids in wanted.items()]
        return {job_id: state for states in found for job_id, state in states.items()}

    # Operators

    async def run(self, schedule: ScheduleRecord, *, actor: str, key: str | None = None) -> tuple[FireRecord, bool]:
        """Submit a job of a schedule now, whatever its due times and its state are.

        Return the fire, and whether the key was used before: then it is the first one. If the job is refused, that is
        recorded and raised. If the database cannot be reached, the fire is pending, and the firer tries again.
        """
        if key is not None:
            values.check_key(key)
        kinds.find(self._engine.app.kinds, schedule.declared.kind)
        fire, is_known = await self._request_run(schedule, actor, key)
        if is_known:
            return fire, True
        errors = await self._submit([fire], {schedule.schedule_id: schedule})
        fire = await self._read(fire.fire_id)
        if fire.outcome == "failed":
            raise errors[fire.fire_id]
        return fire, False

    async def _request_run(self, schedule: ScheduleRecord, actor: str, key: str | None) -> tuple[FireRecord, bool]:
        """A pending fire for now; or the one of the same key, and that it was there."""

        async def work(tx: Connection) -> FireRecord | None:
            present = (await fetch(tx, schedules.SQL["present"]))["present"]
            made = await _decide(tx, [_Decision(schedule, present, new_id())], "manual", actor, key=key)
            if not made:
                return None
            await write_audit(tx, actor, "schedule.run", tenant=schedule.declared.tenant, subject=schedule.id)
            return made[0]

        while True:
            known = None if key is None else await self._engine.db.run(SQL["known"], schedule.schedule_id, key)
            if known is not None:
                return _record(known), True
            if (made := await self._engine.db.transact(work)) is not None:
                return made, False

    async def backfill(self, schedule: ScheduleRecord, since: datetime, until: datetime, *, actor: str) -> Backfill:
        """Fire the due times of a past period again that have no job: they were missed, skipped or refused.

        The firer submits the jobs. They do not wait for each other, whatever the overlap policy is.
        """
        times = await self._past(schedule, since, until)
        decisions = [_Decision(schedule, due_at, new_id()) for due_at in times]

        async def work(tx: Connection) -> int:
            made = await _decide(tx, decisions, "backfill", actor, patience=timedelta(0))
            data = {"since": since.isoformat(), "until": until.isoformat(), "fires": len(made)}
            tenant = schedule.declared.tenant
            await write_audit(tx, actor, "schedule.backfilled", tenant=tenant, subject=schedule.id, data=data)
            return len(made)

        return Backfill(len(times), await self._engine.db.transact(work))

    async def preview_backfill(self, schedule: ScheduleRecord, since: datetime, until: datetime) -> Backfill:
        """Count the due times that a backfill of this period would fire now, and fire none."""
        times = await self._past(schedule, since, until)
        row = await self._engine.db.run(SQL["missing"], schedule.schedule_id, times)
        return Backfill(len(times), row["due_times"])

    async def _past(self, schedule: ScheduleRecord, since: datetime, until: datetime) -> list[datetime]:
        """The due times of a past period, in order."""
        _check_period(since, until, await self._engine.schedules.present())
        kinds.find(self._engine.app.kinds, schedule.declared.kind)
        found = takewhile(lambda due_at: due_at >= since, schedule.declared.timing.before(until))
        times = list(islice(found, BACKFILL_MAX + 1))[::-1]
        if len(times) > BACKFILL_MAX:
            raise InvalidError(
                f"The period has more than {BACKFILL_MAX:,} due times.", field="since", hint="Use shorter periods."
            )
        return times

    async def _read(self, fire_id: UUID) -> FireRecord:
        row = await self._engine.db.run(SQL["read"], fire_id)
        if row is None:
            raise ConflictError("The schedule was deleted meanwhile.")
        return _record(row)

    # The firer

    async def fire(self) -> int:
        """Decide on due times that have come, and submit their jobs; returns the number of schedules that fired."""
        fired, decided = await self._engine.db.transact(self._decide_due)
        for fire in decided:
            if fire.outcome == "skipped":
                FIRED["skipped"] += fire.times
                _report(fired[fire.schedule_id], fire, "skipped", reason=fire.reason)
        await self._submit([fire for fire in decided if fire.outcome == "pending"], fired)
        return len(fired)

    async def recover(self) -> int:
        """Submit pending fires whose process has not; returns their number."""
        rows = await self._engine.db.run(SQL["take"], list(self._engine.app.kinds), _BATCH, _PATIENCE)
        taken = sorted(map(_record, rows), key=lambda fire: fire.fire_id)
        if taken:
            found = await self._engine.db.run(schedules.SQL["read_many"], list({fire.schedule_id for fire in taken}))
            known = {each.schedule_id: each for each in map(schedules.record, found)}
            await self._submit([fire for fire in taken if fire.schedule_id in known], known)
        return len(taken)

    async def prune(self, retention: timedelta, limit: int) -> int:
        """Delete fires that are older than this."""
        return len(await self._engine.db.run(SQL["prune"], retention, limit))

    async def _decide_due(self, tx: Connection) -> tuple[dict[UUID, ScheduleRecord], list[FireRecord]]:
        """Write the fires of schedules that are due, and move these to their next due times."""
        fired: dict[UUID, ScheduleRecord] = {}
        moves: list[tuple[UUID, datetime | None, datetime | None]] = []
        decisions: list[_Decision] = []
        for row in await fetch(tx, SQL["due"], list(self._engine.app.kinds), _BATCH):
            await asyncio.sleep(0)  # after an outage, there may be much to count
            found = _due(row)
            if found is None:  # it is looked at again later, perhaps by another process
                moves.append((row["schedule_id"], row["due_at"], row["present"] + LATE))
                continue
            schedule, due = found
            fired[schedule.schedule_id] = schedule
            moves.append(
                (schedule.schedule_id, *schedules.next_fire(schedule.declared, due.next, schedule.schedule_id))
            )
            decisions += _decisions(schedule, due)
            if len(decisions) >= _FIRES_MAX:
                break
        if moves:
            await fetch(tx, SQL["move"], *map(list, zip(*moves, strict=True)))
        return fired, await _decide(tx, decisions, "schedule", None)

    # Submitting

    async def _submit(
        self, pending: Sequence[FireRecord], known: Mapping[UUID, ScheduleRecord]
    ) -> dict[UUID, Exception]:
        """Submit the jobs of pending fires; returns the errors of those that were refused or are tried again.

        Fires for which the previous one matters are submitted one after another, together with those of other
        schedules.
        """
        lines: dict[UUID, deque[FireRecord]] = defaultdict(deque)
        free: list[FireRecord] = []
        for fire in pending:
            (lines[fire.schedule_id] if _is_ordered(fire, known) else free).append(fire)
        errors: dict[UUID, Exception] = {}
        while heads := [*free, *(line.popleft() for line in lines.values() if line)]:
            free = []
            done = await self._submit_round(heads, known)
            await self._settle(done, known)
            errors |= done.errors
            for fire in done.postponed:  # those behind it wait, too
                lines.pop(fire.schedule_id, None)
        return errors

    async def _submit_round(self, fires: Sequence[FireRecord], known: Mapping[UUID, ScheduleRecord]) -> _Round:
        done = _Round()
        ready = await self._ready(fires, known, done)
        requests = [_request(fire, known[fire.schedule_id]) for fire in ready]
        for fire, answer in zip(ready, await self._engine.submit_many(requests), strict=True):
            if not isinstance(answer, Exception):
                done.submitted(fire, answer.job_id)
            elif (job_id := _existing(fire, answer)) is not None:
                done.submitted(fire, job_id)
            else:
                done.failed(fire, answer)
        return done

    async def _ready(
        self, fires: Sequence[FireRecord], known: Mapping[UUID, ScheduleRecord], done: _Round
    ) -> list[FireRecord]:
        """The fires whose jobs are to be submitted now, once the jobs of previous ones are canceled.

        The others are skipped, or have been submitted by a process that died before it recorded that. Whether the job
        of a fire exists is looked up by its id: its key may have been pruned.
        """
        previous = await self._previous(fires, known)
        states, lost = await self._look_up(fires, previous)
        ready: list[FireRecord] = []
        canceling: list[FireRecord] = []
        for fire in fires:
            before = previous.get(fire.fire_id)
            if (error := lost.get(self._engine.database(fire.tenant))) is not None:
                done.failed(fire, error)
            elif fire.is_taken_over and fire.job_id is not None and fire.job_id in states:
                done.submitted(fire, fire.job_id)
            elif before is None or not _is_active(before, states):
                ready.append(fire)
            elif known[fire.schedule_id].declared.overlap == "skip":
                done.skipped(fire)
            else:
                canceling.append(fire)
        errors = await asyncio.gather(*(self._cancel(fire, previous[fire.fire_id]["job_id"]) for fire in canceling))
        for fire, error in zip(canceling, errors, strict=True):
            if error is None:
                ready.append(fire)
            else:
                done.failed(fire, error)
        return ready

    async def _look_up(
        self, fires: Sequence[FireRecord], previous: Mapping[UUID, Row]
    ) -> tuple[dict[UUID, JobState], dict[Database, StoreError]]:
        """The jobs that previous fires have submitted, and dead processes for these; and the databases that failed."""
        wanted: dict[Database, set[UUID]] = defaultdict(set)
        for fire in fires:
            own = wanted[self._engine.database(fire.tenant)]
            if fire.is_taken_over and fire.job_id is not None:
                own.add(fire.job_id)
            if fire.fire_id in previous:
                own.add(previous[fire.fire_id]["job_id"])
        states: dict[UUID, JobState] = {}
        lost: dict[Database, StoreError] = {}
        for database, job_ids in wanted.items():
            try:
                states |= await _states(database, job_ids) if job_ids else {}
            except StoreError as error:
                lost[database] = error
        return states, lost

    async def _previous(self, fires: Sequence[FireRecord], known: Mapping[UUID, ScheduleRecord]) -> dict[UUID, Row]:
        """The fires before these that have submitted a job, or are about to, where that matters."""
        own = [fire for fire in fires if _is_ordered(fire, known)]
        if not own:
            return {}
        rows = await self._engine.db.run(
            SQL["previous"], [fire.fire_id for fire in own], [fire.schedule_id for fire in own]
        )
        return {row["fire_id"]: row for row in rows}

    async def _cancel(self, fire: FireRecord, job_id: UUID) -> StoreError | None:
        """Cancel the job of the previous due time. If its database cannot be reached, the new one is not submitted."""
        try:
            await self._engine.cancel(fire.tenant, job_id)
        except StoreError as error:
            return error
        except MillpondError as error:  # its stage refuses a cancel: it continues beside the new one
            logs.emit("schedule.cancel_refused", job_id=job_id, error=error.message)
        return None

    async def _settle(self, done: _Round, known: Mapping[UUID, ScheduleRecord]) -> None:
        if done.postponed:
            delays = [DATABASE.delay(fire.tries or 1, 0.5) + _PATIENCE for fire in done.postponed]
            await self._engine.db.run(SQL["postpone"], [fire.fire_id for fire in done.postponed], delays)
        if not done.settled:
            return
        columns = zip(*((s.fire.fire_id, s.outcome, s.job_id, s.reason, s.message) for s in done.settled), strict=True)
        rows = await self._engine.db.run(SQL["settle"], *map(list, columns))
        settled: dict[UUID, Row] = {row["fire_id"]: row for row in rows}
        for each in done.settled:
            row = settled.get(each.fire.fire_id)
            if row is not None:
                _count(each, known[each.fire.schedule_id], row["present"])


@dataclass(frozen=True, slots=True)
class _Decision:
    """A due time of a schedule that fires, or several that are skipped together."""

    schedule: ScheduleRecord
    due_at: datetime
    job_id: UUID | None
    until: datetime | None = None
    times: int = 1


def due_times(schedule: ScheduleRecord, due_at: datetime, present: datetime) -> DueTimes:
    """The due times from the next one on that have come, as the catch-up policy of the schedule has it."""
    timing = schedule.declared.timing

    def come() -> Iterator[datetime]:
        """Those that have come, the last one first."""
        passed = takewhile(lambda time: time >= due_at, timing.before(present))
        return (time for time in passed if timing.delayed(time, schedule.schedule_id) <= present)

    def is_late(time: datetime) -> bool:
        return present - timing.delayed(time, schedule.schedule_id) > LATE

    if not is_late(due_at):
        fired = list(come())
    elif schedule.declared.catch_up == "none":
        fired = list(takewhile(lambda time: not is_late(time), come()))
    else:
        fired = list(islice(come(), 1 if schedule.declared.catch_up == "last" else schedule.declared.catch_up_max))
    missed = list(islice(come(), len(fired), len(fired) + COUNTED_MAX)) if is_late(due_at) else []
    newest = next(come(), due_at)
    skipped = (due_at, missed[0], len(missed)) if missed else None
    return DueTimes(tuple(reversed(fired)), skipped, next(timing.after(newest), None))


def _due(row: Row) -> tuple[ScheduleRecord, DueTimes] | None:
    """A schedule with its due times; None if this process does not understand it, such as its time zone."""
    try:
        schedule = schedules.record(row)
        return schedule, due_times(schedule, row["due_at"], row["present"])
    except Exception as error:  # noqa: BLE001 - the other schedules go on
        name, reason = row["name"], f"{type(error).__name__}: {error}"
        logs.emit("service.failed", service="firer", error=f"schedule {name} of {row['tenant']}: {reason}")
        return None


def _decisions(schedule: ScheduleRecord, due: DueTimes) -> Iterator[_Decision]:
    if due.skipped is not None:
        first, last, count = due.skipped
        yield _Decision(schedule, first, None, None if last == first else last, count)
    for due_at in due.fired:
        yield _Decision(schedule, due_at, new_id())


async def _decide(
    tx: Connection,
    decisions: Sequence[_Decision],
    cause: Cause,
    actor: str | None,
    *,
    key: str | None = None,
    patience: timedelta = _PATIENCE,
) -> list[FireRecord]:
    """Write the fires of these decisions, but for due times that have one. The caller submits them within patience."""
    if not decisions:
        return []
    rows = await fetch(
        tx,
        SQL["decide"],
        [each.schedule.schedule_id for each in decisions],
        [each.schedule.declared.tenant for each in decisions],
        [each.due_at for each in decisions],
        [each.job_id for each in decisions],
        [None if each.job_id is not None else "catch_up" for each in decisions],
        [None if each.job_id is not None else _MISSED for each in decisions],
        [each.until for each in decisions],
        [each.times for each in decisions],
        list(range(len(decisions))),
        cause,
        actor,
        patience,
        key,
    )
    return list(map(_record, rows))


def _check_period(since: datetime, until: datetime, present: datetime) -> None:
    for name, value in (("since", since), ("until", until)):
        values.check_time(value, field=name)
    if until > present:
        raise InvalidError("The period must be in the past.", field="until")
    if since > until:
        raise InvalidError("The period must begin before its end.", field="since")


def _request(fire: FireRecord, schedule: ScheduleRecord) -> SubmitRequest:
    declared = schedule.declared
    return {
        "kind": declared.kind,
        "input": declared.input_at(fire.due_at),
        "tenant": declared.tenant,
        "account": declared.account,
        "scope": SCHEDULES,
        "idempotency_key": due_key(fire.schedule_id, fire.due_at),
        "priority": declared.priority,
        "expires_in": declared.expires_in,
        "tags": declared.job_tags,
        "job_id": fire.job_id,
    }


def _existing(fire: FireRecord, error: Exception) -> UUID | None:
    """The job of a due time that was submitted before the schedule was changed, with what it submitted then."""
    if isinstance(error, IdempotencyConflictError):
        return ids.parse("job", error.details["job_id"])
    if isinstance(error, ConflictError) and error.field == "job_id":
        return fire.job_id
    return None


async def _states(database: Database, job_ids: Iterable[UUID]) -> dict[UUID, JobState]:
    """The states of those of these jobs that exist."""
    rows = await database.run(SQL["states"], list(job_ids))
    return {job_id: JobState(*state) for job_id, *state in rows}


def _is_ordered(fire: FireRecord, known: Mapping[UUID, ScheduleRecord]) -> bool:
    """Whether the job of the previous due time matters."""
    return fire.cause == "schedule" and known[fire.schedule_id].declared.overlap != "queue"


def _is_active(previous: Row, states: Mapping[UUID, JobState]) -> bool:
    """Whether the job of a fire has not ended. A job that is not found was deleted with its week, so it has ended."""
    if previous["outcome"] == "pending":
        return True
    state = states.get(previous["job_id"])
    return state is not None and state.phase != "ended"


def _count(settlement: _Settlement, schedule: ScheduleRecord, present: datetime) -> None:
    FIRED[settlement.outcome] += 1
    fire, more = settlement.fire, {"reason": settlement.reason} if settlement.reason else {}
    if settlement.outcome == "submitted":
        more = {"job_id": settlement.job_id}
        if fire.cause == "schedule":
            fires_at = schedule.declared.timing.delayed(fire.due_at, schedule.schedule_id)
            LATENESS.count += 1
            LATENESS.seconds += max((present - fires_at).total_seconds(), 0.0)
    _report(schedule, fire, settlement.outcome, **more)


def _report(schedule: ScheduleRecord, fire: FireRecord, outcome: FireOutcome, **more: Any) -> None:
    declared = schedule.declared
    logs.emit(
        _EVENTS[outcome],
        tenant=declared.tenant,
        schedule=declared.name,
        kind=declared.kind,
        due_at=fire.due_at.isoformat(),
        cause=fire.cause,
        **more,
    )


_EVENTS: Final = {
    "submitted": "schedule.submitted",
    "skipped": "schedule.skipped",
    "failed": "schedule.failed",
}


def _record(row: Row) -> FireRecord:
    return FireRecord(**row)
