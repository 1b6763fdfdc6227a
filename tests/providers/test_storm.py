"""A storm of callbacks: none, one, two or five of each, early, late, out of order, forged and old. One effect each."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.replicate import NEVER, Replicate
from tests.factories import ACCOUNT, OWNER, TENANT
from tests.providers.deployments import PRICE, kind, make_app, running_deployment

if TYPE_CHECKING:
    from millpond.storage.local import Local

JOBS = int(os.environ.get("MILLPOND_STORM", "220"))


def script(chance: random.Random, number: int) -> dict[str, Any]:
    """What one prediction does; every tenth ends when its job has expired."""
    common = {
        "callbacks": chance.choice([0, 1, 2, 5]),
        "forged": chance.choice([0, 0, 1, 2]),
        "stale": chance.choice([0, 0, 1]),
        "stragglers": chance.choice([0, 0, 1]),
    }
    if number % 10 == 0:
        return common | {"seconds": NEVER, "ignores_cancel": True}
    ends = {"status": "failed", "error": "It broke."} if chance.random() < 0.2 else {}
    return common | {"is_early": chance.random() < 0.3, "seconds": chance.uniform(0, 0.5)} | ends


@pytest.mark.slow
async def test_a_storm_of_callbacks_has_one_effect_for_each_result(dsn: str, files: Local, double: Replicate) -> None:
    chance = random.Random(5)
    app = make_app(kind(), kind("hasty", expires_in=timedelta(seconds=3), priority=1))
    async with running_deployment(dsn, files, double, app) as here:
        await here.engine.grant(TENANT, ACCOUNT, PRICE * JOBS)
        requests: list[Any] = [
            {"kind": "hasty" if n % 10 == 0 else "paint", "input": {"number": n, "script": script(chance, n)}, **OWNER}
            for n in range(JOBS)
        ]
        taken = [job.job_id for job in await here.engine.submit_many(requests) if not isinstance(job, Exception)]
        assert len(taken) == JOBS
        async with asyncio.timeout(60 + JOBS / 10):
            while any(job["phase"] != "ended" for job in await here.rows("jobs", tenant=TENANT)):
                await asyncio.sleep(0.2)
            await end_what_is_left(double)
            while len(double.reported) < len(double.sent) or double._tasks:
                await asyncio.sleep(0.05)
        await here.settled()
        jobs = [await here.read(job_id) for job_id in taken]

        # Each job ended as its prediction did, and a job that expired did so whatever came later.
        by_input = Counter((job.kind, job.input["script"].get("status", "succeeded"), job.state) for job in jobs)
        assert set(by_input) == {
            ("paint", "succeeded", "succeeded"),
            ("paint", "failed", "failed"),
            ("hasty", "succeeded", "expired"),
        }
        # One prediction for each job that was not too late for one, and one file for each that succeeded.
        asked = Counter(made["input"]["number"] for made in double.predictions.values())
        assert set(asked.values()) == {1}
        assert {job.input["number"] for job in jobs if job.state != "expired"} <= set(asked)
        good = [job for job in jobs if job.state == "succeeded"]
        for job in good:
            assert len(await here.engine.artifacts.of_job(TENANT, job.job_id)) == 1
        # Credits are exact: what succeeded is paid for, all else came back, once.
        assert await here.balance() == (PRICE * (JOBS - len(good)), 0)
        entries = await here.rows("entries", tenant=TENANT)
        assert Counter(entry["type"] for entry in entries) == {
            "grant": 1,
            "hold": JOBS,
            "capture": len(good),
            "release": JOBS - len(good),
        }
        # What was signed and fresh was heard once each; nothing else was believed.
        heard = await here.rows("callbacks")
        assert len({row["message_id"] for row in heard}) == len(heard)
        refused = sum(here.engine.providers.heard["replicate", word] for word in ("forged", "stale"))
        assert refused == sum(status == 401 for _, status in double.reported) > 0
        assert Counter(status for _, status in double.reported).keys() == {200, 401}
        assert sum(row["times"] for row in heard) + refused == len(double.reported)
        assert {row["verdict"] for row in heard} == {"accepted", "late"}


async def end_what_is_left(double: Replicate) -> None:
    """What was asked for by jobs that have expired ends well, and is told."""
    for made in [made for made in double.predictions.values() if made["completed_at"] is None]:
        double.end(made, "succeeded")
        await double._call_back(made, double.scripts[made["id"]])
