"""The studio as an operator runs it: a process with a log of JSON lines, which may be killed at any moment."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from products.tests.studio.deployments import BODIES, User
from products.tests.studio.shop import Shop

from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.store.db import connect
from tests.acceptance.processes import Shell, shell, until
from tests.cli.ups import Up, up
from tests.doubles.comfyui import served
from tests.doubles.replicate import TOKEN, Refusal, Replicate, Script, served_replicate
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

BURST = 60
ENOUGH = 20

pytestmark = pytest.mark.slow


@dataclass(slots=True)
class SystemUnderTest:
    """A shell, what it starts, and who is served by it."""

    sh: Shell
    engine: Engine
    provider: Replicate
    shop_url: str
    environment: dict[str, str]
    keys: dict[str, str]

    async def serve(self) -> Up:
        return await up(
            self.sh, "--product", "studio", "--role", "api,services,worker,files", verb="serve", **self.environment
        )

    @asynccontextmanager
    async def user(self, server: Up, name: str, amount: int) -> AsyncIterator[User]:
        if name not in self.keys:
            made = await self.engine.access.make_key(actor="test", scope="client", tenant="acme", account=name)
            self.keys[name] = made[1]
            await self.engine.grant("acme", name, amount)
        async with httpx2.AsyncClient(base_url=f"{server.url}/studio", timeout=PATIENCE) as http:
            yield User(http, self.keys[name], name)


@pytest.fixture(scope="module")
async def system(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SystemUnderTest]:
    folder = tmp_path_factory.mktemp("system")
    async with server.database(template) as dsn:
        with shell(folder, dsn) as sh, served(Shop()) as shop, served_replicate() as double:
            environment = {
                "MILLPOND_REPLICATE_API_TOKEN": TOKEN,
                "MILLPOND_REPLICATE_URL": double.url,
                "MILLPOND_OUTBOUND_ALLOW": "loopback",
                "MILLPOND_STORAGE": str(folder / "files"),
            }
            engine = await Engine.open(dsn, pool_size=2)
            yield SystemUnderTest(sh, engine, double.double, shop.url, environment, {})
            await engine.close()


def lines_of(server: Up, job_id: str, event: str) -> list[dict[str, Any]]:
    return [line for line in server.command.log if line.get("job_id") == job_id and line["event"] == event]


async def test_stu_13_every_event_is_one_line_of_json(system: SystemUnderTest) -> None:
    server = await system.serve()
    async with system.user(server, "mary", 100) as user:
        done = await user.made("static-ad")
        failed = await user.ended((await user.generate("scrape", url=f"{system.shop_url}/gone"))["job_id"])
        await user.refused("POST", f"/api/jobs/{done['id']}/cancel", status=409)
        system.provider.refusals.append(Refusal(422, "- input.voice: no"))
        refused = await user.ended((await user.generate("tts"))["job_id"])
        system.provider.plan = lambda _: Script(seconds=float("inf"))
        canceled = (await user.generate("tts"))["job_id"]
        await user.until(canceled, "processing")
        await user.send("POST", f"/api/jobs/{canceled}/cancel")
        await user.ended(canceled)
    assert all({"ts", "event", "level"} <= set(line) for line in server.command.log)

    (created,) = lines_of(server, done["id"], "job.created")
    assert (created["type"], created["credits_cost"]) == ("static_ad", 5)
    transitions = [(line["from_status"], line["to_status"]) for line in lines_of(server, done["id"], "job.transition")]
    assert transitions == [("pending", "queued"), ("queued", "processing"), ("processing", "completed")]
    (completed,) = lines_of(server, done["id"], "job.completed")
    assert completed["output"]["files"] == [{"content_type": "image/png", "size": len(system.provider.picture)}]
    (denied,) = lines_of(server, done["id"], "job.transition_denied")
    assert (denied["from_status"], denied["to_status"]) == ("completed", "canceled")
    assert "cannot be canceled" in denied["reason"]
    (line,) = lines_of(server, failed["id"], "job.failed")
    assert (line["error"]["message"], line["refunded"]) == ("The page answered 404.", 1)
    transitions = [
        (line["from_status"], line["to_status"]) for line in lines_of(server, failed["id"], "job.transition")
    ]
    assert transitions == [("pending", "processing"), ("processing", "failed")]
    (line,) = lines_of(server, refused["id"], "job.failed")
    assert line["refunded"] == 2
    (line,) = lines_of(server, canceled, "job.canceled")
    assert line["refunded"] == 2
    assert TOKEN not in server.command.stderr
    server.command.terminate()
    assert server.command.wait() == 0


async def test_stu_03_and_09_killed_in_a_burst_no_charge_is_without_a_job(system: SystemUnderTest) -> None:
    """Whatever the moment: a job has one hold, a hold has one job, and what ends is settled once."""
    system.provider.reset()
    server = await system.serve()
    accepted: dict[str, str] = {}
    async with system.user(server, "paul", 500) as user:
        numbers = itertools.count()

        async def keep_asking() -> None:
            for number in numbers:
                if number >= BURST:
                    return
                path = "scrape" if number % 3 == 0 else "copy"
                body = {"url": f"{system.shop_url}/gone"} if path == "scrape" else BODIES["copy"]
                try:
                    described = (await user.send("POST", f"/api/generate/{path}", body)).json()
                except httpx2.HTTPError:
                    return
                accepted[described["job_id"]] = path

        async def kill() -> None:
            await until(lambda: asyncio.sleep(0, len(accepted) >= ENOUGH))
            server.command.kill()

        await asyncio.gather(kill(), *(keep_asking() for _ in range(12)))
    assert server.command.wait() == -9
    assert len(accepted) < BURST, "it was killed too late to prove anything"
    await until(lambda: nothing_runs(system))
    await assert_charges_are_jobs(system, "paul", accepted)

    again = await system.serve()
    async with system.user(again, "paul", 0) as user:
        jobs = [job.id for job in await system.engine.list_jobs("acme", "paul", limit=200)]
        ended = [await user.ended(job_id) for job_id in jobs]
        spent = sum(job["status"] == "completed" for job in ended)
        assert {job["status"] for job in ended} == {"completed", "failed"}
        assert all((job["status"] == "failed") == (job["type"] == "scrape") for job in ended)
        balance = await system.engine.balance("acme", "paul")
        assert (balance.available, balance.held, balance.active) == (500 - spent, 0, 0)
    await assert_charges_are_jobs(system, "paul", accepted)
    assert await verify(system.engine.db) == []
    again.command.terminate()
    assert again.command.wait() == 0


async def nothing_runs(system: SystemUnderTest) -> bool:
    """Whether the database is done with what the dead process had asked it for."""
    connection = await connect(system.engine.db.dsn)
    try:
        return not await connection.fetchval(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and state <> 'idle'"
        )
    finally:
        await connection.close()


async def assert_charges_are_jobs(system: SystemUnderTest, account: str, accepted: dict[str, str]) -> None:
    jobs = {job.job_id: job for job in await system.engine.list_jobs("acme", account, limit=200)}
    entries = await system.engine.entries("acme", account, limit=500)
    holds = [entry.job_id for entry in entries if entry.type == "hold"]
    assert sorted(holds, key=str) == sorted(jobs, key=str)
    assert {job.id for job in jobs.values()} >= set(accepted)
    ends = [entry.job_id for entry in entries if entry.type in ("capture", "release")]
    assert len(ends) == len(set(ends))
    assert set(ends) == {job_id for job_id, job in jobs.items() if job.outcome is not None}
