"""The presses: processes that do the work, one piece at a time.

A piece of work that is not wanted any more is ended by ending its press, and a library that crashes takes nothing
else with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import lifeline
from millpond.renderer.orders import Made, Order, Said

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Callable

_LINE_MAX: Final = 1024 * 1024
_ANSWER: Final = msgspec.json.Decoder(Said | Made)


class PressError(Exception):
    """A piece of work that came to nothing, and why."""


class Presses:
    """So many at once; each is started when it is first needed."""

    def __init__(self, count: int, *, seconds: float) -> None:
        self._turns = asyncio.Semaphore(count)
        self._seconds = seconds
        self._idle: list[Press] = []
        self._all: set[Press] = set()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[Press]:
        """A press of one's own, once it is one's turn. One that was left in the middle of its work is gone."""
        async with self._turns:
            press = self._idle.pop() if self._idle else Press(self._seconds)
            self._all.add(press)
            try:
                yield press
            finally:
                if press.is_busy:
                    press.kill()
                    await press.ended()  # so that nobody is given one that is about to die
                if press.is_alive:
                    self._idle.append(press)
                else:
                    self._all.discard(press)

    async def close(self) -> None:
        for press in self._all:
            press.kill()
        for press in self._all:
            await press.ended()


class Press:
    """One process."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: Process | None = None
        self.is_busy = False

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def run(self, order: Order, on_said: Callable[[str], Any]) -> Made:
        """Do one piece of work; what it says meanwhile goes to ``on_said``."""
        self.is_busy = True
        try:
            async with asyncio.timeout(self._seconds):
                process = await self._started()
                assert process.stdin is not None  # noqa: S101 - it is a pipe
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                await process.stdin.drain()
                made = await self._result(process, on_said)
        except TimeoutError:
            raise PressError(f"It took longer than {self._seconds:g} seconds.") from None
        except (BrokenPipeError, ConnectionResetError):
            raise PressError("The process that was to do it has died.") from None
        self.is_busy = False
        if made.error is not None:
            raise PressError(made.error)
        return made

    async def _result(self, process: Process, on_said: Callable[[str], Any]) -> Made:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await process.stdout.readline():
            told = _ANSWER.decode(line)
            if isinstance(told, Made):
                return told
            on_said(told.text)
        raise PressError(f"The process that did it has died (status {await process.wait()}).")

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millpond.renderer.press"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=lifeline.environment(),
                pass_fds=(lifeline.descriptor(),),
                limit=_LINE_MAX,
            )
        return self._process

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        self.is_busy = False

    async def ended(self) -> None:
        if self._process is not None:
            await self._process.wait()
