"""Measures five thousand open streams of one server process: `python -m bench.streams --dsn postgresql://…`.

A worker in another process writes events; the time is from its commit until the last reader has received the frame.
First each reader watches a job of its own, then all watch one job. Readers, server, worker and PostgreSQL share the
machine. Memory is the growth of the server process. Prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import socket
import statistics
import time
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench import processes
from bench.processes import WAIT_SECONDS, within
from bench.product import ACCOUNT, CREDITS, KIND, TENANT, app, opened
from millpond import Engine, ids
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.server import serve
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import Lease, Note
from millpond.services.notifier import Notifier
from millpond.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAMS = 5_000
EVENTS = 20
OPENING = 200
RATE_LIMIT = 1_000_000
LEASE = timedelta(minutes=30)
PAGE = resource.getpagesize()


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures streams.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if arguments.serve:
        await serving(arguments.dsn)
        return
    async with opened(arguments.dsn, app()) as engine:
        leases = await leased(engine, arguments.streams)
        await measure(engine, "own_job", leases, leases)
    async with opened(arguments.dsn, app()) as engine:
        leases = await leased(engine, 1)
        await measure(engine, "one_job", leases * arguments.streams, leases)


async def serving(dsn: str) -> None:
    engine = await Engine.open(dsn, app())
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listening = socket.create_server(("127.0.0.1", 0), backlog=4_096)
    port = listening.getsockname()[1]
    await asyncio.gather(
        hub.run(stop),
        notifier.run(stop),
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


class Crowd:
    """All readers together: counts the frames, and sets an event when the expected number has been received."""

    def __init__(self) -> None:
        self.frames = 0
        self.wanted = 0
        self.lost = 0
        self.came = asyncio.Event()

    def expect(self, frames: int) -> None:
        self.wanted = self.frames + frames
        self.came.clear()

    def count(self, frames: int) -> None:
        self.frames += frames
        if self.frames >= self.wanted:
            self.came.set()

    async def all_there(self) -> None:
        async with within(WAIT_SECONDS, f"{self.wanted} frames of all streams"):
            await self.came.wait()


class Reader(asyncio.Protocol):
    """One stream; a frame is a line that begins with `id:`."""

    def __init__(self, crowd: Crowd, request: bytes) -> None:
        self.crowd, self.request = crowd, request

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if frames := data.count(b"id: "):
            self.crowd.count(frames)

    def connection_lost(self, _error: Exception | None) -> None:
        self.crowd.lost += 1


async def opened_streams(port: int, key: str, jobs: Sequence[str]) -> tuple[Crowd, list[Reader]]:
    """Open a stream for each of these jobs, and wait until all have received the past events: submitted and started."""
    crowd = Crowd()
    crowd.expect(2 * len(jobs))
    loop = asyncio.get_running_loop()
    gate = asyncio.Semaphore(OPENING)

    async def open_one(job: str) -> Reader:
        head = f"GET /v1/jobs/{job}/stream HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n"
        async with gate:
            return (await loop.create_connection(lambda: Reader(crowd, head.encode()), "127.0.0.1", port))[1]

    readers = await asyncio.gather(*map(open_one, jobs))
    await crowd.all_there()
    return crowd, readers


async def measure(engine: Engine, name: str, watched: Sequence[Lease], leases: Sequence[Lease]) -> None:
    """Open a stream for each watched job, then write events for all leases."""
    _, key = await engine.access.make_key(
        scope="client", tenant=TENANT, account=ACCOUNT, rate_limit=RATE_LIMIT, actor="bench"
    )
    jobs = [ids.text("job", lease.job_id) for lease in watched]
    streams = len(jobs)
    with processes.serving("bench.streams", "--dsn", engine.db.dsn, "--serve") as (port, pid):
        _, first = await opened_streams(port, key, jobs[:1])  # excludes one-time costs from the memory of the streams
        before = memory(pid)
        crowd, readers = await opened_streams(port, key, jobs)
        size = (memory(pid) - before) / streams / 1024
        times = [await event_time(engine, crowd, leases, streams, number) for number in range(1, EVENTS + 1)]
        for reader in (*first, *readers):
            reader.transport.close()
    report(f"streams_{name}_all_p50", statistics.median(times) * 1000, "ms", streams)
    report(f"streams_{name}_all_max", max(times) * 1000, "ms", streams)
    report(f"streams_{name}_memory", size, "KiB/stream", streams)


async def event_time(engine: Engine, crowd: Crowd, leases: Sequence[Lease], streams: int, number: int) -> float:
    """Write one event for each job, and return how long it takes to reach all streams."""
    crowd.expect(streams)
    notes = (Note(lease, number, "progress", '{"progress": 0.5}', value=0.5) for lease in leases)
    await asyncio.gather(*map(engine.note, notes))
    began = time.perf_counter()
    await crowd.all_there()
    return time.perf_counter() - began


async def leased(engine: Engine, count: int) -> list[Lease]:
    """Leased jobs."""
    await engine.grant(TENANT, ACCOUNT, CREDITS)
    requests = [{"kind": KIND, "input": {"sequence": n, "padding": ""}} for n in range(count)]
    await engine.submit_many([request | {"tenant": TENANT, "account": ACCOUNT} for request in requests])
    return await engine.claim(Lanes([KIND]), count, worker="bench", duration=LEASE)


def memory(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * PAGE


def report(metric: str, value: float, unit: str, streams: int) -> None:
    line = {"peer": "millpond", "version": version("millpond"), "metric": metric, "value": round(value, 1)}
    print(json.dumps(line | {"unit": unit, "settings": {"streams": streams}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
