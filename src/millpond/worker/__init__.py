"""The worker: runs the handlers of an app. Where its jobs come from it knows as a :class:`Source` alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.work import Artifact, Notice
    from millpond.worker.context import Job
    from millpond.worker.process import run_worker
    from millpond.worker.remote import RemoteSource
    from millpond.worker.source import Source
    from millpond.worker.worker import Worker

__all__ = ["Artifact", "Job", "Notice", "RemoteSource", "Source", "Worker", "run_worker"]

_HOMES = {
    "Artifact": "millpond.work",
    "Job": "millpond.worker.context",
    "Notice": "millpond.work",
    "RemoteSource": "millpond.worker.remote",
    "Source": "millpond.worker.source",
    "Worker": "millpond.worker.worker",
    "run_worker": "millpond.worker.process",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: a worker beside the database need not wait for HTTP."""
    if name not in _HOMES:
        raise AttributeError(f"module 'millpond.worker' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
