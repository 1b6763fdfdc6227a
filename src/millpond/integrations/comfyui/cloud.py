"""Comfy Cloud, through version 1 of its API.

Its specification lists other statuses of jobs than it uses, so every status that is not known as an end counts as
running. A job is stopped by deleting it from the queue, never by ``/api/interrupt``, which stops all jobs of the
account.
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

from millpond.errors import HandlerError, PermanentError, SettingsError, StalledError, TransientError
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
from millpond.integrations.comfyui.server import STALL, Prompt, PromptResult, placed

if TYPE_CHECKING:
    from pathlib import Path

    from httpx2 import Response

    from millpond.integrations.comfyui.connection import ComfyJob
    from millpond.integrations.comfyui.graph import OutputFile

URL: Final = "https://cloud.comfy.org"
UPLOAD_MAX: Final = 50 * 1024 * 1024
_GOOD: Final = frozenset({"success", "completed"})
_BAD: Final = frozenset({"error", "non_retryable_error", "failed"})
_GONE: Final = frozenset({"lost", "cancelled", "canceled"})
_WAITING: Final = frozenset({"submitted", "queued_limited", "queued_waiting", "waiting_to_dispatch", "pending"})
_HALF_WAY: Final = {"allocated": 0.1, "preparing": 0.2, "pending_execution": 0.3, "executing": 0.5, "executed": 0.9}
LOOK: Final = 2.0
_FIRST_LOOK: Final = 0.1
_STOP_TIMEOUT: Final = 2.0
_UNKNOWN_MAX: Final = 10
"""How often in a row an accepted job may be unknown before it counts as lost."""


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
            raise SettingsError("Comfy Cloud requires a key.", field="api_key", hint="Set COMFY_API_KEY.")
        self._key = key.strip()
        self._connection = ComfyConnection(url, {"X-API-Key": self._key}, patience=patience)
        self._bare = ComfyConnection(url, patience=patience)
        self.url = self._connection.url
        self.stall = stall
        self.look = LOOK
        """The maximum seconds between two looks at a job."""
        self.has_partner_nodes = has_partner_nodes

    def __repr__(self) -> str:
        return f"<Cloud at {self.url}>"

    async def close(self) -> None:
        await self._connection.close()
        await self._bare.close()

    async def describe(self) -> dict[str, Any]:
        return {"comfyui": "cloud"}

    async def upload(self, path: Path, name: str, job: ComfyJob) -> str:
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        with open_file(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > UPLOAD_MAX:
                raise too_large(name, size, UPLOAD_MAX)
            files = {"image": (name, file, kind)}
            answer = await self._connection.send(
                "POST", "/api/upload/image", job=job, files=files, data={"type": "input"}
            )
        if answer.status_code != HTTPStatus.OK:
            raise _refused(answer, f"the file {name!r}")
        body = decoded(answer)
        # Files on Comfy Cloud have no folders.
        return placed({"name": body.get("name")} if isinstance(body, dict) else body)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - it comes from JSON

    async def run(self, prompt: Prompt, job: ComfyJob) -> PromptResult:
        run = _Run(self._connection, prompt, job, self.stall, self.look)
        key = {"api_key_comfy_org": self._key} if self.has_partner_nodes else {}
        try:
            await run.submit(key)
            await run.wait()
            return PromptResult(run.id, await run.outputs())
        except BaseException:
            if not run.has_ended:
                await self.stop(run.id)
            raise

    async def stop(self, prompt_id: str) -> None:
        """Delete one job from the queue; a failure is ignored."""
        with contextlib.suppress(TimeoutError, HandlerError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                await self._connection.send("POST", "/api/queue", patience=1.0, json={"delete": [prompt_id]})

    async def download(self, file: OutputFile, path: Path, job: ComfyJob) -> bool:
        """Download a file from the URL of the redirect, without sending the key there."""
        answer = await self._connection.send("GET", "/api/view", job=job, params=file.params)
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
            raise unreachable(self.url, f"its storage responded with HTTP {fetched.status_code} for {file.filename!r}")
        return True

    async def forget(self, prompt_id: str) -> None:
        """Comfy Cloud manages its history itself."""


@dataclass(slots=True)
class _Run:
    connection: ComfyConnection
    prompt: Prompt
    job: ComfyJob
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
            answer = await self.connection.send("POST", "/api/prompt", job=self.job, is_repeatable=False, json=body)
        except UnsureError as error:
            if await self._status() is not None:
                return
            raise unreachable(self.connection.url, str(error)) from error
        if answer.status_code != HTTPStatus.OK:
            self.has_ended = True
            raise _refused(answer, "the workflow")
        accepted = cast("dict[str, Any]", decoded(answer))
        self.id = str(accepted.get("prompt_id") or self.id)
        fault = faults.dropped(accepted.get("node_errors"), self.prompt.output_node)
        if fault is not None:
            raise fault

    async def _status(self) -> dict[str, Any] | None:
        answer = await self.connection.send("GET", f"/api/job/{quote(self.id, safe='')}/status", job=self.job)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return None
        if answer.status_code != HTTPStatus.OK:
            raise _refused(answer, "the job")
        return cast("dict[str, Any]", decoded(answer))

    async def wait(self) -> None:
        """Wait until the job has succeeded; any other end is raised."""
        pause, unknown, seen, seen_at = _FIRST_LOOK, 0, None, time.monotonic()
        while True:
            body = await self._status()
            unknown = 0 if body else unknown + 1
            if unknown > _UNKNOWN_MAX:
                raise TransientError("Comfy Cloud no longer knows the job.", reason="lost")
            status = str((body or {}).get("status"))
            if await self._is_done(status, body or {}):
                return
            now = (status, (body or {}).get("last_state_update"), (body or {}).get("updated_at"))
            if now != seen or status in _WAITING:
                seen, seen_at = now, time.monotonic()
            if time.monotonic() - seen_at > self.stall:
                raise StalledError(f"The run made no progress for {self.stall:g} s.", reason="stalled")
            await self.job.check_cancel()
            await self.job.progress(_HALF_WAY.get(status, 0.0))
            await asyncio.sleep(pause)
            pause = min(pause * 2, self.look)

    async def _is_done(self, status: str, body: dict[str, Any]) -> bool:
        self.has_ended = status in _GOOD | _BAD | _GONE
        if status in _BAD:
            raise await self._failure(body)
        if status in _GONE:
            reason = "lost" if status == "lost" else "interrupted"
            raise TransientError(f"Comfy Cloud reports the job as {status}.", reason=reason)
        return status in _GOOD

    async def _failure(self, body: dict[str, Any]) -> HandlerError:
        job = await self.connection.read(f"/api/jobs/{quote(self.id, safe='')}", job=self.job)
        error = cast("dict[str, Any]", job).get("execution_error") if isinstance(job, dict) else None
        if not isinstance(error, dict):
            error = {"exception_message": body.get("error_message") or "no reason was given"}
        fault = faults.failed(cast("dict[str, Any]", error))
        is_full = fault.details.get("reason") == "out_of_memory"
        return faults.for_good(fault) if is_full and self.job.attempt > 1 else fault

    async def outputs(self) -> dict[str, Any]:
        """The outputs from the history, or from the job if it is no longer in the history."""
        id = quote(self.id, safe="")
        history = await self.connection.read(f"/api/history_v2/{id}", job=self.job)
        entry = cast("dict[str, Any]", history).get(self.id) if isinstance(history, dict) else None
        if not isinstance(entry, dict):
            entry = await self.connection.read(f"/api/jobs/{id}", job=self.job)
        found = cast("dict[str, Any]", entry).get("outputs") if isinstance(entry, dict) else None
        if not isinstance(found, dict):
            raise TransientError("Comfy Cloud did not return the outputs of the job.", reason="output")
        return cast("dict[str, Any]", found)


def _refused(answer: Response, what: str) -> PermanentError:
    """The error for a rejected request. For Comfy Cloud, 429 means an inactive subscription, so it is not retried."""
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return PermanentError("Comfy Cloud rejected the key.", reason="account")
        case HTTPStatus.PAYMENT_REQUIRED:
            return PermanentError("The Comfy Cloud account does not have enough credits.", reason="account")
        case HTTPStatus.TOO_MANY_REQUESTS:
            return PermanentError("The Comfy Cloud subscription is not active.", reason="account")
        case status if what == "the workflow":
            return faults.refused(status, answer.content)
        case status:
            return PermanentError(f"Comfy Cloud rejected {what} ({status}).", reason="asset")
