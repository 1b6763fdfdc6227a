"""``millpond batches`` on a running ``millpond up``."""

from __future__ import annotations

import asyncio
import io
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from tests.acceptance.processes import Shell
    from tests.cli.ups import Up


class Here:
    """Commands in this process and the folder of a running ``millpond up``."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    async def run(self, *words: str) -> Any:
        """What a command prints in JSON."""
        return msgspec.json.decode((await self.text(*words, "--json"))[0])

    async def text(self, *words: str, status: int = 0) -> tuple[str, str]:
        found = await asyncio.to_thread(self._status, *words)
        out, err = self._capsys.readouterr()
        assert found == status, err
        return out, err

    @staticmethod
    def _status(*words: str) -> Any:
        try:
            main(("batches", *words))
        except SystemExit as left:
            return left.code


@pytest.fixture
def here(
    system: tuple[Shell, Up], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Here:
    sh, _ = system
    monkeypatch.chdir(sh.folder)
    monkeypatch.setenv("DATABASE_URL", sh.dsn or "")
    return Here(tmp_path, capsys)


async def test_the_jobs_of_a_file_are_submitted_shown_and_canceled(here: Here) -> None:
    file = here.folder / "jobs.jsonl"
    file.write_text('{"kind": "hello", "input": {"name": "Ada"}}\n\n{"kind": "hello", "input": {"name": "Bob"}}\n')
    ended = await here.run(
        "create", str(file), "--name", "greetings", "--tag", "team=ads", "--wait", "--timeout", "60s"
    )
    assert (ended["state"], ended["name"], ended["succeeded"]) == ("completed", "greetings", 2)
    listed = await here.run("list", "--tag", "team=ads", "--state", "completed")
    assert [each["id"] for each in listed["data"]] == [ended["id"]]
    jobs = await here.run("jobs", ended["id"], "--outcome", "succeeded")
    assert [job["input"]["name"] for job in jobs["data"]] == ["Ada", "Bob"]
    assert (await here.run("get", ended["id"])) == {name: ended[name] for name in ended if name != "webhook_secret"}
    assert (await here.run("cancel", ended["id"]))["state"] == "completed"
    table, _ = await here.text("list")
    assert "greetings" in table
    assert "More results" in (await here.text("jobs", ended["id"], "--limit", "1"))[1]


async def test_each_line_is_an_input_of_a_kind(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"name": "Ada"}\n')))
    made = await here.run("create", "-", "--kind", "hello")
    assert (made["total"], made["submitted"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "The batch has no jobs"),
        ('{"kind": "hello"}\n[1]\n', "Line 2"),
        ("{", "Line 1"),
        ('{"kind": "hello"}\n{"name": "x"}\n', "requests[1]"),
        ('{"kind": "nothing"}\n', "requests[0].kind"),
    ],
)
async def test_what_is_wrong_with_a_file_is_named(here: Here, text: str, message: str) -> None:
    file = here.folder / "jobs.jsonl"
    file.write_text(text)
    found = await asyncio.to_thread(here._status, "create", str(file))
    assert found not in {0, None}
    assert message in here._capsys.readouterr().err
    found = await asyncio.to_thread(here._status, "create", str(here.folder / "missing"))
    assert "cannot be read" in here._capsys.readouterr().err
