"""The Python SDK: :class:`AsyncClient` is awaited, :class:`Client` blocks, and both do the same."""

from millpond.client.clients import AsyncClient, Client
from millpond.client.errors import (
    JobBlockedError,
    JobCanceledError,
    JobEndedError,
    JobExpiredError,
    JobFailedError,
    UnreadableError,
    WaitTimeoutError,
)
from millpond.client.handles import AsyncJobHandle, JobHandle

__all__ = [
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
]
