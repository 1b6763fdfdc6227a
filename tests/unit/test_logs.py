"""The log: one line an event, from a catalogue."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

import millpond
from millpond import ids, logs
from tests.log_events import emitted, not_emitted

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = Path(millpond.__file__).parent
DECLARED = set(re.findall(r'^    "(\w+\.\w+)": \(', Path(logs.__file__).read_text(), re.MULTILINE))
"""Those of Millpond itself: other packages add to the catalogue."""


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield (out := io.StringIO())
    logs.silence()
    assert out is not None


def test_an_event_is_one_line_of_json(stream: io.StringIO) -> None:
    logs.configure("info", as_json=True, stream=stream)
    logs.emit("job.created", job_id=UUID(int=7), type="priced", odd=object)
    (line,) = stream.getvalue().splitlines()
    decoded = json.loads(line)
    assert list(decoded)[:2] == ["ts", "event"]
    assert (decoded["event"], decoded["level"], decoded["type"]) == ("job.created", "info", "priced")
    assert decoded["job_id"] == ids.text("job", UUID(int=7))


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "console"])
@pytest.mark.parametrize(
    "separator",
    ["\n", "\r", "\v", "\f", "\x1c", "\x1e", "\x85", "\x1b[2J", "\x9b2J", "\x7f", "\u2028", "\u2029"],
    ids=ascii,
)
def test_text_from_a_user_cannot_begin_a_line_or_command_a_terminal(
    stream: io.StringIO, separator: str, *, as_json: bool
) -> None:
    logs.configure("info", as_json=as_json, stream=stream)
    forged = f"é{separator}forged"
    logs.emit("worker.started", worker=forged, reason={forged: [forged]})
    (line,) = stream.getvalue().splitlines()
    assert separator not in line.rstrip("\n")
    assert "é" in line
    if as_json:
        decoded = json.loads(line)
        assert (decoded["worker"], decoded["reason"]) == (forged, {forged: [forged]})


def test_what_is_below_the_level_is_not_written(stream: io.StringIO) -> None:
    logs.configure("warning", as_json=True, stream=stream)
    logs.emit("job.created", job_id=UUID(int=7))
    assert not logs.is_on("job.created")
    assert logs.is_on("job.failed")
    assert stream.getvalue() == ""


def test_in_a_terminal_it_is_readable(stream: io.StringIO) -> None:
    logs.configure("info", as_json=False, stream=stream)
    logs.emit("worker.started", worker="w1")
    assert "worker.started" in stream.getvalue()
    assert "{" not in stream.getvalue()


def test_a_library_is_silent_until_configured(capsys: pytest.CaptureFixture[str]) -> None:
    logs.silence()
    logs.emit("service.failed", error="x")
    assert capsys.readouterr() == ("", "")


def test_an_event_that_is_not_in_the_catalogue_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        logs.emit("job.misspelled")


def test_every_event_of_the_catalogue_is_emitted_somewhere() -> None:
    outcomes = {f"job.{outcome}" for outcome in ("failed", "canceled", "expired", "blocked")}
    assert not_emitted(DECLARED - outcomes, SOURCES) == []


def test_every_emitted_event_is_in_the_catalogue() -> None:
    assert emitted(SOURCES)
    assert emitted(SOURCES) <= DECLARED


def test_another_package_declares_events_of_its_own(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    monkeypatch.setattr(logs, "CATALOGUE", logs.CATALOGUE.copy())
    for _ in range(2):
        logs.declare({"tides.turned": ("info", "The tide has turned.")})
    logs.configure("info", as_json=True, stream=stream)
    logs.emit("tides.turned")
    assert "tides.turned" in stream.getvalue()
    with pytest.raises(ValueError, match=r"'tides\.turned' is declared already"):
        logs.declare({"tides.turned": ("error", "The tide has turned.")})
