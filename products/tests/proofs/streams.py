"""Streams over restarts: readers of logs, while their server is stopped, started, killed and started again.

    python -m products.tests.proofs.streams --readers 1000

Jobs say numbered lines all the time, in a process of their own. Each reader comes back with the last id that it saw,
as a browser does. In the end each must have every line of its job once, in order, and one status.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from products.tests.proofs.deployments import ENVIRONMENT, new_key

from millpond.engine.engine import Engine
from millpond_products.catalog import PRODUCTS
from tests.acceptance.processes import Command, Shell, free_port, shell
from tests.cli.ups import serving
from tests.databases import migrated_template, running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

APP = Path(__file__).with_name("counting.py")
HOST = "127.0.0.1"
PATIENCE = 120.0
FILES = 16_384
TRIES = ConnectionError, asyncio.IncompleteReadError, TimeoutError


@dataclass(frozen=True, slots=True)
class Plan:
    """How large it is."""

    readers: int = 1_000
    jobs: int = 4
    lines: int = 40
    """Which each job says at least; it goes on while servers come and go."""
    pause: float = 0.25


@dataclass(slots=True)
class Reader:
    """One who reads a job's stream to its end, whatever happens to the server."""

    port: int
    key: str
    job_id: str
    last: str = ""
    lines: list[str] = field(default_factory=list[str])
    ends: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    came: int = 0
    """How often a stream was opened."""
    problems: list[str] = field(default_factory=list[str])

    async def read(self) -> None:
        while not self.ends and not self.problems:
            with suppress(*TRIES, OSError):
                await self._read_some()
            await asyncio.sleep(random.uniform(0.05, 0.5))

    async def _read_some(self) -> None:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(HOST, self.port)
            try:
                writer.write(self._request())
                head = await reader.readuntil(b"\r\n\r\n")
                if not head.startswith(b"HTTP/1.1 200"):
                    if not head.startswith(b"HTTP/1.1 503"):
                        self.problems.append(f"{head.decode()} with {self.last!r}")
                    return
                self.came += 1
                rest = b""
                async for chunk in _chunks(reader):
                    *whole, rest = (rest + chunk).split(b"\n\n")
                    for frame in whole:
                        self._take(frame)
            finally:
                writer.close()

    def _request(self) -> bytes:
        seen = f"Last-Event-ID: {self.last}\r\n" if self.last else ""
        return (
            f"GET /actions/api/jobs/{self.job_id}/stream HTTP/1.1\r\nHost: {HOST}\r\n"
            f"Authorization: Bearer {self.key}\r\nAccept: text/event-stream\r\n{seen}\r\n"
        ).encode()

    def _take(self, frame: bytes) -> None:
        parts = (line.partition(": ") for line in frame.decode().split("\n"))
        fields = {name: value for name, _, value in parts}
        match fields.get("event"):
            case "log":
                self.lines.append(json.loads(fields["data"])["text"])
            case "status":
                self.ends.append(json.loads(fields["data"]))
            case None if "data" not in fields:
                return  # how long to wait, or a sign of life
            case strange:
                self.problems.append(f"an event {strange!r}")
        if int(fields["id"]) <= int(self.last or 0):
            self.problems.append(f"event {fields['id']} after {self.last}")
        self.last = fields["id"]

    def complaints(self, lines: int) -> list[str]:
        """What is wrong with what it saw, of a job that has said so many lines."""
        found = list(self.problems)
        if self.lines != [f"line {n}" for n in range(lines)]:
            found.append(f"{len(self.lines)} lines of {lines}: {self.lines[:3]} … {self.lines[-3:]}")
        if self.ends != [{"state": "success", "output": {"lines": lines}}]:
            found.append(f"the end is {self.ends}")
        return found


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """A body, as HTTP/1.1 sends one of unknown length."""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield (await reader.readexactly(size + 2))[:-2]


@dataclass(slots=True)
class Report:
    """What came of it."""

    complaints: list[str] = field(default_factory=list[str])
    lines: int = 0
    came: int = 0
    again: int = 0
    """Readers that had to come back twice at least: over both restarts."""
    seconds: float = 0.0
    processor: float = 0.0
    """Seconds of it, of this process and of the servers that have ended."""


@dataclass(slots=True)
class SystemUnderTest:
    """The server, which is started again where it was, and the worker beside it."""

    sh: Shell
    port: int

    async def serve(self) -> Command:
        file = self.sh.folder / f"ready-{len(self.sh.commands)}.json"
        words = ("serve", APP, "--role", "api", "--port", str(self.port), "--ready-file", file)
        command = self.sh.start(*words, **ENVIRONMENT)
        await serving(command, file)
        return command

    def work(self) -> Command:
        return self.sh.start("serve", APP, "--role", "worker", **ENVIRONMENT)


async def run(plan: Plan, dsn: str, folder: Path) -> Report:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    began, before = time.monotonic(), _processor()
    with shell(folder, dsn) as sh:
        report = await _run(plan, dsn, SystemUnderTest(sh, free_port()))
    report.seconds, report.processor = time.monotonic() - began, _processor() - before
    return report


async def _run(plan: Plan, dsn: str, system: SystemUnderTest) -> Report:
    enough = system.sh.folder / "enough"
    engine = await Engine.open(dsn, pool_size=1)
    key = await new_key(engine, "reader")
    await engine.close()
    server, worker = await system.serve(), system.work()
    jobs = [await _submit(system.port, key, plan, enough) for _ in range(plan.jobs)]
    readers = [Reader(system.port, key, jobs[n % plan.jobs]) for n in range(plan.readers)]
    async with asyncio.timeout(PATIENCE) as patience, asyncio.TaskGroup() as group:
        for reader in readers:
            group.create_task(reader.read())
        await _until_grown(readers, [0] * len(readers), len(readers) // 2, patience)  # the others come while it goes
        for end in (Command.terminate, Command.kill):
            end(server)
            await asyncio.to_thread(server.wait)
            seen = [len(reader.lines) for reader in readers]
            server = await system.serve()
            await _until_grown(readers, seen, len(readers), patience)
        enough.touch()
    report = await _judge(system.port, key, readers)
    for command in (server, worker):
        command.terminate()
        await asyncio.to_thread(command.wait)
    return report


async def _submit(port: int, key: str, plan: Plan, enough: Path) -> str:
    given = {"lines": plan.lines, "pause": plan.pause, "until": str(enough)}
    async with _client(port, key) as http:
        answer = await http.post("/jobs", json={"action": "count", "input": given})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]


def _client(port: int, key: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(base_url=f"http://{HOST}:{port}/actions/api", headers=headers, timeout=PATIENCE)


async def _until_grown(readers: Sequence[Reader], seen: Sequence[int], many: int, patience: asyncio.Timeout) -> None:
    """Until so many readers have seen more lines than that. The patience starts again whenever another one has."""
    grown = -1
    while grown < many:
        before, grown = grown, sum(len(reader.lines) > lines for reader, lines in zip(readers, seen, strict=True))
        if grown > before:
            patience.reschedule(asyncio.get_running_loop().time() + PATIENCE)
        assert not any(reader.problems for reader in readers), next(each.problems for each in readers if each.problems)
        await asyncio.sleep(0.05)


async def _judge(port: int, key: str, readers: Sequence[Reader]) -> Report:
    report = Report(came=sum(reader.came for reader in readers), again=sum(reader.came > 2 for reader in readers))
    async with _client(port, key) as http:
        for job_id in {reader.job_id for reader in readers}:
            said = (await http.get(f"/jobs/{job_id}")).json()["output"]["lines"]
            own = [reader for reader in readers if reader.job_id == job_id]
            report.lines += said * len(own)
            report.complaints += [complaint for reader in own for complaint in reader.complaints(said)]
            answer = await http.get(f"/jobs/{job_id}/stream", headers={"Last-Event-ID": own[0].last})
            if answer.status_code != 204:
                report.complaints.append(f"{answer.status_code} for one who has the end")
    return report


def _processor() -> float:
    """Seconds of processor of this process, and of all that it has started and seen end."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in asdict(Plan()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    plan = Plan(**vars(parser.parse_args()))
    with running_server() as server, tempfile.TemporaryDirectory() as folder:
        async with migrated_template(server, PRODUCTS) as template, server.database(template) as dsn:
            report = await run(plan, dsn, Path(folder))
    print(f"{plan.readers} readers of {plan.jobs} jobs opened {report.came} streams, and read {report.lines} lines")  # noqa: T201
    print(f"{report.again} came back over both restarts; {report.seconds:.1f} s, {report.processor:.1f} s of processor")  # noqa: T201
    print("\n".join(report.complaints[:20]) or "every line once, in order; one status each")  # noqa: T201
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    asyncio.run(main())
