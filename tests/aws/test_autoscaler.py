"""The autoscaler between a real server and a group: it looks, decides, acts, and nobody's work is lost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.client import AsyncClient
from millpond.errors import InvalidError, MillpondError, NotFoundError, UnavailableError
from millpond.integrations.aws.autoscaler import Autoscaler, ScalingTarget
from tests.aws.system import ROUTE, SystemUnderTest
from tests.checks import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.integrations.aws.autoscaler import ScalingDecision


@pytest.fixture
async def client(system: SystemUnderTest) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(system.site.url, system.site.admin_key) as made:
        yield made


@pytest.fixture
async def scaler(system: SystemUnderTest, client: AsyncClient) -> AsyncIterator[Autoscaler]:
    groups = system.amazon.groups()
    target = ScalingTarget(route=ROUTE, group="gpus", target_wait=0.0, cooldown=60.0)
    yield Autoscaler(client, groups, target, clock=lambda: system.now)
    await groups.close()


def acts(decision: ScalingDecision) -> dict[str, Any]:
    decoded = msgspec.structs.asdict(decision)
    names = ("capacity", "resume", "drain", "shrink", "replace", "failed")
    return {name: decoded[name] for name in names if decoded[name] not in (None, ())}


async def test_efx_26_a_group_grows_with_the_line_and_shrinks_when_it_is_empty(
    system: SystemUnderTest, scaler: Autoscaler
) -> None:
    system.amazon.make_group("gpus", max=3, desired=0)
    await system.submit(5)
    decision = await system.look(scaler)
    assert (decision.ready, decision.desired, acts(decision)) == (5, 3, {"capacity": 3})
    instances = sorted(system.amazon.members())
    await system.come(*instances)
    for _ in range(2):
        for name in instances:
            if job := await system.take(name):
                await system.finish(name, job)
    system.now = 60.0
    assert acts(await system.look(scaler)) == {}  # three were wanted within the cool-down
    system.now = 61.0
    assert acts(await system.look(scaler)) == {"drain": tuple(instances)}
    assert [await system.status(name) for name in instances] == ["draining"] * 3
    assert acts(await system.look(scaler)) == {"shrink": tuple(instances)}
    assert (system.amazon.capacity(), system.amazon.members()) == (0, [])


async def test_efx_26_the_busy_and_the_protected_stay_and_the_idle_go(
    system: SystemUnderTest, scaler: Autoscaler
) -> None:
    busy, idle, protected = system.amazon.make_group("gpus", desired=3)
    system.amazon.protect(protected)
    await system.come(busy, idle, protected)
    await system.submit(1)
    job = await system.take(busy)
    assert job is not None
    for system.now in (0.0, 61.0, 91.0, 121.0):
        await system.look(scaler)
    assert set(system.amazon.members()) == {busy, protected}
    assert system.amazon.capacity() == 2
    await system.finish(busy, job)
    for system.now in (182.0, 212.0):
        await system.look(scaler)
    assert system.amazon.members() == [protected]
    for call in system.amazon.called("TerminateInstanceInAutoScalingGroup"):
        assert call["ShouldDecrementDesiredCapacity"] == "true"


async def test_a_worker_that_got_a_job_before_it_was_drained_finishes_it(
    system: SystemUnderTest, scaler: Autoscaler
) -> None:
    (mine,) = system.amazon.make_group("gpus")
    await system.come(mine)
    await system.submit(1)
    job = await system.take(mine)
    assert job is not None
    await system.drain(mine)
    for system.now in (0.0, 61.0):
        assert "shrink" not in acts(await system.look(scaler))
    assert system.amazon.members()[0] == mine
    await system.finish(mine, job)
    await system.look(scaler)
    assert mine not in system.amazon.members()


async def test_who_was_sent_away_is_called_back_when_work_comes(system: SystemUnderTest, scaler: Autoscaler) -> None:
    mine, other = sorted(system.amazon.make_group("gpus", min=1, desired=2))
    await system.come(mine, other)
    await system.look(scaler)
    system.now = 61.0
    assert acts(await system.look(scaler)) == {"drain": (mine,)}
    await system.submit(2)
    assert await system.take(other) is not None
    assert acts(await system.look(scaler)) == {"resume": (mine,)}

    async def is_given_a_job() -> bool:
        return await system.take(mine) is not None

    await until(is_given_a_job)
    assert system.amazon.capacity() == 2


async def test_a_drained_worker_that_is_needed_is_replaced_by_a_fresh_machine(
    system: SystemUnderTest, scaler: Autoscaler
) -> None:
    (mine,) = system.amazon.make_group("gpus")
    await system.come(mine)
    await system.submit(1)
    await system.drain(mine)
    assert acts(await system.look(scaler)) == {"replace": (mine,)}
    assert system.amazon.capacity() == 1
    assert mine not in system.amazon.members()


async def test_a_dry_run_reports_and_does_nothing(system: SystemUnderTest, scaler: Autoscaler) -> None:
    system.amazon.make_group("gpus")
    await system.submit(3)
    scaler.is_dry_run = True
    decision = await system.look(scaler)
    assert (decision.capacity, decision.is_dry_run, system.amazon.capacity()) == (3, True, 1)
    assert not system.amazon.called("SetDesiredCapacity")


async def test_what_aws_refuses_is_reported_and_done_at_the_next_look(
    system: SystemUnderTest, scaler: Autoscaler, log: list[dict[str, Any]]
) -> None:
    system.amazon.make_group("gpus")
    await system.submit(3)
    await scaler.groups.group("gpus")

    class Contended:
        """The next change, and no question before it, is refused."""

        def __init__(self, groups: Any) -> None:
            self._groups = groups

        def __getattr__(self, name: str) -> Any:
            if name == "set_desired":
                system.amazon.refusals.append((400, "ScalingActivityInProgress"))
            return getattr(self._groups, name)

    plain, scaler.groups = scaler.groups, Contended(scaler.groups)  # pyright: ignore[reportAttributeAccessIssue]
    assert (await system.look(scaler)).failed == ("set capacity 3",)
    failed = [line for line in log if line["event"] == "autoscale.failed"]
    assert "ScalingActivityInProgress" in failed[0]["error"]
    scaler.groups = plain
    assert (await system.look(scaler)).failed == ()
    assert system.amazon.capacity() == 3


@pytest.mark.parametrize("outage", ["aws", "api"])
async def test_an_outage_is_reported_and_leaves_all_as_it_is(
    system: SystemUnderTest, scaler: Autoscaler, client: AsyncClient, outage: str
) -> None:
    system.amazon.make_group("gpus")
    await system.submit(3)
    if outage == "aws":
        system.amazon.is_down = True
    else:
        scaler.client = AsyncClient("http://127.0.0.1:9", "x", timeout=0.2)
    with pytest.raises(UnavailableError):
        await system.look(scaler)
    system.amazon.is_down, scaler.client = False, client
    assert acts(await system.look(scaler)) == {"capacity": 3}


@pytest.mark.parametrize(
    ("target", "error", "why"),
    [
        (ScalingTarget(route=ROUTE, group="nowhere"), NotFoundError, "'nowhere'"),
        (ScalingTarget(route="nothing", group="gpus"), NotFoundError, "'nothing'"),
    ],
    ids=["group", "route"],
)
async def test_what_is_not_there_is_reported(
    system: SystemUnderTest, scaler: Autoscaler, target: ScalingTarget, error: type[MillpondError], why: str
) -> None:
    system.amazon.make_group("gpus")
    scaler.target = target
    with pytest.raises(error, match=why):
        await scaler.look()


async def test_a_group_that_counts_in_other_units_is_refused(system: SystemUnderTest, scaler: Autoscaler) -> None:
    system.amazon.make_group("gpus")
    plain = scaler.groups.group

    async def weighted(name: str) -> Any:
        return replace(await plain(name), is_weighted=True)

    scaler.groups.group = weighted  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(InvalidError, match="not measured in instances"):
        await scaler.look()


async def test_two_autoscalers_do_no_harm(system: SystemUnderTest, client: AsyncClient, scaler: Autoscaler) -> None:
    other = Autoscaler(client, scaler.groups, scaler.target, clock=lambda: system.now)
    system.amazon.make_group("gpus", max=3, desired=0)
    await system.submit(3)
    for each in (scaler, other):
        await system.look(each)
    assert system.amazon.capacity() == 3
    busy, *idle = sorted(system.amazon.members())
    await system.come(busy, *idle)
    jobs = {name: await system.take(name) for name in (busy, *idle)}
    for name in idle:
        await system.finish(name, jobs[name] or {})
    for system.now in (61.0, 122.0, 152.0, 182.0):
        for each in (scaler, other):
            await system.look(each)
    assert (system.amazon.members(), system.amazon.capacity()) == ([busy], 1)


@pytest.mark.parametrize(
    ("given", "why"),
    [({"min": 3, "max": 2}, "from 0 to max"), ({"min": -1}, "from 0 to max"), ({"jobs_per_worker": 0}, "at least 1")],
    ids=["order", "negative", "nothing"],
)
def test_a_target_must_make_sense(given: Any, why: str) -> None:
    with pytest.raises(InvalidError, match=why):
        ScalingTarget(route=ROUTE, group="gpus", **given)
