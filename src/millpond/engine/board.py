"""The board: is anything on fire? All numbers of one moment, and in words what an operator should look at first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from millpond import ids
from millpond.engine import deliveries, fleet, health
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from millpond.engine.engine import Engine
    from millpond.engine.health import QueueHealth
    from millpond.engine.tallies import Count, Failure, Flow, Spender

SQL: Final = queries("millpond.engine", "board")

FAILURES: Final = 5
SPENDERS: Final = 5
ENDPOINTS_MAX: Final = 20
"""So many failing endpoints are named."""
LOST_MIN: Final = 5
LOST_SHARE: Final = 0.05
LOST_TIMES: Final = 3
"""Failures are an alarm when they are this many in an hour, this share of what ended, and this many times the usual."""
LOST_BAD: Final = 0.5
"""This share is one in any case, and a bad one: it is no less so for having lasted since yesterday."""

Level = Literal["bad", "warn"]
Subject = Literal["queue", "worker", "endpoint", "failure", "hold"]

_VERDICTS: Final[dict[str, Level]] = {"stuck": "bad", "unserved": "bad", "paused": "warn"}


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that somebody should look at."""

    level: Level
    text: str
    type: Subject
    id: str
    tenant: str | None = None
    """Whose that is, where it is somebody's."""


@dataclass(frozen=True, slots=True)
class Crew:
    """The fleet, by how it is."""

    ok: int = 0
    draining: int = 0
    deaf: int = 0
    unapproved: int = 0


@dataclass(frozen=True, slots=True)
class Board:
    """Where everything stands; of one tenant, without what is everybody's: queues and workers."""

    at: datetime
    phases: Counter[str]
    held: int
    hour: Flow
    webhooks_pending: int
    webhooks_failing: int
    slots: int | None
    queues: Sequence[QueueHealth]
    crew: Crew
    failures: Sequence[Failure]
    spenders: Sequence[Spender]
    alarms: Sequence[Alarm]

    @property
    def oldest_wait_seconds(self) -> float | None:
        return max((queue.oldest_wait_seconds or 0 for queue in self.queues if queue.ready), default=None)


async def look(engine: Engine, tenant: str | None = None) -> Board:
    """Every number comes from what is kept as jobs move, or from the few that are under way."""
    tallies = engine.tallies
    at = await tallies.clock()
    counts = await tallies.counts(tenant)
    hour = await tallies.total("1h", tenant=tenant, at=at)
    day = await tallies.total("24h", tenant=tenant, at=at)
    failures = (await tallies.failures("1h", tenant=tenant, most=FAILURES, at=at)).data
    pending, failing = await _webhooks(engine, tenant)
    queues = await health.queues(engine.db, engine.homes) if tenant is None else []
    crew, slots, deaf = await _crew(engine, at) if tenant is None else (Crew(), None, [])
    alarms = [
        *_queues(queues),
        *deaf,
        *_miscounted(counts),
        *_failing(hour, day, failures),
        *await _endpoints(engine, tenant),
    ]
    return Board(
        at=at,
        phases=_phases(counts),
        held=sum(count.held for count in counts),
        hour=hour,
        webhooks_pending=pending,
        webhooks_failing=failing,
        slots=slots,
        queues=queues,
        crew=crew,
        failures=failures,
        spenders=await tallies.spenders(SPENDERS, tenant, at=at),
        alarms=sorted(alarms, key=lambda alarm: alarm.level),
    )


def _phases(counts: Sequence[Count]) -> Counter[str]:
    phases: Counter[str] = Counter()
    for count in counts:
        phases[count.phase] += count.n
    return phases


async def _webhooks(engine: Engine, tenant: str | None) -> tuple[int, int]:
    if tenant is None:
        return await deliveries.waiting(engine.homes)
    row = await engine.home(tenant).run(SQL["webhooks"], tenant, health.COUNT_MAX)
    return row["pending"], row["failing"]


async def _crew(engine: Engine, at: datetime) -> tuple[Crew, int | None, list[Alarm]]:
    """How the fleet is, what it can do at once, and who of it does not hear."""
    workers = await engine.workers.list()
    routes = await engine.scaling.routes()
    deaf = [worker for worker in workers if fleet.is_deaf(worker, routes, at)]
    by_status = Counter(worker.status for worker in workers)
    working = [worker for worker in workers if worker.status in ("idle", "busy")]
    crew = Crew(len(working) - len(deaf), by_status["draining"], len(deaf), by_status["unapproved"])
    slots = sum(worker.slots for worker in working) if working else None
    alarms = [
        Alarm(
            "bad", f"Worker {worker.worker} is heard from, and leaves jobs of its routes waiting.", "worker", worker.id
        )
        for worker in deaf
    ]
    return crew, slots, alarms


def _queues(queues: Sequence[QueueHealth]) -> Iterator[Alarm]:
    for queue in queues:
        if level := _VERDICTS.get(queue.verdict):
            yield Alarm(level, f"Queue {queue.queue}: {queue.reason}", "queue", queue.queue)


async def _endpoints(engine: Engine, tenant: str | None) -> list[Alarm]:
    query = SQL["failing"]
    if tenant is None:
        rows = await engine.homes.gather(query, None, ENDPOINTS_MAX)
    else:
        rows = await engine.home(tenant).run(query, tenant, ENDPOINTS_MAX)
    for_long = [(row, health.span(row["present"] - row["failing_since"])) for row in rows]
    return [
        Alarm(
            "warn",
            f"An endpoint of {row['tenant']} has taken nothing for {span}.",
            "endpoint",
            ids.text("ep", row["id"]),
            row["tenant"],
        )
        for row, span in for_long
    ]


def _failing(hour: Flow, day: Flow, failures: Sequence[Failure]) -> Iterator[Alarm]:
    """Whether far more fails than is usual."""
    share = hour.lost / max(1, hour.ended)
    usual = (day.lost - hour.lost) / max(1, day.ended - hour.ended)
    is_usual = share < min(LOST_BAD, max(LOST_SHARE, usual * LOST_TIMES))
    if hour.lost < LOST_MIN or is_usual or not failures:
        return
    text = (
        f"{hour.lost:,} of {hour.ended:,} jobs that ended in the last hour failed; in the day before, {usual:.0%} did."
    )
    most = failures[0]
    more = f" Most often: {most.code} in {most.kind}."
    yield Alarm("bad" if share >= LOST_BAD else "warn", text + more, "failure", most.fingerprint)


def _miscounted(counts: Sequence[Count]) -> Iterator[Alarm]:
    """What is counted cannot be less than nothing: then something has moved jobs past the engine."""
    for count in counts:
        if count.n < 0 or count.held < 0:
            text = (
                f"Jobs of kind {count.kind} that are {count.state} do not add up. `millpond verify` tells more, and"
                " `millpond db recount` counts them anew, if the tallier does not."
            )
            yield Alarm("bad", text, "hold", count.kind)
