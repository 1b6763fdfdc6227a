"""``python -m millpond.comfyui --url URL --route ROUTE``: a worker on ComfyUI where only the SDK is installed."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from millpond.comfyui import program
from millpond.comfyui.handler import ASSET_MAX
from millpond.errors import MillpondError
from millpond.worker.process import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSED = (401, 403)


def main(words: Sequence[str] | None = None) -> None:
    """Run it; an error we know is told in one line, without a stack."""
    given = vars(_parser().parse_args(words))
    try:
        configure_logs()
        program.run(program.Options(routes=given.pop("route"), **given))
    except MillpondError as error:
        sys.stderr.write(f"millpond: {error}\n")
        sys.exit(4 if error.status in _REFUSED else 8 if error.retryable else 5)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.comfyui",
        description="Run a route's jobs on ComfyUI. The fleet secret is taken from MILLPOND_FLEET_SECRET.",
    )
    add = parser.add_argument
    add("--url", help="where the API is [env: MILLPOND_URL]")
    add("--route", action="append", default=[], help="a route to serve; may be given again")
    add("--comfyui", help=f"where ComfyUI is [default: {program.SERVER_URL}, or Comfy Cloud]")
    add("--provider", choices=program.PROVIDERS, default="self_hosted", help="whose ComfyUI it is")
    add("--api-key-env", default=program.KEY_VARIABLE, help="the variable that holds the key of Comfy Cloud")
    add("--partner-nodes", action="store_true", dest="has_partner_nodes", help="send that key with the graph too")
    add("--name", help="what to call this worker [default: host:pid, or the instance's id]")
    add("--slots", type=int, help="how many jobs to take at once [default: 1]")
    add("--grace", help="how long a job may take to end once it is told to [default: 30s]")
    add("--stall", help="how long a run may show no sign of life [default: 15m]")
    add("--patience", help="how long a ComfyUI that is away is waited for in mid-job [default: 2m]")
    add("--asset-max", type=int, default=ASSET_MAX, help="the bytes that one file of a job may have")
    add("--spot", action="store_true", dest="on_spot", help="heed the notices of EC2, and ask for scale-in protection")
    add("--drain", action="store_true", help="end when nothing is ready any more")
    return parser


if __name__ == "__main__":
    main()
