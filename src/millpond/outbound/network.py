"""The door to the network: a connection is made here or nowhere, to an address that was just looked at."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import httpcore2

from millpond.errors import OutboundFailedError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable, Mapping, Sequence

    from millpond.outbound.addresses import Address
    from millpond.outbound.targets import Target

_ADDRESSES_TRIED: Final = 4
_SECONDS_EACH: Final = 5.0  # so that one address of several that is silent does not use up all the time


class Lookup(Protocol):
    """The addresses that may be called for a host; raises where one of them may not."""

    async def __call__(self, host: str, port: int) -> Sequence[Address]: ...


class Wire(httpcore2.AsyncNetworkStream):
    """A connection that knows to which address it was made, also once it is closed."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream, address: Address) -> None:
        self.address = address
        self._stream = stream
        self.read = stream.read
        self.write = stream.write
        self.aclose = stream.aclose
        self.get_extra_info = stream.get_extra_info

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as below
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return Wire(await self._stream.start_tls(ssl_context, server_hostname, timeout), self.address)
        except BaseException:  # also when time is up: nobody else closes a connection that is half made
            await self._stream.aclose()
            raise


class Door(httpcore2.AsyncNetworkBackend):
    """Connects to the very address that was looked at: no name is looked up a second time.

    TLS comes on top, and goes by the name.
    """

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._sockets = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - httpcore's word; the caller's deadline holds
        local_address: str | None = None,  # noqa: ARG002 - as above
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - as above
    ) -> Wire:
        try:
            addresses = await self._look_up(host, port)
        except socket.gaierror as error:
            raise OutboundFailedError("The name of the host could not be looked up.", reason="dns") from error
        for address in addresses[:_ADDRESSES_TRIED]:
            try:
                async with asyncio.timeout(_SECONDS_EACH if len(addresses) > 1 else None):
                    return Wire(await self._sockets.connect_tcp(str(address), port), address)
            except (httpcore2.ConnectError, TimeoutError):
                continue
        raise OutboundFailedError("The host does not take connections.", reason="connect")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Pools:
    """Connections that are kept open for the next call, in many small pools.

    A pool looks at each of its connections whenever a call begins or ends, so one large pool would be slow for
    everybody.
    """

    SHARDS: Final = 64
    KEPT_SECONDS: Final = 4.0
    """Shorter than the five seconds after which many servers hang up: the last call on a connection is often lost."""

    def __init__(self, look_up: Lookup, *, connections: int, tls: ssl.SSLContext | None) -> None:
        self._door = Door(look_up)
        self._kept = max(1, connections // self.SHARDS)
        self._tls = tls
        self._pools: dict[tuple[str, int], httpcore2.AsyncConnectionPool] = {}
        self._swept = 0.0

    async def call(self, target: Target, method: str, headers: Mapping[str, str], body: bytes) -> httpcore2.Response:
        await self._sweep()
        request = httpcore2.Request(
            method,
            httpcore2.URL(scheme=target.scheme, host=target.host, port=target.port, target=target.path),
            headers=[(name.encode(), value.encode("utf-8", "replace")) for name, value in headers.items()],
            content=body,
        )
        return await self._pool(target).handle_async_request(request)

    def _pool(self, target: Target) -> httpcore2.AsyncConnectionPool:
        shard = (target.scheme, hash(target.origin) % self.SHARDS)
        if shard not in self._pools:
            if target.scheme == "https" and self._tls is None:
                self._tls = httpcore2.default_ssl_context()  # reads some hundred certificates: once
            self._pools[shard] = httpcore2.AsyncConnectionPool(
                self._tls,
                max_connections=None,  # whoever calls is counted before
                max_keepalive_connections=self._kept,
                keepalive_expiry=self.KEPT_SECONDS,
                network_backend=self._door,
            )
        return self._pools[shard]

    async def _sweep(self) -> None:
        """Close what has been idle for long; by itself a pool does so at its next call only."""
        now = asyncio.get_running_loop().time()
        if now - self._swept < self.KEPT_SECONDS:
            return
        self._swept = now
        for pool in self._pools.values():
            for connection in pool.connections:
                if connection.is_idle() and connection.has_expired():
                    await connection.aclose()

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()


FAILURES: Final = (httpcore2.NetworkError, httpcore2.ProtocolError, OSError)


def failure(error: Exception) -> OutboundFailedError:
    """What is told of a call that failed; why in detail is for nobody who may not know our network."""
    if isinstance(error, httpcore2.ConnectError):  # the door tells of its own failures: this one is of TLS
        return OutboundFailedError("The host and we do not agree on TLS, or its certificate is not good.", reason="tls")
    if isinstance(error, httpcore2.ProtocolError) and error.__context__ is not None:  # what its parser complained of
        return OutboundFailedError("The host does not speak HTTP as we know it.", reason="protocol")
    return OutboundFailedError("The host hung up before it had answered.", reason="reset")
