"""Measures Millpond and its peers, and writes `bench/RESULTS.md`: `make bench`.

All run on one machine, with one PostgreSQL with durable settings, so the ratios are what counts. The peers are
installed from the registry into their own environment and are never imported by Millpond. `--quick` measures each once,
with a short history. Measurements that fail are missing in the results, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from bench.peers.harness import METRICS
from bench.processes import has_succeeded, started
from millpond.store.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).with_name("RESULTS.md")

Numbers = dict[tuple[str, str], dict[str, Any]]

LOG_MEGABYTES = 1_024
LONG_LIVED = f"min_wal_size = {LOG_MEGABYTES}MB\n"


@dataclass(frozen=True, slots=True)
class Target:
    """The least ratio of Millpond's result to a peer's, to another of its own or to a limit; or of a ratio itself."""

    what: str
    ours: str
    peer: str | None
    theirs: str
    least: float
    is_latency: bool = False
    limit: float | None = None


TARGETS = (
    Target("bulk submit", "bulk", "pgqueuer", "bulk", 1.0),
    Target("bulk submit", "bulk", "procrastinate", "bulk", 5.0),
    Target("64 concurrent submits / one at a time", "concurrent", "pgqueuer", "enqueue_one", 3.0),
    Target("64 concurrent submits / one at a time", "concurrent", "procrastinate", "enqueue_one", 8.0),
    Target("drain of 20,000", "drain", "pgqueuer", "drain", 1.0),
    Target("drain of 20,000", "drain", "procrastinate", "drain", 10.0),
    Target("drain of 20,000", "drain", "celery+redis", "drain", 3.0),
    Target("submit to start, p50 (theirs / ours)", "latency_p50", "pgqueuer", "latency_p50", 1.0, is_latency=True),
    Target("submit to start, p50 (theirs / ours)", "latency_p50", "procrastinate", "latency_p50", 1.0, is_latency=True),
    Target("submit at 5,000,000 finished jobs / empty", "flat_submit", None, "", 1 / 1.2),
    Target("claim at 5,000,000 finished jobs / empty", "flat_claim", None, "", 1 / 1.2),
    Target("jobs from submit to finish, 60 s into an open snapshot / before", "pinned", None, "", 0.8),
    Target("HTTP submit / bare echo, 64 connections", "http_submit", "millpond", "http_echo", 0.35),
    Target("HTTP poll of a running job / bare echo", "http_poll", "millpond", "http_echo", 0.5),
    Target("a worker's poll / bare echo, 64 connections", "fleet_poll", "millpond", "fleet_echo", 0.35),
    Target("a worker's heartbeat / bare echo", "fleet_heartbeat", "millpond", "fleet_echo", 0.35),
    Target("a worker's complete / bare echo", "fleet_complete", "millpond", "fleet_echo", 0.35),
    Target("1,000 workers' heartbeats, % of a core, at most", "fleet_heartbeats_share", None, "", 1.0, limit=15),
    Target("one event to 5,000 streams of one job, at most", "streams_one_job_all_max", None, "", 1.0, limit=1_000),
    Target("one event to each of 5,000 streams, at most", "streams_own_job_all_max", None, "", 1.0, limit=1_000),
    Target(
        "text of 500 jobs, 50 pieces a second each, to its readers, p99, at most", "text_p99", None, "", 1.0, limit=300
    ),
    Target("100 rules for 4 kB of text, p50, at most", "rules_p50", None, "", 1.0, limit=1),
    Target("100 rules for 4 kB of text, p99, at most", "rules_p99", None, "", 1.0, limit=1),
    Target("webhooks delivered / a bare loop of the same client", "webhooks_courier", "millpond", "webhooks_bare", 0.5),
    Target("100,000 jobs due at once, until all have expired", "expiry_of_100000", None, "", 1.0, limit=30),
    Target("`millpond --help`", "startup_help", None, "", 1.0, limit=200),
    Target("`millpond up`, warm, until it serves", "startup_up_warm", None, "", 1.0, limit=3_000),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one run each, with a short history and a short snapshot")
    parser.add_argument("--runs", type=int, default=3, help="the number of runs, of which the median is reported")
    parser.add_argument("--dsn", help="the server to measure on, in new databases (default: an embedded one)")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # shells ignore SIGINT for background jobs
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="millpond-bench-", ignore_cleanup_errors=True) as folder:
        if arguments.dsn:
            numbers, server, failed = measure(arguments.dsn, arguments.runs, quick=arguments.quick)
        else:
            data = Path(folder) / "data"
            data.mkdir()
            (data / "postgres.conf").write_text(LONG_LIVED, "utf-8")
            with open_embedded(data) as postgres:
                fill_log(postgres.dsn)
                numbers, server, failed = measure(postgres.dsn, arguments.runs, quick=arguments.quick)
    text = render(numbers, server, quick=arguments.quick)
    RESULTS.write_text(text, "utf-8")
    print(text)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def fill_log(dsn: str) -> None:
    """Let the server create all its log files, as if it had run for a day.

    A new server creates a file for every 16 MB, which would slow down the first measurement.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(LOG_MEGABYTES):
            connection.execute("select pg_logical_emit_message(false, 'bench', repeat('x', 1 << 20))")
        connection.execute("checkpoint")


def measure(dsn: str, runs: int, *, quick: bool) -> tuple[Numbers, str, list[str]]:
    """Measure Millpond and its peers in turn, in several rounds: the speed of a machine varies over time."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select current_setting('server_version'), current_setting('fsync')").fetchone()
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    failed: list[str] = []
    for name, words in commands(dsn, 1 if quick else runs, quick=quick):
        began = time.monotonic()
        print(f"--- {name}", file=sys.stderr)
        lines, is_whole = run([sys.executable, "-m", *name.split(), *words])
        for line in lines:
            print(json.dumps(line), file=sys.stderr)
            results.setdefault((line["peer"], line["metric"]), []).append(line)
        if not is_whole:
            failed.append(name)
        print(f"--- {name} {'ended' if is_whole else 'FAILED'} after {time.monotonic() - began:.0f} s", file=sys.stderr)
    server = f"PostgreSQL {row[0]}, fsync {row[1]}" if row else ""
    return {name: middle(lines) for name, lines in results.items()}, server, failed


def commands(dsn: str, rounds: int, *, quick: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """The modules that measure, with their arguments."""
    server = ["--dsn", dsn]
    for _ in range(rounds):
        for metric in METRICS:
            yield f"bench.product --only {metric}", [*server, "--runs", "1"]
            yield f"bench.peers --only {metric}", [*server, "--runs", "1"]
        yield "bench.callers", server
        yield "bench.http", server
        yield "bench.fleet", server
        yield "bench.startup", []
        yield "bench.rules", []
    yield "bench.streams", server
    yield "bench.text", server
    yield "bench.webhooks", server
    yield "bench.flat", [*server, *(["--jobs", "200000", "--pinned", "20"] if quick else [])]


def run(command: Sequence[str]) -> tuple[list[dict[str, Any]], bool]:
    """The JSON lines of one measuring process, and whether they are complete."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        with started(command, stop=signal.SIGINT, stdout=output, cwd=ROOT, start_new_session=True) as process:
            is_whole = has_succeeded(process)
        output.seek(0)
        try:
            return [json.loads(line) for line in output], is_whole
        except ValueError as error:
            print(f"not JSON: {error}", file=sys.stderr)
            return [], False


def middle(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of the rounds, with its settings."""
    ordered = sorted(lines, key=lambda line: line["value"])
    return ordered[len(ordered) // 2] | {"runs": [line["value"] for line in lines]}


def render(numbers: Numbers, server: str, *, quick: bool) -> str:
    return "\n".join(
        [
            "# Results",
            "",
            f"Written by `make bench` on {datetime.now(UTC):%Y-%m-%d}{' (quick: not for use)' if quick else ''}.",
            f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {server}.",
            "",
            "The job is a no-op with a 200-byte body. Millpond writes all its rows: idempotency key, cap, hold,",
            "job, dispatch, events, capture. The queues are measured in turn, round after round, each with its best",
            "settings, and each number is the median over the rounds (of two, the higher); the methods are in",
            "`bench/peers/harness.py`, `bench/callers.py`, `bench/flat.py`, `bench/http.py`, `bench/fleet.py`,",
            "`bench/streams.py`, `bench/text.py`, `bench/webhooks.py`, `bench/rules.py` and `bench/startup.py`.",
            "Compare the ratios.",
            "If a target is missed, `docs/why/batching.md` explains why.",
            "",
            "## Targets",
            "",
            "| what | against | ours | theirs | ratio | wanted | |",
            "|---|---|---|---|---|---|---|",
            *(row(target, numbers) for target in TARGETS),
            "",
            "## All numbers",
            "",
            "| queue | version | measured | value | unit | settings |",
            "|---|---|---|---|---|---|",
            *(full_row(line) for line in numbers.values()),
            "",
        ]
    )


def row(target: Target, numbers: Mapping[tuple[str, str], dict[str, Any]]) -> str:
    ours = numbers.get(("millpond", target.ours))
    theirs = numbers.get((target.peer, target.theirs)) if target.peer else None
    if ours is None or (target.peer and theirs is None):
        return f"| {target.what} | {target.peer or '–'} | – | – | not measured | ≥ {target.least:.2f} | |"
    other = theirs["value"] if theirs else target.limit or 1
    ratio = ours["value"] / other
    ratio = 1 / ratio if target.is_latency or target.limit else ratio
    verdict = "met" if ratio >= target.least else "**missed**"
    shown = f"{other:,} {ours['unit']}" if theirs or target.limit else "–"
    value = f"{ours['value']:,} {ours['unit']}" if theirs or target.limit else "–"
    return (
        f"| {target.what} | {target.peer or '–'} | {value} | {shown} | {ratio:.2f} | ≥ {target.least:.2f} | {verdict} |"
    )


def full_row(line: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name} {value}" for name, value in line.get("settings", {}).items())
    cells = (line["peer"], line.get("version", ""), line["metric"], f"{line['value']:,}", line["unit"], settings)
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
