"""A server that is told to stop: nothing that only waits delays its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.api.test_fleet import KIND, FleetServer
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.api.sites import Site

LONGER_THAN_A_DRAIN = 25
"""Seconds that the polls would wait; the server of these tests drops requests after two."""


async def polls_wait(site: Site, number: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while site.engine.workers.waiting < number:
            await asyncio.sleep(0.01)


async def test_asked_to_stop_it_answers_the_polls_that_wait(site: Site) -> None:
    server = FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
    workers = [await server.joined(f"w{n}") for n in range(3)]
    polls = [asyncio.create_task(worker.call("poll", wait=LONGER_THAN_A_DRAIN)) for worker in workers]
    await polls_wait(site, len(workers))
    site.stop.set()
    async with asyncio.timeout(PATIENCE):
        answers = await asyncio.gather(*polls)
    assert [(answer.status_code, answer.json()["jobs"]) for answer in answers] == [(200, [])] * 3


async def test_a_poll_that_comes_while_the_server_stops_does_not_wait(site: Site) -> None:
    server = FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
    worker = await server.joined()
    job_id = await server.job()
    site.hub.close()
    assert [(job["job_id"], job["kind"]) for job in await worker.polled(wait=LONGER_THAN_A_DRAIN)] == [(job_id, KIND)]
    answered = asyncio.create_task(worker.polled(wait=LONGER_THAN_A_DRAIN))
    done, _ = await asyncio.wait([answered], timeout=LONGER_THAN_A_DRAIN * 0.8)
    assert done, "the poll waited"
    assert answered.result() == []
