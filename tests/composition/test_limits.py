"""Limits: how many jobs run at once, and how many start per period, for each value of a key."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.jobs import jobs
from millpond.engine.jobs.jobs import SubmitRequest
from millpond.engine.queue import leases
from millpond.errors import InvalidError
from millpond.limits import Limit
from millpond.work import Return
from tests.factories import OWNER, TENANT, Factory

if TYPE_CHECKING:
    from millpond.worker.context import Job
    from tests.composition.conftest import Play

pytestmark = pytest.mark.anyio


def call(play: Play, *limits: Limit, name: str = "call", **options: Any) -> None:
    @play.kind(name, limits=limits, **options)
    async def call(job: Job, api_key: str = "", n: int = 0) -> None: ...


async def submit(play: Play, count: int, kind: str = "call", **given: Any) -> list[Any]:
    return [(await play.submit(kind, given)).job_id for _ in range(count)]


async def claim(play: Play, want: int = 10, *kinds: str) -> list[Any]:
    return await Factory(play.engine, play.clock).claimed(*(kinds or ("call",)), want=want)


async def look_again(play: Play) -> None:
    if play.engine._watchers:  # the end of a job does so in the background
        await asyncio.wait(play.engine._watchers)
    await play.engine.limits.look_again()


async def waiting(play: Play, job_ids: list[Any]) -> dict[Any, tuple[str, str]]:
    waits = await play.engine.limits.waits(job_ids)
    return {job_id: (wait.value, wait.reason) for job_id, wait in waits.items()}


async def test_at_most_so_many_jobs_run_at_once(play: Play) -> None:
    call(play, Limit("openai", at_once=2))
    await play.begin()
    ids = await submit(play, 4)
    first = await claim(play)
    assert [lease.job_id for lease in first] == ids[:2]
    assert await waiting(play, ids) == {ids[2]: ("", "at_once"), ids[3]: ("", "at_once")}
    assert await claim(play) == []
    factory = Factory(play.engine, play.clock)
    await factory.finish(first[0])
    await look_again(play)
    (third,) = await claim(play)
    assert third.job_id == ids[2]
    assert await claim(play) == []
    for lease in (first[1], third):
        await factory.finish(lease)
    await look_again(play)
    (last,) = await claim(play)
    await factory.finish(last)


async def test_a_full_key_holds_back_no_other_jobs(play: Play) -> None:
    call(play, Limit("openai", at_once=1, key="input.api_key"))
    await play.begin()
    one = await submit(play, 3, api_key="one")
    two = await submit(play, 2, api_key="two")
    held = [*await claim(play, 2), *await claim(play)]
    assert [lease.job_id for lease in held] == [one[0], two[0]]
    assert (await claim(play)) == []
    assert set(await waiting(play, one + two)) == {one[1], one[2], two[1]}
    for lease in held:
        await Factory(play.engine, play.clock).finish(lease)


async def test_a_key_of_the_input_is_kept_as_a_digest(play: Play) -> None:
    call(play, Limit("openai", at_once=1, key="input.api_key"))
    await play.begin()
    await submit(play, 2, api_key="sk-secret")
    await claim(play)
    (key,) = await play.engine.limits.keys("openai")
    assert key.value.startswith("#")
    assert "secret" not in key.value
    assert (key.running, key.waiting) == (1, 1)


async def test_at_most_so_many_jobs_start_in_any_period(play: Play) -> None:
    call(play, Limit("openai", starts=3, per="1h"))
    await play.begin()
    ids = await submit(play, 5)
    factory = Factory(play.engine, play.clock)
    for lease in await claim(play):
        await factory.finish(lease)
    assert await waiting(play, ids) == {ids[3]: ("", "starts"), ids[4]: ("", "starts")}
    await play.clock.advance(timedelta(minutes=59))
    await look_again(play)
    assert await claim(play) == []
    await play.clock.advance(timedelta(minutes=3))
    await look_again(play)
    assert [lease.job_id for lease in await claim(play)] == ids[3:]


@pytest.mark.parametrize("ending", ["finish", "requeue", "cancel", "lapse", "park"])
async def test_a_job_that_stops_to_run_makes_room(play: Play, ending: str) -> None:
    call(play, Limit("openai", at_once=1), expires_in="1d")
    await play.begin()
    ids = await submit(play, 2)
    (lease,) = await claim(play)
    factory = Factory(play.engine, play.clock)
    assert await claim(play) == []
    if ending == "finish":
        await factory.finish(lease)
    elif ending == "requeue":
        await play.engine.give_back(Return(lease, "attempt", {"code": "boom", "message": "It broke."}))
    elif ending == "cancel":
        await play.engine.cancel(TENANT, lease.job_id, grace=timedelta(0))
        await jobs.force_cancel(play.engine.tenant_databases.executor_for_all, 10)
    elif ending == "lapse":
        await play.clock.advance(timedelta(minutes=5))
        await leases.lapse(play.engine.tenant_databases.executor_for_all, 10)
    else:
        await play.engine.park(lease)
    await look_again(play)
    (next_,) = await claim(play)
    assert next_.job_id in ids


async def test_jobs_of_several_limits_need_room_under_each(play: Play) -> None:
    call(play, Limit("all", at_once=2), Limit("each", at_once=1, key="account"))
    await play.begin()
    mine = await submit(play, 2)
    other = (await play.engine.submit("call", {}, tenant=TENANT, account="bob")).job_id
    last = (await play.engine.submit("call", {}, tenant=TENANT, account="cid")).job_id
    held = await claim(play)
    assert [lease.job_id for lease in held] == [mine[0], other]
    waits = await play.engine.limits.waits([mine[1], last])
    assert {job_id: wait.limit for job_id, wait in waits.items()} == {mine[1]: "each", last: "all"}


async def test_a_closed_key_lets_no_job_start(play: Play) -> None:
    call(play, Limit("openai", at_once=5))
    await play.begin()
    await play.engine.limits.close("openai", "", timedelta(seconds=30), actor="ops")
    ids = await submit(play, 1)
    assert await claim(play) == []
    assert await waiting(play, ids) == {ids[0]: ("", "closed")}
    await play.clock.advance(timedelta(seconds=31))
    await look_again(play)
    assert len(await claim(play)) == 1


async def test_a_limit_can_be_changed_while_jobs_wait(play: Play) -> None:
    call(play, Limit("openai", at_once=1))
    await play.begin()
    await submit(play, 3)
    assert len(await claim(play)) == 1
    changed = await play.engine.limits.change("openai", at_once=3, starts=None, per=None, actor="ops")
    assert (changed.at_once, changed.is_changed) == (3, True)
    await look_again(play)
    assert len(await claim(play)) == 2
    await play.begin()
    assert (await play.engine.limits.read("openai")).at_once == 3
    assert (await play.engine.limits.reset("openai", actor="ops")).at_once == 1


async def test_a_waiting_job_is_canceled_like_any_other(play: Play) -> None:
    call(play, Limit("openai", at_once=1))
    await play.begin()
    ids = await submit(play, 3)
    await claim(play)
    await claim(play)
    await play.engine.cancel(TENANT, ids[1])
    await play.engine.prioritize(TENANT, ids[2], 5)
    assert await waiting(play, ids) == {}
    assert await claim(play) == []
    assert set(await waiting(play, ids)) == {ids[2]}


async def test_a_thousand_waiting_jobs_do_not_hide_one_that_may_start(play: Play) -> None:
    call(play, Limit("openai", at_once=1, key="input.n"))
    await play.begin()
    await play.engine.submit_many([SubmitRequest(kind="call", input={"n": 1}, **OWNER) for _ in range(1_500)])
    (other,) = await submit(play, 1, n=2)
    found = []
    for _ in range(3):
        found += await claim(play, 2)
    assert len(found) == 2
    assert other in {lease.job_id for lease in found}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "at_once"),
        ({"at_once": 0}, "at_once"),
        ({"starts": 5}, "per"),
        ({"at_once": 1, "per": "1m"}, "starts"),
        ({"starts": 5, "per": "0.5s"}, "per"),
        ({"at_once": 1, "key": "input"}, "key"),
        ({"at_once": 1, "key": "color"}, "key"),
        ({"at_once": True}, "at_once"),
    ],
)
def test_a_limit_that_can_never_be_satisfied_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        Limit("openai", **given)
    assert refused.value.field == field
