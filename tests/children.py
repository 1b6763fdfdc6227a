"""The processes that tests start: they end with the test, and with the run, whatever ends that."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from asyncio import create_subprocess_exec
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond import lifeline
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

PROC = Path("/proc")
_THREADS = PROC / "self/task"


# Starting and ending


def bound(env: Mapping[str, str] | None = None, pass_fds: Iterable[int] = (), **options: Any) -> dict[str, Any]:
    """Options for a program of ours that is to end with this process, be it by kill -9."""
    return {"env": lifeline.environment(env), "pass_fds": (*pass_fds, lifeline.descriptor()), **options}


def start(words: Sequence[str | Path], **options: Any) -> subprocess.Popen[Any]:
    """A program of ours; whoever calls this ends it, and waits for it."""
    return subprocess.Popen(words, **bound(**options))


@contextmanager
def running(words: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program of ours; it is over when the block is left, however that is."""
    with start(words, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def running_other(words: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that knows nothing of us; it is over when the block is left, with all of its group."""
    with lifeline.Guard() as guard:
        more: Any = {"stdin": subprocess.DEVNULL, "pass_fds": [guard.descriptor], "start_new_session": True}
        with subprocess.Popen(guard.words(list(map(str, words))), **more | options) as process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def spawned(*words: str | Path, **options: Any) -> AsyncIterator[Process]:
    """As :func:`running`, on the loop."""
    process = await create_subprocess_exec(*words, **bound(**options))
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.communicate()  # reads what is left, without which its pipes stay open


# Looking


@dataclass(frozen=True, slots=True)
class Living:
    """A process, told from another that comes to bear its number."""

    pid: int
    began: int
    words: str = field(compare=False)

    @property
    def is_alive(self) -> bool:
        """It runs; one whose status nobody has asked for does not."""
        found = _stat(self.pid)
        return found is not None and found[19] == str(self.began) and found[0] != "Z"


def _stat(pid: int) -> list[str] | None:
    """What the kernel tells of a process, from its state on."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    return None


def living(pid: int) -> Living | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        words = (PROC / f"{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        found = _stat(pid)
        if found is not None:  # of one that has ended, the name of its program is all that is left
            return Living(pid, int(found[19]), words.strip() or (PROC / f"{pid}/comm").read_text().strip())
    return None


def descendants(pid: int) -> list[Living]:
    """All that a process has started and that they have started, as long as those between them live."""
    parents = {int(folder.name): found for folder in PROC.glob("[0-9]*") if (found := _stat(int(folder.name)))}
    family = {pid}
    while more := {each for each, found in parents.items() if int(found[1]) in family} - family:
        family |= more
    return [found for each in family - {pid} if (found := living(each))]


def children() -> set[Living]:
    """The processes that this one has started and not waited for, ended ones too."""
    threads, pids = None, set[str]()
    while threads != (threads := sorted(_THREADS.iterdir())):  # one that ends meanwhile leaves them to another
        pids.clear()
        for thread in threads:
            with suppress(FileNotFoundError, ProcessLookupError):
                pids.update((thread / "children").read_text().split())
    return {found for pid in pids if (found := living(int(pid)))}


# Leaving none behind


class Nursery:
    """A plugin of pytest: a test that leaves a process behind fails, and so does one that only killed it.

    What a fixture of a wider scope has started may live until that is over. Where one goes on starting processes after
    its set-up, its tests are marked as ``busy``, and only what outlives the last of them is left behind.
    """

    def __init__(self) -> None:
        self._kept: dict[object, set[Living]] = {self: children()}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        before = children()
        try:
            return (yield)
        finally:
            self._kept[fixturedef] = children() - before

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        self._kept.pop(fixturedef, None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        try:
            return (yield)
        finally:
            if not (_is_busy(item) and _is_busy(nextitem)) and (left := self._left()):
                _end(left)
                pytest.fail("It left processes behind, or did not wait for them:\n" + "\n".join(map(str, left)))

    def _left(self) -> set[Living]:
        """Those that do not end by themselves: what a server in this process does for others may take a moment."""
        deadline = time.monotonic() + PATIENCE
        while left := children().difference(*self._kept.values()):
            if time.monotonic() > deadline:
                return left
            time.sleep(0.01)
        return left


def _is_busy(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("busy") is not None


def _end(left: Iterable[Living]) -> None:
    for each in left:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(each.pid, signal.SIGKILL)
            os.waitpid(each.pid, 0)
