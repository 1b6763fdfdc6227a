"""Follow a job until it ends, by its events or by waiting only."""

from __future__ import annotations

import contextlib
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


class FailedJob:
    """A job and the traceback of its error."""

    def __init__(self, job: wire.Job, traceback: str) -> None:
        self.job = job
        self.traceback = traceback


class Outcome:
    """A job that a command has followed, for `show` and for the exit code."""

    def __init__(self, job: wire.Job) -> None:
        self.job = job


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
    api: ApiConnection, job_id: str, seconds: float | None, on_event: Callable[[wire.Event], None]
) -> wire.Job:
    """Report each event; return the job when it has ended, or in its current state when the time is up."""
    with contextlib.suppress(WaitTimeoutError):
        async for event in api.client.events(job_id, timeout=seconds):
            on_event(event)
    return await api.get(path(job_id), wire.Job)


@contextlib.contextmanager
def bar(kind: str) -> Generator[Callable[[wire.Event], None]]:
    """A progress bar in a terminal, otherwise a line for each event."""
    if not sys.stderr.isatty():
        yield lambda event: report(_line(event))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(kind, total=1.0)

        def on_event(event: wire.Event) -> None:
            data = _data(event)
            if "progress" in data or event.type == "succeeded":
                shown.update(task, completed=data.get("progress", 1.0))
            elif event.type == "log":
                shown.console.print(data.get("text", ""), markup=False, highlight=False)
            else:
                shown.update(task, description=f"{kind}: {data.get('stage') or event.state}")

        yield on_event


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
        case Outcome(job=job) if job.outcome is not None:
            return OUTCOME_CODES[job.outcome]
        case Outcome():
            return TIMED_OUT
        case wire.Event(type=type):
            return OUTCOME_CODES.get(type, 0)
        case _:
            return 0
