"""The encryption key of an installation, as an operator sees it: missing, wrong, and right."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from tests.cli.ups import SLOW, up, write_app

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell

RIGHT, WRONG = (base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
ENDPOINTS, ENDPOINT = "/v1/endpoints?tenant=acme", {"url": "https://1.1.1.1/"}


def examined(sh: Shell, **environment: str) -> dict[str, Any]:
    """What the doctor says of the key."""
    decoded = msgspec.json.decode(sh.run("doctor", "--json", **environment).stdout)
    (finding,) = [finding for finding in decoded["findings"] if finding["name"] == "encryption key"]
    return finding


def admin_key(sh: Shell) -> str:
    return msgspec.json.decode(sh.run("keys", "create", "--scope", "admin", "--json").stdout)["key"]


async def test_without_a_key_serve_says_so_makes_none_and_refuses_what_needs_one(sh: Shell) -> None:
    server = await up(sh, verb="serve")
    (listed,) = [line for line in server.command.log if line["event"] == "vault.missing"]
    assert (listed["level"], listed["has_secrets"]) == ("warning", False)
    assert "MILLPOND_ENCRYPTION_KEY" in listed["hint"]
    server.ready["client_key"] = admin_key(sh)
    refused = await server.request("POST", ENDPOINTS, ENDPOINT)
    assert (refused.status_code, refused.json()["code"]) == (501, "vault_unavailable")
    assert not refused.json().get("retryable")
    assert "retry-after" not in refused.headers
    assert not list(sh.folder.rglob("vault.key"))


async def test_a_key_that_is_not_the_one_in_use_is_refused_at_the_start_and_found_by_the_doctor(sh: Shell) -> None:
    assert "disabled" in examined(sh)["detail"]
    server = await up(sh, verb="serve", MILLPOND_ENCRYPTION_KEY=RIGHT)
    assert not [line for line in server.command.log if line["event"] == "vault.missing"]
    server.ready["client_key"] = admin_key(sh)
    made = await server.request("POST", ENDPOINTS, ENDPOINT)
    assert made.status_code == 201, made.text
    for words in (("serve", "--port", "0"), ("worker", write_app(sh.folder, SLOW))):
        refused = sh.run(*words, MILLPOND_ENCRYPTION_KEY=WRONG)
        assert refused.process.returncode == 5
        assert "encrypted with another key" in refused.stderr
    assert examined(sh, MILLPOND_ENCRYPTION_KEY=RIGHT)["is_well"]
    wrong, missing = examined(sh, MILLPOND_ENCRYPTION_KEY=WRONG), examined(sh)
    assert (wrong["is_well"], missing["is_well"]) == (False, False)
    assert "another key" in wrong["detail"]
    assert "missing" in missing["detail"]
