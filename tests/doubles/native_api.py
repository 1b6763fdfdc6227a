"""A double of the native API: it speaks the shapes of :mod:`millpond.wire` over real sockets, and misbehaves on demand.

What the server does in earnest is tested against the server; this one does what a server seldom does when it is
wanted: it cuts bodies and streams, stalls, storms with 429, and goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from millpond import wire
from millpond.errors import MillpondError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

KEY = "pk_test_0123456789"
ENDS = ("succeeded", "failed", "canceled", "expired", "blocked")

App = "Callable[[Any, Any, Any], Awaitable[None]]"
Fault = "Callable[[App, Any, Any, Any], Awaitable[None]]"


@dataclass
class FakeJob:
    """A job whose events are the test's to write."""

    id: str
    kind: str
    input: Any
    events: list[wire.Event] = field(default_factory=list)
    chunks: list[wire.Chunk] = field(default_factory=list)
    output: Any = None
    error: dict[str, Any] | None = None

    def happen(self, type: str, *, output: Any = None, error: dict[str, Any] | None = None, **data: Any) -> None:
        self.output, self.error = output or self.output, error or self.error
        event = wire.Event(seq=len(self.events) + 1, at=datetime.now(UTC), type=type, state=type, data=data or None)
        self.events.append(event)

    def emit(self, *texts: str, restart: bool = False) -> None:
        if restart or not self.chunks:
            self.happen("text_started")
            self.chunks = []
        for text in texts:
            chunk = wire.Chunk(seq=len(self.events), number=len(self.chunks) + 1, at=datetime.now(UTC), text=text)
            self.chunks.append(chunk)

    def after(self, position: tuple[int, int]) -> list[tuple[tuple[int, int], str, Any]]:
        """What comes after a position in the stream."""
        items: list[tuple[tuple[int, int], str, Any]] = [((event.seq, 0), event.type, event) for event in self.events]
        items += [((chunk.seq, chunk.number), "chunk", chunk) for chunk in self.chunks]
        return sorted((item for item in items if item[0] > position), key=lambda item: item[0])

    @property
    def outcome(self) -> Any:
        return next((event.type for event in reversed(self.events) if event.type in ENDS), None)

    @property
    def links(self) -> wire.Links:
        own = f"/v1/jobs/{self.id}"
        return wire.Links(self=own, events=f"{own}/events", stream=f"{own}/stream", cancel=f"{own}/cancel")

    def accepted(self) -> wire.Accepted:
        return wire.Accepted(
            id=self.id,
            kind=self.kind,
            state="queued",
            price=5,
            available=95,
            created_at=datetime.now(UTC),
            expires_at=None,
            links=self.links,
        )

    def record(self) -> wire.Job:
        return wire.Job(
            id=self.id,
            tenant="acme",
            account="mary",
            kind=self.kind,
            lifecycle="standard",
            queue=self.kind,
            state=self.events[-1].state,
            phase="ended" if self.outcome else "ready",
            outcome=self.outcome,
            progress=0,
            stage=None,
            position=None,
            eta=None,
            priority=0,
            run=1,
            attempts=0,
            events=len(self.events),
            price=5,
            captured=5 if self.outcome == "succeeded" else None,
            created_at=self.events[0].at,
            run_at=None,
            expires_at=None,
            started_at=None,
            finished_at=None,
            cancel_requested_at=None,
            retry_of=None,
            input=self.input,
            output=self.output,
            error=self.error,
            links=self.links,
        )


class NativeApi:
    """The double. It keeps what it was asked, and answers the next requests with the faults it was given."""

    def __init__(self) -> None:
        self.jobs: dict[str, FakeJob] = {}
        self.by_key: dict[str, bytes] = {}
        self.asked: list[Request] = []
        self.faults: deque[Any] = deque()
        self.streams_cut_after: int | None = None
        self.streams_come_through = True
        self.page_size = 50
        self._app = Starlette(
            routes=[
                Route("/v1/jobs", self._submit, methods=["POST"]),
                Route("/v1/jobs", self._list),
                Route("/v1/jobs/bulk", self._bulk, methods=["POST"]),
                Route("/v1/jobs/{id}", self._read),
                Route("/v1/jobs/{id}/cancel", self._cancel, methods=["POST"]),
                Route("/v1/jobs/{id}/retry", self._retry, methods=["POST"]),
                Route("/v1/jobs/{id}/events", self._events),
                Route("/v1/jobs/{id}/stream", self._stream),
                Route("/v1/jobs/{id}/text", self._text),
                Route("/v1/wallet", self._wallet),
                Route("/v1/grants", self._wallet, methods=["POST"]),
            ],
            exception_handlers={MillpondError: problem},  # type: ignore[dict-item]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.asked.append(Request(scope))
            if self.faults:
                return await self.faults.popleft()(self._app, scope, receive, send)
        await self._app(scope, receive, send)
        return None

    def add(self, kind: str, input: Any = None) -> FakeJob:
        made = FakeJob(f"job_{len(self.jobs) + 1:026d}", kind, input)
        made.happen("submitted")
        self.jobs[made.id] = made
        return made

    def asked_for(self, method: str, ending: str) -> list[Request]:
        return [request for request in self.asked if request.method == method and request.url.path.endswith(ending)]

    async def _submit(self, request: Request) -> Response:
        key = request.headers.get("idempotency-key")
        if key in self.by_key:
            return answer(self.by_key[key], 202, {"Idempotency-Replayed": "true"})
        wanted = msgspec.json.decode(await request.body(), type=wire.Submit)
        body = msgspec.json.encode(self.add(wanted.kind, wanted.input).accepted())
        if key is not None:
            self.by_key[key] = body
        return answer(body, 202)

    async def _bulk(self, request: Request) -> Response:
        wanted = msgspec.json.decode(await request.body(), type=wire.SubmitMany)
        results = [self._one(submit) for submit in wanted.jobs]
        refused = sum(result.job is None for result in results)
        return answer(wire.Results(accepted=len(results) - refused, refused=refused, results=results))

    def _one(self, wanted: wire.Submit) -> wire.Result:
        if wanted.kind == "broke":
            described = wire.Problem(type="/x", title="x", status=402, code="insufficient_credits", detail="Too few.")
            return wire.Result(status=402, problem=described)
        key = wanted.idempotency_key or ""
        if key not in self.by_key:
            self.by_key[key] = msgspec.json.encode(self.add(wanted.kind, wanted.input).accepted())
        return wire.Result(status=202, job=msgspec.json.decode(self.by_key[key], type=wire.Accepted))

    def _find(self, request: Request) -> FakeJob:
        found = self.jobs.get(request.path_params["id"])
        if found is None:
            raise NotFoundError("There is no such job.", field="id")
        return found

    async def _read(self, request: Request) -> Response:
        job = self._find(request)
        until = asyncio.get_running_loop().time() + float(request.query_params.get("wait", 0))
        while job.outcome is None and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.005)
        return answer(job.record())

    async def _list(self, request: Request) -> Response:
        start = int(request.query_params.get("cursor", 0))
        records = [job.record() for job in reversed(self.jobs.values())]
        end = start + self.page_size
        return answer(wire.Jobs(data=records[start:end], next_cursor=str(end) if end < len(records) else None))

    async def _cancel(self, request: Request) -> Response:
        job = self._find(request)
        if not (had_ended := job.outcome is not None):
            job.happen("canceled")
        state = job.events[-1].state
        return answer(wire.Canceled(id=job.id, is_accepted=not had_ended, state=state, stage=None))

    async def _retry(self, request: Request) -> Response:
        return answer(self.add(self._find(request).kind).accepted(), 202)

    async def _events(self, request: Request) -> Response:
        job, after = self._find(request), int(request.query_params.get("after", 0))
        page = job.events[after : after + self.page_size]
        has_more = after + len(page) < len(job.events)
        return answer(wire.Events(data=page, next=page[-1].seq if has_more else None))

    async def _stream(self, request: Request) -> Response:
        if not self.streams_come_through:
            return Response("<html>no streams here</html>", 200, media_type="text/html")
        job, (seq, _, number) = self._find(request), request.headers.get("last-event-id", "0").partition(".")
        return StreamingResponse(self._frames(job, int(seq), int(number or 0)), media_type="text/event-stream")

    async def _text(self, request: Request) -> Response:
        job = self._find(request)
        number = len(job.chunks)
        position = f"{len(job.events)}.{number}" if number else f"{len(job.events)}"
        text = "".join(chunk.text for chunk in job.chunks)
        return answer(wire.JobText(text=text, number=number, at=None, epoch=1, last_event_id=position))

    async def _frames(self, job: FakeJob, seq: int, number: int = 0) -> AsyncIterator[bytes]:
        yield b"retry: 100\n\n"
        after, sent = (seq, number), 0
        while True:
            for position, name, item in job.after(after):
                if sent == self.streams_cut_after:
                    raise ConnectionAbortedError  # in the middle of the stream
                id_ = f"{position[0]}.{position[1]}" if position[1] else f"{position[0]}"
                yield b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), name.encode(), msgspec.json.encode(item))
                after, sent = position, sent + 1
            if job.outcome is not None:
                yield b"event: end\ndata: {}\n\n"
                return
            await asyncio.sleep(0.005)

    async def _wallet(self, _: Request) -> Response:
        wallet = wire.Wallet(tenant="acme", account="mary", available=95, held=5, active=1, active_max=None)
        return answer(wallet)


def answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(content, status, headers, "application/json")


async def problem(request: Request, error: MillpondError) -> Response:
    return refusal(error)


def refusal(error: MillpondError, **headers: str) -> Response:
    fields = {"type": f"/docs/problems/{error.code}", "title": "x", "status": error.status, "code": error.code}
    fields |= {"detail": error.message, "field": error.field, "hint": error.hint, "retryable": error.retryable}
    named = {name.replace("_", "-"): value for name, value in headers.items()} | {"Request-Id": "req_1"}
    return Response(msgspec.json.encode(fields | error.details), error.status, named, "application/problem+json")


# Faults: each takes the place of one answer


def refuse(error: MillpondError, **headers: str) -> Any:
    async def fault(app: Any, scope: Any, receive: Any, send: Any) -> None:
        await refusal(error, **headers)(scope, receive, send)

    return fault


def answer_with(status: int, body: bytes = b"", **headers: str) -> Any:
    """An answer that is not Millpond's."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}

    async def fault(app: Any, scope: Any, receive: Any, send: Any) -> None:
        await Response(body, status, named)(scope, receive, send)

    return fault


async def cut_after_it_is_done(app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Do what was asked, and break off in the middle of the answer."""

    async def half(message: Any) -> None:
        if message["type"] == "http.response.body" and message.get("body"):
            await send({**message, "body": message["body"][: len(message["body"]) // 2], "more_body": True})
            raise ConnectionAbortedError
        await send(message)

    await app(scope, receive, half)


def stall(seconds: float) -> Any:
    """Let the body come drop by drop."""

    async def fault(app: Any, scope: Any, receive: Any, send: Any) -> None:
        async def drops() -> AsyncIterator[bytes]:
            for _ in range(int(seconds / 0.05)):
                yield b" "
                await asyncio.sleep(0.05)
            yield b"{}"

        await StreamingResponse(drops(), media_type="application/json")(scope, receive, send)

    return fault


async def compress(app: Any, scope: Any, receive: Any, send: Any) -> None:
    """Answer as a proxy would that compresses, in chunks of an odd size."""
    parts: list[bytes] = []

    async def keep(message: Any) -> None:
        parts.append(message.get("body", b""))

    await app(scope, receive, keep)
    packed = gzip.compress(b"".join(parts))

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(packed), 7):
            yield packed[start : start + 7]

    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    await StreamingResponse(chunks(), headers=headers)(scope, receive, send)


# Serving


class Server:
    """A port on which a double is served; it can go away and come back."""

    def __init__(self, api: NativeApi) -> None:
        self.api = api

        async def serve(scope: Any, receive: Any, send: Any) -> None:
            await self.api(scope, receive, send)

        self._serve = serve
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        quiet = uvicorn.Config(
            self._serve, port=self.port, log_config=None, lifespan="off", timeout_graceful_shutdown=0, ws="none"
        )
        self._server = uvicorn.Server(quiet)
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
def served(api: NativeApi) -> Iterator[Server]:
    server = Server(api)
    server.start()
    try:
        yield server
    finally:
        server.stop()
