"""``python -m millpond.integrations.comfyui --url URL --route ROUTE``: a ComfyUI worker that needs only the SDK."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from millpond.errors import MillpondError
from millpond.integrations.comfyui import program
from millpond.integrations.comfyui.handler import ASSET_MAX
from millpond.worker.process import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSED = (401, 403)


def main(words: Sequence[str] | None = None) -> None:
    """Run the worker. A known error is printed in one line, without a stack trace."""
    given = vars(_parser().parse_args(words))
    try:
        configure_logs()
        program.run(program.ComfyOptions(routes=given.pop("route"), **given))
    except MillpondError as error:
        sys.stderr.write(f"millpond: {error}\n")
        sys.exit(4 if error.status in _REFUSED else 8 if error.retryable else 5)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.integrations.comfyui",
        description="Run the jobs of a route on ComfyUI. The fleet secret is read from MILLPOND_FLEET_SECRET.",
    )
    add = parser.add_argument
    add("--url", help="the URL of the API [env: MILLPOND_URL]")
    add("--route", action="append", default=[], help="a route to serve; may be repeated")
    add("--comfyui", help=f"the URL of ComfyUI [default: {program.SERVER_URL}, or Comfy Cloud]")
    add("--provider", choices=program.PROVIDERS, default="self_hosted", help="the type of ComfyUI")
    add(
        "--api-key-env", default=program.KEY_VARIABLE, help="the environment variable that holds the key of Comfy Cloud"
    )
    add("--partner-nodes", action="store_true", dest="has_partner_nodes", help="send the key with the graph too")
    add("--name", help="the name of this worker [default: host:pid, or the instance id]")
    add("--slots", type=int, help="the number of jobs to lease at the same time [default: 1]")
    add("--grace", help="how long a job may take to stop after it was asked to [default: 30s]")
    add("--stall", help="how long a running prompt may make no progress [default: 15m]")
    add("--patience", help="how long to wait for an unreachable ComfyUI during a job [default: 2m]")
    add("--asset-max", type=int, default=ASSET_MAX, help="the maximum size of a file of a job, in bytes")
    add(
        "--spot",
        action="store_true",
        dest="on_spot",
        help="react to EC2 interruption notices, and request scale-in protection",
    )
    add("--drain", action="store_true", help="exit when no job is ready")
    return parser


if __name__ == "__main__":
    main()
