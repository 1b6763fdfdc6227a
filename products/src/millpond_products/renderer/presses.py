"""The presses: processes that render one prediction at a time.

A prediction is canceled by killing its press, and a library that crashes ends nothing but its press.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import lifeline
from millpond_products.renderer.orders import LogText, Rendered, RenderOrder

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, Callable

_LINE_MAX: Final = 1024 * 1024
_ANSWER: Final = msgspec.json.Decoder(LogText | Rendered)


class PressError(Exception):
    """A prediction could not be rendered."""


class Presses:
    """A pool of presses. Each is started when it is first needed."""

    def __init__(self, count: int, *, seconds: float) -> None:
        self._turns = asyncio.Semaphore(count)
        self._seconds = seconds
        self._idle: list[Press] = []
        self._all: set[Press] = set()

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[Press]:
        """Wait for a free press and lend it to the caller. A press that is still busy at the end is killed."""
        async with self._turns:
            press = self._idle.pop() if self._idle else Press(self._seconds)
            self._all.add(press)
            try:
                yield press
            finally:
                if press.is_busy:
                    press.kill()
                    await press.ended()  # so that a dying press is not used again
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

    async def run(self, order: RenderOrder, on_log: Callable[[str], Any]) -> Rendered:
        """Render one prediction. Its log lines go to ``on_log``."""
        self.is_busy = True
        try:
            async with asyncio.timeout(self._seconds):
                process = await self._started()
                assert process.stdin is not None  # noqa: S101 - it is a pipe
                process.stdin.write(msgspec.json.encode(order) + b"\n")
                await process.stdin.drain()
                made = await self._result(process, on_log)
        except TimeoutError:
            raise PressError(f"The prediction exceeded its time limit of {self._seconds:g} seconds.") from None
        except (BrokenPipeError, ConnectionResetError):
            raise PressError("The process for the prediction has died.") from None
        self.is_busy = False
        if made.error is not None:
            raise PressError(made.error)
        return made

    async def _result(self, process: Process, on_log: Callable[[str], Any]) -> Rendered:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        while line := await process.stdout.readline():
            answer = _ANSWER.decode(line)
            if isinstance(answer, Rendered):
                return answer
            on_log(answer.text)
        raise PressError(f"The process of the prediction died (status {await process.wait()}).")

    async def _started(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "millpond_products.renderer.press"),
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
