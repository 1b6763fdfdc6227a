"""What ``serve`` and ``doctor`` report of the storage of files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from tests.cli.ups import up
from tests.doubles.careless_bucket import careless_bucket
from tests.storage.seaweedfs import free_ports

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


def examined(sh: Shell, **environment: str) -> dict[str, Any]:
    response = msgspec.json.decode(sh.run("doctor", "--json", **environment).stdout)
    (finding,) = [finding for finding in response["findings"] if finding["name"] == "storage"]
    return finding


async def warnings(sh: Shell, **environment: str) -> list[str]:
    server = await up(sh, verb="serve", **environment)
    server.command.terminate()
    assert server.command.wait() == 0
    return [line["event"] for line in server.command.log if line["event"].startswith("storage.")]


async def test_a_bucket_that_lets_uploads_replace_files_is_reported(sh: Shell) -> None:
    with careless_bucket() as url:
        assert await warnings(sh, **KEYS, MILLPOND_STORAGE=url) == ["storage.mutable"]
        found = examined(sh, **KEYS, MILLPOND_STORAGE=url)
    assert not found["is_well"]
    assert "ignores conditional writes" in found["detail"]


@pytest.mark.parametrize("credentials", [KEYS, {"AWS_EC2_METADATA_DISABLED": "true"}])
async def test_a_bucket_that_cannot_be_used_is_reported(sh: Shell, credentials: dict[str, str]) -> None:
    storage = f"s3://pictures?endpoint=http://127.0.0.1:{free_ports(1)[0]}"
    assert await warnings(sh, **credentials, MILLPOND_STORAGE=storage) == ["storage.unavailable"]
    assert not examined(sh, **credentials, MILLPOND_STORAGE=storage)["is_well"]


async def test_a_folder_is_well(sh: Shell) -> None:
    assert await warnings(sh) == []
    assert examined(sh)["is_well"]
