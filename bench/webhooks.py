"""Measures webhooks, compared with a bare loop of the same client, and a hundred thousand deadlines at once.

    python -m bench.webhooks --dsn postgresql://…

The courier sends webhooks to receivers on the same machine that respond at once: it claims, signs, posts, and records
each attempt. The bare loop signs and posts bodies of the same size with the same client and the same concurrency, and
records nothing. Then a hundred thousand jobs reach their deadline at the same time, while others are submitted one
after another. Prints one JSON line per number.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import httptools
import msgspec
import uvloop

from bench import processes
from bench.processes import STOP_SECONDS, WAIT_SECONDS, within
from bench.product import opened
from millpond import Engine, Millpond, webhooks
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End
from millpond.engine.webhooks.vault import Vault
from millpond.outbound import Outbound
from millpond.services.courier import ROOM, courier
from millpond.services.expirer import expirer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.services.courier import Courier
    from millpond.services.service import Service

KIND, PRICED = "announced", "late"
RECEIVERS = 16
CONNECTIONS = RECEIVERS * ROOM
DELIVERIES = 10_000
EXPIRING = 100_000
CHUNK = 10_000
AHEAD_SECONDS = 45.0
PADDING = "x" * 160
OUTPUT = json.dumps({"url": PADDING})
LEASE = timedelta(minutes=30)


def app() -> Millpond:
    made = Millpond()

    @made.kind(KIND)
    def announced(job: Any, sequence: int, padding: str) -> None: ...

    @made.kind(PRICED, price=5)
    def late(job: Any, sequence: int, padding: str) -> None: ...

    return made


async def main() -> None:
    parser = argparse.ArgumentParser(description="Measures webhooks beside a bare loop, and expiry.")
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--receive", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--deliveries", type=int, default=DELIVERIES)
    parser.add_argument("--expiring", type=int, default=EXPIRING)
    arguments = parser.parse_args()
    if arguments.receive:
        await receive()
        return
    outbound, vault = Outbound("loopback"), Vault.from_text(base64.b64encode(os.urandom(32)).decode())
    async with opened(arguments.dsn, app(), outbound=outbound, vault=vault) as engine:
        await measure_webhooks(engine, outbound, arguments.deliveries)
    async with opened(arguments.dsn, app()) as engine:
        await measure_expiry(engine, arguments.expiring)


# Receivers


class Receiver(asyncio.Protocol):
    """Responds at once."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


async def receive() -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# Measurements


async def measure_webhooks(engine: Engine, outbound: Outbound, count: int) -> None:
    with processes.serving("bench.webhooks", "--dsn", engine.db.dsn, "--receive") as (port, _):
        tenants = await endpoints(engine, port)
        await succeed(engine, tenants, count)
        body = await example(engine)
        await bare(outbound, port, body, CONNECTIONS * 4)  # warm
        # Before and after, because the speed of a machine varies over time.
        before = await bare(outbound, port, body, count)
        rate = count / await delivered(engine, count)
        after = await bare(outbound, port, body, count)
        print(f"bare: {count / before:.0f}/s before, {count / after:.0f}/s after", file=sys.stderr)
        loop_rate = count * 2 / (before + after)
    report("webhooks_bare", loop_rate, "deliveries/s")
    report("webhooks_courier", rate, "deliveries/s")


async def measure_expiry(engine: Engine, expiring: int) -> None:
    took, waits = await expire(engine, expiring)
    report("expiry_of_100000", took * EXPIRING / expiring, "s")
    waits.sort()
    report("expiry_submits", len(waits) / took, "submits/s")
    report("expiry_submit_p50", waits[len(waits) // 2] * 1000, "ms")
    report("expiry_submit_p99", waits[int(len(waits) * 0.99)] * 1000, "ms")


async def endpoints(engine: Engine, port: int) -> list[str]:
    tenants = [f"tenant-{number}" for number in range(RECEIVERS)]
    for tenant in tenants:
        await engine.endpoints.make(tenant, url=f"http://127.0.0.1:{port}/{tenant}", events=("succeeded",))
    return tenants


async def succeed(engine: Engine, tenants: list[str], count: int) -> None:
    """Create jobs that have succeeded and whose webhooks are not sent yet."""
    owners = itertools.cycle(tenants)
    requests = [
        {"kind": KIND, "input": {"sequence": number, "padding": PADDING}, "tenant": tenant, "account": tenant}
        for number, tenant in zip(range(count), owners, strict=False)
    ]
    for start in range(0, count, CHUNK):
        await engine.submit_many(requests[start : start + CHUNK])
    lanes, ended = Lanes([KIND]), 0
    async with within(WAIT_SECONDS, f"{count} jobs to end"):
        while ended < count:
            leases = await engine.claim(lanes, 1_000, worker="bench", duration=LEASE)
            await asyncio.gather(*(engine.finish(End(lease, "succeeded", OUTPUT)) for lease in leases))
            ended += len(leases)


async def example(engine: Engine) -> bytes:
    """A body in the format of the courier."""
    row = await engine.db.pool.fetchrow("select job_id, event, at, data from millpond.deliveries limit 1")
    job = row["data"] if isinstance(row["data"], dict) else msgspec.json.decode(row["data"])
    event = webhooks.WebhookData(row["job_id"], row["event"], row["at"], job)
    return msgspec.json.encode(webhooks.NATIVE.body(event))


async def bare(outbound: Outbound, port: int, body: bytes, count: int) -> float:
    """Sign and post with the same client and the same concurrency, without reading or recording anything."""
    secret = webhooks.new_secret()
    numbers = iter(range(count))

    async def post(receiver: int) -> None:
        url = f"http://127.0.0.1:{port}/bare-{receiver}"
        for number in numbers:
            signed = webhooks.headers(f"msg_{number}", int(time.time()), body, [secret])
            answer = await outbound.send("POST", url, headers=signed, body=body)
            if answer.status != 200:
                raise RuntimeError(f"the receiver answered {answer.status}")

    began = time.perf_counter()
    await asyncio.gather(*(post(number % RECEIVERS) for number in range(CONNECTIONS)))
    return time.perf_counter() - began


async def delivered(engine: Engine, count: int) -> float:
    """How long the courier takes to send and record all webhooks."""
    done = "select count(*) from millpond.deliveries where fate = 'delivered'"
    part = courier(engine)
    began = time.perf_counter()
    async with running(part), within(WAIT_SECONDS, f"{count} deliveries"):
        while await engine.db.pool.fetchval(done) < count:  # noqa: ASYNC110 - the database can only be polled
            await asyncio.sleep(0.05)
        return time.perf_counter() - began


@contextlib.asynccontextmanager
async def running(part: Courier | Service) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(part.run(stop))
    try:
        yield
    finally:
        stop.set()
        async with within(STOP_SECONDS, f"the {part.name} to stop"):
            await task


async def expire(engine: Engine, count: int) -> tuple[float, list[float]]:
    """The time from the common deadline until the last job has ended, and the times of the submits meanwhile."""
    tenant = "late"
    await engine.grant(tenant, tenant, 10**11)
    deadline = time.time() + AHEAD_SECONDS * max(count / EXPIRING, 0.1)
    base = {"kind": PRICED, "tenant": tenant, "account": tenant}
    for start in range(0, count, CHUNK):
        left = timedelta(seconds=deadline - time.time())
        size = min(CHUNK, count - start)
        answers = await engine.submit_many(
            [
                base | {"input": {"sequence": start + number, "padding": PADDING}, "expires_in": left}
                for number in range(size)
            ]
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
    await asyncio.sleep(max(deadline - time.time(), 0))
    print(f"{count} jobs are due at {datetime.now(UTC):%H:%M:%S}", file=sys.stderr)
    expired = "select count(*) from millpond.jobs where outcome = 'expired'"
    waits: list[float] = []
    began, looked = time.perf_counter(), 0.0
    async with running(expirer(engine)), within(WAIT_SECONDS, f"{count} jobs to expire"):
        while True:
            before = time.perf_counter()
            await engine.submit(KIND, {"sequence": len(waits), "padding": PADDING}, tenant="others", account="others")
            waits.append(time.perf_counter() - before)
            if time.perf_counter() - looked > 0.5:
                looked = time.perf_counter()
                if await engine.db.pool.fetchval(expired) >= count:
                    return time.perf_counter() - began, waits


def report(metric: str, value: float, unit: str) -> None:
    line = {
        "peer": "millpond",
        "version": version("millpond"),
        "metric": metric,
        "value": round(value, 2),
        "unit": unit,
    }
    print(json.dumps(line | {"settings": {"receivers": RECEIVERS, "at once": CONNECTIONS}}), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
