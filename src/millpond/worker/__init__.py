"""The worker, which runs the handlers of an app. It takes its jobs from a :class:`Source`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.work import Artifact, Notice
    from millpond.worker.context import Job
    from millpond.worker.job_logging import JobIdFilter, JobLogHandler, add_job_id, current_job
    from millpond.worker.process import run_worker
    from millpond.worker.remote import RemoteSource
    from millpond.worker.source import Source
    from millpond.worker.worker import Worker

__all__ = [
    "Artifact",
    "Job",
    "JobIdFilter",
    "JobLogHandler",
    "Notice",
    "RemoteSource",
    "Source",
    "Worker",
    "add_job_id",
    "current_job",
    "run_worker",
]

_MODULES = {
    "Artifact": "millpond.work",
    "Job": "millpond.worker.context",
    "JobIdFilter": "millpond.worker.job_logging",
    "JobLogHandler": "millpond.worker.job_logging",
    "Notice": "millpond.work",
    "RemoteSource": "millpond.worker.remote",
    "Source": "millpond.worker.source",
    "Worker": "millpond.worker.worker",
    "add_job_id": "millpond.worker.job_logging",
    "current_job": "millpond.worker.job_logging",
    "run_worker": "millpond.worker.process",
}


def __getattr__(name: str) -> Any:
    """Import names when they are used: a worker on the database does not need the HTTP modules."""
    if name not in _MODULES:
        raise AttributeError(f"module 'millpond.worker' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
