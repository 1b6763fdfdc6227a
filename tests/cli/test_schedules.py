"""``millpond schedules`` on a running ``millpond up``, which fires them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pytest

from millpond.cli import main
from tests.acceptance.processes import until

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up


class Here:
    """Commands in this process and the folder of a running ``millpond up``."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    async def run(self, *words: str, status: int = 0) -> Any:
        """What a command prints in JSON."""
        return msgspec.json.decode(await self.text(*words, "--json", status=status))

    async def text(self, *words: str, status: int = 0) -> str:
        found = await asyncio.to_thread(self._status, *words)
        out, err = self._capsys.readouterr()
        assert found == status, err
        return out

    @staticmethod
    def _status(*words: str) -> Any:
        try:
            main(("schedules", *words))
        except SystemExit as left:
            return left.code


@pytest.fixture
def here(system: tuple[Shell, Up], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    sh, _ = system
    monkeypatch.chdir(sh.folder)
    monkeypatch.setenv("DATABASE_URL", sh.dsn or "")
    return Here(capsys)


async def test_a_schedule_fires_on_a_development_server_and_is_managed_by_name(here: Here) -> None:
    name = f"tick-{uuid4().hex[:8]}"
    timing = ("--every", "1s", "--input", "name=Ada", "--tag", "team=ads", "--overlap", "queue")
    made = await here.run("create", name, "hello", *timing)
    assert (made["state"], made["every_seconds"], made["tenant"], made["account"]) == ("active", 1.0, "dev", "dev")

    async def has_fired() -> bool:
        return bool((await here.run("fires", name, "--outcome", "submitted"))["data"])

    await until(has_fired)
    paused = await here.run("pause", name)
    assert (paused["state"], paused["fires"][0]["outcome"]) == ("paused", "submitted")
    assert (await here.run("run", made["id"]))["cause"] == "manual"
    changed = await here.run("update", name, "--cron", "30 2 * * *", "--zone", "Europe/Berlin", "--catch-up", "none")
    assert (changed["cron"], changed["every_seconds"], changed["catch_up"]) == ("30 2 * * *", None, "none")
    assert (await here.run("resume", name))["state"] == "active"
    done = await here.run("backfill", name, "--since", "49h")
    assert done["due_times"] >= 2
    shown = await here.text("get", name)
    assert "Europe/Berlin" in shown
    assert shown.count("due 20") == 10
    assert "submitted" in shown
    assert name in await here.text("list", "--limit", "200")
    await here.run("create", name, "hello", *timing, status=5)
    assert await here.run("delete", name, "--yes") == {"deleted": name}
    await here.run("get", name, status=3)


async def test_a_preview_names_the_next_due_times(here: Here) -> None:
    shown = await here.text("preview", "--cron", "0 0 29 2 *", "--count", "2")
    assert [line[:8] for line in shown.splitlines()] == ["due 2028", "due 2032"]
