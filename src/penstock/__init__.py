"""Penstock: the job backend for AI products, on PostgreSQL alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.engine.engine import Engine
    from penstock.errors import BlockedError, CanceledError, PenstockError, PermanentError, TransientError
    from penstock.kinds import Kind
    from penstock.lifecycle import Lifecycle
    from penstock.retry import Backoff
    from penstock.worker.context import Job
    from penstock.worker.worker import Worker

__all__ = [
    "Backoff",
    "BlockedError",
    "CanceledError",
    "Engine",
    "Job",
    "Kind",
    "Lifecycle",
    "Penstock",
    "PenstockError",
    "PermanentError",
    "TransientError",
    "Worker",
]

_HOMES = {
    "Backoff": "penstock.retry",
    "Engine": "penstock.engine.engine",
    "Job": "penstock.worker.context",
    "Kind": "penstock.kinds",
    "Lifecycle": "penstock.lifecycle",
    "Penstock": "penstock.app",
    "Worker": "penstock.worker.worker",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: the command line must not wait for the engine."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "penstock.errors")), name)
