"""Comfy Cloud, by its first API.

Its specification names other words for a job's status than it uses; whatever is not known to be an end is taken for
under way. A job is stopped by taking it out of the queue, never by ``/api/interrupt``, which stops all of the account.
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
from urllib.parse import quote, urljoin

from millpond.comfyui import faults
from millpond.comfyui.line import PATIENCE, Line, UnsureError, decoded, open_file, too_large, unreachable
from millpond.comfyui.server import STALL, Prompt, Ran, placed
from millpond.errors import HandlerError, PermanentError, SettingsError, StalledError, TransientError

if TYPE_CHECKING:
    from pathlib import Path

    from httpx2 import Response

    from millpond.comfyui.graph import File
    from millpond.comfyui.line import Job

URL: Final = "https://cloud.comfy.org"
UPLOAD_MAX: Final = 50 * 1024 * 1024
_GOOD: Final = frozenset({"success", "completed"})
_BAD: Final = frozenset({"error", "non_retryable_error", "failed"})
_GONE: Final = frozenset({"lost", "cancelled", "canceled"})
_WAITING: Final = frozenset({"submitted", "queued_limited", "queued_waiting", "waiting_to_dispatch", "pending"})
_HALF_WAY: Final = {"allocated": 0.1, "preparing": 0.2, "pending_execution": 0.3, "executing": 0.5, "executed": 0.9}
LOOK: Final = 2.0
_FIRST_LOOK: Final = 0.1
_LAST_WORDS: Final = 2.0
_UNKNOWN_MAX: Final = 10
"""How often in a row nobody knows a job that was just taken, before it is lost."""


class Cloud:
    """The client of Comfy Cloud. ``has_partner_nodes`` sends the key with the graph too, for nodes that need it."""

    def __init__(
        self,
        key: str,
        url: str = URL,
        *,
        patience: float = PATIENCE,
        stall: float = STALL,
        has_partner_nodes: bool = False,
    ) -> None:
        if not key.strip():
            raise SettingsError("Comfy Cloud needs a key.", field="api_key", hint="Set COMFY_API_KEY.")
        self._key = key.strip()
        self._line = Line(url, {"X-API-Key": self._key}, patience=patience)
        self._bare = Line(url, patience=patience)
        self.url = self._line.url
        self.stall = stall
        self.look = LOOK
        """Seconds between two looks at a job that lasts."""
        self.has_partner_nodes = has_partner_nodes

    def __repr__(self) -> str:
        return f"<Cloud at {self.url}>"

    async def close(self) -> None:
        await self._line.close()
        await self._bare.close()

    async def describe(self) -> dict[str, Any]:
        return {"comfyui": "cloud"}

    async def upload(self, path: Path, name: str, job: Job) -> str:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        with open_file(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > UPLOAD_MAX:
                raise too_large(name, size, UPLOAD_MAX)
            files = {"image": (name, file, kind)}
            answer = await self._line.send("POST", "/api/upload/image", job=job, files=files, data={"type": "input"})
        if answer.status_code != HTTPStatus.OK:
            raise _refused(answer, f"the file {name!r}")
        told = decoded(answer)
        # Files have no folders there.
        return placed({"name": told.get("name")} if isinstance(told, dict) else told)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - it comes from JSON

    async def run(self, prompt: Prompt, job: Job) -> Ran:
        run = _Run(self._line, prompt, job, self.stall, self.look)
        key = {"api_key_comfy_org": self._key} if self.has_partner_nodes else {}
        try:
            await run.submit(key)
            await run.wait()
            return Ran(run.id, await run.outputs())
        except BaseException:
            if not run.has_ended:
                await self.stop(run.id)
            raise

    async def stop(self, prompt_id: str) -> None:
        """Take one job out of the queue; says nothing where that does not succeed."""
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_LAST_WORDS):
                await self._line.send("POST", "/api/queue", patience=1.0, json={"delete": [prompt_id]})

    async def download(self, file: File, path: Path, job: Job) -> bool:
        """Fetch a file from where the answer points to, without showing the key there."""
        answer = await self._line.send("GET", "/api/view", job=job, params=file.params)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        if answer.status_code == HTTPStatus.OK:
            await asyncio.to_thread(path.write_bytes, answer.content)
            return True
        target = answer.headers.get("location")
        if not answer.is_redirect or not target:
            raise _refused(answer, f"the file {file.filename!r}")
        fetched = await self._bare.fetch(urljoin(f"{self.url}/api/view", target), path, job)
        if fetched.status_code != HTTPStatus.OK:
            raise unreachable(self.url, f"its storage answers {fetched.status_code} for {file.filename!r}")
        return True

    async def forget(self, prompt_id: str) -> None:
        """Its history is its own affair."""


@dataclass(slots=True)
class _Run:
    line: Line
    prompt: Prompt
    job: Job
    stall: float
    look: float
    has_ended: bool = False
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.prompt.id

    async def submit(self, key: dict[str, str]) -> None:
        body = {"prompt": self.prompt.graph, "prompt_id": self.prompt.id, "client_id": self.prompt.id}
        body["extra_data"] = {"millpond_job": self.job.id} | key
        await self.job.checkpoint()
        try:
            answer = await self.line.send("POST", "/api/prompt", job=self.job, is_repeatable=False, json=body)
        except UnsureError as error:
            if await self._status() is not None:
                return
            raise unreachable(self.line.url, str(error)) from error
        if answer.status_code != HTTPStatus.OK:
            self.has_ended = True
            raise _refused(answer, "the workflow")
        told = cast("dict[str, Any]", decoded(answer))
        self.id = str(told.get("prompt_id") or self.id)
        fault = faults.dropped(told.get("node_errors"), self.prompt.output_node)
        if fault is not None:
            raise fault

    async def _status(self) -> dict[str, Any] | None:
        answer = await self.line.send("GET", f"/api/job/{quote(self.id, safe='')}/status", job=self.job)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.status_code != HTTPStatus.OK:
            raise _refused(answer, "the job")
        return cast("dict[str, Any]", decoded(answer))

    async def wait(self) -> None:
        """Until it has ended well; any other end is raised."""
        pause, unknown, seen, seen_at = _FIRST_LOOK, 0, None, time.monotonic()
        while True:
            told = await self._status()
            unknown = 0 if told else unknown + 1
            if unknown > _UNKNOWN_MAX:
                raise TransientError("Comfy Cloud does not know the job any more.", reason="lost")
            word = str((told or {}).get("status"))
            if await self._is_done(word, told or {}):
                return
            now = (word, (told or {}).get("last_state_update"), (told or {}).get("updated_at"))
            if now != seen or word in _WAITING:
                seen, seen_at = now, time.monotonic()
            if time.monotonic() - seen_at > self.stall:
                raise StalledError(f"The run showed no sign of life for {self.stall:g} s.", reason="stalled")
            await self.job.checkpoint()
            await self.job.progress(_HALF_WAY.get(word, 0.0))
            await asyncio.sleep(pause)
            pause = min(pause * 2, self.look)

    async def _is_done(self, word: str, told: dict[str, Any]) -> bool:
        self.has_ended = word in _GOOD | _BAD | _GONE
        if word in _BAD:
            raise await self._failure(told)
        if word in _GONE:
            reason = "lost" if word == "lost" else "interrupted"
            raise TransientError(f"Comfy Cloud says that the job is {word}.", reason=reason)
        return word in _GOOD

    async def _failure(self, told: dict[str, Any]) -> HandlerError:
        job = await self.line.read(f"/api/jobs/{quote(self.id, safe='')}", job=self.job)
        error = cast("dict[str, Any]", job).get("execution_error") if isinstance(job, dict) else None
        if not isinstance(error, dict):
            error = {"exception_message": told.get("error_message") or "no reason is given"}
        fault = faults.failed(cast("dict[str, Any]", error))
        is_full = fault.details.get("reason") == "out_of_memory"
        return faults.for_good(fault) if is_full and self.job.attempt > 1 else fault

    async def outputs(self) -> dict[str, Any]:
        """From the history; where there is none any more, from the job."""
        id = quote(self.id, safe="")
        history = await self.line.read(f"/api/history_v2/{id}", job=self.job)
        entry = cast("dict[str, Any]", history).get(self.id) if isinstance(history, dict) else None
        if not isinstance(entry, dict):
            entry = await self.line.read(f"/api/jobs/{id}", job=self.job)
        found = cast("dict[str, Any]", entry).get("outputs") if isinstance(entry, dict) else None
        if not isinstance(found, dict):
            raise TransientError("Comfy Cloud does not tell what the job made.", reason="output")
        return cast("dict[str, Any]", found)


def _refused(answer: Response, what: str) -> PermanentError:
    """Why a request was refused; a 429 is no plea for patience there."""
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return PermanentError("Comfy Cloud does not take the key.", reason="account")
        case HTTPStatus.PAYMENT_REQUIRED:
            return PermanentError("The account at Comfy Cloud has too few credits.", reason="account")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return PermanentError("The subscription at Comfy Cloud is not active.", reason="account")
        case status if what == "the workflow":
            return faults.refused(status, answer.content)
        case status:
            return PermanentError(f"Comfy Cloud refuses {what} ({status}).", reason="asset")
