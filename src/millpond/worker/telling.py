"""Telling: what a job says beside the database is written in the order in which it was said, however often that takes.

The notes of a lease are numbered, and one that comes behind a later one counts as said already. So those that are told
are told together, all or none, and what is said meanwhile waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from millpond.work import Note

TOGETHER: Final = 500
"""Notes that are told at once."""


class Telling:
    """The notes of one lease that are on their way. ``send`` comes back when they are told, or never can be."""

    def __init__(self, send: Callable[[Sequence[Note]], Awaitable[bool]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Note, asyncio.Future[bool]]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, note: Note) -> asyncio.Future[bool]:
        """Its answer: whether the job must stop."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((note, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell())
        return future

    async def _tell(self) -> None:
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))]
            some = [(note, future) for note, future in taken if not future.done()]  # the others were given up
            if not some:
                continue
            try:
                must_stop = await self._send([note for note, _ in some])
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to whoever said it
                _settle(some, lambda future, error=error: future.set_exception(error))
            else:
                _settle(some, lambda future, must_stop=must_stop: future.set_result(must_stop))


def _settle(some: Sequence[tuple[Note, asyncio.Future[bool]]], settle: Callable[[asyncio.Future[bool]], None]) -> None:
    for _, future in some:
        with contextlib.suppress(asyncio.InvalidStateError):  # given up meanwhile
            settle(future)
