"""The worker protocol under load, beside a bare echo: `python -m bench.fleet --dsn postgresql://…`.

As in `bench.http`: one server process, 64 connections, PostgreSQL with durable settings on the same machine. Each poll
receives a job, each heartbeat extends the lease of one, each completion ends one (its hold is captured, it has no
artifacts). Then a thousand workers, each with one job, send heartbeats every ten seconds; the processor time of the
server and of PostgreSQL is read from the system. Prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop

from bench import http, processes
from bench.http import CONNECTIONS, WARM_UP, Caller, Measured
from bench.processes import WAIT_SECONDS, within
from bench.product import opened
from millpond import Engine, Millpond, ids
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.engine.access.access import Principal
from millpond.engine.fleet.workers import FleetSettings
from millpond.services.notifier import Notifier
from millpond.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TENANT, ACCOUNT, KIND = "bench", "bench", "render"
CREDITS = 10**11
WORKERS = 1_000
POLLED = 30_000
COMPLETED = 40_000
SECONDS = 3.0
HEARTBEAT_SECONDS = 10
BEATING_SECONDS = 15.0
FLEET = Principal("worker", None, None, "bench")


def app() -> Millpond:
    made = Millpond()

    @made.kind(KIND, price=5, runs="fleet")
    def render(job: Any, sequence: int, padding: str) -> None: ...

    return made


def settings() -> Settings:
    return Settings(fleet_max=100_000, rate_limit=http.RATE_LIMIT)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the worker protocol beside a bare echo.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        await serve(arguments.dsn)
    else:
        async with opened(arguments.dsn, app()) as engine:
            await measure(engine)


async def serve(dsn: str) -> None:
    engine = await Engine.open(dsn, app())
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    stop = asyncio.Event()
    listening = asyncio.create_task(notifier.run(stop))
    await http.serving(create_app(engine, settings=settings(), hub=hub))
    stop.set()
    await listening
    await engine.close()


# Load


def polls(tokens: Iterable[str], want: int = 1) -> Iterator[bytes]:
    for token in itertools.cycle(tokens):
        yield post("poll", token, b'{"want":%d}' % want)


def post(verb: str, token: str, body: bytes) -> bytes:
    head = f"POST /v1/worker/{verb} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Content-Type: application/json\r\nAuthorization: Bearer {token}\r\n\r\n".encode() + body


def heartbeats(leases: list[tuple[str, str, str]]) -> Iterator[bytes]:
    for token, job_id, lease in itertools.cycle(leases):
        yield post(
            "heartbeat", token, b'{"jobs":[{"job_id":"%b","lease_token":"%b"}]}' % (job_id.encode(), lease.encode())
        )


def completions(leases: list[tuple[str, str, str]]) -> Iterator[bytes]:
    """Each ends another job. If there are no more jobs, the measured rate is too low, and a warning is printed."""
    padding = "x" * 100
    for token, job_id, lease in leases:
        body = {"job_id": job_id, "lease_token": lease, "output": {"url": padding}}
        yield post("complete", token, msgspec.json.encode(body))
    print("no more leases to complete", file=sys.stderr)
    yield from completions(leases)


# Measurements


async def measure(engine: Engine) -> None:
    engine.workers.settings = FleetSettings.of(settings())
    await engine.grant(TENANT, ACCOUNT, CREDITS)
    workers = [
        await engine.workers.register(worker=f"worker-{n}", routes=[KIND], slots=1_000, fleet=FLEET, address="bench")
        for n in range(WORKERS)
    ]
    tokens = {record.id: token for record, token in workers}
    await submit(engine, POLLED)
    with http.server("echo", engine.db.dsn) as (port, _):
        echo = await rate(port, http.posts("/echo", None))
    with processes.serving("bench.fleet", "--dsn", engine.db.dsn, "--serve") as (port, pid):
        poll = await rate(port, polls(tokens.values()))
        leases = await held(engine, tokens)
        beat = await rate(port, heartbeats(leases))
        await drained(engine, port, tokens)
        complete = await rate(port, completions(await fresh(engine, port, tokens)))
        share = await beating(engine, port, pid, tokens)
    results = {"fleet_echo": echo, "fleet_poll": poll, "fleet_heartbeat": beat, "fleet_complete": complete}
    for name, result in results.items():
        for metric, value, unit in (
            (name, result["rate"], "requests/s"),
            (f"{name}_p50", result["p50"], "ms"),
            (f"{name}_p99", result["p99"], "ms"),
        ):
            report(metric, value, unit)
    report("fleet_heartbeats_share", share * 100, "% of a core")


async def rate(port: int, requests: Iterator[bytes]) -> dict[str, float]:
    await http.load(port, requests, 200, WARM_UP)
    measured = await http.load(port, requests, 200, SECONDS)
    if measured.refused:
        print(f"refused: {measured.refused}", file=sys.stderr)
    waits = sorted(measured.waits)
    return {"rate": len(waits) / SECONDS, "p50": waits[len(waits) // 2], "p99": waits[int(len(waits) * 0.99)]}


async def drained(engine: Engine, port: int, tokens: dict[str, str]) -> None:
    """Empty the queue: the jobs that are leased from now on are so few that the server keeps all of them in memory."""
    requests = polls(tokens.values())
    async with within(WAIT_SECONDS, "an empty queue"):
        while await engine.db.pool.fetchval("select exists (select from millpond.ready)"):
            await http.load(port, requests, 200, 0.2)


async def fresh(engine: Engine, port: int, tokens: dict[str, str]) -> list[tuple[str, str, str]]:
    """Leases that the server has just granted."""
    before = {lease for _, _, lease in await held(engine, tokens)}
    await submit(engine, COMPLETED)
    await drained(engine, port, tokens)
    return [lease for lease in await held(engine, tokens) if lease[2] not in before]


async def submit(engine: Engine, jobs: int) -> None:
    requests = [
        {"kind": KIND, "input": {"sequence": n, "padding": "x" * 100}, "tenant": TENANT, "account": ACCOUNT}
        for n in range(jobs)
    ]
    for start in range(0, jobs, 10_000):
        await engine.submit_many(requests[start : start + 10_000])


async def held(engine: Engine, tokens: dict[str, str]) -> list[tuple[str, str, str]]:
    """The leased jobs: the token of the worker, the id of the job, the token of the lease."""
    rows = await engine.db.pool.fetch("select worker, token, unnest(job_ids) as job_id from millpond.leases")
    return [
        (tokens[row["worker"]], ids.text("job", row["job_id"]), str(row["token"]))
        for row in rows
        if row["worker"] in tokens
    ]


async def beating(engine: Engine, port: int, pid: int, tokens: dict[str, str]) -> float:
    """The share of a core that the heartbeats of all workers take, every ten seconds, each with one job."""
    by_worker = {lease[0]: lease for lease in await fresh(engine, port, tokens)}
    pace = itertools.count()
    beats = heartbeats(list(by_worker.values()))
    postmaster = await engine.db.pool.fetchval("select pg_backend_pid()")
    group = int(stat(postmaster)[1])
    measured, loop = Measured(), asyncio.get_running_loop()
    callers = [
        (await loop.create_connection(lambda: Paced(beats, measured, 200), "127.0.0.1", port))[1]
        for _ in range(CONNECTIONS)
    ]
    spare = itertools.cycle(callers)
    before, began = used(pid, group), time.perf_counter()
    while time.perf_counter() - began < BEATING_SECONDS:
        due = began + next(pace) * HEARTBEAT_SECONDS / WORKERS
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        next(spare).beat()
    took = time.perf_counter() - began
    share = (used(pid, group) - before) / took
    for caller in callers:
        caller.transport.close()
    print(f"{len(measured.waits) / took:.0f} heartbeats/s of {len(by_worker)} workers", file=sys.stderr)
    return share


class Paced(Caller):
    """A connection that sends only when ``beat`` is called."""

    def send(self) -> None: ...

    def beat(self) -> None:
        super().send()


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat, from the state on."""
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()


def used(server_pid: int, postmaster: int) -> float:
    """Seconds of processor time of the server, and of PostgreSQL with all its processes."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = stat(int(entry.name))
                if int(entry.name) in (server_pid, postmaster) or int(fields[1]) == postmaster:
                    total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def report(metric: str, value: float, unit: str) -> None:
    line = {
        "peer": "millpond",
        "version": version("millpond"),
        "metric": metric,
        "value": round(value, 2),
        "unit": unit,
    }
    print(json.dumps(line | {"settings": {"connections": CONNECTIONS}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
