"""The instance that a worker runs on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from millpond.errors import UnavailableError
from millpond.integrations.aws.machine import this_machine
from tests.aws.amazon import until_protected
from tests.doubles.ec2_metadata import DOCUMENT, SIGNATURE, Machine

if TYPE_CHECKING:
    from tests.aws.amazon import Amazon


async def test_on_ec2_a_worker_knows_its_machine_and_protects_it(
    amazon: Amazon, machine: Machine, metadata_url: str
) -> None:
    (mine,) = amazon.make_group()
    machine.files |= {"meta-data/instance-id": mine, DOCUMENT: "{}", SIGNATURE: "YQ=="}
    found = await this_machine(metadata_url, endpoint_url=amazon.url)
    assert (found.instance_id, await found.identify()) == (mine, {"document": "{}", "signature": "YQ=="})
    found.on_busy(is_busy=True)
    await until_protected(amazon, mine)
    machine.interrupt("terminate")
    async for notice in found.notices:
        assert notice.reason == "spot terminate"
        break
    await found.close()
    assert amazon.protected() == set()


async def test_elsewhere_there_is_no_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(UnavailableError, match="Check that this is an EC2 instance"):
        await this_machine(address)


async def test_a_machine_that_does_not_know_who_it_is_has_no_proof(metadata_url: str) -> None:
    found = await this_machine(metadata_url)
    assert await found.identify() is None
    await found.close()
