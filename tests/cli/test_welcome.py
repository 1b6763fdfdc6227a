"""What ``millpond up`` says of the dashboard: a link that signs in is for a person's eyes, and no log's."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.cli.apps import Selection
from millpond.cli.development import DevelopmentFolder, RunningUp
from millpond.cli.up import Serving
from millpond.settings import Settings
from tests.product import app

LINE = RunningUp(
    tenant="dev",
    account="dev",
    admin_key="mp_admin_secret",
    client_key="mp_client_secret",
    fleet_secret="mp_worker_secret",
    url="http://127.0.0.1:8787",
    pid=1,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def welcome(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, **said: Any) -> list[str]:
    monkeypatch.setattr(sys, "stderr", stderr)
    settings = replace(Settings(storage="s3://bucket"), **said)
    serving = Serving(
        settings,
        Selection(app),
        DevelopmentFolder(Path("nowhere")),
        None,  # type: ignore[arg-type] - it is not asked for its address here
        (),
        None,
        files=None,
        companions=(),
        as_json=False,
    )
    return serving._welcome(LINE).splitlines()


def test_a_person_is_given_a_link_that_signs_in(monkeypatch: pytest.MonkeyPatch) -> None:
    output = welcome(monkeypatch, Terminal())
    assert "  dashboard http://127.0.0.1:8787/ui/" in output
    assert "  sign in   http://127.0.0.1:8787/ui/#key=mp_admin_secret" in output


def test_what_may_be_a_log_contains_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    output = welcome(monkeypatch, io.StringIO())
    assert "  dashboard http://127.0.0.1:8787/ui/" in output
    assert "secret" not in "\n".join(output)


def test_without_a_dashboard_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "/ui/" not in "\n".join(welcome(monkeypatch, Terminal(), ui=False))
