"""The Python SDK: :class:`AsyncClient` is awaited, :class:`Client` blocks, and both do the same."""

from penstock.client.clients import AsyncClient, Client
from penstock.client.errors import (
    JobBlockedError,
    JobCanceledError,
    JobEndedError,
    JobExpiredError,
    JobFailedError,
    UnreadableError,
    WaitTimeoutError,
)
from penstock.client.handles import AsyncJobHandle, JobHandle

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
