"""Penstock: the job backend for AI products, on PostgreSQL alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.client import (
        AsyncClient,
        AsyncJobHandle,
        Client,
        JobBlockedError,
        JobCanceledError,
        JobEndedError,
        JobExpiredError,
        JobFailedError,
        JobHandle,
        UnreadableError,
        WaitTimeoutError,
    )
    from penstock.engine.engine import Engine
    from penstock.errors import BlockedError, CanceledError, PenstockError, PermanentError, TransientError
    from penstock.kinds import Kind
    from penstock.lifecycle import Lifecycle
    from penstock.retry import Backoff
    from penstock.worker.context import Job
    from penstock.worker.worker import Worker

__all__ = [
    "AsyncClient",
    "AsyncJobHandle",
    "Backoff",
    "BlockedError",
    "CanceledError",
    "Client",
    "Engine",
    "Job",
    "JobBlockedError",
    "JobCanceledError",
    "JobEndedError",
    "JobExpiredError",
    "JobFailedError",
    "JobHandle",
    "Kind",
    "Lifecycle",
    "Penstock",
    "PenstockError",
    "PermanentError",
    "TransientError",
    "UnreadableError",
    "WaitTimeoutError",
    "Worker",
]

_HOMES = {
    "penstock.app": ("Penstock",),
    "penstock.client": (
        "AsyncClient",
        "AsyncJobHandle",
        "Client",
        "JobBlockedError",
        "JobCanceledError",
        "JobEndedError",
        "JobExpiredError",
        "JobFailedError",
        "JobHandle",
        "UnreadableError",
        "WaitTimeoutError",
    ),
    "penstock.engine.engine": ("Engine",),
    "penstock.errors": ("BlockedError", "CanceledError", "PenstockError", "PermanentError", "TransientError"),
    "penstock.kinds": ("Kind",),
    "penstock.lifecycle": ("Lifecycle",),
    "penstock.retry": ("Backoff",),
    "penstock.worker.context": ("Job",),
    "penstock.worker.worker": ("Worker",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: a client may lack the engine, the command line not wait for it."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if (error.name or "penstock").startswith("penstock"):
            raise
        raise ImportError(f"penstock.{name} needs {error.name}: run pip install 'penstock[server]'.") from None
