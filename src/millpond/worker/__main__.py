"""``python -m millpond.worker app.py --url URL``: a worker that needs only the SDK."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.worker.apps import load_app
from millpond.worker.process import configure_logs, remote_worker, run_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.worker.process import Machine

_REFUSED = (401, 403)


def main(words: Sequence[str] | None = None) -> None:
    """Run the worker. A known error is printed in one line, without a stack trace."""
    given = _parser().parse_args(words)
    try:
        configure_logs()
        machine = _find_machine() if given.spot else None
        worker = remote_worker(
            load_app(given.app),
            url=given.url,
            routes=given.route,
            name=given.name,
            slots=given.slots,
            grace=given.grace,
            stall_limit=given.stall_limit,
            machine=machine,
        )
        run_worker(worker, drain=given.drain, machine=machine)
    except MillpondError as error:
        sys.stderr.write(f"millpond: {error}\n")
        sys.exit(4 if error.status in _REFUSED else 8 if error.retryable else 5)


def _find_machine() -> Machine:
    from millpond.integrations.aws.machine import find_machine  # noqa: PLC0415 - only with --spot

    return find_machine()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.worker",
        description="Run an app's jobs for a server. The fleet secret is read from MILLPOND_FLEET_SECRET.",
    )
    parser.add_argument("app", help="a file (app.py) or a module (shop.jobs) that creates a Millpond()")
    parser.add_argument("--url", help="the URL of the API [env: MILLPOND_URL]")
    parser.add_argument("--route", action="append", default=[], help="a route to serve; may be repeated")
    parser.add_argument("--name", help="the name of this worker [default: host:pid]")
    parser.add_argument("--slots", type=int, help="the number of jobs to run at the same time [default: 1]")
    parser.add_argument("--grace", help="how long a job may take to stop after it was asked to [default: 30s]")
    parser.add_argument("--stall-limit", help="how long a job may report no progress")
    parser.add_argument("--drain", action="store_true", help="exit when no job is ready")
    parser.add_argument(
        "--spot",
        action="store_true",
        help="this is an EC2 instance: react to interruption notices and protect it from scale-in",
    )
    return parser


if __name__ == "__main__":
    main()
