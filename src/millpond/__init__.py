"""Millpond: the job backend for AI products, on PostgreSQL alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.app import Millpond
    from millpond.client import (
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
    from millpond.engine.engine import Engine
    from millpond.errors import BlockedError, CanceledError, MillpondError, PermanentError, TransientError
    from millpond.kinds import Kind
    from millpond.lifecycle import Lifecycle
    from millpond.retry import Backoff
    from millpond.worker.context import Job
    from millpond.worker.worker import Worker

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
    "Millpond",
    "MillpondError",
    "PermanentError",
    "TransientError",
    "UnreadableError",
    "WaitTimeoutError",
    "Worker",
]

_HOMES = {
    "millpond.app": ("Millpond",),
    "millpond.client": (
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
    "millpond.engine.engine": ("Engine",),
    "millpond.errors": ("BlockedError", "CanceledError", "MillpondError", "PermanentError", "TransientError"),
    "millpond.kinds": ("Kind",),
    "millpond.lifecycle": ("Lifecycle",),
    "millpond.retry": ("Backoff",),
    "millpond.worker.context": ("Job",),
    "millpond.worker.worker": ("Worker",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: a client may lack the engine, the command line not wait for it."""
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'millpond' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ModuleNotFoundError as error:
        if (error.name or "millpond").startswith("millpond"):
            raise
        raise ImportError(f"millpond.{name} needs {error.name}: run pip install 'millpond[server]'.") from None
