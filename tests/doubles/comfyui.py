"""A ComfyUI that runs a handful of image nodes for real, and answers as ComfyUI 0.7.0 was recorded to.

It is a program: ``python -m tests.doubles.comfyui --port 8188 --dir comfyui``. Tests serve it from a thread. What goes
wrong in a real one can be switched on, in Python or by ``POST /_double/switch``; see :class:`Switches`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import io
import json
import re
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute

from tests.doubles.comfy_nodes import NODES, Check, Folders, described, error_of, is_link, signature

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request
    from starlette.websockets import WebSocket

VERSION = "0.7.0"
HISTORY_MAX = 10_000
TROUBLE = "500 Internal Server Error\n\nServer got itself in trouble"
TIPS = (
    "Allocation on device \nThis error means you ran out of memory on your GPU.\n\n"
    "TIPS: If the workflow worked before you might have accidentally set the batch_size to a large number."
)


class InterruptedNodeError(Exception):
    """The run was stopped from outside."""


class OutOfMemoryError(Exception):
    """What torch raises when the card is full."""


@dataclass(slots=True)
class Switches:
    """What is to go wrong. The keys of the dictionaries are classes of nodes, or ids."""

    slow: dict[str, float] = field(default_factory=dict)
    """Seconds that a node takes, in ten steps with progress and a preview; an interrupt is noticed between two."""
    hang: list[str] = field(default_factory=list)
    """Nodes that notice nothing until they are taken off this list."""
    fail: dict[str, str] = field(default_factory=dict)
    """Nodes that raise a RuntimeError with this message."""
    full: dict[str, int] = field(default_factory=dict)
    """Nodes that run out of memory this often."""
    hung: bool = False
    """It accepts connections and answers nothing, as a process that is stopped."""
    trouble: int = 0
    """How many of the next requests are answered with 500."""
    mumbles: int = 0
    """How many of the next prompts are taken, and answered with 502."""
    loses: int = 0
    """How many of the next files are gone when they are asked for."""
    stutters: int = 0
    """How many of the next files break off in the middle."""
    mute: bool = False
    """The websocket is open and says nothing."""
    deaf: bool = False
    """The websocket cannot be opened."""
    upload_max: int = 100 * 1024 * 1024
    forgets_cached: bool = False
    """A prompt without client_id whose output came from the cache has no outputs, as before July 2026."""
    unstaged: bool = False
    """A run ends before its first node, with no word of how, as when it cannot be staged."""
    takes_any: bool = False
    """An interrupt takes no account of the prompt_id, as before August 2025."""


@dataclass(order=True, slots=True)
class Item:
    """A prompt in the queue."""

    number: float
    turn: int
    prompt_id: str = field(compare=False)
    graph: dict[str, Any] = field(compare=False)
    extra: dict[str, Any] = field(compare=False)
    outputs: list[str] = field(compare=False)

    def to_wire(self) -> list[Any]:
        return [self.number, self.prompt_id, self.graph, self.extra, self.outputs]


class ComfyUI:
    """The double. It keeps what it was asked; its queue and history live as long as it is not restarted."""

    def __init__(self, folder: Path) -> None:
        self.folders = Folders(folder)
        self.switches = Switches()
        self.asked: list[tuple[str, str, Any]] = []
        """Method, path and JSON body of every request."""
        self.runs: list[str] = []
        """The prompt_id of every run that began."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.sockets: dict[str, WebSocket] = {}
        self._change = threading.Condition()
        self._life = 0
        self._fresh()
        every = [
            Route("/", self._page),
            Route("/upload/image", self._upload, methods=["POST"]),
            Route("/prompt", self._submit, methods=["POST"]),
            Route("/prompt", self._remaining),
            Route("/queue", self._show_queue),
            Route("/queue", self._change_queue, methods=["POST"]),
            Route("/interrupt", self._interrupt, methods=["POST"]),
            Route("/history", self._show_history),
            Route("/history", self._change_history, methods=["POST"]),
            Route("/history/{id}", self._show_history),
            Route("/view", self._view),
            Route("/system_stats", self._stats),
            Route("/object_info", self._info),
            Route("/object_info/{name}", self._info),
            Route("/free", self._free, methods=["POST"]),
            WebSocketRoute("/ws", self._socket),
        ]
        jobs = [
            Route("/api/jobs", self._jobs),
            Route("/api/jobs/cancel", self._cancel_many, methods=["POST"]),
            Route("/api/jobs/{id}", self._job),
            Route("/api/jobs/{id}/cancel", self._cancel, methods=["POST"]),
        ]
        under = [type(route)(f"/api{route.path}", route.endpoint, **_methods(route)) for route in every]
        control = Route("/_double/switch", self._switch, methods=["POST"])
        self._app = Starlette(routes=[*every, *jobs, *under, control])
        threading.Thread(target=self._work, daemon=True, name="comfyui double").start()

    # What it knows

    def _fresh(self) -> None:
        self._life += 1
        self.pending: list[Item] = []
        self.running: Item | None = None
        self.history: dict[str, Any] = {}
        self._cache: dict[Any, tuple[Any, Any]] = {}
        self._number = 0
        self._turn = 0
        self._is_interrupted = False

    def restart(self) -> None:
        """As if the process had ended and come back: files stay, all else is gone."""
        with self._change:
            self._fresh()
            self._change.notify_all()
        self.drop_sockets()

    def close(self) -> None:
        with self._change:
            self._life = -1
            self._change.notify_all()

    def drop_sockets(self) -> None:
        for socket_ in list(self.sockets.values()):
            self._soon(socket_.close(1012))
        self.sockets.clear()

    def forget_queue(self) -> None:
        """Lose every prompt that has not ended, the running one too, and say nothing."""
        with self._change:
            self.pending.clear()
            self.running = None
            self._life += 1

    # HTTP

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.loop = asyncio.get_running_loop()
        while self.switches.hung and not scope["path"].startswith("/_double"):
            await asyncio.sleep(0.01)
        if scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            receive = await self._listen(scope, receive)
        await self._app(scope, receive, send)

    async def _listen(self, scope: Any, receive: Any) -> Any:
        """Keep what was asked, and hand it on."""
        parts, more = list[bytes](), True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        body = b"".join(parts)
        if not scope["path"].startswith("/_double"):
            self.asked.append((scope["method"], scope["path"].removeprefix("/api"), _json(body)))

        heard = [{"type": "http.request", "body": body}]

        async def again() -> Any:
            return heard.pop() if heard else await receive()

        return again

    def _refusal(self, scope: Any) -> Response | None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        origin, host = urlsplit(headers.get("origin", "")), headers.get("host", "")
        if origin.netloc and (origin.netloc != host if origin.port else origin.hostname != host.partition(":")[0]):
            return Response(status_code=403)
        if self.switches.trouble and not scope["path"].startswith("/_double"):
            self.switches.trouble -= 1
            return PlainTextResponse(TROUBLE, 500)
        return None

    async def _page(self, _: Request) -> Response:
        return PlainTextResponse("This is a double of ComfyUI.")

    async def _switch(self, request: Request) -> Response:
        """Set switches by name, or do one of: restart, drop_sockets, forget_queue."""
        for name, value in (await request.json()).items():
            if name in {"restart", "drop_sockets", "forget_queue"}:
                getattr(self, name)()
            elif name in {one.name for one in fields(Switches)}:
                setattr(self.switches, name, value)
            else:
                return JSONResponse({"error": f"no switch {name!r}"}, 400)
        return Response()

    async def _upload(self, request: Request) -> Response:
        body = await request.body()
        if len(body) > self.switches.upload_max:
            limit = self.switches.upload_max
            return PlainTextResponse(f"Maximum request body size {limit} exceeded, actual body size {len(body)}", 413)
        form = _form(request.headers.get("content-type", ""), body)
        if "image" not in form or not form["image"][0]:
            return Response(status_code=400)
        name, content = form["image"]
        given = {key: text.decode() for key, (_, text) in form.items() if key != "image"}
        type, subfolder = given.get("type", "input"), given.get("subfolder", "")
        if type not in {"input", "temp", "output"}:
            return PlainTextResponse(TROUBLE, 500)
        path = self.folders.inside(type, f"{subfolder}/{name}" if subfolder else name)
        if path is None:
            return Response(status_code=400)
        path.parent.mkdir(parents=True, exist_ok=True)
        if given.get("overwrite") not in {"true", "1"}:
            path = _free_name(path, content)
        path.write_bytes(content)
        return JSONResponse({"name": path.name, "subfolder": subfolder, "type": type})

    async def _submit(self, request: Request) -> Response:
        try:
            wanted = await request.json()
        except ValueError:
            return PlainTextResponse(TROUBLE, 500)
        if "prompt" not in wanted:
            missing = error_of("no_prompt", "No prompt provided", "No prompt provided")
            return JSONResponse({"error": missing, "node_errors": {}}, 400)
        check = Check(wanted["prompt"], self.folders).run(wanted.get("partial_execution_targets"))
        if check.error is not None:
            return JSONResponse({"error": check.error, "node_errors": check.node_errors}, 400)
        prompt_id = str(wanted.get("prompt_id") or uuid4())
        extra = dict(wanted.get("extra_data", {}))
        if "client_id" in wanted:
            extra["client_id"] = wanted["client_id"]
        extra["create_time"] = _now()
        with self._change:
            number = float(wanted["number"]) if "number" in wanted else self._number
            number = -number if wanted.get("front") and "number" not in wanted else number
            self._number += "number" not in wanted
            self._turn += 1
            heapq.heappush(self.pending, Item(number, self._turn, prompt_id, wanted["prompt"], extra, check.good))
            self._change.notify_all()
        self._status()
        if self.switches.mumbles:
            self.switches.mumbles -= 1
            return PlainTextResponse("502 Bad Gateway", 502)
        return JSONResponse({"prompt_id": prompt_id, "number": number, "node_errors": check.node_errors})

    def _left(self) -> int:
        return len(self.pending) + (self.running is not None)

    async def _remaining(self, _: Request) -> Response:
        return JSONResponse({"exec_info": {"queue_remaining": self._left()}})

    async def _show_queue(self, _: Request) -> Response:
        with self._change:
            running = [self.running.to_wire()] if self.running else []
            return JSONResponse(
                {"queue_running": running, "queue_pending": [item.to_wire() for item in sorted(self.pending)]}
            )

    async def _change_queue(self, request: Request) -> Response:
        wanted = await request.json()
        if wanted.get("clear"):
            self._drop({item.prompt_id for item in self.pending})
        self._drop(set(wanted.get("delete", ())))
        return Response()

    def _drop(self, ids: set[str]) -> None:
        with self._change:
            kept = [item for item in self.pending if item.prompt_id not in ids]
            if len(kept) == len(self.pending):
                return
            self.pending = kept
            heapq.heapify(self.pending)
        self._status()

    async def _interrupt(self, request: Request) -> Response:
        wanted = _json(await request.body()) or {}
        self._stop(wanted.get("prompt_id"))
        return Response()

    def _stop(self, prompt_id: str | None) -> None:
        with self._change:
            is_it = self.running is not None and self.running.prompt_id == prompt_id
            if is_it or prompt_id is None or self.switches.takes_any:
                self._is_interrupted = True

    async def _show_history(self, request: Request) -> Response:
        entries = dict(self.history)
        if (id := request.path_params.get("id")) is not None:
            return JSONResponse({id: entries[id]} if id in entries else {})
        limit, offset = request.query_params.get("max_items"), int(request.query_params.get("offset", -1))
        chosen = list(entries.items())
        if limit is not None:
            start = max(len(chosen) - int(limit), 0) if offset < 0 else offset
            chosen = chosen[start : start + int(limit)]
        return JSONResponse(dict(chosen))

    async def _change_history(self, request: Request) -> Response:
        wanted = await request.json()
        if wanted.get("clear"):
            self.history.clear()
        for id in wanted.get("delete", ()):
            self.history.pop(id, None)
        return Response()

    async def _view(self, request: Request) -> Response:
        query = request.query_params
        name, subfolder = query.get("filename"), query.get("subfolder", "")
        if not name:
            return Response(status_code=404)
        if name.startswith("/") or ".." in name:
            return Response(status_code=400)
        try:
            folder = self.folders.inside(query.get("type", "output"), subfolder)
        except ValueError:
            return Response(status_code=400)
        if folder is None:
            return Response(status_code=403)
        path = folder / Path(name).name
        if self.switches.loses:
            self.switches.loses -= 1
            path.unlink(missing_ok=True)
        if self.switches.stutters and path.is_file():
            self.switches.stutters -= 1
            content = path.read_bytes()
            return StreamingResponse(_half(content), headers={"Content-Length": str(len(content))})
        return FileResponse(path, filename=path.name) if path.is_file() else Response(status_code=404)

    def _argv(self) -> list[str]:
        megabytes = self.switches.upload_max / 1024 / 1024
        return ["main.py", *([] if megabytes == 100 else ["--max-upload-size", str(megabytes)])]

    async def _stats(self, _: Request) -> Response:
        system = {"os": sys.platform, "ram_total": 2**34, "ram_free": 2**33, "comfyui_version": VERSION}
        system |= {"python_version": sys.version, "pytorch_version": "2.9.1+cpu", "argv": self._argv()}
        device = {"name": "cpu", "type": "cpu", "index": None, "vram_total": 2**34, "vram_free": 2**33}
        return JSONResponse(
            {"system": system, "devices": [device | {"torch_vram_total": 2**34, "torch_vram_free": 2**33}]}
        )

    async def _info(self, request: Request) -> Response:
        name = request.path_params.get("name")
        names = list(NODES) if name is None else [name] if name in NODES else []
        return JSONResponse({one: described(one, self.folders) for one in names})

    async def _free(self, request: Request) -> Response:
        wanted = _json(await request.body()) or {}
        if wanted.get("free_memory"):
            self._cache.clear()
        return Response()

    # /api/jobs, of newer versions

    def _every_job(self) -> list[dict[str, Any]]:
        with self._change:
            waiting = [_unfinished(item, "pending") for item in sorted(self.pending)]
            running = [_unfinished(self.running, "in_progress")] if self.running else []
            return [*running, *waiting, *(_finished(entry) for entry in self.history.values())]

    async def _jobs(self, request: Request) -> Response:
        query = request.query_params
        words = {"pending", "in_progress", "completed", "failed"}
        wanted = set(query["status"].split(",")) if query.get("status") else words
        if not wanted <= words:
            return JSONResponse({"error": f"Invalid status value(s): {', '.join(sorted(wanted - words))}"}, 400)
        jobs = sorted(self._every_job(), key=lambda job: job["create_time"], reverse=query.get("sort_order") != "asc")
        chosen = [job for job in jobs if job["status"] in wanted]
        offset, limit = int(query.get("offset", 0)), int(query["limit"]) if "limit" in query else None
        page = chosen[offset:] if limit is None else chosen[offset : offset + limit]
        pages = {"offset": offset, "limit": limit, "total": len(chosen), "has_more": offset + len(page) < len(chosen)}
        return JSONResponse({"jobs": page, "pagination": pages})

    async def _job(self, request: Request) -> Response:
        id = request.path_params["id"]
        found = [job for job in self._every_job() if job["id"] == id]
        if not found:
            return JSONResponse({"error": "Job not found"}, 404)
        entry = self.history.get(id)
        more = {"outputs": entry["outputs"], "execution_status": entry["status"]} if entry else {}
        return JSONResponse(found[0] | more)

    async def _cancel(self, request: Request) -> Response:
        self._drop({request.path_params["id"]})
        self._stop(request.path_params["id"])
        return Response()

    async def _cancel_many(self, request: Request) -> Response:
        ids = (await request.json()).get("job_ids", [])
        if not set(ids) <= {job["id"] for job in self._every_job()}:
            return JSONResponse({"error": "Job not found"}, 404)
        for id in ids:
            self._drop({id})
            self._stop(id)
        return Response()

    # The websocket

    async def _socket(self, socket_: WebSocket) -> None:
        if self.switches.deaf:
            await socket_.close()
            return
        await socket_.accept()
        sid = socket_.query_params.get("clientId") or uuid4().hex
        self.sockets[sid] = socket_
        await self._send(socket_, "status", {"status": {"exec_info": {"queue_remaining": self._left()}}, "sid": sid})
        with contextlib.suppress(Exception):
            while True:
                await socket_.receive_text()
        if self.sockets.get(sid) is socket_:
            del self.sockets[sid]

    def _status(self) -> None:
        self.send("status", {"status": {"exec_info": {"queue_remaining": self._left()}}}, None)

    def send(self, type: str, data: dict[str, Any], sid: str | None) -> None:
        """To one client, or to all."""
        for one, socket_ in list(self.sockets.items()):
            if sid in (None, one):
                self._soon(self._send(socket_, type, data))

    def _preview(self, item: Item, picture: bytes) -> None:
        socket_ = self.sockets.get(item.extra.get("client_id", ""))
        if socket_ is not None and not self.switches.mute:
            self._soon(_quietly(socket_.send_bytes(b"\0\0\0\1\0\0\0\1" + picture)))

    async def _send(self, socket_: WebSocket, type: str, data: dict[str, Any]) -> None:
        if not self.switches.mute:
            await _quietly(socket_.send_json({"type": type, "data": data}))

    def _soon(self, call: Any) -> None:
        if self.loop is None or self.loop.is_closed():
            call.close()
            return
        asyncio.run_coroutine_threadsafe(call, self.loop)

    # Running

    def _work(self) -> None:
        while True:
            with self._change:
                while not self.pending and self._life > 0:
                    self._change.wait(0.5)
                if self._life < 0:
                    return
                item = self.running = heapq.heappop(self.pending)
                self._is_interrupted = False
                run = Run(self, item, self._life)
                self.runs.append(item.prompt_id)
            self._status()
            entry = run.execute()
            with self._change:
                if run.is_over:
                    continue
                self.history.pop(item.prompt_id, None)
                self.history[item.prompt_id] = entry
                while len(self.history) > HISTORY_MAX:
                    self.history.pop(next(iter(self.history)))
                self.running = None
            self._status()
            if "client_id" in item.extra:
                self.send("executing", {"node": None, "prompt_id": item.prompt_id}, item.extra["client_id"])


class GoneError(Exception):
    """The life in which the run began is over."""


@dataclass(slots=True)
class Run:
    """One prompt being executed, in the worker's thread."""

    comfy: ComfyUI
    item: Item
    life: int
    messages: list[Any] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)
    _results: dict[str, Any] = field(default_factory=dict)
    _states: dict[str, Any] = field(default_factory=dict)
    _at: str = ""

    @property
    def is_over(self) -> bool:
        return self.comfy._life != self.life

    def execute(self) -> dict[str, Any]:
        graph, comfy = self.item.graph, self.comfy
        self._message("execution_start")
        try:
            keys = {id: signature(graph, id, comfy.folders) for id in self._order()}
            comfy._cache = {key: kept for key, kept in comfy._cache.items() if key in set(keys.values())}
            self._message("execution_cached", nodes=[id for id, key in keys.items() if key in comfy._cache])
            if comfy.switches.unstaged:
                return self._entry("success")
            for id, key in keys.items():
                self._at = id
                self._one(id, key)
            self._message("execution_success")
        except GoneError:
            return {}
        except InterruptedNodeError:
            self._message("execution_interrupted", sid=None, **self._where())
        except Exception as error:  # noqa: BLE001 - a node may raise anything
            self._message("execution_error", **self._where(), **self._raised(error))
        return self._entry("success" if self.messages[-1][0] == "execution_success" else "error")

    def _entry(self, word: str) -> dict[str, Any]:
        status = {"status_str": word, "completed": word == "success", "messages": self.messages}
        meta = {id: {"node_id": id, "display_node": id, "parent_node": None, "real_node_id": id} for id in self.outputs}
        return {"prompt": self.item.to_wire(), "outputs": self.outputs, "status": status, "meta": meta}

    def _where(self) -> dict[str, Any]:
        return {"node_id": self._at, "node_type": self._class(self._at), "executed": list(self.executed)}

    def _raised(self, error: Exception) -> dict[str, Any]:
        module, name = type(error).__module__, type(error).__qualname__
        full = "torch." if isinstance(error, OutOfMemoryError) else "" if module == "builtins" else f"{module}."
        inputs = self.item.graph[self._at]["inputs"] if self._at else {}
        return {
            "exception_message": f"{error}\n",
            "exception_type": f"{full}{name}",
            "traceback": traceback.format_tb(error.__traceback__),
            "current_inputs": {key: [value] for key, value in inputs.items() if not is_link(value)},
            "current_outputs": [id for id in self.item.graph if id not in self.executed],
        }

    def _order(self) -> list[str]:
        """The wanted outputs and all they need, each after what it needs."""
        found: dict[str, None] = {}

        def visit(id: str, above: tuple[str, ...]) -> None:
            if id in above:
                raise ValueError("Dependency cycle detected")
            if id not in found:
                for value in self.item.graph[id]["inputs"].values():
                    if is_link(value):
                        visit(value[0], (*above, id))
                found[id] = None

        for id in self.item.outputs:
            visit(id, ())
        return list(found)

    def _one(self, id: str, key: Any) -> None:
        self._breathe()
        if key in self.comfy._cache:
            result, ui = self.comfy._cache[key]
            self._results[id] = result
            if ui is not None and not (self.comfy.switches.forgets_cached and "client_id" not in self.item.extra):
                self.outputs[id] = ui
                self._broadcast("executed", node=id, display_node=id, output=ui)
            self._state(id, "finished", 1, 1)
            return
        self._state(id, "running", 0, 1)
        self._broadcast("executing", node=id, display_node=id)
        self._suffer(id)
        node = NODES[self._class(id)]
        given = {
            name: self._results[value[0]][value[1]] if is_link(value) else value
            for name, value in self.item.graph[id]["inputs"].items()
            if name in node.inputs
        }
        result = node.run(self.comfy.folders, **given)
        self._breathe()
        ui = result if node.is_output else None
        if ui is not None:
            self.outputs[id] = ui
            self._broadcast("executed", node=id, display_node=id, output=ui)
        self._results[id] = result
        self.comfy._cache[key] = (result, ui)
        self.executed.append(id)
        self._state(id, "finished", 1, 1)

    def _suffer(self, id: str) -> None:
        """What is switched on for this node, by its id or its class."""
        switches, names = self.comfy.switches, (id, self._class(id))
        for name in names:
            if name in switches.slow:
                self._crawl(id, switches.slow[name])
            while name in switches.hang and not self.is_over:
                time.sleep(0.01)
            if switches.full.get(name, 0) > 0:
                switches.full[name] -= 1
                raise OutOfMemoryError(TIPS)
            if name in switches.fail:
                raise RuntimeError(switches.fail[name])

    def _crawl(self, id: str, seconds: float) -> None:
        steps, picture = 10, io.BytesIO()
        Image.new("RGB", (8, 8)).save(picture, "JPEG")
        for step in range(1, steps + 1):
            until = time.monotonic() + seconds / steps
            while time.monotonic() < until:
                self._breathe()
                time.sleep(0.005)
            self._state(id, "running", step, steps)
            self._broadcast("progress", value=step, max=steps, node=id)
            self.comfy._preview(self.item, picture.getvalue())

    def _breathe(self) -> None:
        """Where a real one looks whether it was interrupted."""
        if self.is_over:
            raise GoneError
        with self.comfy._change:
            if self.comfy._is_interrupted:
                self.comfy._is_interrupted = False
                raise InterruptedNodeError

    def _class(self, id: str) -> str:
        return self.item.graph[id]["class_type"] if id else ""

    def _message(self, event: str, *, sid: str | None = "", **data: Any) -> None:
        data = (
            {"prompt_id": self.item.prompt_id, **data}
            if event != "execution_cached"
            else {**data, "prompt_id": self.item.prompt_id}
        )
        data["timestamp"] = _now()
        self.messages.append([event, data])
        if sid is None:
            self.comfy.send(event, data, None)
        elif "client_id" in self.item.extra:
            self.comfy.send(event, data, self.item.extra["client_id"])

    def _broadcast(self, event: str, **data: Any) -> None:
        if "client_id" in self.item.extra and not self.is_over:
            self.comfy.send(event, {**data, "prompt_id": self.item.prompt_id}, self.item.extra["client_id"])

    def _state(self, id: str, state: str, value: float, limit: float) -> None:
        names = {"node_id": id, "prompt_id": self.item.prompt_id, "display_node_id": id}
        names |= {"parent_node_id": None, "real_node_id": id}
        self._states[id] = {"value": value, "max": limit, "state": state} | names
        if "client_id" in self.item.extra and not self.is_over:
            data = {"prompt_id": self.item.prompt_id, "nodes": dict(self._states)}
            self.comfy.send("progress_state", data, self.item.extra["client_id"])


def _methods(route: Any) -> dict[str, Any]:
    return {} if isinstance(route, WebSocketRoute) else {"methods": sorted((route.methods or set()) - {"HEAD"})}


async def _quietly(call: Any) -> None:
    with contextlib.suppress(Exception):  # whoever it was for is gone
        await call


async def _half(content: bytes) -> AsyncIterator[bytes]:
    yield content[: len(content) // 2]
    raise ConnectionAbortedError


def _now() -> int:
    return int(time.time() * 1000)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


_DISPOSITION = re.compile(rb'name="(?P<name>[^"]*)"(?:;\s*filename="(?P<file>[^"]*)")?')


def _form(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """The fields of a multipart form: file name, or nothing, and content."""
    _, _, boundary = content_type.partition("boundary=")
    form: dict[str, tuple[str, bytes]] = {}
    if not boundary:
        return form
    for part in body.split(b"--" + boundary.strip('"').encode())[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        if found := _DISPOSITION.search(head):
            form[found["name"].decode()] = ((found["file"] or b"").decode(), content.removesuffix(b"\r\n"))
    return form


def _free_name(path: Path, content: bytes) -> Path:
    """A name that is free, or whose file holds the same bytes."""
    tried, number = path, 0
    while tried.exists() and tried.read_bytes() != content:
        number += 1
        tried = path.with_name(f"{path.stem} ({number}){path.suffix}")
    return tried


def _unfinished(item: Item, status: str) -> dict[str, Any]:
    return {
        "id": item.prompt_id,
        "status": status,
        "priority": item.number,
        "create_time": item.extra["create_time"],
        "outputs_count": 0,
    }


def _finished(entry: Any) -> dict[str, Any]:
    number, id, _, extra, _ = entry["prompt"]
    messages = dict(entry["status"]["messages"])
    is_good = "execution_success" in messages
    made = {
        "id": id,
        "status": "completed" if is_good else "failed",
        "priority": number,
        "create_time": extra["create_time"],
        "execution_start_time": messages["execution_start"]["timestamp"],
        "execution_end_time": entry["status"]["messages"][-1][1]["timestamp"],
        "outputs_count": sum(len(found.get("images", ())) for found in entry["outputs"].values()),
    }
    if (error := messages.get("execution_error")) is not None:
        made["execution_error"] = error
    return made


# Serving


class Served:
    """A port on which a double answers; it can go away and come back."""

    def __init__(self, double: Any, port: int = 0) -> None:
        self.double = double
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port: int = self._socket.getsockname()[1]
        self._socket.close()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        config = uvicorn.Config(
            self.double,
            port=self.port,
            log_config=None,
            lifespan="off",
            timeout_graceful_shutdown=0,
            ws="websockets-sansio",
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError(f"nothing serves on port {self.port}")
            self._thread.join(0.005)

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()


@contextlib.contextmanager
def served(double: Any) -> Iterator[Served]:
    server = Served(double)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def sample(size: tuple[int, int] = (32, 24), color: tuple[int, int, int] = (200, 30, 60)) -> bytes:
    """A small PNG."""
    made = io.BytesIO()
    Image.new("RGB", size, color).save(made, "PNG")
    return made.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.doubles.comfyui", description=__doc__)
    parser.add_argument("--port", type=int, default=8188, help="0 for any")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--dir", type=Path, help="where files are kept; a new folder if none is given")
    parser.add_argument("--switch", default="{}", help='JSON, such as {"slow": {"ImageInvert": 2}}')
    given = parser.parse_args()
    folder = given.dir or Path(tempfile.mkdtemp(prefix="comfyui-"))
    double = ComfyUI(folder)
    for name, value in json.loads(given.switch).items():
        setattr(double.switches, name, value)
    listening = socket.create_server((given.host, given.port))
    sys.stdout.write(f"ComfyUI's double is at http://{given.host}:{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(double, log_level="warning", lifespan="off", ws="websockets-sansio")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([listening])
    double.close()
    if given.dir is None:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
