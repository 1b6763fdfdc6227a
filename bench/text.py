"""Measures the text that jobs emit: `python -m bench.text --dsn postgresql://…`.

One process runs 500 jobs, each of which emits 50 pieces a second, and serves a reader of each job. The time is from the
call of `job.emit` until the reader has received the piece. Readers, server and PostgreSQL share the machine. Every
reader must receive every piece once and in order. Prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import socket
import time
from importlib.metadata import version
from typing import Any

import uvloop

from bench import processes
from bench.processes import WAIT_SECONDS, within
from bench.product import ACCOUNT, TENANT, opened
from millpond import Engine, Job, Millpond, Worker, ids
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.server import serve
from millpond.services.notifier import Notifier
from millpond.settings import Settings

JOBS = 500
PIECES_PER_SECOND = 50
SECONDS = 20
KIND = "talk"
OPENING = 100
RATE_LIMIT = 1_000_000
WARM = 0.1  # the share of the pieces at the beginning that are not measured

_CHUNK = re.compile(rb"id: (\d+\.\d+)\nevent: chunk\ndata: (\{.*?\})\n\n")


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the text that jobs emit.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if arguments.serve:
        await serving(arguments.dsn, arguments.jobs)
    else:
        async with opened(arguments.dsn, app(asyncio.Event())) as engine:
            await measure(engine, arguments.jobs, arguments.seconds)


def app(begins: asyncio.Event) -> Millpond:
    made = Millpond()

    @made.kind(KIND)
    async def talk(job: Job, pieces: int) -> int:
        """Emit pieces in a steady rhythm. Each is the time at which it is emitted."""
        await job.emit("begun ")
        await begins.wait()
        loop = asyncio.get_running_loop()
        due = loop.time() + random.random() / PIECES_PER_SECOND
        for _ in range(pieces):
            await asyncio.sleep(due - loop.time())
            await job.emit(f"{time.monotonic():.6f} ")
            due += 1 / PIECES_PER_SECOND
        return pieces

    return made


async def serving(dsn: str, jobs: int) -> None:
    begins, stop = asyncio.Event(), asyncio.Event()
    made = app(begins)
    engine = await Engine.open(dsn, made)
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, begins.set)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    listening = socket.create_server(("127.0.0.1", 0), backlog=4_096)
    port = listening.getsockname()[1]
    await asyncio.gather(
        hub.run(stop),
        notifier.run(stop),
        Worker(engine.source(), made, slots=jobs).run(stop),
        serve(
            create_app(engine, settings=Settings(streams_per_key=100_000, streams_per_account=100_000), hub=hub),
            host="127.0.0.1",
            port=port,
            sock=listening,
            stop=stop,
            on_ready=lambda: print(port, flush=True),
        ),
    )
    await engine.close()


class Reader(asyncio.Protocol):
    """A reader of one job: checks that its text is whole, and keeps the time that each piece took."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.rest = b""
        self.number = 0
        self.times: list[float] = []
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        now, end = time.monotonic(), 0
        self.rest += data
        for found in _CHUNK.finditer(self.rest):
            chunk = json.loads(found[2])
            if chunk["number"] != self.number + 1:
                raise ValueError(f"chunk {chunk['number']} came after {self.number}")
            self.number, end = chunk["number"], found.end()
            self.times += [now - float(piece) for piece in chunk["text"].split() if piece != "begun"]
            self.begun.set()
        if b"event: end\n" in self.rest:
            self.ended.set()
        self.rest = self.rest[end:][-65_536:]


async def measure(engine: Engine, jobs: int, seconds: int) -> None:
    """Let a process run the jobs, read the text of each, and report how long the pieces took."""
    _, key = await engine.access.make_key(
        scope="client", tenant=TENANT, account=ACCOUNT, rate_limit=RATE_LIMIT, actor="bench"
    )
    pieces = PIECES_PER_SECOND * seconds
    request = {"kind": KIND, "input": {"pieces": pieces}, "tenant": TENANT, "account": ACCOUNT}
    submitted = await engine.submit_many([request] * jobs)
    names = [ids.text("job", job.job_id) for job in submitted if not isinstance(job, Exception)]
    with processes.serving("bench.text", "--dsn", engine.db.dsn, "--jobs", str(jobs), "--serve") as (port, pid):
        readers = await opened_readers(port, key, names[:1])  # from then on the process knows the key
        readers += await opened_readers(port, key, names[1:])
        before, began = cpu_seconds(pid), time.monotonic()
        os.kill(pid, signal.SIGUSR1)
        async with within(WAIT_SECONDS, "the text of all jobs"):
            await asyncio.gather(*(reader.ended.wait() for reader in readers))
        took, used = time.monotonic() - began, cpu_seconds(pid) - before
        for reader in readers:
            reader.transport.close()
    if any(len(reader.times) != pieces for reader in readers):
        raise ValueError("a reader has lost or repeated a piece")
    times = sorted(wait for reader in readers for wait in reader.times[int(pieces * WARM) :])
    settings = {"jobs": jobs, "pieces_per_second": PIECES_PER_SECOND}
    report("text_p50", times[len(times) // 2] * 1000, "ms", settings)
    report("text_p99", times[len(times) * 99 // 100] * 1000, "ms", settings)
    report("text_max", times[-1] * 1000, "ms", settings)
    report("text_rate", pieces * jobs / took, "pieces/s", settings)
    report("text_chunks", sum(reader.number for reader in readers) / took, "chunks/s", settings)
    report("text_processor", used / took * 100, "% of a core", settings)


async def opened_readers(port: int, key: str, jobs: list[str]) -> list[Reader]:
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(OPENING)

    async def open_one(job: str) -> Reader:
        head = f"GET /v1/jobs/{job}/stream HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n"
        async with gate:
            return (await loop.create_connection(lambda: Reader(head.encode()), "127.0.0.1", port))[1]

    readers = await asyncio.gather(*map(open_one, jobs))
    async with within(WAIT_SECONDS, "all jobs to begin"):
        await asyncio.gather(*(reader.begun.wait() for reader in readers))
    return readers


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:  # noqa: PTH123 - a path of the kernel
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def report(metric: str, value: float, unit: str, settings: dict[str, Any]) -> None:
    line = {"peer": "millpond", "version": version("millpond"), "metric": metric, "value": round(value, 1)}
    print(json.dumps(line | {"unit": unit, "settings": settings}), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
