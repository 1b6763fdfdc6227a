"""A self-hosted ComfyUI.

The websocket is used for progress only, because it can fall silent. The state of a prompt is read from ``/queue`` and
then from ``/history``, in this order: a prompt that is in neither is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import os
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from millpond.errors import HandlerError, PermanentError, StalledError, TransientError
from millpond.integrations.comfyui import faults
from millpond.integrations.comfyui.connection import (
    PATIENCE,
    ComfyConnection,
    UnsureError,
    decoded,
    open_file,
    too_large,
    unreachable,
)
from millpond.integrations.comfyui.meter import Meter

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.integrations.comfyui.connection import ComfyJob
    from millpond.integrations.comfyui.graph import OutputFile

STALL: Final = 900.0
LOST_MAX: Final = 2
"""How often a prompt that ComfyUI lost is submitted again in one attempt."""
_FIRST_LOOK: Final = 0.05
LOOK: Final = 1.0
_RECONNECT: Final = 1.0
_STOP_TIMEOUT: Final = 1.5  # the worker gives an interrupted handler twice as long
_DESCRIBE_TIMEOUT: Final = 10.0  # ComfyUI may be slow to respond while it loads a model
_UPLOAD_OPTION: Final = "--max-upload-size"
_UPLOAD_MEGABYTES: Final = 100.0
"""ComfyUI's default."""
_FRAME_MAX: Final = 64 * 1024 * 1024
_QUICKLY: Final = 1.0
_REFUSALS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE})


@dataclass(frozen=True, slots=True)
class Prompt:
    """One run of a graph."""

    id: str
    graph: dict[str, Any]
    output_node: str


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The result of a run: the files of each node."""

    prompt_id: str
    outputs: dict[str, Any]


class ComfyServer:
    """The client of a self-hosted ComfyUI.

    ``stall`` is how long a running prompt may make no progress; waiting in the queue behind others does not count.
    ``patience`` is how long to wait for an unreachable ComfyUI.
    """

    def __init__(self, url: str, *, patience: float = PATIENCE, stall: float = STALL) -> None:
        self._connection = ComfyConnection(url, patience=patience)
        self.url = self._connection.url
        self.stall = stall
        self.look = LOOK
        """The maximum seconds between two looks at a run."""
        self.has_socket = True
        """Whether to listen to the websocket. Without it, no progress is reported during a run."""
        self.upload_max: int | None = None
        """The maximum size of a file in bytes, as ComfyUI described itself."""

    async def close(self) -> None:
        await self._connection.close()

    async def describe(self) -> dict[str, Any] | None:
        """The version, the devices and the maximum size of a file; None while ComfyUI does not respond."""
        with contextlib.suppress(HandlerError):
            body = await self._connection.read("/system_stats", patience=0, timeout=_DESCRIBE_TIMEOUT)
            stats = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
            if isinstance(stats.get("system"), dict):
                devices = cast("list[dict[str, Any]]", stats.get("devices") or [])
                names = [str(device.get("name")) for device in devices]
                self.upload_max = _upload_max(stats["system"].get("argv"))
                version = stats["system"].get("comfyui_version")
                return {"comfyui": version, "devices": names, "upload_max": self.upload_max}
        return None

    async def upload(self, path: Path, name: str, job: ComfyJob) -> str:
        """Upload a file; returns its name for use in a graph."""
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        with open_file(path) as file:
            size = os.fstat(file.fileno()).st_size
            if self.upload_max is not None and size > self.upload_max:
                raise _with_option(too_large(name, size, self.upload_max))
            answer = await self._connection.send(
                "POST", "/upload/image", job=job, files={"image": (name, file, kind)}, data={"type": "input"}
            )
        if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            text = f"ComfyUI rejected the file {name!r} because of its size: it has {size:,} bytes."
            raise _with_option(PermanentError(text, field="assets", reason="asset"))
        if answer.status_code == HTTPStatus.BAD_REQUEST:
            raise PermanentError(f"ComfyUI rejected the file {name!r}.", field="assets", reason="asset")
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it responded with HTTP {answer.status_code} to a file")
        return placed(decoded(answer))

    async def run(self, prompt: Prompt, job: ComfyJob) -> PromptResult:
        """Run a graph to its end. If this call is interrupted or fails, the prompt is stopped."""
        run = _Run(self._connection, prompt, job, self.stall, self.look)
        listener = asyncio.create_task(run.listen()) if self.has_socket else None
        try:
            outputs = await run.outputs()
        except BaseException as error:
            await self._give_up(run, error)
            raise
        finally:
            if listener is not None:
                listener.cancel()
        return PromptResult(prompt.id, outputs)

    async def _give_up(self, run: _Run, error: BaseException) -> None:
        if isinstance(error, HandlerError) and error.details.get("reason") == "out_of_memory":
            await self.free()
        if not run.has_ended:
            await self.stop(run.prompt.id)

    async def stop(self, prompt_id: str) -> None:
        """Stop this prompt and no other, whether it waits or runs; a failure is ignored."""
        done = set[str]()
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                while (place := await self._place(prompt_id)) is not None:
                    if place == "pending" and place not in done:
                        await self._post("/queue", {"delete": [prompt_id]})
                    elif place not in done:
                        # Only once: older versions ignore the id, and the next prompt may be another job's.
                        await self._post("/interrupt", {"prompt_id": prompt_id})
                    done.add(place)
                    await asyncio.sleep(_FIRST_LOOK)

    async def _place(self, prompt_id: str) -> str | None:
        queue = PromptQueue(await self._connection.read("/queue", patience=_QUICKLY))
        return queue.place(prompt_id)

    async def free(self) -> None:
        """Free the memory of models and cached results."""
        with contextlib.suppress(HandlerError):
            await self._post("/free", {"unload_models": True, "free_memory": True})

    async def download(self, file: OutputFile, path: Path, job: ComfyJob) -> bool:
        """Download a file; false if it does not exist."""
        answer = await self._connection.fetch(f"{self.url}/view", path, job, params=file.params)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it responded with HTTP {answer.status_code} for {file.filename!r}")
        return True

    async def forget(self, prompt_id: str) -> None:
        """Delete a prompt from the history, which takes up ComfyUI's memory; a failure is ignored."""
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_QUICKLY):
                await self._post("/history", {"delete": [prompt_id]})

    async def _post(self, path: str, body: Any) -> None:
        await self._connection.send("POST", path, patience=_QUICKLY, json=body)


class PromptQueue:
    """The response of ``/queue``."""

    def __init__(self, body: Any) -> None:
        if not isinstance(body, dict):
            raise TransientError("The server at this address is not ComfyUI: it has no queue.", reason="unreachable")
        members = cast("dict[str, Any]", body)
        self.running = _ids(members.get("queue_running"))
        self.pending = _ids(members.get("queue_pending"))

    def place(self, prompt_id: str) -> str | None:
        if prompt_id in self.running:
            return "running"
        return "pending" if prompt_id in self.pending else None


def _ids(items: Any) -> list[str]:
    return [str(item[1]) for item in items or ()]


@dataclass(slots=True)
class _Run:
    """One prompt, from its submission to its entry in the history."""

    connection: ComfyConnection
    prompt: Prompt
    job: ComfyJob
    stall: float
    look: float
    has_ended: bool = False
    _meter: Meter = field(init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _place: str | None = None
    _moved_at: float = 0.0
    """When the run last showed progress; while the prompt waits behind others, the time of the last look."""
    _seen_at: float = 0.0
    """The time of the last look: what passes between it and the check of the stall is not ComfyUI's."""

    def __post_init__(self) -> None:
        self._meter = Meter(self.prompt.id, self.prompt.graph)

    async def outputs(self) -> dict[str, Any]:
        entry = await self._find() or await self._submit()
        losses = 0
        while entry is None:
            entry = await self._wait()
            if entry is None:
                losses += 1
                if losses > LOST_MAX:
                    raise TransientError(f"ComfyUI lost the prompt {losses} times.", reason="lost")
                await self.job.log("ComfyUI lost the prompt; submitting it again.", level="warning")
                entry = await self._submit()
        self.has_ended = True
        fault = faults.ending(entry)
        if fault is not None:
            is_full = fault.details.get("reason") == "out_of_memory"
            raise faults.for_good(fault) if is_full and self.job.attempt > 1 else fault
        return cast("dict[str, Any]", entry.get("outputs") or {})

    async def _find(self) -> dict[str, Any] | None:
        """The history entry of a prompt that has ended; None while it waits or runs, or if it is unknown."""
        queue = PromptQueue(await self.connection.read("/queue", job=self.job))
        before, self._place = self._place, queue.place(self.prompt.id)
        self._seen_at = time.monotonic()
        if self._place != "running" or before != "running":
            self._moved_at = self._seen_at
        if self._place is not None:
            return None
        history = await self.connection.read(f"/history/{quote(self.prompt.id, safe='')}", job=self.job)
        return cast("dict[str, Any]", history).get(self.prompt.id) if isinstance(history, dict) else None

    async def _submit(self) -> dict[str, Any] | None:
        """Submit the prompt, unless ComfyUI already has it: it would run the same id a second time."""
        body = {"prompt": self.prompt.graph, "prompt_id": self.prompt.id, "client_id": self.prompt.id}
        body["extra_data"] = {"millpond_job": self.job.id}
        deadline = time.monotonic() + self.connection.patience
        while True:
            entry = await self._find()
            if entry is not None or self._place is not None:
                return entry
            await self.job.checkpoint()
            try:
                answer = await self.connection.send("POST", "/prompt", job=self.job, is_repeatable=False, json=body)
                break
            except UnsureError as error:
                if time.monotonic() > deadline:
                    raise unreachable(self.connection.url, str(error)) from error
                await asyncio.sleep(_FIRST_LOOK)
        if answer.status_code in _REFUSALS:
            self.has_ended = True
            raise faults.refused(answer.status_code, answer.content)
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.connection.url, f"it responded with HTTP {answer.status_code} to a workflow")
        fault = faults.dropped(cast("dict[str, Any]", decoded(answer)).get("node_errors"), self.prompt.output_node)
        if fault is not None:
            raise fault
        return None

    async def _wait(self) -> dict[str, Any] | None:
        """Wait until the prompt has ended; returns its history entry, or None if it is lost."""
        pause = _FIRST_LOOK
        while True:
            entry = await self._find()
            if entry is not None or self._place is None:
                return entry
            await self.job.check_cancel()
            await self.job.progress(self._meter.value)
            if self._seen_at - self._moved_at > self.stall:
                raise StalledError(f"The run made no progress for {self.stall:g} s.", reason="stalled")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()
            pause = min(pause * 2, self.look)

    async def listen(self) -> None:
        """Follow the websocket during the run. Without ``websockets``, polling suffices."""
        try:
            from websockets.asyncio.client import connect  # noqa: PLC0415 - optional
        except ModuleNotFoundError:
            return
        while True:
            with contextlib.suppress(Exception):  # any error: it only shows progress
                async with connect(self._socket_url(), max_size=_FRAME_MAX, open_timeout=5) as socket:
                    async for message in socket:
                        if isinstance(message, str):  # binary messages are preview images
                            self._receive(message)
            await asyncio.sleep(_RECONNECT)

    def _receive(self, message: str) -> None:
        had_ended, moves = self._meter.has_ended, self._meter.moves
        self._meter.take(msgspec.json.decode(message))
        if self._meter.moves > moves:
            self._moved_at = time.monotonic()
        if self._meter.has_ended and not had_ended:
            self._woken.set()

    def _socket_url(self) -> str:
        parts = urlsplit(self.connection.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        return urlunsplit((scheme, parts.netloc, f"{parts.path}/ws", f"clientId={quote(self.prompt.id, safe='')}", ""))


def _upload_max(argv: Any) -> int:
    """The maximum size of a file: ComfyUI does not report it, but the words with which it was started."""
    words = [str(word) for word in cast("list[Any]", argv)] if isinstance(argv, list) else []
    megabytes = _UPLOAD_MEGABYTES
    for number, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == _UPLOAD_OPTION:
            with contextlib.suppress(ValueError, IndexError):
                megabytes = float(value or words[number + 1])
    return round(megabytes * 1024 * 1024)


def _with_option(error: PermanentError) -> PermanentError:
    error.add_note(f"ComfyUI's option {_UPLOAD_OPTION} raises the limit.")
    return error


def placed(body: Any) -> str:
    """The name of an uploaded file for use in a graph; ComfyUI may have chosen another than requested."""
    answer = cast("dict[str, Any]", body) if isinstance(body, dict) else {}
    name, subfolder = answer.get("name"), answer.get("subfolder")
    if not isinstance(name, str) or not name:
        raise TransientError("ComfyUI did not return the name of the file.", reason="asset")
    return f"{subfolder}/{name}" if subfolder else name
