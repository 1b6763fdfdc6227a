"""Measures all peers, one after another: `python -m bench.peers --dsn postgresql://…`.

Runs with any Python from the repository's root, and makes the peers' environment when it is
missing. One JSON line per number on standard output; progress and what was skipped on standard
error. A peer that fails does not keep the others from being measured, but the exit code tells.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from bench.processes import has_succeeded, started

from . import environment, harness

# Module and what it needs beyond the common arguments; `{dsn}` is filled in.
PEERS = {
    "pgqueuer": ["--dsn", "{dsn}"],
    "procrastinate": ["--dsn", "{dsn}"],
    "celery": [],
}


def main() -> int:
    arguments = parse()
    python = environment.ensure()
    failed = [peer for peer in arguments.peers if not measured(peer, str(python), arguments)]
    if failed:
        print(f"not measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the peers.")
    parser.add_argument("--dsn", required=True, help="the server to measure on")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--only", nargs="+", choices=harness.METRICS, default=harness.METRICS)
    parser.add_argument("--jobs", default="20000")
    parser.add_argument("--runs", default="3")
    return parser.parse_args()


def measured(peer: str, python: str, arguments: argparse.Namespace) -> bool:
    print(f"measuring {peer}", file=sys.stderr)
    store = [word.format(dsn=arguments.dsn) for word in PEERS[peer]]
    common = ["--jobs", arguments.jobs, "--runs", arguments.runs, "--only", *arguments.only]
    command = [python, "-m", f"bench.peers.{peer}", *store, *common]
    # Celery warns at length about being root, which does not matter for a measurement.
    silent = os.environ | {"PYTHONWARNINGS": "ignore"}
    with started(command, stop=signal.SIGINT, env=silent) as process:
        return has_succeeded(process)


if __name__ == "__main__":
    sys.exit(main())
