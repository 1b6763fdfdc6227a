"""Writes the notes of a job in order, even if that takes several attempts.

The notes of a lease are numbered, and a note whose number is lower than the last one counts as already written. So the
notes of a batch are written all or none, and newer notes wait for the batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

from millpond.worker import job_logging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from millpond.work import Note

BATCH_MAX: Final = 500
"""The maximum number of notes in a batch."""


class NoteQueue:
    """The notes of one lease that are not written yet. ``send`` returns when they are, or raises if they cannot be."""

    def __init__(self, send: Callable[[Sequence[Note]], Awaitable[bool]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Note, asyncio.Future[bool]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, note: Note) -> asyncio.Future[bool]:
        """Add a note. The result of the future is whether the job must stop."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((note, future))
        if self._task is None or self._task.done():
            with job_logging.outside():  # what is logged by writing a line must not be written too
                self._task = asyncio.create_task(self._write_all())
        return future

    async def _write_all(self) -> None:
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
            # The future of a caller that no longer waits is done.
            batch = [(note, future) for note, future in taken if not future.done()]
            if not batch:
                continue
            try:
                must_stop = await self._send([note for note, _ in batch])
            except Exception as error:  # noqa: BLE001 - it is raised to the callers that wait
                _settle(batch, lambda future, error=error: future.set_exception(error))
            else:
                _settle(batch, lambda future, must_stop=must_stop: future.set_result(must_stop))


def _settle(batch: Sequence[tuple[Note, asyncio.Future[bool]]], settle: Callable[[asyncio.Future[bool]], None]) -> None:
    for _, future in batch:
        with contextlib.suppress(asyncio.InvalidStateError):  # the caller no longer waits
            settle(future)
