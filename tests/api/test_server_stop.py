"""A server that is told to stop: nothing that only waits delays its end."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import httpx2

from tests.acceptance.processes import shell, until
from tests.api.test_fleet import KIND, FleetServer
from tests.store.freezer import freezer_of
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.api.sites import Site

LONGER_THAN_A_DRAIN = 25
"""Seconds that the polls would wait; the server of these tests drops requests after two."""
STOPS_WITHIN = 5
"""Seconds; it takes less than two. A single statement that hangs is noticed after six."""
APP = """
from millpond import Job, Millpond

app = Millpond()


@app.kind("far", runs="fleet")
async def far(job: Job) -> None: ...
"""


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


async def test_a_process_stops_soon_while_the_database_hangs_and_a_worker_waits(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    ready = tmp_path / "ready.json"
    async with freezer_of(dsn, tmp_path / "s") as (freezer, url):
        with shell(tmp_path, url) as sh:
            made = [
                await asyncio.to_thread(sh.run, "keys", "create", "--scope", scope, "--json")
                for scope in ("worker", "admin")
            ]
            fleet, admin = [json.loads(each.stdout)["key"] for each in made]
            server = sh.start("serve", "app.py", "--port", "0", "--ready-file", ready)

            async def is_ready() -> bool:
                return ready.exists()

            await until(is_ready)
            address = json.loads(ready.read_text())["url"]
            sh.start("worker", "app.py", "--url", address, MILLPOND_FLEET_SECRET=fleet)

            async def is_polled() -> bool:
                async with httpx2.AsyncClient(timeout=PATIENCE) as http:
                    found = await http.get(f"{address}/metrics", headers={"Authorization": f"Bearer {admin}"})
                return "millpond_fleet_polls 1.0" in found.text

            await until(is_polled)
            freezer.freeze()
            began = time.monotonic()
            server.terminate()
            assert await asyncio.to_thread(server.wait) == 0
            assert time.monotonic() - began < STOPS_WITHIN
