"""The Python SDK: :class:`AsyncClient` for asyncio, and :class:`Client`, which blocks, with the same methods."""

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
from millpond.client.handles import AsyncBatchHandle, AsyncJobHandle, BatchHandle, JobHandle

__all__ = [
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
]
