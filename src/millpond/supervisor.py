"""Keeps several processes running: restarts those that exit, and stops all of them together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import lifeline, logs
from millpond.retry import Backoff

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Mapping, Sequence

_BACKOFF: Final = Backoff(first=timedelta(seconds=0.5), longest=timedelta(seconds=30))
_HOPELESS: Final = frozenset({2, 4, 5})  # exit codes: a wrong command line, settings or app
_SETTLED: Final = 60.0  # seconds after which an exit resets the backoff
_VARIABLE: Final = "_MILLPOND_READINESS"  # not a setting: the descriptor on which a process reports that it serves


def report_ready() -> None:
    """Report to the supervisor of this process, if it has one, that the process serves.

    Standard output is not used for this: handlers print to it, and a pipe that nobody reads would stop them.
    """
    descriptor = os.environ.pop(_VARIABLE, None)
    if descriptor is not None:
        with contextlib.suppress(OSError), os.fdopen(int(descriptor), "wb") as pipe:  # the supervisor may be gone
            pipe.write(b"\n")


class Supervisor:
    """Runs the same command in several processes. They end themselves if this process is gone, for whatever reason.

    Each calls :func:`report_ready` when it serves.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int], processes: int
    ) -> None:
        self._words = words
        self._environment = environment
        self._descriptors = descriptors
        self._processes = processes
        self._living: set[Process] = set()
        self._unready = processes
        self.refusal = 0
        """The exit code of a process that could not start, for a reason that a retry does not remove."""

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        """Run until ``stop`` is set and all have ended. Calls ``on_ready`` when each has served for the first time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._processes):
                group.create_task(self._keep(stop, on_ready))

    def kill(self) -> None:
        """Kill all processes."""
        for process in self._living:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _keep(self, stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        exits, has_served = 0, False
        while not stop.is_set():
            began = time.monotonic()
            process, reading = await self._start()
            self._living.add(process)
            readable = asyncio.Event()
            asyncio.get_running_loop().add_reader(reading, readable.set)
            served = asyncio.create_task(self._report(reading, readable, stop, None if has_served else on_ready))
            await self._until_over(process, stop)
            readable.set()  # a fork of the process may keep the pipe open
            has_served = await served or has_served
            self._living.discard(process)
            if not has_served and process.returncode in _HOPELESS:
                self.refusal = process.returncode
                stop.set()
            if not stop.is_set():
                exits = 1 if time.monotonic() - began > _SETTLED else exits + 1
                pause = _BACKOFF.delay(exits, random.random()).total_seconds()  # noqa: S311 - jitter
                logs.emit("process.ended", pid=process.pid, status=process.returncode, again_in=round(pause, 1))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()

    async def _start(self) -> tuple[Process, int]:
        """Start a process; returns it with the end of the pipe on which it reports that it serves."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                env=lifeline.environment(self._environment) | {_VARIABLE: str(writing)},
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(*self._descriptors, lifeline.descriptor(), writing),
                start_new_session=True,  # Ctrl-C must reach this process alone, which then stops them
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        return process, reading

    async def _report(
        self, reading: int, readable: asyncio.Event, stop: asyncio.Event, on_ready: Callable[[], object] | None
    ) -> bool:
        """Wait for the report of a process that it serves; False if it ends without one."""
        await readable.wait()
        asyncio.get_running_loop().remove_reader(reading)
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            has_reported = bool(pipe.read(1))
        if has_reported and on_ready is not None:
            self._unready -= 1
            if not self._unready and not stop.is_set():
                on_ready()
        return has_reported

    async def _until_over(self, process: Process, stop: asyncio.Event) -> None:
        ended = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        await ended
