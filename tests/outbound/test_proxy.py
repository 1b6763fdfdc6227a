"""A program that comes through the proxy reaches what the guard admits, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from millpond.outbound import Outbound
from millpond.outbound.proxy import Proxy
from tests.outbound.conftest import PrivateServer
from tests.outbound.test_tls import Authority, serving
from tests.waiting import PATIENCE

OPEN = "127.0.0.1"


@contextlib.asynccontextmanager
async def proxied(
    allow: str = "", *, size_max: int = 100_000, seconds: float = PATIENCE, **more: Any
) -> AsyncIterator[Proxy]:
    outbound = Outbound(allow, **more)
    async with Proxy(outbound, size_max=size_max, seconds=seconds) as proxy:
        yield proxy
    await outbound.close()


async def said(proxy: Proxy, request: str, *more: str, password: str | None = None) -> bytes:
    """All that is answered to a request, which ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    known = base64.b64encode(f"millpond:{password or proxy._password}".encode()).decode()
    head = "\r\n".join([request, f"proxy-authorization: Basic {known}", *more])
    writer.write(f"{head}\r\n\r\n".encode())
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read()
    writer.close()
    return answer


@contextlib.asynccontextmanager
async def plain(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers this, and keeps what it was told."""
    heard: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        size = next(
            (line.partition(b":")[2] for line in heard[0].split(b"\r\n") if line.startswith(b"content-length")), b"0"
        )
        heard.append(await reader.readexactly(int(size)))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heard


WELL = b"HTTP/1.1 200 OK\r\ncontent-type: x/y\r\ncontent-length: 5\r\n\r\nhello"


async def test_a_request_is_made_again_and_its_answer_brought() -> None:
    async with proxied(OPEN) as proxy, plain(WELL) as (port, heard):
        more = ("git-protocol: version=2", "connection: keep-alive", "host: elsewhere.example")
        answer = await said(proxy, f"GET http://127.0.0.1:{port}/a?b=c HTTP/1.1", *more)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert b"content-type: x/y" in head
    assert body == b"5\r\nhello\r\n0\r\n\r\n"
    assert heard[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert f"host: 127.0.0.1:{port}".encode() in heard[0].lower()
    assert b"git-protocol: version=2" in heard[0].lower()
    assert b"proxy-auth" not in heard[0].lower()
    assert b"elsewhere" not in heard[0]
    assert proxy.size == 5


async def test_what_a_program_sends_in_pieces_arrives_whole() -> None:
    async with proxied(OPEN) as proxy, plain(WELL) as (port, heard):
        request = f"POST http://127.0.0.1:{port}/ HTTP/1.1"
        answer = await said(proxy, request, "transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert heard[1] == b"abcde"


async def test_nobody_comes_through_without_the_password() -> None:
    async with proxied(OPEN) as proxy, plain(WELL) as (port, heard):
        for request in (f"GET http://127.0.0.1:{port}/ HTTP/1.1", f"CONNECT 127.0.0.1:{port} HTTP/1.1"):
            answer = await said(proxy, request, password="guessed")
            assert answer.startswith(b"HTTP/1.1 407 ")
        assert heard == []
        assert proxy._password not in repr(proxy)
        assert proxy.hide(f"at {proxy.url}:") == f"at http://millpond:…@127.0.0.1:{proxy.port}:"


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "a@127.0.0.1"],
)
@pytest.mark.parametrize("form", ["CONNECT {place} HTTP/1.1", "GET http://{place}/ HTTP/1.1"])
async def test_nothing_inside_is_reached(private_server: PrivateServer, host: str, form: str) -> None:
    before = private_server.connections
    async with proxied() as proxy:
        answer = await said(proxy, form.format(place=f"{host}:{private_server.port}"))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert proxy.refusal is not None
    assert private_server.connections == before


async def test_a_name_that_leads_inside_is_refused_when_it_is_called(private_server: PrivateServer) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["93.184.216.34", "127.0.0.1"]

    before = private_server.connections
    async with proxied(resolve=resolve) as proxy:
        for form in ("CONNECT rebound.example.com:{0} HTTP/1.1", "GET http://rebound.example.com:{0}/ HTTP/1.1"):
            assert (await said(proxy, form.format(private_server.port))).startswith(b"HTTP/1.1 403 ")
    assert private_server.connections == before


async def test_https_goes_through_untouched(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = authority.server(x509.IPAddress(ip_address("127.0.0.1")))
    async with proxied(OPEN) as proxy, serving(context) as (port, heard):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        known = base64.b64encode(f"millpond:{proxy._password}".encode()).decode()
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nproxy-authorization: Basic {known}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await writer.start_tls(trusting(authority), server_hostname="127.0.0.1")
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        assert (await reader.read()).endswith(b"hi")
        writer.close()
        assert heard == [b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"]
        assert proxy.size > 2


def trusting(authority: Authority) -> ssl.SSLContext:
    return authority.trusted()


@pytest.mark.parametrize("is_announced", [True, False])
async def test_more_than_may_come_does_not(*, is_announced: bool) -> None:
    size = b"content-length: 300000\r\n" if is_announced else b""
    flood = b"HTTP/1.1 200 OK\r\n" + size + b"connection: close\r\n\r\n" + b"x" * 300_000
    async with proxied(OPEN) as proxy, plain(flood) as (port, _):
        answer = await said(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1")
        assert len(answer) < 200_000
        assert proxy.is_spent


async def test_a_host_that_is_not_there_or_is_silent_is_reported() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with proxied("loopback") as proxy:
        for form in ("CONNECT 127.0.0.1:9 HTTP/1.1", "GET http://127.0.0.1:9/ HTTP/1.1"):
            assert (await said(proxy, form)).startswith(b"HTTP/1.1 502 ")
            assert proxy.failure is not None
            assert proxy.failure.reason == "connect"
    async with proxied(OPEN, seconds=0.3) as proxy, await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await said(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1")).startswith(b"HTTP/1.1 502 ")
        assert proxy.failure is not None
        assert proxy.failure.reason == "timeout"


@pytest.mark.parametrize(
    "request_line",
    ["GET / HTTP/1.1", "hello", "CONNECT", "GET ftp://x.example/ HTTP/1.1", "CONNECT /etc HTTP/1.1", "GET  x  y z"],
)
async def test_what_is_no_request_for_a_proxy_ends_nothing_but_itself(request_line: str) -> None:
    async with proxied(OPEN) as proxy, plain(WELL) as (port, _):
        answer = await said(proxy, request_line)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 403 ")
        assert (await said(proxy, f"GET http://127.0.0.1:{port}/ HTTP/1.1")).startswith(b"HTTP/1.1 200 ")


async def test_it_ends_with_all_connections() -> None:
    gone = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(hold, "127.0.0.1", 0) as server, proxied(OPEN) as proxy:
        port, own = server.sockets[0].getsockname()[1], proxy.port
        reader, writer = await asyncio.open_connection("127.0.0.1", own)
        known = base64.b64encode(f"millpond:{proxy._password}".encode()).decode()
        writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nproxy-authorization: Basic {known}\r\n\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        await proxy.__aexit__()
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
            await gone.wait()
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", own)
