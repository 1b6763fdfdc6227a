"""``millpond-llm``: serve a small language model through the chat API of OpenAI."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Any

from millpond.errors import SettingsError
from millpond.product import report_ready, run_async, stop_on_signals
from millpond_products import programs
from millpond_products.llm import companion, model

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> None:
    programs.run(lambda: _run(words))


def _run(words: Sequence[str] | None) -> None:
    given = _parser().parse_args(words)
    if (command := companion.missing()) is not None:
        raise SettingsError("The language model is not installed.", hint=f"Run {command}.")
    key = os.environ.get("MILLPOND_CHAT_KEY") or secrets.token_urlsafe(24)
    if not given.child:
        programs.listen(given.host, given.port).close()  # fails if the port is taken; the model would only log it
    server = model.start(given.host, given.port, key)
    line = {"url": f"{server.listening_address}/v1", "key": key, "model": model.MODEL, "pid": os.getpid()}
    run_async(_serve(line, given))
    os._exit(0)  # the threads of the model's server do not end by themselves


async def _serve(line: dict[str, Any], given: argparse.Namespace) -> None:
    stop = stop_on_signals()
    exports = {f"MILLPOND_CHAT_{name.upper()}": line[name] for name in ("url", "key", "model")}
    with contextlib.ExitStack() as announcements:
        if given.child:  # without the key: the output of the supervisor may go anywhere
            report_ready()
        else:
            announcements.enter_context(programs.announced(line, given.ready_file, exports))
        await stop.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millpond-llm",
        description="Serve a small language model through the chat API of OpenAI, to write copy without "
        "an external account. Clients send the key in MILLPOND_CHAT_KEY; if it is not set, a "
        "key is generated and printed.",
    )
    programs.add_options(parser, host=companion.HOST, port=companion.PORT)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    main()
