"""The job of the handler that is running, for what it logs by :mod:`logging` or structlog.

>>> handler = logging.StreamHandler()
>>> handler.addFilter(JobIdFilter())  # records have a job_id
>>> logging.basicConfig(handlers=[handler, JobLogHandler()], format="%(job_id)s %(message)s")
"""

from __future__ import annotations

import contextlib
import contextvars
import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, MutableMapping

    from millpond.worker.context import Job

_CURRENT: Final[contextvars.ContextVar[Job | None]] = contextvars.ContextVar("millpond_job", default=None)


def current_job() -> Job | None:
    """The job whose handler is running here, on the event loop or in a thread; None outside of handlers."""
    return _CURRENT.get()


class JobIdFilter(logging.Filter):
    """Adds ``job_id`` to the records of a :class:`logging.Handler`; it is ``-`` outside of handlers of jobs."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "job_id"):
            job = current_job()
            record.job_id = "-" if job is None else job.id
        return True


class JobLogHandler(logging.Handler):
    """Writes what a job's handler logs to the log of the job, where clients see it too."""

    def emit(self, record: logging.LogRecord) -> None:
        job = current_job()
        if job is None:
            return
        try:
            job.log_soon(self.format(record), level=record.levelname.lower())
        except Exception:  # noqa: BLE001 - as all handlers do
            self.handleError(record)


class Relay(logging.Handler):
    """Turns log records of libraries, and of handlers whose application configures no logging, into log events."""

    def emit(self, record: logging.LogRecord) -> None:
        job = current_job()
        if job is None:
            logs.emit("library.warned", library=record.name, text=self.format(record))
        else:
            job_id = ids.parse("job", job.id)
            logs.emit("handler.warned", job_id=job_id, library=record.name, text=self.format(record))


def relay_warnings() -> None:
    """Write the warnings that no logging handler takes to the log of the process, not directly to standard error."""
    logging.lastResort = Relay(logging.WARNING)


def add_job_id(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add ``job_id`` to an event: a processor for structlog. Not needed beside ``merge_contextvars``."""
    job = current_job()
    if job is not None:
        event.setdefault("job_id", job.id)
    return event


def enter(job: Job) -> None:
    """Make this the job of the current task, and of what it starts."""
    _CURRENT.set(job)
    if "structlog" in sys.modules:
        from structlog import contextvars as bound  # noqa: PLC0415 - only if the code of the jobs uses it

        bound.bind_contextvars(job_id=job.id)


def in_context(call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, for another thread, with the job of the current task."""
    context = contextvars.copy_context()
    return lambda: context.run(call)


@contextlib.contextmanager
def outside() -> Generator[None]:
    """Tasks that are created in this block belong to no job: what they log is not about what its handler does."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)
