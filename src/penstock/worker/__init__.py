"""The worker: runs the handlers of an app. Where its jobs come from it knows as a :class:`Source` alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.work import Artifact, Notice
    from penstock.worker.context import Job
    from penstock.worker.process import run_worker
    from penstock.worker.remote import RemoteSource
    from penstock.worker.source import Source
    from penstock.worker.worker import Worker

__all__ = ["Artifact", "Job", "Notice", "RemoteSource", "Source", "Worker", "run_worker"]

_HOMES = {
    "Artifact": "penstock.work",
    "Job": "penstock.worker.context",
    "Notice": "penstock.work",
    "RemoteSource": "penstock.worker.remote",
    "Source": "penstock.worker.source",
    "Worker": "penstock.worker.worker",
    "run_worker": "penstock.worker.process",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: a worker beside the database need not wait for HTTP."""
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock.worker' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
