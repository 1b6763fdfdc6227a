"""The checks of one run, beside each other."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, Final

from products.tests.conformance.table import CHECKS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from products.tests.conformance.system import SystemUnderTest

AT_ONCE: Final = 8
"""How many checks run beside each other, of those that the kill is for and of the others: more only wait for the same
processors."""
FIRST: Final = "PAR"
"""Where films are made, which takes longest."""
PATIENCE: Final = 120.0


class Running:
    """A check that is an asynchronous generator uses the mortal server, which is killed once: where it yields."""

    def __init__(self, system: SystemUnderTest, numbers: Iterable[str]) -> None:
        self._system = system
        wanted = [number for number in numbers if number in CHECKS]
        wanted.sort(key=lambda number: not number.startswith(FIRST))
        self._before = {number for number in wanted if inspect.isasyncgenfunction(CHECKS[number])}
        self._all_wait = asyncio.Event()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._room_after = asyncio.Semaphore(AT_ONCE)
        self._born = asyncio.create_task(system.begin_mortal()) if self._before else None
        self._reborn = asyncio.create_task(self._kill()) if self._before else None
        self._tasks = {number: asyncio.create_task(self._run(number)) for number in wanted}

    async def end_of(self, number: str) -> None:
        await self._tasks[number]

    async def close(self) -> None:
        tasks = [task for task in (*self._tasks.values(), self._born, self._reborn) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, number: str) -> None:
        made: Any = CHECKS[number](self._system)
        if inspect.isasyncgen(made):
            await self._run_over_the_kill(number, made)
            return
        async with self._room, asyncio.timeout(PATIENCE):
            await made

    async def _run_over_the_kill(self, number: str, steps: AsyncGenerator[Any, Any]) -> None:
        assert self._born is not None
        assert self._reborn is not None
        try:
            await asyncio.shield(self._born)
            async with asyncio.timeout(PATIENCE):
                await anext(steps)
        finally:
            self._before.discard(number)
            if not self._before:
                self._all_wait.set()
        await asyncio.shield(self._reborn)
        async with self._room_after, asyncio.timeout(PATIENCE):
            await anext(steps, None)

    async def _kill(self) -> None:
        await self._all_wait.wait()
        await self._system.kill_mortal()
