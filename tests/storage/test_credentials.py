"""A bucket without keys of its own: those of the role that the process has, from wherever Amazon's libraries look."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest

from millpond.errors import StorageUnavailableError
from millpond.storage import credentials
from millpond.storage.credentials import RoleKeys, fetch_keys
from millpond.storage.s3 import S3
from millpond.storage.sigv4 import SigningKeys
from tests.checks import until
from tests.doubles.ec2_metadata import Machine, served
from tests.storage.backends import MINUTE, Backend
from tests.storage.seaweedfs import BUCKET, KEYS, SeaweedFS, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx2

HOUR = timedelta(hours=1)
ROLE = "meta-data/iam/security-credentials/"
BODY = b"some bytes"


def answer(left: timedelta = HOUR, name: str = KEYS.access_key, token: str = "") -> str:
    """What the services return. SeaweedFS knows the keys, but no session."""
    end = (datetime.now(UTC) + left).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = {"Code": "Success", "AccessKeyId": name, "SecretAccessKey": KEYS.secret_key, "Token": token}
    return json.dumps(found | {"Expiration": end})


def give_role(machine: Machine, text: str) -> None:
    machine.files |= {ROLE: "web-servers\n", f"{ROLE}web-servers": text}


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def instance(machine: Machine) -> Iterator[dict[str, str]]:
    """The environment of a process on an EC2 instance."""
    with served(machine) as url:
        yield {"AWS_EC2_METADATA_SERVICE_ENDPOINT": url}


@pytest.fixture
def backend(seaweedfs: SeaweedFS, http: httpx2.AsyncClient, machine: Machine, instance: dict[str, str]) -> Backend:
    give_role(machine, answer())
    prefix = f"test-{uuid4().hex[:8]}"
    return Backend("s3", S3.from_url(seaweedfs.url(prefix), instance), http)


# What a URL enforces


async def test_with_the_keys_of_a_role_a_url_enforces_what_it_is_signed_for(backend: Backend) -> None:
    signed = backend.sign_put("a b/ü.png", BODY)
    bare = {name: value for name, value in signed.headers.items() if name != "If-None-Match"}
    assert (await backend.http.put(signed.url, content=BODY, headers=bare)).status_code == 403
    assert (await backend.send(signed, BODY + b"x")).status_code == 403
    assert (await backend.send(signed, BODY, headers={"Content-Type": "text/html"})).status_code == 403
    assert (await backend.send(signed, BODY)).status_code == 200
    for headers in (bare, signed.headers):
        assert (await backend.http.put(signed.url, content=b"else bytes", headers=headers)).status_code in {403, 412}
    assert (await backend.get("a b/ü.png")).content == BODY
    assert await backend.store.read("a b/ü.png") == BODY


async def test_a_url_expires_with_its_keys(machine: Machine, instance: dict[str, str]) -> None:
    give_role(machine, answer(timedelta(minutes=2), token="a session"))
    signed = S3.from_url("s3://pics", instance).sign_put("a", lifetime=HOUR, content_type="image/png", size=1)
    query = parse_qs(urlsplit(signed.url).query)
    assert query["X-Amz-Security-Token"] == ["a session"]
    assert 60 < int(query["X-Amz-Expires"][0]) <= 120
    assert signed.expires_at < datetime.now(UTC) + timedelta(minutes=2)


# Renewal


async def test_keys_are_fetched_once_and_renewed_before_they_expire(
    machine: Machine, instance: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_PAUSE", 0.0)
    give_role(machine, answer(name="first"))
    role = RoleKeys(instance)
    assert [role().access_key for _ in range(3)] == ["first"] * 3
    assert machine.asked.count(("GET", f"/latest/{ROLE}web-servers")) == 1
    give_role(machine, answer(timedelta(minutes=5), "second"))
    role = RoleKeys(instance)
    assert role().access_key == "second"
    give_role(machine, answer(name="third"))
    assert role().access_key == "second"  # it does not wait

    async def is_renewed() -> bool:
        return role().access_key == "third"

    await until(is_renewed)


async def test_a_service_that_is_gone_is_not_asked_by_every_request(machine: Machine, instance: dict[str, str]) -> None:
    role = RoleKeys(instance)
    for _ in range(3):
        with pytest.raises(StorageUnavailableError, match="the instance has no role"):
            role()
    assert machine.asked.count(("GET", f"/latest/{ROLE}")) == 1


async def test_without_keys_and_role_the_bucket_cannot_be_used(seaweedfs: SeaweedFS) -> None:
    store = S3.from_url(seaweedfs.url(), {"AWS_EC2_METADATA_DISABLED": "true"})
    for call in (store.read("x"), asyncio.to_thread(store.sign_get, "x", lifetime=MINUTE)):
        with pytest.raises(StorageUnavailableError, match="could not be fetched"):
            await call


# Sources


async def test_a_container_asks_its_agent_with_its_token(machine: Machine, tmp_path: Path) -> None:
    machine.files["keys"] = answer(token="a session")
    machine.tokens["agent token"] = float("inf")
    (tmp_path / "token").write_text("agent token\n")
    tokens = {"": "agent token", "_FILE": str(tmp_path / "token")}
    with served(machine) as url:
        given = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{url}/latest/keys"}
        for name, token in tokens.items():
            keys = await fetch_keys(given | {f"AWS_CONTAINER_AUTHORIZATION_TOKEN{name}": token})
            assert (keys.access_key, keys.session_token) == (KEYS.access_key, "a session")
        with pytest.raises(StorageUnavailableError, match="401"):
            await fetch_keys(given)


@pytest.mark.parametrize("text", ["", "{}", '{"Code": "AssumeRoleUnauthorizedAccess"}', "<html>"])
async def test_an_answer_without_keys_is_an_error(machine: Machine, instance: dict[str, str], text: str) -> None:
    give_role(machine, text)
    with pytest.raises(StorageUnavailableError, match="could not be fetched"):
        await fetch_keys(instance)


async def test_a_service_that_is_not_there_is_an_error() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    for environ in ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": url}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": url}):
        with pytest.raises(StorageUnavailableError, match="could not be fetched"):
            await fetch_keys(environ)


def test_keys_of_the_environment_come_first(instance: dict[str, str]) -> None:
    given = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    assert S3.from_url(f"s3://{BUCKET}", instance | given)._keys == SigningKeys("k", "s")
