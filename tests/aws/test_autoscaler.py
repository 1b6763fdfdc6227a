"""The autoscaler between a real server and a group: it looks, decides, acts, and nobody's work is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.aws.autoscaler import Autoscaler, Target
from millpond.client import AsyncClient
from millpond.errors import InvalidError, MillpondError, NotFoundError, UnavailableError
from tests.aws.towns import ROUTE, Town
from tests.checks import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.aws.autoscaler import Decision


@pytest.fixture
async def client(town: Town) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(town.site.url, town.site.admin_key) as made:
        yield made


@pytest.fixture
async def scaler(town: Town, client: AsyncClient) -> AsyncIterator[Autoscaler]:
    groups = town.amazon.groups()
    target = Target(route=ROUTE, group="gpus", target_wait=0.0, cooldown=60.0)
    yield Autoscaler(client, groups, target, clock=lambda: town.now)
    await groups.close()


def acts(decision: Decision) -> dict[str, Any]:
    told = msgspec.structs.asdict(decision)
    names = ("capacity", "resume", "drain", "shrink", "replace", "failed")
    return {name: told[name] for name in names if told[name] not in (None, ())}


async def test_efx_26_a_group_grows_with_the_line_and_shrinks_when_it_is_empty(town: Town, scaler: Autoscaler) -> None:
    town.amazon.make_group("gpus", max=3, desired=0)
    await town.submit(5)
    decision = await town.look(scaler)
    assert (decision.ready, decision.desired, acts(decision)) == (5, 3, {"capacity": 3})
    instances = sorted(town.amazon.members())
    await town.come(*instances)
    for _ in range(2):
        for name in instances:
            if job := await town.take(name):
                await town.finish(name, job)
    town.now = 60.0
    assert acts(await town.look(scaler)) == {}  # three were wanted within the cool-down
    town.now = 61.0
    assert acts(await town.look(scaler)) == {"drain": tuple(instances)}
    assert [await town.status(name) for name in instances] == ["draining"] * 3
    assert acts(await town.look(scaler)) == {"shrink": tuple(instances)}
    assert (town.amazon.capacity(), town.amazon.members()) == (0, [])


async def test_efx_26_the_busy_and_the_protected_stay_and_the_idle_go(town: Town, scaler: Autoscaler) -> None:
    busy, idle, protected = town.amazon.make_group("gpus", desired=3)
    town.amazon.protect(protected)
    await town.come(busy, idle, protected)
    await town.submit(1)
    job = await town.take(busy)
    assert job is not None
    for town.now in (0.0, 61.0, 91.0, 121.0):
        await town.look(scaler)
    assert set(town.amazon.members()) == {busy, protected}
    assert town.amazon.capacity() == 2
    await town.finish(busy, job)
    for town.now in (182.0, 212.0):
        await town.look(scaler)
    assert town.amazon.members() == [protected]
    for call in town.amazon.called("TerminateInstanceInAutoScalingGroup"):
        assert call["ShouldDecrementDesiredCapacity"] == "true"


async def test_a_worker_that_got_a_job_before_it_was_drained_finishes_it(town: Town, scaler: Autoscaler) -> None:
    (mine,) = town.amazon.make_group("gpus")
    await town.come(mine)
    await town.submit(1)
    job = await town.take(mine)
    assert job is not None
    await town.drain(mine)
    for town.now in (0.0, 61.0):
        assert "shrink" not in acts(await town.look(scaler))
    assert town.amazon.members()[0] == mine
    await town.finish(mine, job)
    await town.look(scaler)
    assert mine not in town.amazon.members()


async def test_who_was_sent_away_is_called_back_when_work_comes(town: Town, scaler: Autoscaler) -> None:
    mine, other = sorted(town.amazon.make_group("gpus", min=1, desired=2))
    await town.come(mine, other)
    await town.look(scaler)
    town.now = 61.0
    assert acts(await town.look(scaler)) == {"drain": (mine,)}
    await town.submit(2)
    assert await town.take(other) is not None
    assert acts(await town.look(scaler)) == {"resume": (mine,)}

    async def is_given_a_job() -> bool:
        return await town.take(mine) is not None

    await until(is_given_a_job)
    assert town.amazon.capacity() == 2


async def test_a_drained_worker_that_is_needed_is_replaced_by_a_fresh_machine(town: Town, scaler: Autoscaler) -> None:
    (mine,) = town.amazon.make_group("gpus")
    await town.come(mine)
    await town.submit(1)
    await town.drain(mine)
    assert acts(await town.look(scaler)) == {"replace": (mine,)}
    assert town.amazon.capacity() == 1
    assert mine not in town.amazon.members()


async def test_a_dry_run_tells_and_does_nothing(town: Town, scaler: Autoscaler) -> None:
    town.amazon.make_group("gpus")
    await town.submit(3)
    scaler.is_dry_run = True
    decision = await town.look(scaler)
    assert (decision.capacity, decision.is_dry_run, town.amazon.capacity()) == (3, True, 1)
    assert not town.amazon.called("SetDesiredCapacity")


async def test_what_aws_refuses_is_told_and_done_at_the_next_look(
    town: Town, scaler: Autoscaler, log: list[dict[str, Any]]
) -> None:
    town.amazon.make_group("gpus")
    await town.submit(3)
    await scaler.groups.group("gpus")

    class Contended:
        """The next change, and no question before it, is refused."""

        def __init__(self, groups: Any) -> None:
            self._groups = groups

        def __getattr__(self, name: str) -> Any:
            if name == "set_desired":
                town.amazon.refusals.append((400, "ScalingActivityInProgress"))
            return getattr(self._groups, name)

    plain, scaler.groups = scaler.groups, Contended(scaler.groups)  # pyright: ignore[reportAttributeAccessIssue]
    assert (await town.look(scaler)).failed == ("set capacity 3",)
    failed = [line for line in log if line["event"] == "autoscale.failed"]
    assert "ScalingActivityInProgress" in failed[0]["error"]
    scaler.groups = plain
    assert (await town.look(scaler)).failed == ()
    assert town.amazon.capacity() == 3


@pytest.mark.parametrize("outage", ["aws", "api"])
async def test_an_outage_is_told_and_leaves_all_as_it_is(
    town: Town, scaler: Autoscaler, client: AsyncClient, outage: str
) -> None:
    town.amazon.make_group("gpus")
    await town.submit(3)
    if outage == "aws":
        town.amazon.is_down = True
    else:
        scaler.client = AsyncClient("http://127.0.0.1:9", "x", timeout=0.2)
    with pytest.raises(UnavailableError):
        await town.look(scaler)
    town.amazon.is_down, scaler.client = False, client
    assert acts(await town.look(scaler)) == {"capacity": 3}


@pytest.mark.parametrize(
    ("target", "error", "why"),
    [
        (Target(route=ROUTE, group="nowhere"), NotFoundError, "'nowhere'"),
        (Target(route="nothing", group="gpus"), NotFoundError, "'nothing'"),
    ],
    ids=["group", "route"],
)
async def test_what_is_not_there_is_told(
    town: Town, scaler: Autoscaler, target: Target, error: type[MillpondError], why: str
) -> None:
    town.amazon.make_group("gpus")
    scaler.target = target
    with pytest.raises(error, match=why):
        await scaler.look()


async def test_a_group_that_counts_in_other_units_is_refused(town: Town, scaler: Autoscaler) -> None:
    town.amazon.make_group("gpus")
    plain = scaler.groups.group

    async def weighted(name: str) -> Any:
        return replace(await plain(name), is_weighted=True)

    scaler.groups.group = weighted  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidError, match="not counted in instances"):
        await scaler.look()


async def test_two_autoscalers_do_no_harm(town: Town, client: AsyncClient, scaler: Autoscaler) -> None:
    other = Autoscaler(client, scaler.groups, scaler.target, clock=lambda: town.now)
    town.amazon.make_group("gpus", max=3, desired=0)
    await town.submit(3)
    for each in (scaler, other):
        await town.look(each)
    assert town.amazon.capacity() == 3
    busy, *idle = sorted(town.amazon.members())
    await town.come(busy, *idle)
    jobs = {name: await town.take(name) for name in (busy, *idle)}
    for name in idle:
        await town.finish(name, jobs[name] or {})
    for town.now in (61.0, 122.0, 152.0, 182.0):
        for each in (scaler, other):
            await town.look(each)
    assert (town.amazon.members(), town.amazon.capacity()) == ([busy], 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [({"min": 3, "max": 2}, "not more than max"), ({"min": -1}, "at least 0"), ({"jobs_per_worker": 0}, "at least 1")],
    ids=["order", "negative", "nothing"],
)
def test_a_target_must_make_sense(given: Any, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        Target(route=ROUTE, group="gpus", **given)
