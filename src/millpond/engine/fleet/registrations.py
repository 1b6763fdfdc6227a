"""Registrations: direct workers, which connect to the database, register and send heartbeats like fleet workers."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import ids
from millpond.store.db import new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.fleet", "registrations")

_SLOTS_MAX: Final = 32_767
"""The largest number that the column takes; a worker with more slots is shown with so many."""


@dataclass(slots=True)
class Registration:
    """The entry of a direct worker among the workers. It has an id of its own, which its leases contain."""

    db: Database
    worker: str
    slots: int
    queues: Sequence[str]
    silence: timedelta
    """After how long without a heartbeat the worker counts as lost."""
    id: str = field(default_factory=lambda: ids.text("worker", new_id()))
    is_registered: bool = field(default=False, init=False)
    is_draining: bool = field(default=False, init=False)
    """Whether the worker takes no more jobs, as of the last heartbeat."""
    has_polled: bool = field(default=False, init=False)
    """Whether the worker has polled since its last heartbeat."""
    resources: Sequence[str] = ()
    """The resources that the worker has loaded."""
    _has_left: bool = field(default=False, init=False)
    _turns: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """A heartbeat must not be under way when the entry is removed: it would make it again."""

    async def beat(self) -> None:
        """Register the worker, or renew its registration, and learn whether it is draining."""
        async with self._turns:
            if self._has_left:
                return
            has_polled, self.has_polled = self.has_polled, False
            loaded = {"resources": list(self.resources)} if self.resources else {}
            about = msgspec.json.encode(_capabilities() | loaded).decode()
            columns = min(self.slots, _SLOTS_MAX), about, list(self.queues), self.silence, has_polled
            row = await self.db.run(SQL["beat"], self.id, self.worker, *columns)
            self.is_registered, self.is_draining = True, row["is_draining"]

    async def leave(self) -> None:
        """Remove the entry, because the worker ends."""
        async with self._turns:
            self._has_left = True
            await self.db.run(SQL["leave"], self.id)


def _capabilities() -> dict[str, str | int]:
    return {
        "millpond": version("millpond"),
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "pid": os.getpid(),
    }
