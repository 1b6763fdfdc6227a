"""``python -m millpond.worker app.py --url URL``: a worker where only the SDK is installed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.worker.apps import load_app
from millpond.worker.process import configure_logs, find_machine, remote_worker, run_worker

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSED = (401, 403)


def main(words: Sequence[str] | None = None) -> None:
    """Run it; an error we know is told in one line, without a stack."""
    given = _parser().parse_args(words)
    try:
        configure_logs()
        machine = find_machine() if given.spot else None
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.worker",
        description="Run an app's jobs for the server at a URL. The fleet secret is taken from MILLPOND_FLEET_SECRET.",
    )
    parser.add_argument("app", help="a file (app.py) or a module (shop.jobs) that makes a Millpond()")
    parser.add_argument("--url", help="where the API is [env: MILLPOND_URL]")
    parser.add_argument("--route", action="append", default=[], help="a queue to serve; may be given again")
    parser.add_argument("--name", help="what to call this worker [default: host:pid]")
    parser.add_argument("--slots", type=int, help="how many jobs to run at once [default: 1]")
    parser.add_argument("--grace", help="how long a job may take to end once it is told to [default: 30s]")
    parser.add_argument("--stall-limit", help="how long a job's code may give no sign")
    parser.add_argument("--drain", action="store_true", help="end when nothing is ready any more")
    parser.add_argument("--spot", action="store_true", help="this is an EC2 instance: heed its notices, protect it")
    return parser


if __name__ == "__main__":
    main()
