"""However a child ends, the workers of its waiting parent are notified: none has to find it by polling."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.queue.dispatches import BACK_TOPIC, Lanes
from millpond.errors import ChildFailedError
from millpond.services.expirer import expirer
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from tests.factories import TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from millpond.work import Lease
    from millpond.worker import Job
    from tests.composition.conftest import Play

LONG = timedelta(hours=4)


async def cancel(play: Play, child: UUID) -> None:
    await play.engine.cancel(TENANT, child)


async def expire(play: Play, child: UUID) -> None:
    await play.clock.advance(timedelta(hours=2))
    await expirer(play.engine).run_once()


async def force_cancel(play: Play, child: UUID) -> None:
    await claim(play)
    await play.engine.cancel(TENANT, child, grace=timedelta(minutes=1))
    await play.clock.advance(timedelta(minutes=2))
    await reaper(play.engine).run_once()


async def lapse(play: Play, child: UUID) -> None:
    await claim(play, timedelta(minutes=1))
    await play.clock.advance(timedelta(minutes=2))
    await reaper(play.engine).run_once()


async def abandon(play: Play, child: UUID) -> None:
    lease = await claim(play)
    await play.engine.abandon(lease.token)


async def claim(play: Play, duration: timedelta = LONG) -> Lease:
    await play.engine.resume("shot")
    [lease] = await play.engine.claim(Lanes(["shot"]), 1, worker="w", duration=duration)
    return lease


@pytest.mark.parametrize(
    ("end", "outcome"),
    [(cancel, "canceled"), (expire, "expired"), (force_cancel, "canceled"), (lapse, "failed"), (abandon, "failed")],
)
async def test_the_end_of_a_child_notifies_the_workers_of_its_parent(
    play: Play, end: Callable[[Play, UUID], Awaitable[None]], outcome: str
) -> None:
    @play.kind("shot", lapses_max=1, interruptions_max=1)
    async def shot(job: Job) -> None: ...

    @play.kind("film")
    async def film(job: Job) -> Any:
        [child] = await job.gather(job.child("shot", expires_in="1h"), return_exceptions=True)
        assert isinstance(child, ChildFailedError)
        return child.details["outcome"]

    await play.begin()
    await play.engine.pause("shot")
    parent = await play.run("film")
    [child] = await play.children(parent.job_id)
    heard, is_woken = Notifier(play.engine), asyncio.Event()
    heard.listen(lambda topics: is_woken.set() if f"{BACK_TOPIC}film" in topics else None)
    await end(play, child.job_id)
    await asyncio.wait_for(is_woken.wait(), PATIENCE)
    assert (await play.read(parent.job_id)).phase == "ready"
    await play.drain()
    assert (await play.read(parent.job_id)).output == outcome
