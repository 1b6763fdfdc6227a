"""The board: the data of the overview, all as of one moment, with alarms for what an operator should look at first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from millpond import ids
from millpond.engine.queue.schedules import LATE
from millpond.engine.reads import fleet, health
from millpond.engine.webhooks import deliveries
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from millpond.engine.engine import Engine
    from millpond.engine.fleet.workers import WorkerView
    from millpond.engine.reads.counters import Count, Failure, Flow, Spender
    from millpond.engine.reads.health import QueueHealth
    from millpond.store.db import Row

SQL: Final = queries("millpond.engine.reads", "board")

FAILURES: Final = 5
SPENDERS: Final = 5
ENDPOINTS_MAX: Final = 20
"""The maximum number of failing endpoints that are listed."""
SCHEDULES_MAX: Final = 10
"""The maximum number of overdue schedules that are listed, and of those that submit no jobs."""
SCHEDULES_WALK: Final = 1_000
"""Among how many of the newest schedules those are searched that submit no jobs: no index has them."""
REFUSALS: Final = 2
"""An alarm is raised if the jobs of so many fires in a row were refused: one may be an accident."""
LOST_MIN: Final = 5
LOST_SHARE: Final = 0.05
LOST_TIMES: Final = 3
"""An alarm needs at least LOST_MIN failed or expired jobs in an hour, a share of LOST_SHARE of the ended jobs, and
LOST_TIMES the usual share.
"""
LOST_BAD: Final = 0.5
"""This share always raises an alarm, of level ``bad``: also if it has been usual since yesterday."""

Level = Literal["bad", "warn"]
Subject = Literal["queue", "worker", "endpoint", "schedule", "failure", "hold"]

_VERDICTS: Final[dict[str, Level]] = {"stuck": "bad", "unserved": "bad", "paused": "warn"}


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator should look at."""

    level: Level
    text: str
    type: Subject
    id: str
    tenant: str | None = None
    """The tenant of the subject, if it belongs to one."""


@dataclass(frozen=True, slots=True)
class FleetCounts:
    """The number of workers by condition."""

    ok: int = 0
    draining: int = 0
    deaf: int = 0
    unready: int = 0
    unapproved: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The slots of the live workers that run jobs, and how many of these slots hold a job.

    A draining worker has only the slots that hold a job: the others get none.
    """

    slots: int | None = None
    slots_used: int | None = None


@dataclass(frozen=True, slots=True)
class Board:
    """The data of the overview. For one tenant it leaves out queues and workers, which all tenants share."""

    at: datetime
    phases: Counter[str]
    held: int
    hour: Flow
    webhooks_pending: int
    webhooks_failing: int
    capacity: Capacity
    queues: Sequence[QueueHealth]
    crew: FleetCounts
    failures: Sequence[Failure]
    spenders: Sequence[Spender]
    alarms: Sequence[Alarm]

    @property
    def oldest_wait_seconds(self) -> float | None:
        return max((queue.oldest_wait_seconds or 0 for queue in self.queues if queue.ready), default=None)


async def look(engine: Engine, tenant: str | None = None) -> Board:
    """Build the board. All numbers come from counters or from jobs that have not ended: no history is read."""
    counters = engine.counters
    at = await counters.clock()
    counts = await counters.counts(tenant)
    hour = await counters.total("1h", tenant=tenant, at=at)
    day = await counters.total("24h", tenant=tenant, at=at)
    failures = (await counters.failures("1h", tenant=tenant, limit=FAILURES, at=at)).data
    pending, failing = await _webhooks(engine, tenant)
    queues = await engine.queue_health() if tenant is None else []
    crew, capacity, deaf = await _crew(engine, at) if tenant is None else (FleetCounts(), Capacity(), [])
    alarms = [
        *_queues(queues),
        *deaf,
        *_miscounted(counts),
        *_failing(hour, day, failures),
        *await _endpoints(engine, tenant),
        *await _schedules(engine, tenant),
    ]
    return Board(
        at=at,
        phases=_phases(counts),
        held=sum(count.held for count in counts),
        hour=hour,
        webhooks_pending=pending,
        webhooks_failing=failing,
        capacity=capacity,
        queues=queues,
        crew=crew,
        failures=failures,
        spenders=await counters.spenders(SPENDERS, tenant, at=at),
        alarms=sorted(alarms, key=lambda alarm: alarm.level),
    )


def _phases(counts: Sequence[Count]) -> Counter[str]:
    phases: Counter[str] = Counter()
    for count in counts:
        phases[count.phase] += count.n
    return phases


async def _webhooks(engine: Engine, tenant: str | None) -> tuple[int, int]:
    if tenant is None:
        return await deliveries.waiting(engine.tenant_databases)
    row = await engine.database(tenant).run(SQL["webhooks"], tenant, health.COUNT_MAX)
    return row["pending"], row["failing"]


async def _crew(engine: Engine, at: datetime) -> tuple[FleetCounts, Capacity, list[Alarm]]:
    """The condition of the workers, their slots, and an alarm for each deaf or unready worker."""
    workers = await engine.workers.list()
    routes = await engine.scaling.routes()
    deaf = [worker for worker in workers if fleet.is_deaf(worker, routes, at)]
    by_status = Counter(worker.status for worker in workers)
    working = [worker for worker in workers if worker.status in ("idle", "busy")]
    crew = FleetCounts(
        ok=len(working) - len(deaf),
        draining=by_status["draining"],
        deaf=len(deaf),
        unready=by_status["unready"],
        unapproved=by_status["unapproved"],
        lost=by_status["lost"],
    )
    alarms = [
        Alarm(
            "bad",
            f"Worker {worker.worker} sends heartbeats but does not poll although jobs of its routes wait.",
            "worker",
            worker.id,
        )
        for worker in deaf
    ] + [
        Alarm("bad", f"Worker {worker.worker} takes no jobs: {worker.unready_reason}", "worker", worker.id)
        for worker in workers
        if worker.status == "unready"
    ]
    return crew, _capacity(working, [worker for worker in workers if worker.status == "draining"]), alarms


def _capacity(working: Sequence[WorkerView], draining: Sequence[WorkerView]) -> Capacity:
    if not working and not draining:
        return Capacity()
    held = sum(worker.jobs for worker in draining)
    return Capacity(sum(worker.slots for worker in working) + held, sum(worker.jobs for worker in working) + held)


def _queues(queues: Sequence[QueueHealth]) -> Iterator[Alarm]:
    for queue in queues:
        if level := _VERDICTS.get(queue.verdict):
            yield Alarm(level, f"Queue {queue.queue}: {queue.reason}", "queue", queue.queue)


async def _endpoints(engine: Engine, tenant: str | None) -> list[Alarm]:
    query = SQL["failing"]
    if tenant is None:
        rows = await engine.tenant_databases.gather(query, None, ENDPOINTS_MAX)
    else:
        rows = await engine.database(tenant).run(query, tenant, ENDPOINTS_MAX)
    for_long = [(row, health.span(row["present"] - row["failing_since"])) for row in rows]
    return [
        Alarm(
            "warn",
            f"No delivery to an endpoint of {row['tenant']} has succeeded for {span}.",
            "endpoint",
            ids.text("ep", row["id"]),
            row["tenant"],
        )
        for row, span in for_long
    ]


async def _schedules(engine: Engine, tenant: str | None) -> list[Alarm]:
    """An alarm for each schedule that nobody fires, and for each that fires and submits no jobs."""
    overdue = await engine.db.run(SQL["overdue"], tenant, LATE, SCHEDULES_MAX)
    fruitless = await engine.db.run(SQL["fruitless"], tenant, SCHEDULES_WALK, REFUSALS, SCHEDULES_MAX)
    return [
        _schedule(
            "bad", row, f"should have fired {health.span(row['late'])} ago: no process that has its kind fires it."
        )
        for row in overdue
    ] + [
        _schedule("warn", row, "is orphaned: its app no longer declares it.")
        if row["is_orphaned"]
        else _schedule("warn", row, f"submits no jobs: the last {REFUSALS} were refused ({row['reason']}).")
        for row in fruitless
    ]


def _schedule(level: Level, row: Row, text: str) -> Alarm:
    name, tenant = row["name"], row["tenant"]
    return Alarm(level, f"Schedule {name} of {tenant} {text}", "schedule", ids.text("sched", row["id"]), tenant)


def _failing(hour: Flow, day: Flow, failures: Sequence[Failure]) -> Iterator[Alarm]:
    """Yield an alarm if far more jobs fail than usual."""
    share = hour.lost / max(1, hour.ended)
    usual = (day.lost - hour.lost) / max(1, day.ended - hour.ended)
    is_usual = share < min(LOST_BAD, max(LOST_SHARE, usual * LOST_TIMES))
    if hour.lost < LOST_MIN or is_usual or not failures:
        return
    text = (
        f"{hour.lost:,} of {hour.ended:,} jobs that ended in the last hour failed; on the previous day, "
        f"{usual:.0%} failed."
    )
    top = failures[0]
    more = f" Most frequent: {top.code} in {top.kind}."
    yield Alarm("bad" if share >= LOST_BAD else "warn", text + more, "failure", top.fingerprint)


def _miscounted(counts: Sequence[Count]) -> Iterator[Alarm]:
    """Yield an alarm for each negative counter: something has changed jobs without the engine."""
    for count in counts:
        if count.n < 0 or count.held < 0:
            text = (
                f"The counters of kind {count.kind} in state {count.state} are inconsistent. Run "
                "`millpond verify` for details. If the counters are not corrected automatically, run "
                "`millpond db recount`."
            )
            yield Alarm("bad", text, "hold", count.kind)
