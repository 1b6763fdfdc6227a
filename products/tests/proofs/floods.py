"""Floods: commands that write much, or without an end, and readers that do not read; what that costs its processes.

python -m products.tests.proofs.floods --megabytes 1024
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from products.tests.actions.deployments import User
from products.tests.proofs.deployments import new_key
from products.tests.proofs.streams import HOST, SystemUnderTest

from millpond.engine.engine import Engine
from millpond_products.catalog import PRODUCTS
from tests.acceptance.processes import free_port, shell
from tests.databases import migrated_template, running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.acceptance.processes import Command

MIB = 1024 * 1024
FLOOD = "import sys\nfor _ in range(int(sys.argv[1])): sys.stdout.buffer.write((b'y' * 1023 + b'\\n') * 1024)"


@dataclass(slots=True)
class Deployment:
    """A server and a worker, each a process that can be looked at."""

    port: int
    server: Command
    worker: Command
    user: User

    async def python(self, code: str, *arguments: str) -> dict[str, Any]:
        """What became of a program."""
        return await self.user.done("run-command", command="python", arguments=[code, *arguments])


def memory(command: Command, name: str = "VmHWM") -> int:
    """The bytes that a process has in memory; the most it ever had, unless another line is asked for."""
    lines = Path(f"/proc/{command.process.pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def files(command: Command) -> int:
    """How many files a process has open."""
    return len(list(Path(f"/proc/{command.process.pid}/fd").iterdir()))


@asynccontextmanager
async def running_deployment(dsn: str, folder: Path) -> AsyncIterator[Deployment]:
    with shell(folder, dsn) as sh:
        system = SystemUnderTest(sh, free_port())
        engine = await Engine.open(dsn, pool_size=1)
        key = await new_key(engine, "flooded")
        await engine.close()
        server, worker = await system.serve(), system.work()
        limits = httpx2.Limits(max_connections=None)
        url = f"http://{HOST}:{system.port}/actions"
        async with httpx2.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
            deployment = Deployment(system.port, server, worker, User(http, key, "flooded"))
            await deployment.python("print('warm')")
            yield deployment
        for command in (server, worker):
            command.terminate()
            await asyncio.to_thread(command.wait)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    megabytes: int = parser.parse_args().megabytes
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        async with migrated_template(server, PRODUCTS) as template, server.database(template) as dsn:
            async with running_deployment(dsn, Path(folder)) as deployment:
                before, began = memory(deployment.worker, "VmRSS"), time.monotonic()
                async with asyncio.timeout(600):
                    job_id = await deployment.user.submit(
                        "run-command", command="python", arguments=[FLOOD, str(megabytes)]
                    )
                    await deployment.user.watched(job_id)
                job = await deployment.user.job(job_id)
                kept = await deployment.user.lines(job_id)
                seconds, grown = time.monotonic() - began, memory(deployment.worker) - before
            spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{megabytes} MiB of output: {job['state']} in {seconds:.1f} s, {len(kept)} lines kept")  # noqa: T201
    print(f"{job['output']}; the worker grew by {grown / MIB:.1f} MiB")  # noqa: T201
    print(f"{spent.ru_utime + spent.ru_stime:.1f} s of processor, with the server and the program")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
