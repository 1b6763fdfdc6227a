"""The sink of the log: lines that cannot be written are dropped and counted, and whoever logs never waits."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millpond.log_sink import FLUSH_SECONDS, DescriptorSink, StreamSink, open_sink
from tests.children import bound
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINE = "x" * 99 + "\n"
LIMIT = 100 * len(LINE)


def render(event: str, **fields: Any) -> str:
    return json.dumps({"event": event, **fields}) + "\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])  # the other end stays open: the thread of a sink may write to its number after the test


def fill(descriptor: int) -> int:
    """Write to a pipe until it is full; returns how many bytes that took."""
    os.set_blocking(descriptor, False)
    size = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            size += os.write(descriptor, b"." * 4096)
    os.set_blocking(descriptor, True)
    return size


def read(descriptor: int, until: Callable[[bytes], bool]) -> bytes:
    text = b""
    while not until(text):
        text += os.read(descriptor, 64 * 1024)
    return text


def test_lines_are_written_in_order(pipe: tuple[int, int]) -> None:
    sink = DescriptorSink(pipe[1], render)
    for number in range(100):
        sink.write(f"{number}\n")
    assert sink.drain(PATIENCE)
    assert os.read(pipe[0], 4096).decode().splitlines() == [str(number) for number in range(100)]
    assert sink.dropped == 0


def test_a_pipe_that_nobody_reads_costs_lines_and_no_time(pipe: tuple[int, int]) -> None:
    filled = fill(pipe[1])
    sink = DescriptorSink(pipe[1], render, limit=LIMIT)
    for _ in range(300):
        sink.write(LINE)  # a write that waited would wait for ever
    assert not sink.drain(0.01)
    assert sink.dropped == 200
    read(pipe[0], lambda text: len(text) >= filled + LIMIT)
    assert sink.drain(PATIENCE)
    assert sink.dropped == 200


def test_the_end_of_a_process_waits_once_for_a_pipe_that_nobody_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(pipe[1])
    sink = DescriptorSink(pipe[1], render)
    sink.write(LINE)
    waits: list[float | None] = []
    monkeypatch.setattr(threading.Event, "wait", lambda _event, seconds=None: bool(waits.append(seconds)))
    assert [sink.drain() for _ in range(3)] == [False] * 3
    assert waits == [FLUSH_SECONDS, 0, 0]


def test_dropped_lines_are_reported_when_there_is_room_again(pipe: tuple[int, int]) -> None:
    fill(pipe[1])
    sink = DescriptorSink(pipe[1], render, limit=LIMIT)
    for _ in range(300):
        sink.write(LINE)
    text = read(pipe[0], lambda text: text.count(LINE.encode()) == 100)
    assert sink.drain(PATIENCE)
    sink.write("the last line\n")
    text += read(pipe[0], lambda text: text.endswith(b"the last line\n"))
    reports = [json.loads(line) for line in text.lstrip(b".").splitlines() if line.startswith(b"{")]
    assert {report["event"] for report in reports} == {"log.dropped"}
    assert sum(report["lines"] for report in reports) == 200


def test_a_pipe_whose_reader_is_gone_costs_lines_only(pipe: tuple[int, int]) -> None:
    with open(os.devnull, "rb") as null:  # noqa: PTH123 - a device
        os.dup2(null.fileno(), pipe[0])
    sink = DescriptorSink(pipe[1], render)
    for _ in range(3):
        sink.write(LINE)
    assert sink.drain(PATIENCE)
    assert sink.dropped == 3


def test_a_full_disk_costs_lines_only() -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        sink = open_sink(full, render)
        for _ in range(3):
            sink.write(LINE)
        assert sink.drain(PATIENCE)
        assert sink.dropped == 3


def test_a_descriptor_that_another_process_made_non_blocking_is_awaited(pipe: tuple[int, int]) -> None:
    filled = fill(pipe[1])
    os.set_blocking(pipe[1], False)
    sink = DescriptorSink(pipe[1], render)
    sink.write(LINE)
    assert not sink.drain(0.01)
    assert read(pipe[0], lambda text: text.endswith(b"\n")) == b"." * filled + LINE.encode()
    assert sink.drain(PATIENCE)
    assert sink.dropped == 0


FULL_FOR_A_WHILE = """
import os, resource, sys
from millpond.log_sink import DescriptorSink
sink = DescriptorSink(1, lambda event, **fields: f"{event} {fields}\\n")
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
limit(15)
sink.write("0123456789\\n")
sink.write("0123456789\\n")
assert sink.drain(60)
sink.write("lost\\n")
assert sink.drain(60)
limit(resource.RLIM_INFINITY)
sink.write("room again\\n")
assert sink.drain(60)
assert sink.dropped == 2, sink.dropped
"""


def test_when_there_is_room_again_the_torn_line_is_ended_and_the_gap_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "log"
    with file.open("wb") as out:
        words = [sys.executable, "-c", FULL_FOR_A_WHILE]
        subprocess.run(words, check=True, **bound(stdout=out, timeout=PATIENCE))
    assert file.read_text() == "0123456789\n0123\nlog.dropped {'lines': 2}\nroom again\n"


def test_a_stream_in_memory_that_fails_costs_lines_only() -> None:
    stream = io.StringIO()
    sink = open_sink(stream, render)
    assert isinstance(sink, StreamSink)
    sink.write("one\n")
    assert stream.getvalue() == "one\n"
    stream.close()
    sink.write("two\n")
    assert sink.dropped == 1
