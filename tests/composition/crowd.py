"""Many workers under limits: ``python -m tests.composition.crowd``. What the events say is compared with the limits."""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from millpond import Job, Limit, Millpond, Worker
from millpond.engine.engine import Engine
from millpond.engine.jobs.jobs import SubmitRequest
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from tests.databases import migrated_template, running_server
from tests.factories import OWNER
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

_ENGINES: Final = 5
_STARTS_AND_ENDS: Final = """
select j.input ->> 'key' as key, s.at as started_at, e.at as ended_at
from millpond.jobs j
join millpond.events s on s.job_id = j.id and s.type = 'started'
join millpond.events e on e.job_id = j.id and e.type = 'succeeded'
where j.kind = 'call'
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """How many there are, and what is allowed."""

    jobs: int = 20_000
    keys: int = 200
    workers: int = 50
    at_once: int = 20
    starts: int = 500
    per: timedelta = timedelta(minutes=1)
    seconds: float = 0.05
    """How long a job takes at most."""
    seed: int = 1


@dataclass(slots=True)
class Report:
    """What came of it."""

    took: float = 0.0
    at_once: int = 0
    """How many jobs of a key ran at the same time, at most."""
    starts: int = 0
    """How many jobs of a key started within a period, at most."""
    complaints: list[str] = field(default_factory=list)


async def run(dsn: str, plan: Plan) -> Report:
    """All jobs, on an empty database."""
    app, dice = Millpond(), random.Random(plan.seed)

    @app.kind("call", limits=[Limit("calls", plan.at_once, plan.starts, plan.per, key="input.key")])
    async def call(job: Job, key: int, seconds: float) -> None:
        await asyncio.sleep(seconds)

    # Some keys have far more jobs than others, which must not wait for those.
    keys = dice.choices(range(plan.keys), [1 / (n + 1) for n in range(plan.keys)], k=plan.jobs)
    given = [{"key": key, "seconds": dice.uniform(0, plan.seconds)} for key in keys]
    engines = [await Engine.open(dsn, app, pool_size=8) for _ in range(_ENGINES)]
    stop = asyncio.Event()
    try:
        for n in range(0, plan.jobs, 10_000):
            part = [SubmitRequest(kind="call", input=each, **OWNER) for each in given[n : n + 10_000]]
            refused = [answer for answer in await engines[0].submit_many(part) if isinstance(answer, Exception)]
            assert not refused, refused[0]
        began = time.monotonic()
        workers = [Worker(engines[n % _ENGINES].source(name=f"w{n}"), app, slots=1) for n in range(plan.workers)]
        services = [service for engine in engines for service in (Notifier(engine), scheduler(engine), reaper(engine))]
        running = [asyncio.create_task(each.run(stop)) for each in (*services, *workers)]
        try:
            await _until_ended(engines[0], plan, running)
        finally:
            stop.set()
            await asyncio.gather(*running)
        report = Report(took=time.monotonic() - began)
        await _compare(engines[0], plan, report)
    finally:
        for engine in engines:
            await engine.close()
    return report


async def _until_ended(engine: Engine, plan: Plan, running: Sequence[asyncio.Task[Any]]) -> None:
    async with asyncio.timeout(PATIENCE + 10 * plan.jobs / plan.starts * plan.per.total_seconds()):
        while True:
            async with engine.db.transaction() as tx:
                if not await tx.fetchval("select exists (select from millpond.dispatches)"):
                    return
            assert not [task for task in running if task.done()]
            await asyncio.sleep(0.1)


async def _compare(engine: Engine, plan: Plan, report: Report) -> None:
    report.complaints += map(str, await engine.verify())
    async with engine.db.transaction() as tx:
        rows = await tx.fetch(_STARTS_AND_ENDS)
        left = await tx.fetchval("select count(*) from millpond.limit_holders") + await tx.fetchval(
            "select count(*) from millpond.limit_waits"
        )
    if len(rows) != plan.jobs or left:
        report.complaints.append(f"{len(rows)} of {plan.jobs} jobs have started and ended once; {left} rows are left")
    spans: dict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    for row in rows:
        spans[row["key"]].append((row["started_at"], row["ended_at"]))
    report.at_once = max(map(_most_at_once, spans.values()))
    report.starts = max(_most_starts((start for start, _ in of), plan.per) for of in spans.values())
    if report.at_once > plan.at_once or report.starts > plan.starts:
        report.complaints.append(f"{report.at_once} ran at once, {report.starts} started in a period")


def _most_at_once(spans: Iterable[tuple[datetime, datetime]]) -> int:
    running = most = 0
    for _, change in sorted(change for start, end in spans for change in ((start, 1), (end, -1))):
        running += change
        most = max(most, running)
    return most


def _most_starts(starts: Iterable[datetime], per: timedelta) -> int:
    ordered = sorted(starts)
    return max(bisect_right(ordered, start + per - timedelta(microseconds=1)) - n for n, start in enumerate(ordered))


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.composition.crowd", description=__doc__)
    for name in ("jobs", "keys", "workers", "at_once", "starts", "seed"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(Plan(), name))
    parser.add_argument("--per", type=float, default=60.0, metavar="SECONDS")
    options: dict[str, Any] = vars(parser.parse_args())
    options["per"] = timedelta(seconds=options["per"])
    plan = Plan(**options)
    with running_server() as server:
        async with migrated_template(server) as template, server.database(template) as dsn:
            report = await run(dsn, plan)
    print(  # noqa: T201 - the result
        f"{plan.jobs} jobs of {plan.keys} keys on {plan.workers} workers: {report.took:.1f} s; of a key, at most "
        f"{report.at_once} ran at once and {report.starts} started in a period; {len(report.complaints)} violations"
    )
    print("\n".join(report.complaints[:50]))  # noqa: T201 - the result
    return int(bool(report.complaints))


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
