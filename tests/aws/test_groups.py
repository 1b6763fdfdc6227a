"""Auto Scaling Groups: the calls, what is made of their refusals, protection, and the server's question."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.errors import (
    BusyError,
    ForbiddenError,
    InvalidError,
    MillpondError,
    NotFoundError,
    SettingsError,
    UnauthorizedError,
    UnavailableError,
)
from millpond.integrations.aws.groups import Groups, InstanceCheck, Protection
from millpond.retry import Backoff
from tests.aws.amazon import until_protected
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.aws.amazon import Amazon

SOON = Backoff(first=timedelta(milliseconds=1), longest=timedelta(milliseconds=20))


@pytest.fixture
async def groups(anyio_backend: str, amazon: Amazon) -> AsyncIterator[Groups]:
    made = amazon.groups()
    yield made
    await made.close()


# The calls


async def test_a_group_is_reported_with_its_members(groups: Groups, amazon: Amazon) -> None:
    first, second = amazon.make_group("gpus", min=1, max=5, desired=2)
    amazon.protect(first)
    group = await groups.group("gpus")
    assert (group.name, group.min, group.max, group.desired, group.is_weighted) == ("gpus", 1, 5, 2, False)
    members = {each.instance_id: each for each in group.instances}
    assert members.keys() == {first, second}
    assert {name for name, each in members.items() if each.is_protected} == {first}
    assert all(each.is_in_service and each.is_healthy and each.group == "gpus" for each in members.values())


async def test_a_group_that_is_not_there_is_not_found(groups: Groups) -> None:
    with pytest.raises(NotFoundError, match="'nowhere'"):
        await groups.group("nowhere")


async def test_only_instances_of_a_group_are_found_and_fifty_at_a_time(groups: Groups, amazon: Amazon) -> None:
    (member,) = amazon.make_group()
    strangers = [f"i-{number:08x}" for number in range(70)]
    found = await groups.instances([*strangers, member])
    assert {name: each.group for name, each in found.items()} == {member: "gpus"}
    sizes = [sum(name.startswith("InstanceIds.member") for name in call) for call in amazon.calls]
    assert sizes == [50, 21]


async def test_the_capacity_is_set_and_an_instance_ends_with_its_place_or_is_replaced(
    groups: Groups, amazon: Amazon
) -> None:
    amazon.make_group()
    await groups.set_desired("gpus", 3)
    first, second, third = amazon.members()
    await groups.terminate(first, is_shrinking=True)
    assert (amazon.capacity(), set(amazon.members())) == (2, {second, third})
    await groups.terminate(second, is_shrinking=False)
    assert (amazon.capacity(), len(amazon.members())) == (2, 2)
    assert second not in amazon.members()


async def test_the_group_itself_takes_no_protected_instance(groups: Groups, amazon: Amazon) -> None:
    first, second = amazon.make_group(desired=2)
    await groups.protect("gpus", second, is_protected=True)
    await groups.set_desired("gpus", 0)
    assert amazon.members() == [second]
    await groups.protect("gpus", second, is_protected=False)
    assert amazon.protected() == set()
    assert first != second


# Refusals


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "Throttling", UnavailableError),
        (500, "InternalFailure", UnavailableError),
        (503, "ServiceUnavailable", UnavailableError),
        (400, "ResourceContention", BusyError),
        (400, "ScalingActivityInProgress", BusyError),
        (400, "ValidationError", InvalidError),
        (403, "AccessDenied", ForbiddenError),
        (403, "ExpiredToken", UnauthorizedError),
        (403, "InvalidClientTokenId", UnauthorizedError),
        (403, "SignatureDoesNotMatch", UnauthorizedError),
    ],
)
async def test_a_refusal_is_reported_as_what_it_means(
    groups: Groups, amazon: Amazon, status: int, code: str, error: type[MillpondError]
) -> None:
    amazon.make_group()
    amazon.refusals.extend([(status, code)] * 5)
    with pytest.raises(error, match=f"set_desired_capacity: {code}") as raised:
        await groups.set_desired("gpus", 2)
    assert type(raised.value) is error
    assert raised.value.retryable == issubclass(error, UnavailableError)


async def test_a_throttled_call_is_tried_again(groups: Groups, amazon: Amazon) -> None:
    amazon.make_group()
    amazon.refusals.append((400, "Throttling"))
    await groups.set_desired("gpus", 2)
    assert (amazon.capacity(), len(amazon.called("SetDesiredCapacity"))) == (2, 2)


async def test_aws_out_of_reach_is_reported(groups: Groups, amazon: Amazon) -> None:
    amazon.is_down = True
    with pytest.raises(UnavailableError, match="could not be reached"):
        await groups.group("gpus")


async def test_without_region_or_credentials_it_is_said_what_is_missing(
    amazon: Amazon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    with pytest.raises(SettingsError, match="AWS_REGION"):
        await Groups(endpoint_url=amazon.url).group("gpus")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UnauthorizedError, match="requires AWS credentials"):
        await Groups(region="eu-central-1", endpoint_url=amazon.url).group("gpus")
    assert amazon.called("DescribeAutoScalingGroups") == []


async def test_without_an_endpoint_no_call_of_the_tests_leaves_the_machine() -> None:
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9"):
        await Groups().group("gpus")


# Protection


def changes(amazon: Amazon) -> list[str]:
    return [call["ProtectedFromScaleIn"] for call in amazon.called("SetInstanceProtection")]


async def test_an_instance_is_protected_while_its_worker_is_busy(groups: Groups, amazon: Amazon) -> None:
    mine, _ = amazon.make_group(desired=2)
    protection = Protection(groups, mine, linger=0.0)
    protection.on_busy(is_busy=True)
    await until_protected(amazon, mine)
    protection.on_busy(is_busy=False)
    await until_protected(amazon)
    await protection.close()
    assert changes(amazon) == ["true", "false"]


async def test_a_busy_worker_that_leaves_is_protected_no_longer(groups: Groups, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    protection = Protection(groups, mine, linger=3600)
    protection.on_busy(is_busy=True)
    await until_protected(amazon, mine)
    await protection.close()
    assert (amazon.protected(), changes(amazon)) == (set(), ["true", "false"])
    await protection.close()


async def test_a_short_rest_between_two_jobs_changes_nothing(groups: Groups, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    protection = Protection(groups, mine, linger=3600)
    protection.on_busy(is_busy=True)
    await until_protected(amazon, mine)
    for _ in range(20):
        protection.on_busy(is_busy=False)
        await asyncio.sleep(0)
        protection.on_busy(is_busy=True)
        await asyncio.sleep(0)
    await protection.close()
    assert changes(amazon) == ["true", "false"]


async def test_what_another_life_left_protected_is_lifted_by_the_first_word(groups: Groups, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    amazon.protect(mine)
    protection = Protection(groups, mine, linger=3600)
    protection.on_busy(is_busy=False)
    await until_protected(amazon)
    await protection.close()


async def test_contention_is_tried_again_and_nobody_waits(groups: Groups, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    amazon.refusals.extend([(400, "ResourceContention")] * 4)
    protection = Protection(groups, mine, group="gpus", linger=0.0, backoff=SOON)
    protection.on_busy(is_busy=True)  # it returns at once: there is nothing to await
    await until_protected(amazon, mine)
    assert len(changes(amazon)) == 5
    await protection.close()


async def test_an_instance_outside_every_group_is_left_alone(groups: Groups, amazon: Amazon) -> None:
    protection = Protection(groups, "i-00000001", linger=0.0)
    protection.on_busy(is_busy=True)
    await protection.close()
    assert changes(amazon) == []


async def test_a_worker_leaves_in_time_though_aws_is_down(groups: Groups, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    protection = Protection(groups, mine, group="gpus", backoff=SOON)
    amazon.is_down = True
    protection.on_busy(is_busy=True)
    async with asyncio.timeout(PATIENCE):
        await protection.close(seconds=0.1)


async def test_what_an_earlier_life_has_left_on_is_lifted(groups: Groups, amazon: Amazon) -> None:
    (instance,) = amazon.make_group("gpus")
    await groups.protect("gpus", instance, is_protected=True)
    await Protection(groups, instance).close()
    assert (await groups.instances([instance]))[instance].is_protected is False


# The server's question


async def test_efx_11_an_instance_belongs_if_it_is_in_a_group(groups: Groups, amazon: Amazon) -> None:
    (member,) = amazon.make_group()
    check = InstanceCheck(groups)
    assert await check.belongs(member) is True
    assert await check.belongs("i-0123456789abcdef0") is False


@pytest.mark.parametrize(("known", "answer"), [(["gpus"], True), (["others"], False), ([], True)], ids=str)
async def test_efx_11_it_may_have_to_be_one_of_the_named_groups(
    groups: Groups, amazon: Amazon, known: list[str], answer: Any
) -> None:
    (member,) = amazon.make_group()
    assert await InstanceCheck(groups, known=known).belongs(member) is answer


@pytest.mark.parametrize(
    "name", ["gpu-1", "i-", "i-0123456z", "i-0123456789abcdef0\n", "I-01234567", "i-012345678' or"]
)
async def test_what_is_no_instance_id_belongs_nowhere_and_is_not_asked_about(
    groups: Groups, amazon: Amazon, name: str
) -> None:
    assert await InstanceCheck(groups).belongs(name) is False
    assert amazon.calls == []


async def test_efx_11_without_an_answer_of_aws_there_is_none(
    groups: Groups, amazon: Amazon, log: list[dict[str, Any]]
) -> None:
    (member,) = amazon.make_group()
    now = [0.0]
    check = InstanceCheck(groups, clock=lambda: now[0])
    amazon.refusals.append((403, "AccessDenied"))
    assert await check.belongs(member) is None
    assert [line["event"] for line in log] == ["check.skipped"]
    assert "AccessDenied" in log[0]["error"]
    asked = len(amazon.calls)
    assert await check.belongs(member) is None
    assert len(amazon.calls) == asked
    now[0] = 11.0
    assert await check.belongs(member) is True


async def test_efx_11_a_worker_does_not_wait_long_for_aws(
    groups: Groups, amazon: Amazon, log: list[dict[str, Any]]
) -> None:
    (member,) = amazon.make_group()
    amazon.may_answer.clear()
    assert await InstanceCheck(groups, patience=0.05).belongs(member) is None
    amazon.may_answer.set()
    assert [line["error"] for line in log] == ["AWS did not respond in time."]


async def test_an_answer_is_kept_for_a_minute_and_asked_for_once_by_many(groups: Groups, amazon: Amazon) -> None:
    (member,) = amazon.make_group()
    now = [0.0]
    check = InstanceCheck(groups, clock=lambda: now[0])
    assert await asyncio.gather(*[check.belongs(member) for _ in range(20)]) == [True] * 20
    now[0] = 59.0
    assert await check.belongs(member) is True
    assert len(amazon.calls) == 1
    await groups.terminate(member, is_shrinking=True)
    now[0] = 61.0
    assert await check.belongs(member) is False


async def test_a_caller_that_goes_away_takes_nothing_from_the_others(groups: Groups, amazon: Amazon) -> None:
    (member,) = amazon.make_group()
    check = InstanceCheck(groups)
    first, second = (asyncio.create_task(check.belongs(member)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is True
    assert first.cancelled()
