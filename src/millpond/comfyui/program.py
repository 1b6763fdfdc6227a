"""A worker that runs jobs on ComfyUI, as a process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millpond import logs, values
from millpond.app import Millpond
from millpond.comfyui.cloud import URL as CLOUD_URL
from millpond.comfyui.cloud import Cloud
from millpond.comfyui.handler import ASSET_MAX, Handler
from millpond.comfyui.line import PATIENCE, shown
from millpond.comfyui.server import STALL, Server
from millpond.errors import SettingsError
from millpond.worker.loops import run_async, stop_on_signals
from millpond.worker.process import find_machine, remote_worker
from millpond.worker.remote import RemoteSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.aws.machine import Machine
    from millpond.worker.worker import Worker

SERVER_URL: Final = "http://127.0.0.1:8188"
KEY_VARIABLE: Final = "COMFY_API_KEY"
PROVIDERS: Final = ("self_hosted", "cloud")
_AGAIN: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How it is to run; the fleet secret and the key of Comfy Cloud come from the environment alone."""

    routes: Sequence[str]
    url: str | None = None
    comfyui: str | None = None
    provider: str = "self_hosted"
    api_key_env: str = KEY_VARIABLE
    has_partner_nodes: bool = False
    name: str | None = None
    slots: int | None = None
    grace: str | None = None
    stall: str | None = None
    patience: str | None = None
    asset_max: int = ASSET_MAX
    on_spot: bool = False
    drain: bool = False

    def endpoint(self) -> Server | Cloud:
        limits = {"stall": _seconds(self.stall, "stall", STALL)}
        limits["patience"] = _seconds(self.patience, "patience", PATIENCE)
        if self.provider == "self_hosted":
            return Server(self.comfyui or SERVER_URL, **limits)
        if self.provider != "cloud":
            raise SettingsError(
                f"{self.provider!r} is no provider.", field="provider", hint=f"Known: {', '.join(PROVIDERS)}."
            )
        key = os.environ.get(self.api_key_env, "")
        if not key.strip():
            raise SettingsError("Comfy Cloud needs a key.", field="api_key_env", hint=f"Set {self.api_key_env}.")
        return Cloud(key, self.comfyui or CLOUD_URL, has_partner_nodes=self.has_partner_nodes, **limits)


def run(options: Options, began: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Run until a signal, or until nothing is ready; ``began`` is told what it is once it takes jobs."""
    if not options.routes:
        raise SettingsError("There is no route to serve.", field="route", hint="Give --route, once for each.")
    endpoint = options.endpoint()
    machine = find_machine() if options.on_spot else None
    worker = make_worker(options, endpoint, machine)
    if not run_async(_work(options, endpoint, worker, machine, began)):
        sys.stderr.flush()
        os._exit(0)


async def _work(
    options: Options,
    endpoint: Server | Cloud,
    worker: Worker,
    machine: Machine | None,
    began: Callable[[dict[str, Any]], None],
) -> None:
    stop = stop_on_signals()
    try:
        about = await _ready(endpoint, stop)
        if about is None:
            return
        source = worker.source
        if isinstance(source, RemoteSource):
            source.capabilities = about
        told = {"worker": worker.name, "slots": worker.slots, "routes": list(options.routes)}
        began(told | {"comfyui": shown(endpoint.url), "pid": os.getpid()})
        if machine is not None:
            machine.on_busy(is_busy=False)  # an earlier life may have left its protection on
        await (worker.drain(stop) if options.drain else worker.run(stop))
    finally:
        if machine is not None:
            await machine.close()
        await endpoint.close()


def make_worker(options: Options, endpoint: Server | Cloud, machine: Machine | None = None) -> Worker:
    return remote_worker(
        Millpond(),
        url=options.url,
        routes=options.routes,
        name=options.name,
        slots=options.slots,
        grace=options.grace,
        machine=machine,
        fallback=Handler(endpoint, options.asset_max).handle,
    )


async def _ready(endpoint: Server | Cloud, stop: asyncio.Event) -> dict[str, Any] | None:
    """Wait until ComfyUI is there, before any job is taken; tells what it is, or nothing where we are to stop."""
    is_told = False
    while not stop.is_set():
        about = await endpoint.describe()
        if about is not None:
            return about
        if not is_told:
            logs.emit("comfyui.waiting", url=shown(endpoint.url))
            is_told = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN):
                await stop.wait()
    return None


def _seconds(given: str | None, field: str, otherwise: float) -> float:
    return otherwise if given is None else values.duration(given, field=field).total_seconds()
