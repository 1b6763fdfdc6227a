"""Measures the API under load, and a bare echo on the same kind of server: `python -m bench.http --dsn postgresql://…`.

One server process, 64 connections that each send the next request when they have the response to the last one,
PostgreSQL with durable settings on the same machine. The echo is Starlette and msgspec and nothing else: it reads a
body of the same size, validates it and sends it back. Prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httptools
import msgspec
import uvloop
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from bench import processes
from bench.processes import WAIT_SECONDS, within
from bench.product import ACCOUNT, CREDITS, KIND, TENANT, app, opened
from millpond import Engine
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.server import serve
from millpond.engine.queue.dispatches import Lanes
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from millpond.wire import Submit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from starlette.requests import Request

CONNECTIONS = 64
SECONDS = 5.0
WARM_UP = 1.0
RATE_LIMIT = 1_000_000
LEASE = timedelta(minutes=30)


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the API beside a bare echo.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--serve", choices=("echo", "product"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve == "echo":
        await serving(bare())
    elif arguments.serve == "product":
        engine = await Engine.open(arguments.dsn, app())
        notifier = Notifier(engine)
        hub = Hub(engine, notifier)
        await serving(create_app(engine, settings=Settings(), hub=hub))
    else:
        async with opened(arguments.dsn, app()) as engine:
            await measure(engine)


# Servers


async def serving(asgi: Any) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    listening = socket.create_server(("127.0.0.1", 0), backlog=1_024)
    port = listening.getsockname()[1]
    await serve(asgi, host="127.0.0.1", port=port, sock=listening, stop=stop, on_ready=lambda: print(port, flush=True))


def bare() -> Starlette:
    async def echo(request: Request) -> Response:
        body = msgspec.json.decode(await request.body(), type=Submit)
        return Response(msgspec.json.encode(body), media_type="application/json")

    return Starlette(routes=[Route("/echo", echo, methods=["POST"])])


# Load


@dataclass(slots=True)
class Measured:
    """The response times, and the unexpected statuses with their counts."""

    waits: list[float] = field(default_factory=list)
    refused: dict[int, int] = field(default_factory=dict)


class Caller(asyncio.Protocol):
    """One connection: sends a request, reads the response, sends the next one."""

    def __init__(self, requests: Iterator[bytes], measured: Measured, wanted: int) -> None:
        self.requests, self.measured, self.wanted = requests, measured, wanted
        self.parser = httptools.HttpResponseParser(self)
        self.ended = asyncio.get_running_loop().create_future()
        self.is_stopping = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.began = time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        status = self.parser.get_status_code()
        if status == self.wanted:
            self.measured.waits.append((time.perf_counter() - self.began) * 1000)
        else:
            self.measured.refused[status] = self.measured.refused.get(status, 0) + 1
        self.parser = httptools.HttpResponseParser(self)
        if self.is_stopping:
            self.transport.close()
        else:
            asyncio.get_running_loop().call_soon(self.send)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def load(port: int, requests: Iterator[bytes], wanted: int, seconds: float) -> Measured:
    measured = Measured()
    loop = asyncio.get_running_loop()
    async with within(seconds + WAIT_SECONDS, "the answers to all requests"):
        callers = [
            (await loop.create_connection(lambda: Caller(requests, measured, wanted), "127.0.0.1", port))[1]
            for _ in range(CONNECTIONS)
        ]
        await asyncio.sleep(seconds)
        for caller in callers:
            caller.is_stopping = True
        await asyncio.gather(*(caller.ended for caller in callers))
    return measured


# Measurements


async def measure(engine: Engine) -> None:
    await engine.grant(TENANT, ACCOUNT, CREDITS)
    _, key = await engine.access.make_key(
        scope="client", tenant=TENANT, account=ACCOUNT, rate_limit=RATE_LIMIT, actor="bench"
    )
    running = await leased(engine)
    with server("echo", engine.db.dsn) as (port, _):
        echo = await rate(port, lambda: posts("/echo", None), 200)
    with server("product", engine.db.dsn) as (port, _):
        submit = await rate(port, lambda: posts("/v1/jobs", key), 202)
        poll = await rate(port, lambda: gets(running, key), 200)
    for name, result in (("http_echo", echo), ("http_submit", submit), ("http_poll", poll)):
        for metric, value, unit in (
            (name, result["rate"], "requests/s"),
            (f"{name}_p50", result["p50"], "ms"),
            (f"{name}_p99", result["p99"], "ms"),
        ):
            line = {"peer": "millpond", "version": version("millpond"), "metric": metric, "value": round(value, 2)}
            print(json.dumps(line | {"unit": unit, "settings": {"connections": CONNECTIONS}}), flush=True)


async def leased(engine: Engine) -> list[str]:
    """The ids of leased jobs."""
    requests = [{"kind": KIND, "input": {"sequence": n, "padding": ""}} for n in range(CONNECTIONS)]
    await engine.submit_many([request | {"tenant": TENANT, "account": ACCOUNT} for request in requests])
    leases = await engine.claim(Lanes([KIND]), CONNECTIONS, worker="bench", duration=LEASE)
    return [(await engine.read(TENANT, lease.job_id)).id for lease in leases]


async def rate(port: int, requests: Callable[[], Iterator[bytes]], wanted: int) -> dict[str, float]:
    await load(port, requests(), wanted, WARM_UP)
    measured = await load(port, requests(), wanted, SECONDS)
    if measured.refused:
        print(f"refused: {measured.refused}", file=sys.stderr)
    waits = sorted(measured.waits)
    return {
        "rate": len(waits) / SECONDS,
        "p50": waits[len(waits) // 2],
        "p99": waits[int(len(waits) * 0.99)],
    }


def posts(path: str, key: str | None) -> Iterator[bytes]:
    """Submits, each with its own idempotency key."""
    start = time.monotonic_ns()
    number = 0
    while True:
        number += 1
        body = json.dumps({"kind": KIND, "input": {"sequence": number, "padding": "x" * 160}}).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\n"
        if key is not None:
            head += f"Authorization: Bearer {key}\r\nIdempotency-Key: order-{start}-{number}\r\n"
        yield f"{head}\r\n".encode() + body


def gets(jobs: list[str], key: str) -> Iterator[bytes]:
    while True:
        for job in jobs:
            yield f"GET /v1/jobs/{job} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def server(kind: str, dsn: str) -> AbstractContextManager[tuple[int, int]]:
    return processes.serving("bench.http", "--dsn", dsn, "--serve", kind)


if __name__ == "__main__":
    uvloop.run(main())
