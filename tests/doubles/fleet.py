"""A double of the server's side of a fleet: the worker protocol and a storage, over real sockets.

What the server does in earnest is tested against the server; this one does what a server seldom does when it is
wanted: it forgets tokens, goes away in the middle, lets URLs run out and cuts files short.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import socket
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millpond import ids, wire
from millpond.cli.output import problem
from millpond.errors import LeaseLostError, MillpondError, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

SECRET = "mp_worker_of_the_double"


@dataclass
class FleetDouble:
    """What it was asked, what it has to give, and how it misbehaves next."""

    url: str = ""
    lease_seconds: float = 900.0
    heartbeat_seconds: float = 30.0
    tokens: set[str] = field(default_factory=set)
    waiting: deque[wire.Assignment] = field(default_factory=deque)
    held: dict[str, UUID] = field(default_factory=dict)
    canceling: set[str] = field(default_factory=set)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    refusals: dict[str, MillpondError] = field(default_factory=dict)
    """The next answer to a verb."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """The chunks that were emitted, by job."""
    files: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    spoiled: set[str] = field(default_factory=set)
    """Signed URLs that have run out."""
    storage_faults: deque[str] = field(default_factory=deque)
    """What the next transfers meet: 'expired', 'cut' in the middle, 'lost', or 'unanswered' although it was stored."""
    is_down: bool = False
    is_draining: bool = False
    unready_reason: str | None = None

    def verbs(self, *names: str) -> list[dict[str, Any]]:
        return [body for verb, body in self.asked if verb in names]

    def give(self, given: Any = None, *, kind: str = "far", **options: Any) -> str:
        """A job for the next poll."""
        job_id = ids.text("job", uuid4())
        plain: dict[str, Any] = {
            "kind": kind,
            "route": kind,
            "tenant": "acme",
            "account": "ann",
            "state": "running",
            "epoch": 1,
            "attempts": 0,
            "run": 1,
            "price": 5,
            "progress": 0.0,
            "stage": None,
            "stages": [],
            "time_limit_seconds": None,
            "memo": None,
            "answer": None,
            "created_at": datetime.now(UTC),
            "expires_at": None,
            "downloads": {},
        }
        self.waiting.append(
            wire.Assignment(
                job_id=job_id,
                lease_token=str(uuid4()),
                lease_seconds=self.lease_seconds,
                input={} if given is None else given,
                **plain | options,
            )
        )
        return job_id

    def keep(self, name: str, data: bytes) -> wire.Signed:
        """A file to download."""
        self.files[name] = data
        return self.signed("GET", name)

    def signed(self, method: str, name: str) -> wire.Signed:
        headers = {} if method == "GET" else {"x-signed": "yes"}
        until = datetime.now(UTC) + timedelta(minutes=15)
        return wire.Signed(method=method, url=f"{self.url}/files/{name}?s={uuid4()}", headers=headers, expires_at=until)

    # The protocol

    async def worker(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        body = msgspec.json.decode(await request.body() or b"{}")
        if self.is_down:
            return Response(status_code=503)
        try:
            self.asked.append((verb, body))
            if verb in self.refusals:
                raise self.refusals.pop(verb)
            bearer = request.headers["authorization"].removeprefix("Bearer ")
            if verb == "register":
                return self.answer(self.register(bearer, body), 201)
            if bearer not in self.tokens:
                raise UnauthorizedError
            answer = getattr(self, f"on_{verb}")(body)
            return self.answer(await answer if asyncio.iscoroutine(answer) else answer)
        except MillpondError as error:
            response = msgspec.json.encode(problem(error), enc_hook=str)
            return Response(response, error.status, media_type="application/problem+json")

    @staticmethod
    def answer(body: Any, status: int = 200) -> Response:
        return Response(msgspec.json.encode(body), status, media_type="application/json")

    def register(self, bearer: str, body: dict[str, Any]) -> wire.Registered:
        if bearer != SECRET:
            raise UnauthorizedError
        token = f"mpw_{uuid4().hex}"
        self.tokens.add(token)
        return wire.Registered(
            id=ids.text("worker", uuid4()),
            worker=body["worker"],
            token=token,
            routes=body["routes"],
            is_approved=True,
            lease_seconds=self.lease_seconds,
            heartbeat_seconds=self.heartbeat_seconds,
            poll_seconds_max=30,
        )

    async def on_poll(self, body: dict[str, Any]) -> wire.Assignments:
        loop = asyncio.get_running_loop()
        until = loop.time() + min(body.get("wait", 0), 0.2)
        while not self.waiting and loop.time() < until:
            await asyncio.sleep(0.005)
        jobs = [self.waiting.popleft() for _ in range(min(body.get("want", 1), len(self.waiting)))]
        self.held |= {job.job_id: job.lease_token for job in jobs}  # pyright: ignore[reportAttributeAccessIssue]
        return wire.Assignments(jobs=jobs, is_draining=self.is_draining)

    def on_readiness(self, body: dict[str, Any]) -> dict[str, Any]:
        self.unready_reason = body["unready_reason"]
        return {}

    def on_heartbeat(self, body: dict[str, Any]) -> dict[str, Any]:
        beats: list[dict[str, Any]] = []
        for job in body.get("jobs", []):
            renew = job.get("renew", [])
            beats.append(
                {
                    "job_id": job["job_id"],
                    "lease_token": job["lease_token"],
                    "is_held": self.held.get(job["job_id"]) == job["lease_token"],
                    "cancel_requested": job["job_id"] in self.canceling,
                    "lease_seconds": self.lease_seconds,
                    "downloads": {name: self.signed("GET", name) for name in renew if name in self.files},
                    "uploads": {name: self.signed("PUT", name) for name in renew if name in self.uploads},
                }
            )
        return {"jobs": beats, "is_draining": self.is_draining}

    def check(self, body: dict[str, Any]) -> str:
        if self.held.get(body["job_id"]) != body["lease_token"]:
            raise LeaseLostError
        return body["job_id"]

    def on_note(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"cancel_requested": self.check(body) in self.canceling}

    def on_emit(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"jobs": [self.emitted(job) for job in body["jobs"]]}

    def emitted(self, job: dict[str, Any]) -> dict[str, Any]:
        is_held = self.held.get(job["job_id"]) == job["lease_token"]
        known = self.texts.setdefault(job["job_id"], []) if is_held else []
        for chunk in job["chunks"]:
            if chunk["number"] == len(known) + 1:
                known.append(chunk["text"])
        return {
            "job_id": job["job_id"],
            "lease_token": job["lease_token"],
            "is_held": is_held,
            "cancel_requested": job["job_id"] in self.canceling,
            "error": None,
        }

    def on_upload(self, body: dict[str, Any]) -> dict[str, Any]:
        self.check(body)
        artifact = ids.text("art", uuid4())
        self.uploads[artifact] = body["sha256"]
        return {"artifact_id": artifact, "upload": self.signed("PUT", artifact)}

    def on_download(self, body: dict[str, Any]) -> wire.Signed:
        self.check(body)
        return self.signed("GET", body["artifact_id"])

    def on_complete(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.over(body)

    on_fail = on_requeue = on_park = on_complete

    def over(self, body: dict[str, Any]) -> dict[str, Any]:
        job_id = self.check(body)
        del self.held[job_id]
        return {"job_id": job_id, "state": "done", "fate": "done"}

    def on_deregister(self, _: dict[str, Any]) -> None:
        self.tokens.clear()

    # Storage

    async def store(self, request: Request) -> Response:
        name, fault = request.path_params["name"], self.storage_faults.popleft() if self.storage_faults else ""
        assert "authorization" not in request.headers, "storage must not see our keys"
        if fault == "expired":
            self.spoiled.add(str(request.url))
        if str(request.url) in self.spoiled:
            return Response("the URL has expired", 403)
        if request.method == "PUT":
            body = await request.body()
            assert request.headers["x-signed"] == "yes"
            assert int(request.headers["content-length"]) == len(body)
            if hashlib.sha256(body).hexdigest() != self.uploads[name]:
                return Response("the checksum does not match", 400)
            if fault == "lost":
                return Response(status_code=500)
            if name in self.files:
                return Response("the file is stored", 412)
            self.files[name] = body
            return Response(status_code=500 if fault == "unanswered" else 200)
        return _Part(self.files[name], request.headers.get("range"), is_cut=fault == "cut")


class _Part(Response):
    """A file, or the rest of it; one that is cut ends in the middle, with its connection."""

    def __init__(self, data: bytes, asked: str | None, *, is_cut: bool) -> None:
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        self.rest, self.is_cut = data[start:], is_cut
        super().__init__(status_code=206 if asked else 200)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - as ASGI has it
        headers = [(b"content-length", str(len(self.rest)).encode())]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        sent = self.rest[: len(self.rest) // 2] if self.is_cut else self.rest
        await send({"type": "http.response.body", "body": sent, "more_body": self.is_cut})


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[FleetDouble]:
    """The double on a socket of its own, in this loop."""
    double = FleetDouble()
    app = Starlette(
        routes=[
            Route("/v1/worker/{verb}", double.worker, methods=["POST"]),
            Route("/files/{name}", double.store, methods=["GET", "PUT"]),
        ]
    )
    with socket.create_server(("127.0.0.1", 0)) as sock:
        double.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server._serve([sock]))
        try:
            yield double
        finally:
            server.should_exit = True
            await serving
