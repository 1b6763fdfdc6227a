"""Follow a job until it ends: by its events and the text that it emits, or by waiting only."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from millpond import wire
from millpond.cli.output import OUTCOME_CODES, TIMED_OUT, report
from millpond.client import WaitTimeoutError
from millpond.client.requests import segment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from millpond.cli.reach import ApiConnection

_WAIT_MAX: Final = 20.0
_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that command a terminal. A job emits what it likes."""


class FailedJob:
    """A job and the traceback of its error."""

    def __init__(self, job: wire.Job, traceback: str) -> None:
        self.job = job
        self.traceback = traceback


class Outcome:
    """A job that a command has followed, for `show` and for the exit code."""

    def __init__(self, job: wire.Job) -> None:
        self.job = job


class EndedText:
    """The end of a job whose text was printed."""

    def __init__(self, job: wire.Job) -> None:
        self.job = job


class LiveText:
    """The text of a job on standard error, with lines about the job between."""

    def __init__(self) -> None:
        self.has_begun = False
        self._is_in_line = False

    def write(self, chunk: wire.Chunk) -> None:
        if chunk.number == 1 and self.has_begun:
            self.report(RESTARTED)
        self.has_begun = True
        text = harmless(chunk.text)
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
            sys.stderr.flush()
        self._is_in_line = not text.endswith("\n") if text else self._is_in_line

    def report(self, text: str) -> None:
        """Write a line that is not part of the text."""
        self.finish()
        report(text)

    def finish(self) -> None:
        """End the last line."""
        if self._is_in_line:
            report("")
        self._is_in_line = False


RESTARTED: Final = "Another attempt restarts the text."


def harmless(text: str) -> str:
    """Text without characters that command a terminal."""
    return _COMMANDS.sub("\ufffd", text)


def path(job_id: str, *parts: str) -> str:
    return "/".join(("/jobs", segment(job_id), *parts))


async def wait(api: ApiConnection, job_id: str, seconds: float | None) -> wire.Job:
    """The job when it has ended, or in its current state when the time is up."""
    end = time.monotonic() + (float("inf") if seconds is None else seconds)
    while True:
        left = max(min(_WAIT_MAX, end - time.monotonic()), 0.0)
        job: wire.Job = await api.get(path(job_id), wire.Job, wait=f"{left:.3f}" if left else None)
        if job.phase == "ended" or not left:
            return job


async def watch(
    api: ApiConnection, job_id: str, seconds: float | None, on_item: Callable[[wire.Event | wire.Chunk], None]
) -> wire.Job:
    """Report events and text; return the job when it has ended, or in its current state when the time is up."""
    with contextlib.suppress(WaitTimeoutError):
        async for item in api.client.watch(job_id, timeout=seconds):
            on_item(item)
    return await api.get(path(job_id), wire.Job)


@contextlib.contextmanager
def bar(kind: str) -> Generator[Callable[[wire.Event | wire.Chunk], None]]:
    """A progress bar in a terminal, otherwise a line for each event. Text that the job emits takes its place."""
    text = LiveText()

    def on_item(item: wire.Event | wire.Chunk) -> None:
        if isinstance(item, wire.Chunk):
            text.write(item)
        elif item.type != "text_started":
            text.report(_line(item))

    if sys.stderr.isatty():
        with _progress(kind, text, on_item) as on_any:
            yield on_any
    else:
        yield on_item
    text.finish()


@contextlib.contextmanager
def _progress(
    kind: str, text: LiveText, on_text: Callable[[wire.Event | wire.Chunk], None]
) -> Generator[Callable[[wire.Event | wire.Chunk], None]]:
    """A progress bar, until there is text."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(kind, total=1.0)

        def on_item(event: wire.Event | wire.Chunk) -> None:
            if isinstance(event, wire.Chunk) or text.has_begun:
                shown.stop()
                on_text(event)
                return
            data = _data(event)
            if "progress" in data or event.type == "succeeded":
                shown.update(task, completed=data.get("progress", 1.0))
            elif event.type == "log":
                shown.console.print(data.get("text", ""), markup=False, highlight=False)
            else:
                shown.update(task, description=f"{kind}: {data.get('stage') or event.state}")

        yield on_item


def _data(event: wire.Event) -> dict[str, Any]:
    return event.data or {}


def _line(event: wire.Event) -> str:
    data = _data(event)
    match event.type:
        case "progress":
            return f"  {data.get('progress', 0):.0%}"
        case "stage":
            return f"  stage {data.get('stage')}"
        case "log":
            return f"  {data.get('text')}"
        case _:
            return f"{event.type}: {event.state}"


def conclude(job: wire.Job) -> Outcome:
    """Report the end of a job on standard error."""
    if job.phase != "ended":
        report(f"{job.id} has not ended and continues. Follow it with `millpond jobs watch {job.id}`.")
        return Outcome(job)
    error = f": {job.error.get('message', job.error.get('code'))}" if job.error else ""
    price = f"; {job.captured} of {job.price} credits" if job.price else ""
    report(f"{job.id} {job.state}{error}{price}")
    return Outcome(job)


def status(followed: Any) -> int:
    """The exit code for the outcome of a followed job; 7 if it has not ended."""
    match followed:
        case Outcome(job=job) | EndedText(job=job) if job.outcome is not None:
            return OUTCOME_CODES[job.outcome]
        case Outcome() | EndedText():
            return TIMED_OUT
        case wire.Event(type=type):
            return OUTCOME_CODES.get(type, 0)
        case _:
            return 0
