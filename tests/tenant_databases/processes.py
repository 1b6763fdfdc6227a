"""Processes to be killed: each makes one call of a verb, on two databases that it reaches through wires with a fuse."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond import lifeline
from millpond.engine.queue import leases
from tests.children import spawned
from tests.faults.verbs import VERBS
from tests.faults.wire import Wire, wire
from tests.tenant_databases.conftest import opened
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.faults.wire import When

_STATEMENTS = b"EQ"  # Execute and Query: with each of these a statement is run


@dataclass(slots=True)
class Fuse:
    """Kills the process before the n-th statement that it sends, counted over all its connections."""

    number: int = 0
    pid: int = 0
    sent: int = 0

    def burn(self, kind: bytes) -> bool:
        if kind not in _STATEMENTS:
            return False
        self.sent += 1
        if self.sent != self.number:
            return False
        os.kill(self.pid, signal.SIGKILL)
        return True


class FusedWire(Wire):
    """A wire that ends with its process."""

    fuse: Fuse

    def judge(self, kind: bytes) -> When | None:
        return "before" if self.fuse.burn(kind) else None


@asynccontextmanager
async def fused(dsn: str, fuse: Fuse) -> AsyncIterator[str]:
    def make(upstream: str, address: str) -> Wire:
        made = FusedWire(upstream, address)
        made.fuse = fuse
        return made

    async with wire(dsn, make) as made:
        yield made.dsn


@dataclass(slots=True)
class VerbProcess:
    """Where the processes come from: one that has everything loaded, and forks."""

    parent: Process
    fuse: Fuse
    addresses: tuple[str, str]

    async def call(self, verb: str, given: Any, *, kill_before: int = 0) -> bool:
        """Let a process make the call; tells whether it was killed on the way."""
        assert self.parent.stdin is not None
        self.fuse.number, self.fuse.sent = kill_before, 0
        self.parent.stdin.write(base64.b64encode(pickle.dumps((verb, given, *self.addresses))) + b"\n")
        self.fuse.pid = await self._number()
        self.parent.stdin.write(b"go\n")
        status = os.waitstatus_to_exitcode(await self._number())
        assert status in (0, -signal.SIGKILL), f"{verb}, statement {kill_before}: exit status {status}"
        return status != 0

    async def _number(self) -> int:
        assert self.parent.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return int(await self.parent.stdout.readline())


@asynccontextmanager
async def verb_process(central: str, database: str) -> AsyncIterator[VerbProcess]:
    fuse = Fuse()
    async with (
        fused(central, fuse) as central_wire,
        fused(database, fuse) as tenant_wire,
        spawned(sys.executable, "-m", __name__, stdin=PIPE, stdout=PIPE) as parent,
    ):
        yield VerbProcess(parent, fuse, (central_wire, tenant_wire))


def main() -> None:
    """In the parent: for each line a child, which begins when its number is known."""
    lifeline.stop_with_parent()
    leases._PAUSE = 0.0
    while order := sys.stdin.readline():
        reader, begin = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(begin)  # or the end of the parent would never be heard
            if not os.read(reader, 1):
                os._exit(1)
            asyncio.run(call(*pickle.loads(base64.b64decode(order))))  # noqa: S301 - our own
            os._exit(0)
        write_number(pid)
        sys.stdin.readline()
        os.write(begin, b".")
        os.close(reader)
        os.close(begin)
        write_number(os.waitpid(pid, 0)[1])


def write_number(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


async def call(verb: str, given: Any, central: str, database: str) -> None:
    """In the child."""
    (found,) = [one for one in VERBS if one.name == verb]
    async with opened(central, database) as engine:
        await found.act(engine, given)


if __name__ == "__main__":
    main()
