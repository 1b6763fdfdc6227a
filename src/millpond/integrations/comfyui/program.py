"""The process of a ComfyUI worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millpond import logs, values
from millpond.app import Millpond
from millpond.errors import SettingsError
from millpond.integrations.comfyui.cloud import URL as CLOUD_URL
from millpond.integrations.comfyui.cloud import Cloud
from millpond.integrations.comfyui.connection import PATIENCE, shown
from millpond.integrations.comfyui.handler import ASSET_MAX, Handler
from millpond.integrations.comfyui.server import STALL, ComfyServer
from millpond.worker.loops import exit_at_once, run_async, stop_on_signals
from millpond.worker.process import remote_worker
from millpond.worker.remote import RemoteSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.integrations.aws.machine import Ec2Machine
    from millpond.worker.worker import Worker

SERVER_URL: Final = "http://127.0.0.1:8188"
KEY_VARIABLE: Final = "COMFY_API_KEY"
PROVIDERS: Final = ("self_hosted", "cloud")
_AGAIN: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComfyOptions:
    """The options of the worker. The fleet secret and the key of Comfy Cloud are read from the environment only."""

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

    def endpoint(self) -> ComfyServer | Cloud:
        limits = {"stall": _seconds(self.stall, "stall", STALL)}
        limits["patience"] = _seconds(self.patience, "patience", PATIENCE)
        if self.provider == "self_hosted":
            return ComfyServer(self.comfyui or SERVER_URL, **limits)
        if self.provider != "cloud":
            raise SettingsError(
                f"{self.provider!r} is not a known type of ComfyUI.",
                field="provider",
                hint=f"Known: {', '.join(PROVIDERS)}.",
            )
        key = os.environ.get(self.api_key_env, "")
        if not key.strip():
            raise SettingsError("Comfy Cloud requires a key.", field="api_key_env", hint=f"Set {self.api_key_env}.")
        return Cloud(key, self.comfyui or CLOUD_URL, has_partner_nodes=self.has_partner_nodes, **limits)


def run(options: ComfyOptions, began: Callable[[dict[str, Any]], None] = lambda _: None) -> None:
    """Run until a signal, or until no job is ready; ``began`` receives a description once it takes jobs."""
    if not options.routes:
        raise SettingsError("No route to serve was given.", field="route", hint="Pass --route for each route.")
    endpoint = options.endpoint()
    machine = _find_machine() if options.on_spot else None
    worker = make_worker(options, endpoint, machine)
    if not run_async(_work(options, endpoint, worker, machine, began)):
        exit_at_once()


def _find_machine() -> Ec2Machine:
    from millpond.integrations.aws.machine import find_machine  # noqa: PLC0415 - only with --spot

    return find_machine()


async def _work(
    options: ComfyOptions,
    endpoint: ComfyServer | Cloud,
    worker: Worker,
    machine: Ec2Machine | None,
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
            source.find_obstacle = lambda: find_obstacle(endpoint)
        description = {"worker": worker.name, "slots": worker.slots, "routes": list(options.routes)}
        began(description | {"comfyui": shown(endpoint.url), "pid": os.getpid()})
        if machine is not None:
            machine.on_busy(is_busy=False)  # an earlier process may have left the protection on
        await (worker.drain(stop) if options.drain else worker.run(stop))
    finally:
        if machine is not None:
            await machine.close()
        await endpoint.close()


def make_worker(options: ComfyOptions, endpoint: ComfyServer | Cloud, machine: Ec2Machine | None = None) -> Worker:
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


async def _ready(endpoint: ComfyServer | Cloud, stop: asyncio.Event) -> dict[str, Any] | None:
    """Wait until ComfyUI responds, before taking jobs; returns its description, or None once ``stop`` is set."""
    is_logged = False
    while not stop.is_set():
        about = await endpoint.describe()
        if about is not None:
            return about
        if not is_logged:
            logs.emit("comfyui.waiting", url=shown(endpoint.url))
            is_logged = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AGAIN):
                await stop.wait()
    return None


async def find_obstacle(endpoint: ComfyServer | Cloud) -> str | None:
    """Why jobs cannot run at present, or None: ComfyUI is asked before each claim."""
    return None if await endpoint.describe() is not None else "ComfyUI does not respond."


def _seconds(given: str | None, field: str, otherwise: float) -> float:
    return otherwise if given is None else values.duration(given, field=field).total_seconds()
