"""The flow of queues: GRD-10, over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.queue.dispatches import Lanes
from millpond.work import End
from millpond_products.guard import flow
from millpond_products.guard.kinds import KIND
from tests.checks import until

if TYPE_CHECKING:
    from products.tests.guard.deployments import Customer, Deployment

    from millpond.engine.engine import Engine
    from tests.clocks import Clock

PATH = "/api/v1/health/queues"
FIELDS = {
    "queue",
    "verdict",
    "reason",
    "depth",
    "oldest_age_seconds",
    "in_flight",
    "rate_in_1m",
    "rate_in_5m",
    "rate_out_1m",
    "rate_out_5m",
    "is_sample",
}


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "FRESH_SECONDS", 0.0)


async def guard_queue(customer: Customer, **options: Any) -> dict[str, Any]:
    (found,) = [one for one in (await customer.get(PATH, **options))["queues"] if one["queue"] == KIND.queue]
    return found


async def test_grd_10_queues_report_depth_age_flight_rates_and_a_verdict(
    deployment: Deployment, customer: Customer
) -> None:
    before = await guard_queue(customer)
    assert set(before) == FIELDS
    assert (before["verdict"], before["depth"], before["oldest_age_seconds"]) == ("ok", 0, None)
    for n in range(3):
        await customer.when(await customer.submit(f"Message {n}.", message_output="Hello!"), "completed")
    after = await guard_queue(customer)
    assert after["rate_in_1m"] == pytest.approx(before["rate_in_1m"] + 3 / 60, abs=0.002)
    assert after["rate_in_5m"] == pytest.approx(before["rate_in_5m"] + 3 / 300, abs=0.002)
    assert after["rate_out_1m"] == pytest.approx(before["rate_out_1m"] + 3 / 60, abs=0.002)
    assert after["rate_out_5m"] == pytest.approx(before["rate_out_5m"] + 3 / 300, abs=0.002)
    assert not after["is_sample"]
    await deployment.engine.pause(KIND.queue)
    assert (await guard_queue(customer))["verdict"] == "ok"  # for nobody waits
    for n in range(3):
        await customer.submit(f"Message {n}.")
    stalled = await guard_queue(customer)
    assert (stalled["verdict"], stalled["depth"]) == ("stalled", 3)
    assert stalled["oldest_age_seconds"] >= 0
    assert "Paused" in stalled["reason"]
    await deployment.engine.resume(KIND.queue)

    async def is_ok() -> bool:
        return (await guard_queue(customer))["depth"] == 0

    await until(is_ok)


async def test_grd_10_queues_that_are_too_busy_to_count_are_sampled(
    customer: Customer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        await customer.submit(f"Message {n}.")
    monkeypatch.setattr(flow, "WALK_MAX", 3)
    sampled = await guard_queue(customer)
    assert sampled["is_sample"]
    assert sampled["rate_in_1m"] >= 3 / 60


async def test_grd_10_queues_are_shown_to_those_with_a_key(deployment: Deployment, customer: Customer) -> None:
    assert (await deployment.http.get(PATH)).status_code == 401
    operator = await deployment.key(scope="admin")
    every = {one["queue"] for one in (await customer.get(PATH, key=operator))["queues"]}
    assert {"guard", "gated"} <= every
    for key in (customer.key, customer.admin_key, await deployment.key(scope="worker")):
        assert {one["queue"] for one in (await customer.get(PATH, key=key))["queues"]} == {"guard"}


async def test_grd_10_queues_are_backlogged_when_jobs_wait_long_and_stalled_when_none_moves(
    engine: Engine, clock: Clock
) -> None:
    async def verdict() -> str:
        (found,) = [one for one in await flow.look(engine) if one.queue == "priced"]
        return found.verdict

    await engine.grant("acme", "ann", 10)
    for _ in range(2):
        await engine.submit("priced", tenant="acme", account="ann")
    assert await verdict() == "ok"
    held = await engine.claim(Lanes(["priced"]), 1, worker="slow", duration=timedelta(days=1))
    await clock.advance(timedelta(seconds=40))
    (found,) = [one for one in await flow.look(engine) if one.queue == "priced"]
    assert (found.verdict, found.depth, found.in_flight) == ("backlogged", 1, 1)
    assert found.oldest_age_seconds == pytest.approx(40, abs=20)
    assert (found.rate_in_1m, found.rate_out_1m) == (round(2 / 60, 3), 0)
    await clock.advance(timedelta(hours=2))
    assert await verdict() == "stalled"
    await engine.finish(End(held[0], "succeeded", "{}"))
    await engine.close_leases([held[0].token])
    assert await verdict() == "stalled"  # one waits, and nobody works
