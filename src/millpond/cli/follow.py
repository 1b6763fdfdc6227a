"""Following a job until it ends: by its events, or by waiting alone."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from millpond import wire
from millpond.cli.output import OUTCOME_CODES, TIMED_OUT, say
from millpond.client import WaitTimeoutError
from millpond.client.requests import segment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from millpond.cli.reach import Api

_WAIT_MAX: Final = 20.0


class Outcome:
    """A job that a command has followed, for `show` and for the exit code."""

    def __init__(self, job: wire.Job) -> None:
        self.job = job


def path(job_id: str, *parts: str) -> str:
    return "/".join(("/jobs", segment(job_id), *parts))


async def wait(api: Api, job_id: str, seconds: float | None) -> wire.Job:
    """The job once it has ended, or as it stands when the time is up."""
    end = time.monotonic() + (float("inf") if seconds is None else seconds)
    while True:
        left = max(min(_WAIT_MAX, end - time.monotonic()), 0.0)
        job: wire.Job = await api.get(path(job_id), wire.Job, wait=f"{left:.3f}" if left else None)
        if job.phase == "ended" or not left:
            return job


async def watch(api: Api, job_id: str, seconds: float | None, tell: Callable[[wire.Event], None]) -> wire.Job:
    """Tell each event; the job at the end, or as it stands when the time is up."""
    with contextlib.suppress(WaitTimeoutError):
        async for event in api.client.events(job_id, timeout=seconds):
            tell(event)
    return await api.get(path(job_id), wire.Job)


@contextlib.contextmanager
def bar(kind: str) -> Generator[Callable[[wire.Event], None]]:
    """A live bar in a terminal; elsewhere a line for each event."""
    if not sys.stderr.isatty():
        yield lambda event: say(_line(event))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(kind, total=1.0)

        def tell(event: wire.Event) -> None:
            data = _data(event)
            if "progress" in data or event.type == "succeeded":
                shown.update(task, completed=data.get("progress", 1.0))
            elif event.type == "log":
                shown.console.print(data.get("text", ""), markup=False, highlight=False)
            else:
                shown.update(task, description=f"{kind}: {data.get('stage') or event.state}")

        yield tell


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
    """Say to a person how it went."""
    if job.phase != "ended":
        say(f"{job.id} has not ended; it goes on. Follow it with: millpond jobs watch {job.id}")
        return Outcome(job)
    error = f": {job.error.get('message', job.error.get('code'))}" if job.error else ""
    price = f"; {job.captured} of {job.price} credits" if job.price else ""
    say(f"{job.id} {job.state}{error}{price}")
    return Outcome(job)


def status(followed: Any) -> int:
    """The exit code that tells how a followed job ended; 7 if it has not."""
    match followed:
        case Outcome(job=job) if job.outcome is not None:
            return OUTCOME_CODES[job.outcome]
        case Outcome():
            return TIMED_OUT
        case wire.Event(type=type):
            return OUTCOME_CODES.get(type, 0)
        case _:
            return 0
