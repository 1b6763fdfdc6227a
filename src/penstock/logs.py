"""The log: one line per event, JSON for machines, readable in a terminal. This is the catalogue of events.

A library does not write to its host's log: nothing is written until :func:`configure` is called, which the
commands do.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import structlog

from penstock import ids

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from uuid import UUID

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

CATALOGUE: Final[dict[str, tuple[Level, str]]] = {
    "db.embedded_started": ("info", "The embedded PostgreSQL is up."),
    "db.migrated": ("info", "Migrations were applied."),
    "db.unavailable": ("warning", "The database could not be reached; it is tried again."),
    "job.created": ("info", "A job was submitted."),
    "job.transition": ("info", "A job changed its state."),
    "job.transition_denied": ("warning", "A change of state that the lifecycle does not allow was refused."),
    "job.completed": ("info", "A job ended well."),
    "job.failed": ("warning", "A job failed, with what was given back."),
    "job.canceled": ("info", "A job was canceled."),
    "job.expired": ("warning", "A job reached its deadline."),
    "job.blocked": ("info", "A job's content was not allowed."),
    "job.requeued": ("info", "A job went back into the queue."),
    "library.warned": ("warning", "A library that Penstock stands on has something to say."),
    "lease.lapsed": ("warning", "A silent worker's jobs were taken back."),
    "lease.lost": ("warning", "A worker's report came too late and was dropped."),
    "handler.raised": ("warning", "A job's code raised an error."),
    "request.answered": ("debug", "A request was answered."),
    "request.failed": ("error", "A request met an error that is ours; the caller was told its request id."),
    "process.ended": ("warning", "A process of the server ended by itself; it is started again."),
    "server.started": ("info", "The server takes requests."),
    "server.stopped": ("info", "The server is gone."),
    "service.failed": ("error", "A background service met an error; it goes on."),
    "stream.dropped": ("info", "A reader of a stream stopped reading and was cut off."),
    "partition.dropped": ("info", "A week of history reached its age and was dropped."),
    "worker.started": ("info", "A worker takes jobs."),
    "worker.stopping": ("info", "A worker finishes what it has and takes no more."),
    "worker.stopped": ("info", "A worker is gone."),
}

_threshold = 100
_logger: Any = None


def configure(level: Level = "info", *, as_json: bool | None = None, stream: Any = None) -> None:
    """Write events of this level and above to a stream (standard error if none is given)."""
    global _threshold, _logger  # noqa: PLW0603 - one log per process
    out = stream or sys.stderr
    if as_json is None:
        as_json = not out.isatty()
    render = _render_json if as_json else structlog.dev.ConsoleRenderer(colors=out.isatty())
    _threshold = LEVELS[level]
    _logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[structlog.processors.TimeStamper("iso", key="ts"), render],
    )


def silence() -> None:
    global _threshold  # noqa: PLW0603 - one log per process
    _threshold = 100


def is_on(event: str) -> bool:
    """Whether anybody will read it: asked before a batch builds a thousand lines."""
    return LEVELS[CATALOGUE[event][0]] >= _threshold


def emit(event: str, *, job_id: UUID | None = None, **fields: Any) -> None:
    """Write one line; an event that is not in the catalogue is a mistake in our code."""
    level = CATALOGUE[event][0]
    if LEVELS[level] < _threshold:
        return
    if job_id is not None:
        fields["job_id"] = ids.text("job", job_id)
    _logger.info(event, level=level, **fields)


def _render_json(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> str:
    ordered = {"ts": line.pop("ts"), "event": line.pop("event"), **line}
    return msgspec.json.encode(ordered, enc_hook=str).decode()
