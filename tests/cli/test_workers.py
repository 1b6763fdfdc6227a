"""Workers that connect to the database, as an operator sees and steers them: each in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tests.acceptance.processes import until

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up


def workers(sh: Shell) -> list[dict[str, Any]]:
    return msgspec.json.decode(sh.run("workers", "list", "--json").stdout)["data"]


async def test_a_worker_is_listed_drained_resumed_and_when_it_is_killed_lost(sh: Shell) -> None:
    working = sh.worker("--slots", "3", "--name", "hand")

    async def is_listed() -> bool:
        assert working.is_running, working.stderr
        return bool(workers(sh))

    await until(is_listed)
    (found,) = workers(sh)
    assert (found["worker"], found["is_fleet"], found["status"], found["slots"]) == ("hand", False, "idle", 3)
    assert found["queues"]
    assert found["version"]
    for verb, status in (("drain", "draining"), ("resume", "idle")):
        decoded = msgspec.json.decode(sh.run("workers", verb, found["id"], "--json").stdout)
        assert decoded["status"] == status
    refused = sh.run("workers", "revoke", found["id"], "--yes", "--json")
    assert "connects to the database" in msgspec.json.decode(refused.stdout)["detail"]
    working.kill()

    async def is_lost() -> bool:
        return [worker["status"] for worker in workers(sh)] == ["lost"]

    await until(is_lost)


async def test_the_worker_of_an_idle_system_is_counted(system: tuple[Shell, Up]) -> None:
    _, here = system

    async def is_counted() -> bool:
        response = (await here.request("GET", "/v1/board", key="admin_key")).json()
        return response["workers"]["ok"] == 1 and response["slots"] > 0 and response["slots_used"] == 0

    await until(is_counted)
