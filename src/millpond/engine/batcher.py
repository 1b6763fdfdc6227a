"""The batcher: while one batch is running, the next one collects.

An idle system does not wait; a busy one needs one round trip and one commit for hundreds of calls. Each item has its
own result or error. If a whole batch fails, it is split and its parts are run again, until the item that caused the
error is alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from millpond.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

Item = TypeVar("Item")
Result = TypeVar("Result")

SIZE_MAX: Final = 500


class Batcher(Generic[Item, Result]):
    """Combines the items of concurrent callers into batches, at most ``lanes`` of them at a time.

    A batch is all or nothing. Items with different values of ``apart`` cannot share a statement, and do not share a
    batch. An item that stands for several has their number as its weight (``weigh``).
    """

    def __init__(
        self,
        run: Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]],
        *,
        size: int = SIZE_MAX,
        lanes: int = 1,
        apart: Callable[[Item], object] = lambda _: None,
        weigh: Callable[[Item], int] = lambda _: 1,
    ) -> None:
        self._run = run
        self._apart = apart
        self._weigh = weigh
        self._size = size
        self._free = lanes
        self._pending: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, item: Item) -> asyncio.Future[Result]:
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._pending.append((item, future))
        if self._free:
            self._free -= 1
            task = asyncio.create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _drain(self) -> None:
        try:
            while self._pending:
                batch = self._next_batch()
                # Items whose caller is gone (timed out, canceled) are left out.
                wanted = [(item, future) for item, future in batch if not future.done()]
                groups: dict[object, list[tuple[Item, asyncio.Future[Result]]]] = {}
                for item, future in wanted:
                    groups.setdefault(self._apart(item), []).append((item, future))
                for group in groups.values():
                    await self._serve(group)
        finally:
            self._free += 1

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch = [self._pending.popleft()]
        weight = self._weigh(batch[0][0])
        while self._pending and (weight := weight + self._weigh(self._pending[0][0])) <= self._size:
            batch.append(self._pending.popleft())
        return batch

    async def _serve(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            answered = list(zip(batch, await self._run([item for item, _ in batch]), strict=True))
        except UnavailableError as error:
            _fail(batch, error)
        except Exception as error:  # noqa: BLE001 - every error is passed to the callers
            if len(batch) == 1:
                _fail(batch, error)
                return
            middle = len(batch) // 2
            await self._serve(batch[:middle])
            await self._serve(batch[middle:])
        else:
            for (_, future), result in answered:
                _settle(future, result)


def _fail(batch: Sequence[tuple[Item, asyncio.Future[Result]]], error: Exception) -> None:
    for _, future in batch:
        _settle(future, error)


def _settle(future: asyncio.Future[Result], result: Result | Exception) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
