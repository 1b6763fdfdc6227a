"""Which changes of state there are: all 42 pairs, by an operator over HTTP and by hand in the database."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import asyncpg
from products.tests.studio.deployments import BODIES

from millpond.store.db import connect
from millpond_products.studio.kinds import STUDIO
from tests.doubles.replicate import Script

if TYPE_CHECKING:
    from products.tests.studio.deployments import Deployment, Lines, User

ARROWS = {
    ("pending", "queued"),
    ("pending", "processing"),
    ("pending", "failed"),
    ("pending", "canceled"),
    ("queued", "processing"),
    ("queued", "failed"),
    ("queued", "canceled"),
    ("processing", "completed"),
    ("processing", "failed"),
    ("processing", "canceled"),
    ("processing", "expired"),
    ("failed", "pending"),
    ("expired", "pending"),
}
ENDLESS = Script(seconds=float("inf"))
PAIRS = list(itertools.permutations(STUDIO.states, 2))
STARTS = {("pending", "processing"), ("queued", "processing")}
"""What is done by a worker's claim alone."""
RETRIES = {("failed", "pending"), ("expired", "pending")}
"""What is done by a retry alone, for it costs credits."""


async def brought_to(deployment: Deployment, user: User, state: str) -> str:
    """The id of a job in this state."""
    if state in ("pending", "failed", "canceled"):
        job_id = (await user.generate("copy"))["job_id"]
        if state != "pending":
            assert (
                await deployment.native("POST", f"/v1/jobs/{job_id}/transition?tenant=acme", {"state": state})
            ).is_success
        return job_id
    job_id = (await user.generate("static-ad"))["job_id"]
    if state == "queued":
        return job_id
    await deployment.engine.resume("studio.static_ad")
    await deployment.parked(job_id)
    await deployment.engine.pause("studio.static_ad")
    if state != "processing":
        assert (
            await deployment.native("POST", f"/v1/jobs/{job_id}/transition?tenant=acme", {"state": state})
        ).is_success
    return job_id


def test_stu_02_exactly_thirteen_arrows_are_drawn() -> None:
    assert STUDIO.pairs == ARROWS
    assert len(PAIRS) == 42


async def test_stu_02_every_pair_by_an_operator(deployment: Deployment, lines: Lines) -> None:
    """What is denied is an error, leaves the row as it was, and is logged; what is done is logged too."""
    user = await deployment.user(1_000)
    deployment.provider.plan = lambda _: ENDLESS
    async with deployment.paused("copy"), deployment.paused("static_ad"):
        for source, target in PAIRS:
            job_id = await brought_to(deployment, user, source)
            before = await user.job(job_id)
            answer = await deployment.native("POST", f"/v1/jobs/{job_id}/transition?tenant=acme", {"state": target})
            after = await user.job(job_id)
            pair = f"{source} -> {target}"
            if (source, target) in ARROWS - STARTS - RETRIES:
                assert (answer.status_code, after["status"]) == (200, target), pair
                transitioned = lines.of(job_id, "job.transition")[-1]
                assert (transitioned["from_status"], transitioned["to_status"]) == (source, target), pair
            else:
                assert (answer.status_code, answer.json()["code"]) == (409, "transition_denied"), pair
                assert after == before, pair
                denied = lines.of(job_id, "job.transition_denied")[-1]
                assert (denied["from_status"], denied["to_status"]) == (source, target), pair
                assert denied["reason"], pair
            await user.send("POST", f"/api/jobs/{job_id}/cancel")


async def test_stu_02_the_arrows_of_workers_and_of_retries(deployment: Deployment, lines: Lines) -> None:
    user = await deployment.user()
    for path, waits in (("copy", "pending"), ("static-ad", "queued")):
        job = await user.made(path)
        states = [(line["from_status"], line["to_status"]) for line in lines.of(job["id"], "job.transition")]
        assert (waits, "processing") in states
    async with deployment.paused("copy"), deployment.paused("static_ad"):
        deployment.provider.plan = lambda _: ENDLESS
        for state in ("failed", "expired"):
            job_id = await brought_to(deployment, user, state)
            answer = await deployment.admin.send("POST", f"/api/admin/jobs/{job_id}/retry")
            assert answer.status_code == 202, answer.text
            states = [(line["from_status"], line["to_status"]) for line in lines.of(job_id, "job.transition")]
            assert (state, "pending") in states
            await user.send("POST", f"/api/jobs/{job_id}/cancel")


async def test_stu_02_every_pair_by_hand(deployment: Deployment) -> None:
    """The database itself: an UPDATE along an arrow passes its guard, every other one fails and changes nothing."""
    user = await deployment.user(1_000)
    deployment.provider.plan = lambda _: ENDLESS
    connection = await connect(deployment.engine.db.dsn)
    try:
        async with deployment.paused("copy"), deployment.paused("static_ad"):
            for source in STUDIO.states:
                job_id = await brought_to(deployment, user, source)
                number = (await deployment.engine.read("acme", job_id)).job_id
                before = await connection.fetchrow("select * from millpond.jobs where id = $1", number)
                for target in set(STUDIO.states) - {source}:
                    is_guarded = await _update(connection, number, target)
                    assert is_guarded == ((source, target) not in ARROWS), f"{source} -> {target}"
                assert await connection.fetchrow("select * from millpond.jobs where id = $1", number) == before
                await user.send("POST", f"/api/jobs/{job_id}/cancel")
    finally:
        await connection.close()


async def _update(connection: asyncpg.Connection, job_id: object, state: str) -> bool:
    """Whether the guard stops an UPDATE; what it lets pass is taken back."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        end = STUDIO.states[state]
        await connection.execute(
            "update millpond.jobs set state = $2, phase = $3, outcome = $4, captured = $5,"
            " finished_at = case when $4::text is null then null else now() + interval '1 hour' end where id = $1",
            job_id,
            state,
            end.phase,
            end.outcome,
            0 if end.outcome else None,
        )
    except asyncpg.PostgresError as error:
        return "transition denied" in str(error)
    finally:
        await transaction.rollback()
    return False


def test_every_type_of_job_has_this_lifecycle(deployment: Deployment) -> None:
    kinds = [kind for kind in deployment.engine.app.kinds.values() if kind.name.startswith("studio.")]
    assert len(kinds) == len(BODIES)
    assert all(kind.lifecycle is STUDIO for kind in kinds)
