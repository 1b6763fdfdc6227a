"""A ComfyUI of one's own.

The websocket tells progress and nothing else: it is known to fall silent. What happened to a prompt is asked of
``/queue`` and then ``/history``, in this order: a prompt that is in neither is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from millpond.comfyui import faults
from millpond.comfyui.line import PATIENCE, Line, UnsureError, decoded, open_file, unreachable
from millpond.comfyui.meter import Meter
from millpond.errors import HandlerError, PermanentError, StalledError, TransientError

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.comfyui.graph import File
    from millpond.comfyui.line import Job

STALL: Final = 900.0
LOST_MAX: Final = 2
"""How often a prompt that ComfyUI has lost is handed in again in one attempt."""
_FIRST_LOOK: Final = 0.05
LOOK: Final = 1.0
_RECONNECT: Final = 1.0
_LAST_WORDS: Final = 1.5  # the worker leaves a handler that is cut twice as much
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
class Ran:
    """What came of it: the files of each node."""

    prompt_id: str
    outputs: dict[str, Any]


class Server:
    """The client of a self-hosted ComfyUI.

    ``stall`` is how long a run may show no sign of life, ``patience`` how long a ComfyUI that is away is waited for.
    """

    def __init__(self, url: str, *, patience: float = PATIENCE, stall: float = STALL) -> None:
        self._line = Line(url, patience=patience)
        self.url = self._line.url
        self.stall = stall
        self.look = LOOK
        """Seconds between two looks at a run that lasts."""
        self.has_socket = True
        """Whether the websocket is listened to; without it, progress comes in no steps."""

    async def close(self) -> None:
        await self._line.close()

    async def describe(self) -> dict[str, Any] | None:
        """What it says of itself; nothing while it does not answer."""
        with contextlib.suppress(HandlerError):
            told = await self._line.read("/system_stats", patience=0)
            stats = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
            if isinstance(stats.get("system"), dict):
                devices = cast("list[dict[str, Any]]", stats.get("devices") or [])
                names = [str(device.get("name")) for device in devices]
                return {"comfyui": stats["system"].get("comfyui_version"), "devices": names}
        return None

    async def upload(self, path: Path, name: str, job: Job) -> str:
        """Hand in a file; tells the name by which a graph calls it."""
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        with open_file(path) as file:
            answer = await self._line.send(
                "POST", "/upload/image", job=job, files={"image": (name, file, kind)}, data={"type": "input"}
            )
        if answer.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise PermanentError(
                f"ComfyUI takes no file as large as {name!r}.",
                hint="Its option --max-upload-size sets the limit.",
                field="assets",
                reason="asset",
            )
        if answer.status_code == HTTPStatus.BAD_REQUEST:
            raise PermanentError(f"ComfyUI refuses the file {name!r}.", field="assets", reason="asset")
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it answers {answer.status_code} to a file")
        return placed(decoded(answer))

    async def run(self, prompt: Prompt, job: Job) -> Ran:
        """Run a graph to its end; whatever else ends this ends the prompt too."""
        run = _Run(self._line, prompt, job, self.stall, self.look)
        listener = asyncio.create_task(run.listen()) if self.has_socket else None
        try:
            outputs = await run.outputs()
        except BaseException as error:
            await self._give_up(run, error)
            raise
        finally:
            if listener is not None:
                listener.cancel()
        return Ran(prompt.id, outputs)

    async def _give_up(self, run: _Run, error: BaseException) -> None:
        if isinstance(error, HandlerError) and error.details.get("reason") == "out_of_memory":
            await self.free()
        if not run.has_ended:
            await self.stop(run.prompt.id)

    async def stop(self, prompt_id: str) -> None:
        """End this prompt and no other, waiting or running; says nothing where that does not succeed."""
        done = set[str]()
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_LAST_WORDS):
                while (place := await self._place(prompt_id)) is not None:
                    if place == "pending" and place not in done:
                        await self._post("/queue", {"delete": [prompt_id]})
                    elif place not in done:
                        # Once: older versions take no account of the id, and the next one to run may be another's.
                        await self._post("/interrupt", {"prompt_id": prompt_id})
                    done.add(place)
                    await asyncio.sleep(_FIRST_LOOK)

    async def _place(self, prompt_id: str) -> str | None:
        queue = Queue(await self._line.read("/queue", patience=_QUICKLY))
        return queue.place(prompt_id)

    async def free(self) -> None:
        """Let it give back the memory that models and old results take."""
        with contextlib.suppress(HandlerError):
            await self._post("/free", {"unload_models": True, "free_memory": True})

    async def download(self, file: File, path: Path, job: Job) -> bool:
        """Fetch a file; false if it is not there."""
        answer = await self._line.fetch(f"{self.url}/view", path, job, params=file.params)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"it answers {answer.status_code} for {file.filename!r}")
        return True

    async def forget(self, prompt_id: str) -> None:
        """Take a prompt out of the history, which lives in ComfyUI's memory; says nothing where that fails."""
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_QUICKLY):
                await self._post("/history", {"delete": [prompt_id]})

    async def _post(self, path: str, body: Any) -> None:
        await self._line.send("POST", path, patience=_QUICKLY, json=body)


class Queue:
    """What ``/queue`` says."""

    def __init__(self, told: Any) -> None:
        if not isinstance(told, dict):
            raise TransientError("What answers there is not ComfyUI: it has no queue.", reason="unreachable")
        members = cast("dict[str, Any]", told)
        self.running = _ids(members.get("queue_running"))
        self.pending = _ids(members.get("queue_pending"))

    def place(self, prompt_id: str) -> str | None:
        if prompt_id in self.running:
            return "running"
        return "pending" if prompt_id in self.pending else None

    def before(self, prompt_id: str) -> tuple[str, ...]:
        """What must end before this one does: it changes as the queue moves."""
        ahead = self.pending[: self.pending.index(prompt_id)] if prompt_id in self.pending else []
        return (*self.running, *ahead)


def _ids(items: Any) -> list[str]:
    return [str(item[1]) for item in items or ()]


@dataclass(slots=True)
class _Run:
    """One prompt, from handing it in to its entry in the history."""

    line: Line
    prompt: Prompt
    job: Job
    stall: float
    look: float
    has_ended: bool = False
    _meter: Meter = field(init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _seen: tuple[str | None, tuple[str, ...]] = (None, ())
    _moved_at: float = 0.0

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
                await self.job.log("ComfyUI has lost the prompt; it is handed in again.", level="warning")
                entry = await self._submit()
        self.has_ended = True
        fault = faults.ending(entry)
        if fault is not None:
            is_full = fault.details.get("reason") == "out_of_memory"
            raise faults.for_good(fault) if is_full and self.job.attempt > 1 else fault
        return cast("dict[str, Any]", entry.get("outputs") or {})

    async def _find(self) -> dict[str, Any] | None:
        """The entry of a prompt that has ended; none while it waits or runs, or where nobody knows it."""
        queue = Queue(await self.line.read("/queue", job=self.job))
        place = queue.place(self.prompt.id)
        if place is not None:
            self._look(place, queue.before(self.prompt.id))
            return None
        self._look(None, ())
        history = await self.line.read(f"/history/{quote(self.prompt.id, safe='')}", job=self.job)
        return cast("dict[str, Any]", history).get(self.prompt.id) if isinstance(history, dict) else None

    def _look(self, place: str | None, before: tuple[str, ...]) -> None:
        if (place, before) != self._seen:
            self._seen, self._moved_at = (place, before), time.monotonic()

    @property
    def _place(self) -> str | None:
        return self._seen[0]

    async def _submit(self) -> dict[str, Any] | None:
        """Hand the prompt in, unless ComfyUI has it: it would run one with the same id a second time."""
        body = {"prompt": self.prompt.graph, "prompt_id": self.prompt.id, "client_id": self.prompt.id}
        body["extra_data"] = {"millpond_job": self.job.id}
        deadline = time.monotonic() + self.line.patience
        while True:
            entry = await self._find()
            if entry is not None or self._place is not None:
                return entry
            await self.job.checkpoint()
            try:
                answer = await self.line.send("POST", "/prompt", job=self.job, is_repeatable=False, json=body)
                break
            except UnsureError as error:
                if time.monotonic() > deadline:
                    raise unreachable(self.line.url, str(error)) from error
                await asyncio.sleep(_FIRST_LOOK)
        if answer.status_code in _REFUSALS:
            self.has_ended = True
            raise faults.refused(answer.status_code, answer.content)
        if answer.status_code != HTTPStatus.OK:
            raise unreachable(self.line.url, f"it answers {answer.status_code} to a workflow")
        fault = faults.dropped(cast("dict[str, Any]", decoded(answer)).get("node_errors"), self.prompt.output_node)
        if fault is not None:
            raise fault
        self._moved_at = time.monotonic()
        return None

    async def _wait(self) -> dict[str, Any] | None:
        """Until it has ended, or is lost (none)."""
        pause = _FIRST_LOOK
        while True:
            entry = await self._find()
            if entry is not None or self._place is None:
                return entry
            await self.job.checkpoint()
            await self.job.progress(self._meter.value)
            if time.monotonic() - self._moved_at > self.stall:
                raise StalledError(f"The run showed no sign of life for {self.stall:g} s.", reason="stalled")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._woken.wait()
            self._woken.clear()
            pause = min(pause * 2, self.look)

    async def listen(self) -> None:
        """Follow the websocket for as long as the run lasts; without one, looking is enough."""
        try:
            from websockets.asyncio.client import connect  # noqa: PLC0415 - it need not be installed
        except ModuleNotFoundError:
            return
        while True:
            with contextlib.suppress(Exception):  # of whichever kind: it is only for show
                async with connect(self._socket_url(), max_size=_FRAME_MAX, open_timeout=5) as socket:
                    async for message in socket:
                        if isinstance(message, str):  # the others are pictures
                            self._hear(message)
            await asyncio.sleep(_RECONNECT)

    def _hear(self, message: str) -> None:
        had_ended, moves = self._meter.has_ended, self._meter.moves
        self._meter.take(msgspec.json.decode(message))
        if self._meter.moves > moves:
            self._moved_at = time.monotonic()
        if self._meter.has_ended and not had_ended:
            self._woken.set()

    def _socket_url(self) -> str:
        parts = urlsplit(self.line.url)
        scheme = "wss" if parts.scheme == "https" else "ws"
        return urlunsplit((scheme, parts.netloc, f"{parts.path}/ws", f"clientId={quote(self.prompt.id, safe='')}", ""))


def placed(told: Any) -> str:
    """The name of an uploaded file as a graph writes it: ComfyUI may have chosen another than was asked for."""
    answer = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    name, subfolder = answer.get("name"), answer.get("subfolder")
    if not isinstance(name, str) or not name:
        raise TransientError("ComfyUI did not say what it calls the file.", reason="asset")
    return f"{subfolder}/{name}" if subfolder else name
