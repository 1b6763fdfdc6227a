"""``python -m millpond.renderer``: the renderer where the command line is not wanted."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from millpond import lifeline, logs
from millpond.renderer import process
from millpond.worker.loops import run_async, stop_on_signals

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> None:
    lifeline.heed()
    given = _parser().parse_args(words)
    logs.configure()
    token = os.environ.get("MILLPOND_RENDERER_TOKEN") or secrets.token_urlsafe(24)
    options = process.Options(
        token=token,
        url=given.public_url,
        allow=given.allow,
        presses=given.presses,
        waiting_max=given.waiting_max,
        lifetime=timedelta(seconds=given.lifetime),
    )
    with process.listen(given.host, given.port) as sock:
        run_async(_serve(options, sock))


async def _serve(options: process.Options, sock: socket.socket) -> None:
    line = {"url": process.address_of(sock), "token": options.token, "pid": os.getpid()}

    def tell() -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    await process.serve(options, sock, stop_on_signals(), tell)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m millpond.renderer",
        description="Speak Replicate's HTTP API, and work for real. The token is taken from MILLPOND_RENDERER_TOKEN.",
    )
    add = parser.add_argument
    add("--host", default=process.HOST, help="the address to listen on [default: %(default)s]")
    add("--port", type=int, default=process.PORT, help="the port; 0 for any [default: %(default)s]")
    add("--public-url", help="where clients reach it [default: where it listens]")
    add("--allow", default="", help="what of the inside pictures may be fetched from, such as loopback")
    add("--presses", type=int, default=process.PRESSES, help="how many predictions run at once [default: %(default)s]")
    add(
        "--waiting-max", type=int, default=process.WAITING_MAX, help="how many may be unfinished [default: %(default)s]"
    )
    add("--lifetime", type=float, default=process.LIFETIME, help="seconds that outputs are kept [default: %(default)s]")
    return parser


if __name__ == "__main__":
    main()
