"""What a connection may cost: raw bytes against a running server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from millpond.api import server
from millpond.api.server import HEAD_MAX, PIPELINE_MAX
from tests.factories import TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.api.sites import Site

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def statuses(answer: bytes) -> list[int]:
    return [int(part.split(b" ", 1)[0]) for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * HEAD_MAX,  # in one piece, and endless
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * HEAD_MAX + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"Many: headers\r\n" * 10_000 + b"\r\n",
        b"GET /" + b"x" * HEAD_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["endless", "long", "many", "address"],
)
async def test_a_head_that_is_too_large_is_refused(site: Site, head: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    for start in range(0, len(head), 4_096):
        writer.write(head[start : start + 4_096])
        await asyncio.sleep(0)
    writer.write(b"x" * 70_000 if not head.endswith(b"\n") else b"")
    answer = await _read(reader)
    assert status(answer) == 431
    assert b"application/problem+json" in answer
    assert b"connection: close" in answer
    writer.close()


async def test_a_large_head_just_within_the_limit_is_served(site: Site) -> None:
    answer = await site.raw(
        b"GET /healthz HTTP/1.1\r\nConnection: close\r\nLong: " + b"x" * (HEAD_MAX - 200) + b"\r\n\r\n"
    )
    assert status(answer) == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nBad Header: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nA: b\x00c\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT example.com:443 HTTP/1.1\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS greeting
    ],
)
async def test_what_is_not_http_gets_a_4xx(site: Site, sent: bytes) -> None:
    answer = await site.raw(sent)
    assert 400 <= status(answer) < 500, answer
    assert b"application/problem+json" in answer
    assert status(await site.raw(GET, until_closed=False)) == 200


async def test_pipelined_requests_are_answered_in_order(site: Site) -> None:
    last = b"GET /nowhere HTTP/1.1\r\nConnection: close\r\n\r\n"
    assert statuses(await site.raw(GET * 3 + last)) == [200, 200, 200, 404]


async def test_too_many_pipelined_requests_are_cut_off(site: Site) -> None:
    answer = await site.raw(GET * 5_000)
    assert len(statuses(answer)) <= PIPELINE_MAX + 1
    assert status(await site.raw(GET, until_closed=False)) == 200


async def test_an_upgrade_that_is_not_offered_is_an_ordinary_request(site: Site) -> None:
    upgrade = b"GET /healthz HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"
    assert status(await site.raw(upgrade, until_closed=False)) == 200


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost:"], ids=["silent", "half a head"])
async def test_a_head_that_does_not_come_in_time_is_refused(
    site: Site, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    monkeypatch.setitem(server._SECONDS, "head", 0.2)
    answer = await site.raw(sent)
    assert status(answer) == 408
    assert b"too_slow" in answer


async def test_a_body_that_does_not_come_in_time_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server._SECONDS, "body", 0.2)
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\nContent-Length: 100\r\n\r\n".encode()
    answer = await site.raw(head + b'{"kind"')
    assert status(answer) == 408
    assert (await site.get("/v1/jobs")).json()["data"] == []


async def test_a_caller_that_goes_in_the_middle_of_its_body_leaves_nothing(site: Site) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\nContent-Length: 16\r\n\r\n".encode()
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(head + b'{"kind": "fre')
    await writer.drain()
    writer.close()
    assert (await site.get("/v1/jobs")).json()["data"] == []


async def test_a_long_stream_is_not_too_slow(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    check_pace, is_swept = server.Connection.check_pace, asyncio.Event()

    def check_an_hour_later(connection: server.Connection, now: float) -> None:
        check_pace(connection, now + 3600)
        is_swept.set()

    job_id = await site.submitted()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET /v1/jobs/{job_id}/stream HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\n\r\n".encode())
    await reader.readuntil(b"event: submitted")
    monkeypatch.setattr(server.Connection, "check_pace", check_an_hour_later)
    await is_swept.wait()
    await site.engine.cancel(TENANT, job_id)
    assert b"event: canceled" in await reader.readuntil(b"event: end")
    writer.close()


async def test_a_reader_that_stops_reading_is_dropped(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millpond.api.app.WRITE_SECONDS", 0.2)
    monkeypatch.setattr(server, "CLOSE_SECONDS", 0.2)
    job_id = await site.submitted()
    endless = site.hub.stream("acme", (await site.engine.read("acme", job_id)).job_id, 0)

    class Flood:
        def __aiter__(self) -> Flood:
            return self

        async def __anext__(self) -> bytes:
            return b": " + b"x" * 65_536 + b"\n\n"

        async def aclose(self) -> None:
            await endless.aclose()
            closed.set()

    closed = asyncio.Event()
    monkeypatch.setattr(site.hub, "stream", lambda *_: Flood())
    _, writer = await asyncio.open_connection("127.0.0.1", site.port, limit=1_024)
    writer.write(f"GET /v1/jobs/{job_id}/stream HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        await closed.wait()
    writer.close()


async def test_asked_to_stop_it_finishes_requests_and_ends_streams(site: Site) -> None:
    job_id = await site.submitted()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(f"GET /v1/jobs/{job_id}/stream HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\n\r\n".encode())
    await reader.readuntil(b"event: submitted")
    waiting = asyncio.create_task(site.get(f"/v1/jobs/{job_id}?wait=30"))
    while sum(len(watch.listeners) for watch in site.hub._all()) < 2:
        await asyncio.sleep(0.01)
    site.stop.set()
    assert (await waiting).status_code == 200
    assert (await _read(reader)).endswith(b"0\r\n\r\n")
    with pytest.raises(OSError, match=r".*"):
        await asyncio.open_connection("127.0.0.1", site.port)
    writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(PATIENCE):
        try:
            return await reader.read()
        except ConnectionError:
            return b""
