"""The command line as its users run it: a process of its own, ended however the test likes."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from tests.children import start
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PRODUCT = Path(__file__).with_name("product.py")

# Short, so that what a silent worker held is soon somebody else's.
BRISK = {"MILLPOND_LEASE": "3s", "MILLPOND_HEARTBEAT": "1s", "MILLPOND_GRACE": "10s"}


@dataclass(slots=True)
class Command:
    """A running ``millpond …``; what it says goes to files, so that nothing ever blocks it."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]

    @property
    def stdout(self) -> str:
        return Path(self.out.name).read_text("utf-8")

    @property
    def stderr(self) -> str:
        return Path(self.err.name).read_text("utf-8")

    @property
    def log(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(line) for line in self.stderr.splitlines()]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit status."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end; it said: {self.stderr[-2000:]}") from None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.out.close()
        self.err.close()


@dataclass(slots=True)
class Shell:
    """Starts commands in a folder, on a database, and leaves none of them behind."""

    folder: Path
    dsn: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)

    def start(self, *words: str | Path, **environment: str) -> Command:
        return self.launch(sys.executable, "-m", "millpond", *words, **environment)

    def launch(self, *words: str | Path, **environment: str) -> Command:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "DATABASE_"))}
        if self.dsn is not None:
            given["DATABASE_URL"] = self.dsn
        out, err = (tempfile.NamedTemporaryFile(dir=self.folder, delete=False) for _ in range(2))  # noqa: SIM115
        process = start(
            list(map(str, words)),
            env=given | self.environment | environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        command = Command(process, out, err)
        self.commands.append(command)
        return command

    def run(self, *words: str | Path, **environment: str) -> Command:
        command = self.start(*words, **environment)
        command.wait()
        return command

    @contextmanager
    def visit(self) -> Iterator[None]:
        """What is started meanwhile is ended afterwards."""
        before = len(self.commands)
        try:
            yield
        finally:
            for command in self.commands[before:]:
                command.close()

    def worker(self, *words: str | Path, app: str | Path = PRODUCT, **environment: str) -> Command:
        return self.start("worker", app, *words, **BRISK | self.environment | environment)


@contextmanager
def shell(folder: Path, dsn: str | None) -> Iterator[Shell]:
    made = Shell(folder, dsn)
    with made.visit():
        yield made


def free_port() -> int:
    """One from below those that the kernel gives to whoever asks for any: nobody takes it meanwhile."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("every port is taken")


async def until(holds: Callable[[], Awaitable[Any]], patience: float = PATIENCE) -> None:
    """Poll, with a deadline."""
    deadline = time.monotonic() + patience
    while not await holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)
