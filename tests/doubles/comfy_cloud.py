"""Comfy Cloud, as its first API is used, with its storage at another address.

It runs graphs on the nodes of the ComfyUI double. Its words for a job's status are those that are met in practice.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.doubles.comfyui import ComfyUI, Served, _form, served

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = "comfyui-0123456789"


class Storage:
    """Where the files are: it knows signatures, and no keys."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.asked: list[Request] = []
        self._app = Starlette(routes=[Route("/{signature}/{name}", self._read)])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.asked.append(Request(scope))
        await self._app(scope, receive, send)

    async def _read(self, request: Request) -> Response:
        path = self.files.get(request.path_params["signature"])
        return FileResponse(path) if path is not None else Response(status_code=403)


class ComfyCloud:
    """The API. Its account is good and has credits, unless it is told otherwise."""

    def __init__(self, folder: Path, storage: Storage) -> None:
        self.comfy = ComfyUI(folder)
        self.storage = storage
        self.storage_url = ""
        self.asked: list[tuple[str, str]] = []
        self.has_credits = True
        self.is_active = True
        self.has_history = True
        """history_v2 is deprecated, and may go."""
        self.first_words = ["submitted", "queued_waiting", "allocated", "preparing"]
        """What a job's status is called before it runs, look by look."""
        self.last_word: str | None = None
        """An end that the job comes to whatever its graph does."""
        self.uploads = 0
        self._looks: dict[str, int] = {}
        self._stopped: set[str] = set()
        self._app = Starlette(
            routes=[
                Route("/api/upload/image", self._upload, methods=["POST"]),
                Route("/api/prompt", self._submit, methods=["POST"]),
                Route("/api/job/{id}/status", self._status),
                Route("/api/jobs/{id}", self._job),
                Route("/api/history_v2/{id}", self._history),
                Route("/api/view", self._view),
                Route("/api/queue", self._queue, methods=["POST"]),
                Route("/api/interrupt", self._interrupt, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        self.asked.append((request.method, request.url.path))
        if request.headers.get("x-api-key") != KEY:
            await _refusal(401, "UNAUTHORIZED", "Invalid API key")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    async def _upload(self, request: Request) -> Response:
        name, content = _form(request.headers["content-type"], await request.body())["image"]
        kept = hashlib.sha256(content).hexdigest() + Path(name).suffix
        (self.comfy.folders.of("input") / kept).write_bytes(content)
        self.uploads += 1
        return JSONResponse({"name": kept, "subfolder": "", "type": "input"})

    async def _submit(self, request: Request) -> Response:
        if not self.is_active:
            return _refusal(429, "INACTIVE_SUBSCRIPTION", "Your subscription is not active.")
        if not self.has_credits:
            return _refusal(402, "INSUFFICIENT_CREDITS", "You have too few credits.")
        wanted = await request.json()
        # The id is its own, whatever was asked for.
        body = {key: wanted[key] for key in ("prompt", "extra_data", "client_id") if key in wanted}
        return await self.comfy._submit(_Given(body | {"prompt_id": str(uuid4())}))  # type: ignore[arg-type]

    async def _status(self, request: Request) -> Response:
        id = request.path_params["id"]
        word = self._word(id)
        if word is None:
            return _refusal(404, "NOT_FOUND", "Job not found")
        look = self._looks[id] = self._looks.get(id, 0) + 1
        if look <= len(self.first_words) and id not in self._stopped:
            word = self.first_words[look - 1]
        message = "The run failed." if word == "error" else None
        times = {"created_at": "2026-08-21T10:00:00Z", "updated_at": "2026-08-21T10:00:01Z"}
        return JSONResponse({"id": id, "status": word, "error_message": message, "last_state_update": None} | times)

    def _word(self, id: str) -> str | None:
        if id in self._stopped:
            return "cancelled"
        found = {job["id"]: job["status"] for job in self.comfy._every_job()}.get(id)
        words = {"pending": "queued_waiting", "in_progress": "executing", "completed": "success", "failed": "error"}
        return (self.last_word or words[found]) if found is not None else None

    async def _job(self, request: Request) -> Response:
        id = request.path_params["id"]
        found = [job for job in self.comfy._every_job() if job["id"] == id]
        if not found:
            return _refusal(404, "NOT_FOUND", "Job not found")
        entry = self.comfy.history.get(id, {})
        return JSONResponse(found[0] | {"outputs": entry.get("outputs", {}), "execution_status": entry.get("status")})

    async def _history(self, request: Request) -> Response:
        id = request.path_params["id"]
        entry = self.comfy.history.get(id)
        if entry is None or not self.has_history:
            return _refusal(404, "NOT_FOUND", "Job not found")
        number, _, graph, extra, outputs = entry["prompt"]
        prompt = {"priority": number, "prompt_id": id, "prompt": graph, "extra_data": extra}
        return JSONResponse({id: entry | {"prompt": prompt | {"outputs_to_execute": outputs}}})

    async def _view(self, request: Request) -> Response:
        query = request.query_params
        path = self.comfy.folders.of(query.get("type", "output")) / query["filename"]
        if not path.is_file():
            return _refusal(404, "NOT_FOUND", "File not found")
        signature = secrets.token_hex(8)
        self.storage.files[signature] = path
        return RedirectResponse(f"{self.storage_url}/{signature}/{path.name}", 302)

    async def _queue(self, request: Request) -> Response:
        ids = (await request.json()).get("delete", [])
        for id in ids:
            self.comfy._drop({id})
            self.comfy._stop(id)
            self._stopped.add(id)
        return JSONResponse({"deleted": ids, "cleared": False})

    async def _interrupt(self, _: Request) -> Response:
        """Stops everything that the account runs."""
        self.comfy._stop(None)
        return Response()


class _Given:
    """A request with a body of ours."""

    def __init__(self, body: Any) -> None:
        self._body = body

    async def json(self) -> Any:
        return self._body


def _refusal(status: int, code: str, message: str) -> Response:
    return JSONResponse({"code": code, "message": message}, status)


@contextlib.contextmanager
def served_cloud(folder: Path) -> Iterator[tuple[ComfyCloud, Served]]:
    storage = Storage()
    cloud = ComfyCloud(folder, storage)
    with served(storage) as files, served(cloud) as api:
        cloud.storage_url = files.url
        yield cloud, api
    cloud.comfy.close()
