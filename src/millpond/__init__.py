"""Millpond: the job backend for AI products, on PostgreSQL alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millpond.app import Millpond
    from millpond.client import (
        AsyncBatchHandle,
        AsyncClient,
        AsyncJobHandle,
        BatchHandle,
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
    from millpond.errors import (
        BlockedError,
        CanceledError,
        ChildFailedError,
        MillpondError,
        PermanentError,
        TransientError,
        UnansweredError,
    )
    from millpond.kinds import Kind
    from millpond.lifecycle import Lifecycle
    from millpond.limits import Limit
    from millpond.retry import Backoff
    from millpond.work import ChildResult
    from millpond.worker.context import Job
    from millpond.worker.worker import Worker

    __version__: str

__all__ = [
    "AsyncBatchHandle",
    "AsyncClient",
    "AsyncJobHandle",
    "Backoff",
    "BatchHandle",
    "BlockedError",
    "CanceledError",
    "ChildFailedError",
    "ChildResult",
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
    "Limit",
    "Millpond",
    "MillpondError",
    "PermanentError",
    "TransientError",
    "UnansweredError",
    "UnreadableError",
    "WaitTimeoutError",
    "Worker",
    "__version__",
]

_MODULES = {
    "millpond.app": ("Millpond",),
    "millpond.client": (
        "AsyncBatchHandle",
        "AsyncClient",
        "AsyncJobHandle",
        "BatchHandle",
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
    "millpond.errors": (
        "BlockedError",
        "CanceledError",
        "ChildFailedError",
        "MillpondError",
        "PermanentError",
        "TransientError",
        "UnansweredError",
    ),
    "millpond.kinds": ("Kind",),
    "millpond.lifecycle": ("Lifecycle",),
    "millpond.limits": ("Limit",),
    "millpond.retry": ("Backoff",),
    "millpond.work": ("ChildResult",),
    "millpond.worker.context": ("Job",),
    "millpond.worker.worker": ("Worker",),
}


def __getattr__(name: str) -> Any:
    """Import public names lazily: a client may not have the engine installed, and commands should start fast."""
    if name == "__version__":
        return _version()
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module 'millpond' has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "millpond").startswith("millpond"):
            raise
        raise ImportError(f"millpond.{name} requires {error.name}: run pip install 'millpond[server]'.") from None


def _version() -> str:
    """The version of the installed package. importlib.metadata is imported only if the version is requested."""
    from importlib.metadata import version  # noqa: PLC0415 - see above

    return version("millpond")
