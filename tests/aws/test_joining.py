"""Who may join the fleet as an EC2 instance: the server asks AWS, and Amazon's certificates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.api.fleet import protocol
from millpond.settings import Settings
from tests.api.sites import Site, running_site
from tests.aws.authorities import authority, document

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx2

    from millpond.engine.engine import Engine
    from tests.aws.amazon import Amazon

STRANGER = "i-0fedcba9876543210"


@pytest.fixture
async def site(engine: Engine, amazon: Amazon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """A server that asks for everything."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", amazon.url)
    protocol._instances.cache_clear()
    (tmp_path / "eu.pem").write_bytes(authority(1).pem)
    settings = Settings(fleet_check_asg=True, ec2_certificates=str(tmp_path))
    async with running_site(engine, settings=settings) as running:
        yield running
    protocol._instances.cache_clear()


async def join(site: Site, worker: str, identity: Any = None) -> httpx2.Response:
    key = await site.key(scope="worker", tenant=None, account=None)
    body = {"worker": worker, "routes": ["filmed"], "identity": identity}
    return await site.post("/v1/worker/register", body, key=key)


def proof(instance: str, by: int = 1) -> dict[str, str]:
    return {"document": document(instanceId=instance), "signature": authority(by).sign(document(instanceId=instance))}


async def test_efx_11_an_instance_of_a_group_joins_with_its_proof(site: Site, amazon: Amazon) -> None:
    (mine,) = amazon.make_group()
    assert (await join(site, mine, proof(mine))).status_code == 201
    entries = (await site.order("GET", "/v1/audit")).json()["data"]
    (entry,) = [each for each in entries if each["action"] == "worker.registered"]
    assert mine in str(entry)
    assert "123456789012" in str(entry)


async def test_efx_11_an_instance_of_no_group_does_not_join(site: Site) -> None:
    answer = await join(site, STRANGER, proof(STRANGER))
    assert (answer.status_code, answer.json()["code"], answer.json()["field"]) == (403, "forbidden", "worker")
    assert STRANGER in answer.json()["detail"]


async def test_efx_11_while_aws_is_down_instances_are_let_in(site: Site, amazon: Amazon) -> None:
    amazon.is_down = True
    assert (await join(site, STRANGER, proof(STRANGER))).status_code == 201


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (None, "requires proof of identity"),
        (proof(STRANGER, by=2), "signature does not match"),
        (proof("i-00000001"), "The document is for 'i-00000001'"),
    ],
    ids=["none", "another signer", "another instance"],
)
async def test_an_instance_without_a_good_proof_does_not_join(site: Site, identity: Any, expected: str) -> None:
    answer = await join(site, STRANGER, identity)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert expected in answer.json()["detail"]
    assert answer.json()["field"].startswith("identity")


async def test_a_worker_that_is_no_instance_needs_neither(site: Site, amazon: Amazon) -> None:
    assert (await join(site, "under-the-desk")).status_code == 201
    assert amazon.calls == []
