"""Replicate, as its API for predictions is used; the shapes are those that its client reads and it was seen to give.

It does what it is told of each prediction: how long it takes, how it ends, how often and how well it calls back, and
whether its own answer arrives. What it makes is a small picture, served here; or what a Cog server says.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import random
import secrets
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import uvicorn
from standardwebhooks import Webhook
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.doubles.comfyui import Served, sample, served
from tests.waiting import PATIENCE

TOKEN = "r8_0123456789abcdefghijklmnopqrstuvwxyz0"
NEVER = 3600.0
OVER = ("succeeded", "failed", "canceled", "aborted")


@dataclass(slots=True)
class Script:
    """What becomes of a prediction."""

    seconds: float = 0.02
    """How long it takes; an hour is for ever."""
    status: str = "succeeded"
    output: Any = None
    """None: a picture."""
    error: str | None = None
    callbacks: int = 1
    """How often the end of it is told."""
    stragglers: int = 0
    """How often it is told after the end that it is still under way, under other message ids."""
    forged: int = 0
    """How many calls that nobody signed are sent beside."""
    stale: int = 0
    """How many are well signed and ten minutes old."""
    is_early: bool = False
    """It ends, and is told, before the answer to its submission is given."""
    is_lost: bool = False
    """That answer breaks off."""
    is_removed: bool = False
    """Its data are gone by the time it is asked for."""
    ignores_cancel: bool = False


@dataclass(slots=True)
class Refusal:
    """What is answered instead of what was asked for."""

    status: int
    detail: str = "It is not a good time."
    headers: dict[str, str] = field(default_factory=dict[str, str])


class Replicate:
    """The API, and where its files are."""

    def __init__(self) -> None:
        self.secret = f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}"
        self.url = ""
        self.cog: str | None = None
        """Where a Cog server is that does the work."""
        self.picture = sample()
        self.reset()
        self._app = Starlette(
            routes=[
                Route("/v1/predictions", self._create, methods=["POST"]),
                Route("/v1/models/{owner}/{name}/predictions", self._create, methods=["POST"]),
                Route("/v1/deployments/{owner}/{name}/predictions", self._create, methods=["POST"]),
                Route("/v1/predictions/{id}", self._read),
                Route("/v1/predictions/{id}/cancel", self._cancel, methods=["POST"]),
                Route("/v1/webhooks/default/secret", self._secret),
                Route("/files/{id}/{name}", self._file),
                Route("/cog/{id}", self._receive_from_cog, methods=["POST"]),
            ]
        )

    def reset(self) -> None:
        self.predictions: dict[str, dict[str, Any]] = {}
        self.scripts: dict[str, Script] = {}
        self.plan: Callable[[dict[str, Any]], Script] = lambda _: Script()
        """From the input of a prediction, what becomes of it."""
        self.refusals: deque[Refusal] = deque()
        """What the next submissions are answered."""
        self.illness: Refusal | None = None
        """What everything is answered."""
        self.asked: list[tuple[str, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.canceled: list[str] = []
        self.reported: list[tuple[str, int]] = []
        """The predictions of which somebody was called, with what that was answered."""
        self.sent: list[tuple[str, dict[str, str], bytes]] = []
        """The calls themselves: to where, with which headers and body."""
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        self.asked.append((request.method, request.url.path))
        if request.url.path.startswith("/v1/"):
            refusal = self.illness
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                refusal = Refusal(401, "You did not pass a valid authentication token")
            if refusal is not None:
                await _refused(refusal)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    # What it is asked

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        self.heads.append(dict(request.headers))
        if self.refusals:
            return _refused(self.refusals.popleft())
        if not isinstance(body.get("input"), dict):
            return _refused(Refusal(422, "- input: This field is required."))
        made = self._made(request, body)
        script = self.scripts[made["id"]] = self.plan(body["input"])
        if self.cog is not None:
            await self._ask_cog(made, body["input"])
        elif script.is_early:
            await self._work(made, 0)
        else:
            self._begin(self._work(made, script.seconds))
        wait = request.headers.get("prefer", "")
        if wait.startswith("wait"):
            await asyncio.sleep(min(script.seconds + 0.01, float(wait.partition("=")[2] or 60)))
        return _Broken(made) if script.is_lost else JSONResponse(made, 201)

    def _made(self, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        id = secrets.token_hex(13)
        named = "/".join(request.path_params.values()) or "acme/painter"
        made = {
            "id": id,
            "model": named,
            "version": body.get("version", "hidden"),
            "input": body["input"],
            "logs": "",
            "output": None,
            "data_removed": False,
            "error": None,
            "status": "starting",
            "created_at": _now(),
            "started_at": None,
            "completed_at": None,
            "webhook": body.get("webhook"),
            "webhook_events_filter": body.get("webhook_events_filter"),
            "urls": {
                "get": f"{self.url}/v1/predictions/{id}",
                "cancel": f"{self.url}/v1/predictions/{id}/cancel",
                "web": f"https://replicate.com/p/{id}",
            },
            "metrics": {},
        }
        self.predictions[id] = made
        return made

    async def _read(self, request: Request) -> Response:
        made = self.predictions.get(request.path_params["id"])
        if made is None:
            return _refused(Refusal(404, "The requested resource could not be found."))
        if self.scripts[made["id"]].is_removed and made["status"] in OVER:
            made = made | {"output": None, "data_removed": True, "input": {}, "logs": ""}
        return JSONResponse(made)

    async def _cancel(self, request: Request) -> Response:
        made = self.predictions.get(request.path_params["id"])
        if made is None:
            return _refused(Refusal(404, "The requested resource could not be found."))
        self.canceled.append(made["id"])
        if made["status"] not in OVER and not self.scripts[made["id"]].ignores_cancel:
            made |= {"status": "canceled", "completed_at": _now()}
        return JSONResponse(made)

    async def _secret(self, _: Request) -> Response:
        return JSONResponse({"key": self.secret})

    async def _file(self, request: Request) -> Response:
        made = self.predictions.get(request.path_params["id"])
        if made is None or self.scripts[made["id"]].is_removed:
            return Response(status_code=404)
        return Response(self.picture, media_type="application/octet-stream")

    # What it does

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, made: dict[str, Any], seconds: float) -> None:
        script = self.scripts[made["id"]]
        made |= {"status": "processing", "started_at": _now()}
        if seconds >= NEVER:
            return
        await asyncio.sleep(seconds)
        if made["status"] in OVER:
            return
        self.end(made, script.status, script.output, script.error)
        await self._call_back(made, script)

    def end(self, made: dict[str, Any], status: str, output: Any = None, error: str | None = None) -> None:
        if status == "succeeded" and output is None:
            output = [f"{self.url}/files/{made['id']}/out-0.png"]
        made |= {
            "status": status,
            "output": output if status == "succeeded" else None,
            "error": error,
            "completed_at": _now(),
            "metrics": {"predict_time": 0.1, "total_time": 0.2},
        }

    async def _call_back(self, made: dict[str, Any], script: Script) -> None:
        """Call back: the end of it, under one message id; and whatever else is to be sent, in any order."""
        if not made["webhook"]:
            return
        body, before = json.dumps(made).encode(), json.dumps(made | {"status": "processing", "output": None}).encode()
        message = f"msg_{secrets.token_hex(8)}"
        now, past = datetime.now(UTC), datetime.now(UTC) - timedelta(minutes=10)
        calls = [(body, self.signed(message, now, body))] * script.callbacks
        calls += [(body, self.signed(message, now, b"{}")) for _ in range(script.forged)]
        calls += [(body, self.signed(f"old_{message}", past, body)) for _ in range(script.stale)]
        random.shuffle(calls)
        calls += [(before, self.signed(f"{message}-{n}", now, before)) for n in range(script.stragglers)]
        if not script.is_early:
            await self._post_all(made, calls)
            return
        await self._post_all(made, calls[:1])
        self._begin(self._post_all(made, calls[1:]))

    async def _post_all(self, made: dict[str, Any], calls: list[tuple[bytes, dict[str, str]]]) -> None:
        async with httpx2.AsyncClient(timeout=60, verify=False, trust_env=False) as http:  # a context for TLS is dear
            for content, headers in calls:
                await self.post(http, made, headers, content)

    def signed(self, message: str, at: datetime, body: bytes) -> dict[str, str]:
        return {
            "webhook-id": message,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": Webhook(self.secret).sign(message, at, body.decode()),
            "content-type": "application/json",
            "user-agent": "Replicate-Webhooks/1.0",
        }

    async def post(self, http: Any, made: dict[str, Any], headers: dict[str, str], body: bytes) -> None:
        self.sent.append((made["webhook"], headers, body))
        try:
            answer = await http.post(made["webhook"], content=body, headers=headers)
            self.reported.append((made["id"], answer.status_code))
        except (httpx2.HTTPError, AttributeError):  # the latter by AnyIO, of a connection that was closed at once
            self.reported.append((made["id"], 0))

    # Cog, as the model's side

    async def _ask_cog(self, made: dict[str, Any], given: dict[str, Any]) -> None:
        order = {
            "id": made["id"],
            "input": given,
            "webhook": f"{self.url}/cog/{made['id']}",
            "webhook_events_filter": ["start", "output", "completed"],
        }
        async with httpx2.AsyncClient(timeout=PATIENCE) as http:
            answer = await http.post(f"{self.cog}/predictions", json=order, headers={"Prefer": "respond-async"})
            assert answer.status_code == 202, answer.text

    async def _receive_from_cog(self, request: Request) -> Response:
        """What the model says; it may say that it works after it has said that it is done."""
        said, made = await request.json(), self.predictions[request.path_params["id"]]
        if made["status"] not in OVER:
            if said["status"] in OVER:
                self.end(made, said["status"], said.get("output"), said.get("error"))
                self._begin(self._call_back(made, self.scripts[made["id"]]))
            else:
                made |= {"status": said["status"], "logs": said.get("logs", "")}
        return Response()


class _Broken(Response):
    """An answer that breaks off in the middle."""

    def __init__(self, made: dict[str, Any]) -> None:
        super().__init__(json.dumps(made))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - as all of them
        headers = [(b"content-length", str(len(self.body)).encode()), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(self.body[:10]), "more_body": True})
        raise ConnectionResetError


def _refused(refusal: Refusal) -> Response:
    fields = {"title": "Error", "detail": refusal.detail, "status": refusal.status}
    return JSONResponse(fields, refusal.status, headers=refusal.headers)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@contextlib.contextmanager
def served_replicate() -> Iterator[Served]:
    double = Replicate()
    with served(double) as running:
        double.url = running.url
        yield running


def main() -> None:
    """A double by itself, for processes that must outlive a test's own; the script of a prediction is in its input."""
    parser = argparse.ArgumentParser(prog="python -m tests.doubles.replicate", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for any")
    given = parser.parse_args()
    double = Replicate()
    double.plan = lambda given: Script(**given.get("script", {}))
    listening = socket.create_server(("127.0.0.1", given.port))
    double.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    sys.stdout.write(f"Replicate's double is at {double.url}; its token is {TOKEN}\n")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(double, log_level="error", lifespan="off")).run([listening])


if __name__ == "__main__":
    main()
