"""The metadata of an EC2 instance, and the notices that are read there."""

from __future__ import annotations

import asyncio
import socket
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from millpond.errors import UnavailableError
from millpond.integrations.aws.metadata import Identity, Metadata
from millpond.integrations.aws.notices import Notices
from millpond.work import Notice
from tests.doubles.ec2_metadata import DOCUMENT, SIGNATURE, SPOT, TARGET_STATE, Machine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TOKEN = ("PUT", "/latest/api/token")


@pytest.fixture
async def metadata(anyio_backend: str, metadata_url: str) -> AsyncIterator[Metadata]:
    async with Metadata(metadata_url) as made:
        yield made


@pytest.fixture
def nowhere() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def test_an_instance_learns_who_it_is_with_one_token(metadata: Metadata, machine: Machine) -> None:
    assert await metadata.is_there()
    assert await metadata.instance_id() == "i-0123456789abcdef0"
    assert await metadata.life_cycle() == "spot"
    assert await metadata.region() == "eu-central-1"
    assert await metadata.target_state() == "InService"
    assert machine.asked.count(TOKEN) == 1


async def test_a_token_that_the_service_has_forgotten_is_renewed(metadata: Metadata, machine: Machine) -> None:
    await metadata.instance_id()
    machine.forget_tokens()
    assert await metadata.instance_id() == machine.instance_id
    assert machine.asked.count(TOKEN) == 2


async def test_a_service_that_takes_no_token_is_not_asked_for_ever(metadata: Metadata, machine: Machine) -> None:
    await metadata.instance_id()
    machine.asked.clear()
    machine.faults = [401, 200, 401]
    with pytest.raises(UnavailableError):
        await metadata.instance_id()
    assert len(machine.asked) <= 3


async def test_what_is_not_there_is_none_and_what_must_be_is_missed(metadata: Metadata, machine: Machine) -> None:
    del machine.files[TARGET_STATE]
    assert await metadata.interruption() is None
    assert await metadata.rebalance_at() is None
    assert await metadata.target_state() is None
    with pytest.raises(UnavailableError, match="instance-identity/document"):
        await metadata.identity()


async def test_the_document_is_reported_byte_for_byte_and_the_signature_without_its_lines(
    metadata: Metadata, machine: Machine
) -> None:
    document = '{\n  "instanceId" : "i-1",\n  "name" : "Zoë"\n}\n'
    machine.files |= {DOCUMENT: document, SIGNATURE: "YWJj\nZGVm\n"}
    assert await metadata.identity() == Identity(document, "YWJjZGVm")


@pytest.mark.parametrize("offset", [-3600, 0, 3600])
async def test_the_time_that_is_left_is_reported_by_the_services_clock(
    metadata: Metadata, machine: Machine, offset: int
) -> None:
    machine.clock_offset = timedelta(seconds=offset)
    machine.interrupt("terminate", seconds=120)
    found = await metadata.interruption()
    assert found is not None
    assert found.action == "terminate"
    assert found.seconds_left == pytest.approx(120, abs=20)


async def test_a_time_that_has_passed_leaves_nothing(metadata: Metadata, machine: Machine) -> None:
    machine.interrupt("stop", seconds=-5)
    found = await metadata.interruption()
    assert found is not None
    assert found.seconds_left == 0


@pytest.mark.parametrize("status", [301, 307, 403, 500, 503])
async def test_an_answer_of_another_kind_is_no_answer(
    metadata: Metadata, machine: Machine, metadata_url: str, status: int
) -> None:
    await metadata.instance_id()
    machine.redirect_to = f"{metadata_url}/latest/meta-data/instance-id"
    machine.asked.clear()
    machine.faults = [status]
    with pytest.raises(UnavailableError, match=str(status)):
        await metadata.instance_id()
    assert len(machine.asked) == 1  # a redirection is not followed


async def test_a_proxy_of_the_environment_is_not_used(
    metadata_url: str, nowhere: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, nowhere)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    async with Metadata(metadata_url) as direct:
        assert await direct.is_there()


async def test_elsewhere_than_on_ec2_it_is_seen_soon_and_nobody_is_notified(
    nowhere: str, log: list[dict[str, Any]]
) -> None:
    async with Metadata(nowhere) as absent:
        assert not await absent.is_there()
        with pytest.raises(UnavailableError, match="hop limit"):
            await absent.instance_id()
    assert log == []


async def test_a_service_that_does_not_answer_is_given_up() -> None:
    """As it looks from a container when the hop limit is 1."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with Metadata(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05) as deaf:
            assert not await deaf.is_there()


# Notices


class Watch:
    """Notices with a clock that only turns when the test has acted."""

    def __init__(self, metadata: Metadata, **options: Any) -> None:
        self.looks = 0
        self.slept: list[float] = []
        self._script: list[Any] = []
        self.notices = Notices(metadata, sleep=self._sleep, **options)

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self._script:
            raise asyncio.CancelledError
        self._script.pop(0)()

    async def over(self, *acts: Any) -> list[Notice]:
        """All notices while these things happen, one after each look."""
        self._script = list(acts)
        found: list[Notice] = []
        async with aclosing(aiter(self.notices)) as iterator:
            try:
                async for notice in iterator:
                    found.append(notice)  # noqa: PERF401 - it ends by an error
            except asyncio.CancelledError:
                pass
        return found


def nothing() -> None: ...


async def test_efx_22_a_spot_notice_is_reported_once_with_the_time_that_is_left(
    metadata: Metadata, machine: Machine
) -> None:
    watch = Watch(metadata)
    (notice,) = await watch.over(nothing, machine.interrupt, nothing, nothing)
    assert notice.reason == "spot terminate"
    assert notice.seconds_left == pytest.approx(120, abs=20)
    assert set(watch.slept) == {5.0}


async def test_a_hibernation_leaves_no_time(metadata: Metadata, machine: Machine) -> None:
    machine.interrupt("hibernate", seconds=120)
    assert await Watch(metadata).over(nothing) == [Notice(0.0, "spot hibernate")]


async def test_a_notice_without_a_time_that_can_be_read_leaves_two_minutes(
    metadata: Metadata, machine: Machine
) -> None:
    machine.files[SPOT] = '{"action": "stop", "time": "soon"}'
    assert await Watch(metadata).over(nothing) == [Notice(120.0, "spot stop")]


async def test_efx_22_a_scale_in_is_reported_once(metadata: Metadata, machine: Machine) -> None:
    assert await Watch(metadata, scale_in_seconds=30).over(machine.scale_in, nothing) == [Notice(30, "scale-in")]


@pytest.mark.parametrize(("wanted", "expected"), [(True, ["rebalance", "spot terminate"]), (False, ["spot terminate"])])
async def test_advice_to_leave_is_passed_on_if_wanted_and_what_follows_too(
    metadata: Metadata, machine: Machine, wanted: Any, expected: list[str]
) -> None:
    watch = Watch(metadata, with_rebalance=wanted)
    found = await watch.over(machine.advise_to_leave, nothing, machine.interrupt)
    assert [notice.reason for notice in found] == expected


async def test_a_service_out_of_order_hides_no_later_notice_and_is_reported_once(
    metadata: Metadata, machine: Machine, log: list[dict[str, Any]]
) -> None:
    def fail() -> None:
        machine.faults = [500, 200]  # the first question of the next look, and the second

    def garble() -> None:
        machine.files[SPOT] = "<html>"

    found = await Watch(metadata).over(fail, fail, garble, nothing, machine.interrupt)
    assert [notice.reason for notice in found] == ["spot terminate"]
    assert [(line["event"], line["look"]) for line in log] == [("notices.unavailable", "interruption")]


async def test_elsewhere_than_on_ec2_the_notices_end_quietly(nowhere: str, log: list[dict[str, Any]]) -> None:
    async with Metadata(nowhere) as absent:
        watch = Watch(absent)
        assert await watch.over(*[nothing] * 10) == []
    assert len(watch.slept) <= 3
    assert [(line["event"], line["level"]) for line in log] == [("notices.absent", "debug")]
