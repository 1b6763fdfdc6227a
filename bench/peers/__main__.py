"""Measures all peers, one after another: `python -m bench.peers --dsn postgresql://…`.

Runs with any Python from the repository's root, and creates the peers' environment if it is
missing. Prints one JSON line per number to standard output, and progress and skipped peers to standard
error. If a peer fails, the others are still measured, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from bench.processes import has_succeeded, started

from . import environment, harness

# The modules, with their arguments in addition to the common ones; `{dsn}` is replaced.
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
    # Celery prints long warnings when it runs as root, which do not matter here.
    silent = os.environ | {"PYTHONWARNINGS": "ignore"}
    with started(command, stop=signal.SIGINT, env=silent) as process:
        return has_succeeded(process)


if __name__ == "__main__":
    sys.exit(main())
