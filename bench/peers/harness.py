"""Measures one job queue in four ways and prints one JSON line per number.

Standard library only, so that any queue can be measured with it, from any environment.

The job is a no-op with a JSON body of 200 bytes. Every number is the median of several runs, each
in a store of its own. If a queue has a setting that matters, each of its choices is measured and
the best median is reported, so that no peer is measured with a setting that does not suit the machine.

- `enqueue_one`: one client, one awaited enqueue after another; no worker is running.
- `bulk`: the fastest way the queue offers to enqueue many jobs, in the best batch size.
- `drain`: all jobs are enqueued first, and their table is vacuumed and analyzed, because a table
  in use has statistics and a new one has none. Worker processes then start, import, connect,
  report ready and wait at a gate, so that none has a head start. The time is from the opening of the
  gate until the store contains no unfinished job. (The time from the first handler call to the last
  would exclude the first claim and the last write, in favour of the largest batches.)
- `drain_executed`: the same runs, but only until the last handler call: without the write of the
  last results, which some queues delay.
- `latency_p50`, `latency_p99`: one idle worker; a submit every 5-20 ms; from the start of the
  enqueue call to the start of the handler. CLOCK_MONOTONIC is one clock for all processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.processes import WAIT_SECONDS, within

from .workers import Board, Crew, hired

BODY_BYTES = 200
ENQUEUE_JOBS = 2_000
LATENCY_GAP_SECONDS = (0.005, 0.020)
LATENCY_JOBS = 300
METRICS = ("enqueue_one", "bulk", "drain", "latency")
POLL_SECONDS = 0.005
WARM_UP_JOBS = 100

Settings = Mapping[str, Any]


class Peer(Protocol):
    """The interface of a job queue for the measurements; `store` is where its jobs are while it is open."""

    name: str
    version: str
    store: str
    enqueue_settings: Settings
    bulk_choices: Sequence[Settings]
    drain_choices: Sequence[Settings]
    latency_settings: Settings

    def opened(self) -> AbstractAsyncContextManager[None]:
        """An empty queue in a new store, with the client connected; the store is deleted at the end of the block."""

    def body(self, sequence: int) -> Any:
        """A job's body in the form that the queue's enqueue call takes."""

    async def enqueue(self, body: Any) -> None:
        """Enqueue one job and return once the store has it."""

    async def enqueue_many(self, bodies: Sequence[Any], settings: Settings) -> None:
        """Enqueue all jobs in the fastest way that the queue offers."""

    async def settle(self) -> None:
        """Prepare the store after a bulk enqueue: on PostgreSQL, vacuum and analyze."""

    async def unfinished(self) -> int:
        """The number of waiting or running jobs in the store."""


def body(sequence: int) -> dict[str, Any]:
    """A JSON object of exactly `BODY_BYTES`, as json.dumps writes it by default."""
    empty = len(json.dumps({"sequence": sequence, "padding": ""}))
    return {"sequence": sequence, "padding": "x" * (BODY_BYTES - empty)}


# --- the measurements -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, and the option by which a worker gets the store."""

    option: str
    jobs: int
    runs: int


async def enqueue_one(peer: Peer) -> dict[str, float]:
    for sequence in range(WARM_UP_JOBS):
        await peer.enqueue(peer.body(sequence))
    bodies = [peer.body(sequence) for sequence in range(ENQUEUE_JOBS)]
    began = time.monotonic_ns()
    for one in bodies:
        await peer.enqueue(one)
    return {"enqueue_one": per_second(ENQUEUE_JOBS, began, time.monotonic_ns())}


async def bulk(peer: Peer, settings: Settings, jobs: int) -> dict[str, float]:
    bodies = [peer.body(sequence) for sequence in range(jobs)]
    await peer.enqueue_many(bodies[:WARM_UP_JOBS], settings)
    began = time.monotonic_ns()
    await peer.enqueue_many(bodies, settings)
    return {"bulk": per_second(jobs, began, time.monotonic_ns())}


async def drain(peer: Peer, settings: Settings, plan: Plan) -> dict[str, float]:
    bodies = [peer.body(sequence) for sequence in range(plan.jobs)]
    await peer.enqueue_many(bodies, peer.bulk_choices[0])
    await peer.settle()
    async with crew(peer, plan, "drain", settings) as workers:
        board = workers.board
        opened = board.open_gate()
        await workers.until(f"{plan.jobs} jobs to run", lambda: sum(board.column(Board.COUNT)) >= plan.jobs)
        async with within(WAIT_SECONDS, "a store without unfinished jobs"):
            while await peer.unfinished():  # noqa: ASYNC110 - the store can only be polled
                await asyncio.sleep(POLL_SECONDS)
        settled = time.monotonic_ns()
        ran = sum(board.column(Board.COUNT))
        last = max(board.column(Board.LAST))
    if ran != plan.jobs:
        print(f"{peer.name}: {plan.jobs} jobs ran {ran} times", file=sys.stderr)
    return {
        "drain": per_second(plan.jobs, opened, settled),
        "drain_executed": per_second(plan.jobs, opened, last),
    }


async def latency(peer: Peer, plan: Plan) -> dict[str, float]:
    total = WARM_UP_JOBS + LATENCY_JOBS
    bodies = [peer.body(sequence) for sequence in range(total)]
    # A fixed seed gives every queue the same arrivals.
    pause = random.Random(1)
    submitted = []
    async with crew(peer, plan, "latency", peer.latency_settings) as workers:
        workers.board.open_gate()
        for one in bodies:
            submitted.append(time.monotonic_ns())
            await peer.enqueue(one)
            await asyncio.sleep(pause.uniform(*LATENCY_GAP_SECONDS))
        stamps = workers.board.stamps[:total]
        await workers.until(f"{total} jobs to start", lambda: all(stamps))
        started = list(stamps)
    waited = sorted(
        (start - submit) / 1e6 for start, submit in zip(started[WARM_UP_JOBS:], submitted[WARM_UP_JOBS:], strict=True)
    )
    return {"latency_p50": statistics.median(waited), "latency_p99": percentile(waited, 0.99)}


def crew(peer: Peer, plan: Plan, measurement: str, settings: Settings) -> AbstractAsyncContextManager[Crew]:
    """Worker processes: this script, started with `--work`."""
    # The spec of __main__ is the peer's module, because it was started with `python -m`.
    module = sys.modules["__main__"].__spec__.name
    command = [sys.executable, "-m", module, plan.option, peer.store, "--work", measurement]
    return hired([*command, "--settings", json.dumps(dict(settings))], settings["processes"])


def per_second(jobs: int, began_ns: int, ended_ns: int) -> float:
    return jobs / ((ended_ns - began_ns) / 1e9)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The nearest rank."""
    return ordered[math.ceil(len(ordered) * share) - 1]


# --- choosing and printing --------------------------------------------------------------------


async def measure(peer: Peer, plan: Plan, metrics: Sequence[str]) -> None:
    """Run the given measurements, and print each result at once."""
    if "enqueue_one" in metrics:
        settings = peer.enqueue_settings
        report(peer, settings, await repeat(peer, plan, lambda _: enqueue_one(peer), settings))
    if "bulk" in metrics:
        await best(peer, plan, peer.bulk_choices, lambda one: bulk(peer, one, plan.jobs))
    if "drain" in metrics:
        await best(peer, plan, peer.drain_choices, lambda one: drain(peer, one, plan))
    if "latency" in metrics:
        settings = peer.latency_settings
        report(peer, settings, await repeat(peer, plan, lambda _: latency(peer, plan), settings))


Results = dict[str, list[float]]
Measurement = Callable[[Settings], Awaitable[dict[str, float]]]


async def best(peer: Peer, plan: Plan, choices: Sequence[Settings], measurement: Measurement) -> None:
    """Measure every choice and report the one whose first number has the highest median."""
    tried = []
    for choice in choices:
        results = await repeat(peer, plan, measurement, choice)
        metric, values = next(iter(results.items()))
        print(f"{peer.name} {metric} {dict(choice)}: {statistics.median(values):.0f}", file=sys.stderr)
        tried.append((statistics.median(values), choice, results))
    _, settings, results = max(tried, key=lambda one: one[0])
    report(peer, settings, results)


async def repeat(peer: Peer, plan: Plan, measurement: Measurement, settings: Settings) -> Results:
    results: Results = {}
    for _ in range(plan.runs):
        async with peer.opened():
            measured = await measurement(settings)
        for metric, value in measured.items():
            results.setdefault(metric, []).append(value)
    return results


def report(peer: Peer, settings: Settings, results: Results) -> None:
    for metric, values in results.items():
        unit, digits = ("ms", 2) if metric.startswith("latency") else ("jobs/s", None)
        line = {
            "peer": peer.name,
            "version": peer.version,
            "metric": metric,
            "value": round(statistics.median(values), digits),
            "unit": unit,
            "settings": dict(settings),
            "runs": [round(value, digits) for value in values],
        }
        print(json.dumps(line), flush=True)


# --- the command line -------------------------------------------------------------------------


Work = Callable[[str, Board, str, Settings], Coroutine[Any, Any, None]]


def parser(option: str, *, required: bool = True) -> argparse.ArgumentParser:
    """The arguments of all scripts; `option`, such as `--dsn`, names the store."""
    arguments = argparse.ArgumentParser(description="Measures one job queue.")
    arguments.add_argument(option, dest="store", required=required, help="the store of the jobs")
    arguments.add_argument("--only", nargs="+", choices=METRICS, default=METRICS)
    arguments.add_argument("--jobs", type=int, default=20_000, help="for bulk and drain")
    arguments.add_argument("--runs", type=int, default=3, help="the number of runs, of which the median is reported")
    # With the rest, the script starts itself as a worker.
    arguments.add_argument("--work", choices=("drain", "latency"), help=argparse.SUPPRESS)
    arguments.add_argument("--settings", type=json.loads, help=argparse.SUPPRESS)
    arguments.add_argument("--board", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    return arguments


def plan_of(arguments: argparse.Namespace, option: str) -> Plan:
    return Plan(option=option, jobs=arguments.jobs, runs=arguments.runs)


def main(make: Callable[[str], Peer], work: Work, run: Callable[..., Any] = asyncio.run) -> None:
    """The main function for a peer on PostgreSQL; `run` runs its fastest event loop."""
    option = "--dsn"
    arguments = parser(option).parse_args()
    if arguments.work:
        board = Board(arguments.board, arguments.worker)
        run(work(arguments.store, board, arguments.work, arguments.settings))
        return
    run(measure(make(arguments.store), plan_of(arguments, option), arguments.only))
