"""``millpond-renderer``: creates images, videos and speech on this machine, through the HTTP API of Replicate."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from millpond.errors import SettingsError
from millpond.product import report_ready, run_async, stop_on_signals
from millpond_products import programs
from millpond_products.renderer import companion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond_products.renderer import process


def main(arguments: Sequence[str] | None = None) -> None:
    programs.run(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> None:
    given = _parser().parse_args(arguments)
    if (command := companion.missing()) is not None:
        raise SettingsError("The renderer's libraries are not installed.", hint=f"Run {command}.")
    from millpond_products.renderer import process  # noqa: PLC0415 - its libraries may be missing

    options = process.RendererOptions(
        token=os.environ.get("MILLPOND_RENDERER_TOKEN") or secrets.token_urlsafe(24),
        url=given.public_url,
        allow=given.allow,
        presses=given.presses,
        waiting_max=given.waiting_max,
        lifetime=timedelta(seconds=given.lifetime),
    )
    listening = programs.listen(given.host, given.port) if given.socket is None else socket.socket(fileno=given.socket)
    with listening as sock:
        is_clean = run_async(_serve(options, sock, given))
    if not is_clean:
        sys.stdout.flush()
        os._exit(0)


async def _serve(options: process.RendererOptions, sock: socket.socket, given: argparse.Namespace) -> None:
    from millpond_products.renderer import process  # noqa: PLC0415 - as above

    url = options.url or process.address_of(sock)
    line = {"url": url, "token": options.token, "pid": os.getpid()}
    exports = {"MILLPOND_REPLICATE_URL": url, "MILLPOND_REPLICATE_API_TOKEN": options.token}
    with contextlib.ExitStack() as announcements:

        def announce() -> None:
            if given.socket is not None:  # without the token: the output of the supervisor may go anywhere
                report_ready()
            else:
                announcements.enter_context(programs.announced(line, given.ready_file, exports))

        await process.serve(options, sock, stop_on_signals(), announce)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millpond-renderer",
        description="Create images, videos and speech on this machine, through the HTTP API of "
        "Replicate. Clients send the token in MILLPOND_RENDERER_TOKEN; if it is not set, a "
        "token is generated and printed.",
    )
    programs.add_options(parser, host=companion.HOST, port=companion.PORT)
    add = parser.add_argument
    add("--public-url", help="the URL for clients [default: the listening address]")
    add(
        "--allow",
        default=os.environ.get("MILLPOND_OUTBOUND_ALLOW", ""),
        help="the private addresses from which images may be fetched, such as loopback [env: MILLPOND_OUTBOUND_ALLOW]",
    )
    add(
        "--presses",
        type=int,
        default=2,
        help="the number of predictions that run at the same time [default: %(default)s]",
    )
    add("--waiting-max", type=int, default=200, help="the limit of unfinished predictions [default: %(default)s]")
    add("--lifetime", type=float, default=3_600.0, help="how many seconds outputs are kept [default: %(default)s]")
    add("--socket", type=int, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
