"""The log: one line per event, JSON for machines, readable in a terminal. This is the catalogue of events.

A library does not write to its host's log: nothing is written until :func:`configure` is called, which the
commands do.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from millpond import ids

if TYPE_CHECKING:
    from uuid import UUID

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

CATALOGUE: Final[dict[str, tuple[Level, str]]] = {
    "autoscale.decided": ("info", "The autoscaler changed the size of a group, or asked a worker to leave."),
    "autoscale.failed": ("warning", "The autoscaler could not look at a route or act on it; it tries again."),
    "callback.accepted": ("info", "A provider called; it is asked what is true."),
    "callback.ignored": (
        "warning",
        "A provider's call came again, too late, or about something else; nothing changed.",
    ),
    "callback.refused": ("warning", "A call that claims to be a provider's is not, or is too old; nothing changed."),
    "check.skipped": ("warning", "AWS could not be asked about a worker's instance; the worker was let in."),
    "artifacts.swept": ("info", "Files that nobody has a use for any more were removed."),
    "classifier.failed": ("error", "A classifier failed or took too long; its rule acts as if it had matched."),
    "gate.failed": ("error", "A gate failed, and what it was to look at was not let pass."),
    "gate.missing": ("error", "A kind names a gate that is not there; its jobs are refused."),
    "gate.noted": ("info", "A gate let something pass in which rules had found something."),
    "comfyui.waiting": ("warning", "ComfyUI does not answer; no job is taken before it does."),
    "db.embedded_started": ("info", "The embedded PostgreSQL is up."),
    "db.migrated": ("info", "Migrations were applied."),
    "db.unavailable": ("warning", "The database could not be reached; it is tried again."),
    "home.mended": ("warning", "A job and its dispatch, which are in two databases, were brought back into step."),
    "home.reached": ("info", "The database of some tenants can be reached, again or for the first time."),
    "home.unreachable": ("warning", "The database of some tenants cannot be reached; until it can, they are refused."),
    "job.created": ("info", "A job was submitted."),
    "job.transition": ("info", "A job changed its state."),
    "job.transition_denied": ("warning", "A change of state that the lifecycle does not allow was refused."),
    "job.completed": ("info", "A job ended well."),
    "job.failed": ("warning", "A job failed, with what was given back."),
    "job.canceled": ("info", "A job was canceled."),
    "job.expired": ("warning", "A job reached its deadline."),
    "job.blocked": ("info", "A job's content was not allowed."),
    "job.requeued": ("info", "A job went back into the queue."),
    "library.warned": ("warning", "A library that Millpond stands on has something to say."),
    "lease.lapsed": ("warning", "A silent worker's jobs were taken back."),
    "lease.lost": ("warning", "A worker's report came too late and was dropped."),
    "guard.failed": ("error", "The rules could not be applied to a message, and so it was blocked."),
    "delivery.postponed": ("warning", "A webhook waits for a process that knows the kind of its job."),
    "endpoint.disabled": (
        "warning",
        "An endpoint of webhooks is told nothing more: it is gone, or has failed for days.",
    ),
    "handler.raised": ("warning", "A job's code raised an error."),
    "renderer.ended": ("info", "The local renderer is done with a prediction."),
    "renderer.unheard": ("warning", "Nobody took the webhook of the local renderer; it is given up."),
    "request.answered": ("debug", "A request was answered."),
    "request.failed": ("error", "A request met an error that is ours; the caller was told its request id."),
    "process.ended": ("warning", "A process of the server ended by itself; it is started again."),
    "server.started": ("info", "The server takes requests."),
    "server.stopped": ("info", "The server is gone."),
    "service.failed": ("error", "A background service met an error; it goes on."),
    "session.refused": ("warning", "A sign-in to the dashboard was refused."),
    "stream.dropped": ("info", "A reader of a stream stopped reading and was cut off."),
    "notices.absent": ("debug", "There is no EC2 metadata service here, and so there will be no notices."),
    "notices.unseen": ("warning", "The EC2 metadata service did not tell if there is a notice; it is asked again."),
    "storage.broken": ("error", "A file in storage is gone, or is not what was put there."),
    "output.decoded": ("debug", "What a job made was looked at, and is what it claims to be."),
    "output.unreadable": ("warning", "What a job made does not decode."),
    "partition.dropped": ("info", "A week of history reached its age and was dropped."),
    "provider.back": ("info", "A provider is called again."),
    "provider.canceled": ("info", "A provider was told to stop what nobody waits for."),
    "provider.late": (
        "warning",
        "A provider finished what nobody waits for any more; nothing was paid or refunded again.",
    ),
    "provider.missing": ("warning", "Jobs wait for a provider that is not set up here; they end by their deadline."),
    "provider.resting": ("warning", "A provider is not called for a while; its jobs wait."),
    "provider.submitted": ("info", "A provider has taken what it was asked to do."),
    "protection.changed": ("debug", "A worker's instance was protected from scale-in, or is no longer."),
    "protection.failed": ("warning", "The scale-in protection of a worker's instance could not be changed."),
    "server.unavailable": ("warning", "The server could not be reached; it is tried again."),
    "worker.registered": ("info", "A worker was let in by the server."),
    "worker.deregistered": ("info", "A worker left the fleet."),
    "worker.forgotten": ("info", "A worker of the fleet was silent for so long that it was forgotten."),
    "worker.waiting": ("warning", "The server does not let a worker in yet; it is asked again."),
    "worker.dismissed": ("error", "The server does not want this worker any more; it stops all it does."),
    "worker.leaving": ("info", "A worker was told that it has to go."),
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
    _threshold = LEVELS[level]
    _logger = _Lines(out) if as_json else _console(out)


def _console(out: Any) -> Any:
    try:
        import structlog  # noqa: PLC0415 - machines do without; it loads a tenth of all that `millpond up` loads
    except ModuleNotFoundError:  # a worker that has only the SDK
        return _Lines(out)
    return structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.TimeStamper("iso", key="ts"),
            structlog.dev.ConsoleRenderer(colors=out.isatty()),
        ],
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


class _Lines:
    """Writes lines of JSON."""

    def __init__(self, out: Any) -> None:
        self._out = out

    def info(self, event: str, **fields: Any) -> None:
        ts = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        line = msgspec.json.encode({"ts": ts, "event": event, **fields}, enc_hook=str).decode()
        self._out.write(f"{line}\n")  # at once: threads write too
        self._out.flush()
