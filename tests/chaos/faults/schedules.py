"""What must hold of schedules: each due time is one job, and so is each run that was acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millpond.errors import MillpondError
from millpond.ids import parse, text
from millpond.store.queries import NamedQuery
from tests.chaos.faults.app import EVERY, TENANT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.queue.schedules import ScheduleRecord
    from tests.chaos.faults.load import Order

LAST: Final = NamedQuery(
    "faults.last",
    "one",
    "select max(due_at) as due_at from millpond.fires where schedule_id = $1 and cause = 'schedule'",
)
RUNS: Final = NamedQuery("faults.runs", "many", "select id, outcome, job_id from millpond.fires where cause = 'manual'")
SECONDS: Final = 240.0
Result = TypeVar("Result")


@dataclass(slots=True)
class Due:
    """The due times of the schedule that fires every second while a round lasts, and is paused between rounds."""

    engine: Engine
    times: Counter[datetime] = field(default_factory=Counter)
    """All due times at which it should have fired."""
    first: datetime | None = None

    async def find(self, name: str) -> ScheduleRecord:
        """A schedule that the app declares; a process of it may be about to start."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for schedule in await _patiently(lambda: self.engine.schedules.list(tenant=TENANT)):
                if schedule.declared.name == name:
                    return schedule
            await asyncio.sleep(0.1)
        raise LookupError(f"there is no schedule {name!r}")

    async def begin(self) -> None:
        """Let it fire; in the first round it does already."""
        tick = await self.find("tick")
        resumed = await _patiently(lambda: self.engine.schedules.resume(tick.schedule_id, actor="faults"))
        is_first = tick.paused_at is None
        self.first = next(tick.declared.timing.after(tick.created_at)) if is_first else resumed.due_at

    async def end(self) -> Iterable[str]:
        """Wait until it has fired at all due times until now; then pause it."""
        now = await _patiently(self.engine.schedules.present)
        until = time.monotonic() + SECONDS
        while (tick := await self.find("tick")).due_at is None or tick.due_at <= now:
            if tick.due_at is None or time.monotonic() > until:
                return [f"the schedule does not fire: {tick}"]
            await asyncio.sleep(0.1)
        await _patiently(lambda: self.engine.schedules.pause(tick.schedule_id, actor="faults"))
        last = (await self.engine.db.run(LAST, tick.schedule_id))["due_at"]
        assert self.first is not None
        self.times.update(self.first + EVERY * n for n in range((last - self.first) // EVERY + 1))
        return [] if last + EVERY > now else [f"the schedule has fired until {last}; it is {now}"]

    async def complaints(self, jobs: Mapping[UUID, Mapping[str, Any]], orders: Iterable[Order]) -> Iterable[str]:
        """What is wrong with the jobs that schedules have submitted."""
        runs = await self.engine.db.run(RUNS)
        return [*wrong_due_times(self.times, jobs), *wrong_runs(runs, jobs, orders)]


def wrong_due_times(times: Counter[datetime], jobs: Mapping[UUID, Mapping[str, Any]]) -> Iterable[str]:
    """Each due time is one job."""
    found = Counter(datetime.fromisoformat(job["due"]) for job in jobs.values() if job["kind"] == "tick")
    for due in sorted((times - found) + (found - times)):
        yield f"the due time {due} has {found[due]} jobs instead of {times[due]}"


def wrong_runs(runs: Any, jobs: Mapping[UUID, Mapping[str, Any]], orders: Iterable[Order]) -> Iterable[str]:
    """Each run that was acknowledged is one fire, and each fire one job."""
    fires = {row["id"]: row for row in runs}
    known = Counter(parse("fire", order.fire_id) for order in orders if order.fire_id is not None)
    for fire_id, count in known.items():
        if count > 1:
            yield f"{text('fire', fire_id)} was acknowledged for {count} keys"
        if fire_id not in fires or fires[fire_id]["outcome"] != "submitted":
            yield f"{text('fire', fire_id)} was acknowledged, and is {fires.get(fire_id)}"
    yield from (f"{text('fire', fire_id)} belongs to no order" for fire_id in fires.keys() - known.keys())
    submitted = Counter(row["job_id"] for row in runs)
    reports = Counter(job_id for job_id, job in jobs.items() if job["kind"] == "report")
    if submitted != reports:
        yield f"runs have submitted {submitted - reports} in vain, and {reports - submitted} belong to no run"


async def _patiently(work: Callable[[], Awaitable[Result]]) -> Result:
    """Its connections may have ended with the database that was healed just now."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                return await work()
            except MillpondError:
                await asyncio.sleep(0.1)
