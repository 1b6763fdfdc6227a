"""The log: one line per event, JSON for machines, readable in a terminal. This is the catalogue of events.

A log that cannot be written, because the disk is full or nobody reads the pipe, loses lines and stops nothing else
(:mod:`millpond.log_sink`).

A library does not write to its host's log: nothing is written until :func:`configure` is called, which the
commands do.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from millpond import ids
from millpond.log_sink import open_sink

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping
    from uuid import UUID

    from millpond.log_sink import Sink

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

CATALOGUE: Final[dict[str, tuple[Level, str]]] = {
    "autoscale.decided": ("info", "The autoscaler changed the size of a group, or drained a worker."),
    "autoscale.failed": ("warning", "The autoscaler failed to read or scale a route. It tries again."),
    "callback.accepted": (
        "info",
        "A provider callback was accepted. The server now reads the state from the provider.",
    ),
    "callback.ignored": (
        "warning",
        "A provider callback was a duplicate, too late or for an unknown prediction. Nothing changed.",
    ),
    "callback.refused": (
        "warning",
        "A provider callback was rejected because its signature or timestamp is invalid. Nothing changed.",
    ),
    "check.skipped": (
        "warning",
        "AWS did not confirm a worker's instance. The worker was registered without the check.",
    ),
    "artifacts.swept": ("info", "Unused files were removed from storage."),
    "gate.failed": ("error", "A gate failed. The content it should check was rejected."),
    "gate.missing": ("error", "A kind names a gate that is not declared. Its jobs are rejected."),
    "comfyui.failed": ("warning", "A job failed on ComfyUI. The details are not shown to its user."),
    "comfyui.waiting": ("warning", "ComfyUI does not respond. The worker takes no jobs until it does."),
    "db.embedded_ended": ("error", "The embedded PostgreSQL ended unexpectedly. It is restarted."),
    "db.embedded_failed": ("error", "The embedded PostgreSQL could not be restarted. It is tried again."),
    "db.embedded_started": ("info", "The embedded PostgreSQL started."),
    "db.migrated": ("info", "Migrations were applied."),
    "db.unavailable": ("warning", "The database could not be reached, or could not write. The operation is retried."),
    "tenant_database.repaired": (
        "warning",
        "A job and its dispatch, which are stored in two databases, were reconciled.",
    ),
    "tenant_database.reached": ("info", "A tenant database is reachable."),
    "tenant_database.unreachable": (
        "warning",
        "A tenant database is unreachable. Requests of its tenants are rejected until it is reachable again.",
    ),
    "isolation.incomplete": (
        "warning",
        "Row-level security does not isolate the reads of clients by tenant. The entry states what to do.",
    ),
    "isolation.superuser": (
        "warning",
        "Millpond connects as a superuser, whom no privilege and no policy restricts. Use another role.",
    ),
    "job.created": ("info", "A job was submitted."),
    "job.transition": ("info", "The state of a job changed."),
    "job.transition_denied": ("warning", "A transition that the lifecycle does not allow was rejected."),
    "job.completed": ("info", "A job succeeded."),
    "job.failed": ("warning", "A job failed. The entry includes the released credits."),
    "job.canceled": ("info", "A job was canceled."),
    "job.expired": ("warning", "A job expired at its deadline."),
    "job.blocked": ("info", "A job was blocked because its content is not allowed."),
    "job.requeued": ("info", "A job returned to the queue."),
    "library.warned": ("warning", "A library used by Millpond issued a warning."),
    "log.dropped": ("warning", "Log lines could not be written and were dropped. The entry includes their number."),
    "lease.lapsed": ("warning", "The leases of a silent worker expired, and its jobs were taken back."),
    "lease.lost": ("warning", "A worker's report was discarded because its lease had ended."),
    "delivery.postponed": ("warning", "A webhook delivery waits for a process that knows the kind of its job."),
    "endpoint.disabled": (
        "warning",
        "A webhook endpoint was disabled because it is gone or has failed for days.",
    ),
    "handler.raised": ("warning", "A job's code raised an error."),
    "handler.warned": ("warning", "A job's code, or a library that it uses, logged a warning."),
    "request.answered": ("debug", "A request was processed."),
    "request.failed": ("error", "A request failed with a server error. The response contains its request id."),
    "process.ended": ("warning", "A server process exited unexpectedly. It is restarted."),
    "server.started": ("info", "The server accepts requests."),
    "server.stopped": ("info", "The server stopped."),
    "service.failed": ("error", "A background service met an error. It continues to run."),
    "session.refused": ("warning", "A sign-in to the dashboard was rejected."),
    "schedule.cancel_refused": (
        "warning",
        "The job of a previous due time could not be canceled. It continues beside the new one.",
    ),
    "schedule.declared": ("info", "A schedule of the app was stored, because it is new or has changed."),
    "schedule.failed": ("warning", "The job of a due time was rejected. The schedule continues."),
    "schedule.orphaned": ("warning", "A schedule is no longer declared by its app. It does not fire any more."),
    "schedule.skipped": ("info", "A due time was skipped by the overlap or catch-up policy of its schedule."),
    "schedule.submitted": ("info", "A schedule submitted a job."),
    "storage.mutable": (
        "warning",
        "The bucket ignores conditional writes, so a signed URL can replace a stored file. Use another server.",
    ),
    "storage.unavailable": ("warning", "The file storage could not be used when the process started."),
    "stream.dropped": ("info", "A stream was closed because its reader stopped reading."),
    "notices.absent": ("debug", "No EC2 metadata service is available. Interruption notices are not monitored."),
    "notices.unavailable": ("warning", "The EC2 metadata service did not respond. The check is repeated."),
    "partition.dropped": ("info", "A partition with one week of history reached its retention age and was dropped."),
    "provider.resumed": ("info", "Calls to a provider have resumed."),
    "provider.canceled": ("info", "A prediction that no job needs any more was canceled at the provider."),
    "provider.late": (
        "warning",
        "A provider finished a prediction that no job needs any more. No credits were captured or refunded.",
    ),
    "provider.missing": ("warning", "Jobs wait for a provider that is not configured. They expire at their deadline."),
    "provider.suspended": ("warning", "Calls to a provider are suspended. Its jobs wait."),
    "provider.submitted": ("info", "A provider accepted a prediction."),
    "protection.changed": ("debug", "The scale-in protection of a worker's instance was set or removed."),
    "protection.failed": ("warning", "The scale-in protection of a worker's instance could not be changed."),
    "server.unavailable": ("warning", "The server could not be reached. The operation is retried."),
    "worker.unready": ("warning", "A worker reports that it takes no jobs at present."),
    "worker.ready": ("info", "A worker takes jobs again."),
    "vault.missing": (
        "warning",
        "There is no encryption key, so webhook secrets are disabled: requests that need one are rejected.",
    ),
    "worker.registered": ("info", "The server registered a worker."),
    "worker.deregistered": ("info", "A worker left the fleet."),
    "worker.forgotten": ("info", "A fleet worker was removed after a long silence."),
    "worker.waiting": ("warning", "The server does not accept the worker yet. The worker tries again."),
    "worker.dismissed": ("error", "The server revoked the worker. It stops all its jobs."),
    "worker.leaving": ("info", "A worker was asked to stop."),
    "worker.started": ("info", "A worker started to take jobs."),
    "worker.stopping": ("info", "A worker finishes its jobs and takes no more."),
    "worker.stopped": ("info", "A worker stopped."),
}

_UNSAFE: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
"""What may end a line for a reader of the log, or command a terminal. Line feeds are escaped in any case."""

_threshold = 100
_logger: Any = None
_sink: Sink | None = None


def declare(events: Mapping[str, tuple[Level, str]]) -> None:
    """Add the events of another package to the catalogue: each with its level and its meaning."""
    for name, declared in events.items():
        if CATALOGUE.setdefault(name, declared) != declared:
            raise ValueError(f"The log event {name!r} is declared already, with another level or meaning.")


def configure(level: Level = "info", *, as_json: bool | None = None, stream: Any = None) -> None:
    """Write events of this level and above to a stream (standard error if none is given)."""
    global _threshold, _logger, _sink  # noqa: PLW0603 - one log per process
    out = stream or sys.stderr
    if as_json is None:
        as_json = not out.isatty()
    _threshold = LEVELS[level]
    drain()
    _sink = open_sink(out, _json_line)
    _logger = _Lines(_sink) if as_json else _console(_sink, is_colored=out.isatty())


def _console(sink: Sink, *, is_colored: bool) -> Any:
    try:
        import structlog  # noqa: PLC0415 - JSON does not need it, and it is a tenth of all that `millpond up` imports
    except ModuleNotFoundError:  # a worker that has only the SDK
        return _Lines(sink)
    return structlog.wrap_logger(
        structlog.PrintLogger(sink),  # pyright: ignore[reportArgumentType] - it writes and flushes
        processors=[
            _escape_fields,
            structlog.processors.TimeStamper("iso", key="ts"),
            structlog.dev.ConsoleRenderer(colors=is_colored),
        ],
    )


def write(text: str) -> None:
    """Write text for people, in order with the lines of the log."""
    if _sink is not None:
        _sink.write(text)


def drain(seconds: float | None = None) -> None:
    """Wait until the lines so far are written, at most the given time, or a second in all calls together."""
    if _sink is not None:
        _sink.drain(seconds)


def dropped() -> int:
    """How many lines this process could not write."""
    return 0 if _sink is None else _sink.dropped


def _escape(text: str) -> str:
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape_fields(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> Mapping[str, Any]:
    return {name: _escape(value) if isinstance(value, str) else value for name, value in fields.items()}


def silence() -> None:
    global _threshold  # noqa: PLW0603 - one log per process
    _threshold = 100


def is_on(event: str) -> bool:
    """Whether this event is logged; checked before a batch builds a thousand lines."""
    return LEVELS[CATALOGUE[event][0]] >= _threshold


def emit(event: str, *, job_id: UUID | None = None, **fields: Any) -> None:
    """Write one line; raises KeyError for an event that is not in the catalogue."""
    level = CATALOGUE[event][0]
    if LEVELS[level] < _threshold:
        return
    if job_id is not None:
        fields["job_id"] = ids.text("job", job_id)
    _logger.info(event, level=level, **fields)


class _Lines:
    """Writes lines of JSON."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def info(self, event: str, **fields: Any) -> None:
        self._sink.write(_json_line(event, **fields))


def _json_line(event: str, **fields: Any) -> str:
    ts = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    line = msgspec.json.encode({"ts": ts, "event": event, **fields}, enc_hook=str).decode()
    return (line if line.isascii() and "\x7f" not in line else _escape(line)) + "\n"
