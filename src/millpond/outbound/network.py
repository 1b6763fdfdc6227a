"""The network backend: every connection is made here, to an address that was just checked."""

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
_SECONDS_EACH: Final = 5.0  # so that one of several addresses that does not respond does not use up all the time


class Lookup(Protocol):
    """Resolves a host to its addresses; raises an error if one of them is not allowed."""

    async def __call__(self, host: str, port: int) -> Sequence[Address]: ...


class Wire(httpcore2.AsyncNetworkStream):
    """A connection that keeps the address it was made to, even when it is closed."""

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
        except BaseException:  # also on a timeout: nothing else closes a connection that is half open
            await self._stream.aclose()
            raise


class NetworkBackend(httpcore2.AsyncNetworkBackend):
    """Connects to an address that was checked: the name is not resolved a second time.

    TLS is started later, and verifies the name.
    """

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._sockets = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ARG002, ASYNC109 - httpcore's name; the caller's deadline applies
        local_address: str | None = None,  # noqa: ARG002 - as above
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - as above
    ) -> Wire:
        try:
            addresses = await self._look_up(host, port)
        except socket.gaierror as error:
            raise OutboundFailedError("The host name could not be resolved.", reason="dns") from error
        for address in addresses[:_ADDRESSES_TRIED]:
            try:
                async with asyncio.timeout(_SECONDS_EACH if len(addresses) > 1 else None):
                    return Wire(await self._sockets.connect_tcp(str(address), port), address)
            except (httpcore2.ConnectError, TimeoutError):
                continue
        raise OutboundFailedError("The host refused the connection.", reason="connect")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Pools:
    """Connections that are kept open for the next call, in many small pools.

    A pool scans all its connections whenever a call begins or ends, so one large pool would slow all calls down.
    """

    SHARDS: Final = 64
    KEPT_SECONDS: Final = 4.0
    """Shorter than five seconds, after which many servers close a connection: a call at that moment is often lost."""

    def __init__(self, look_up: Lookup, *, connections: int, tls: ssl.SSLContext | None) -> None:
        self._backend = NetworkBackend(look_up)
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
                self._tls = httpcore2.default_ssl_context()  # only once, because it reads some hundred certificates
            self._pools[shard] = httpcore2.AsyncConnectionPool(
                self._tls,
                max_connections=None,  # the caller limits the number of calls
                max_keepalive_connections=self._kept,
                keepalive_expiry=self.KEPT_SECONDS,
                network_backend=self._backend,
            )
        return self._pools[shard]

    async def _sweep(self) -> None:
        """Close connections that have been idle for long; a pool itself does so only at its next call."""
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
    """The error of a failed call, without the details, which would reveal the internal network to the user."""
    if isinstance(error, httpcore2.ConnectError):  # the backend translates its own errors, so this one is of TLS
        return OutboundFailedError(
            "The TLS connection failed, or the certificate of the host is invalid.", reason="tls"
        )
    if isinstance(error, httpcore2.ProtocolError) and error.__context__ is not None:  # an error of the parser
        return OutboundFailedError("The response of the host is not valid HTTP.", reason="protocol")
    return OutboundFailedError("The host closed the connection before the response was complete.", reason="reset")
