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

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = [path.read_text() for path in Path(millpond.__file__).parent.rglob("*.py") if path.name != "logs.py"]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield (out := io.StringIO())
    logs.silence()
    assert out is not None


def test_an_event_is_one_line_of_json(stream: io.StringIO) -> None:
    logs.configure("info", as_json=True, stream=stream)
    logs.emit("job.created", job_id=UUID(int=7), type="priced", odd=object)
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert list(told)[:2] == ["ts", "event"]
    assert (told["event"], told["level"], told["type"]) == ("job.created", "info", "priced")
    assert told["job_id"] == ids.text("job", UUID(int=7))


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


def test_a_library_is_silent_until_told(capsys: pytest.CaptureFixture[str]) -> None:
    logs.silence()
    logs.emit("service.failed", error="x")
    assert capsys.readouterr() == ("", "")


def test_an_event_that_is_not_in_the_catalogue_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        logs.emit("job.misspelled")


@pytest.mark.parametrize("event", logs.CATALOGUE)
def test_every_event_of_the_catalogue_is_emitted_somewhere(event: str) -> None:
    outcomes = {f"job.{outcome}" for outcome in ("failed", "canceled", "expired", "blocked")}
    assert event in outcomes or any(f'"{event}"' in text for text in SOURCES)


def test_every_emitted_event_is_in_the_catalogue() -> None:
    emitted = {name for text in SOURCES for name in re.findall(r'logs\.emit\(\s*"([^"]+)"', text)}
    assert emitted <= logs.CATALOGUE.keys()
    assert emitted
