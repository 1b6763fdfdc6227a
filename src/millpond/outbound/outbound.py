"""Calls to user-supplied URLs."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import cache
from importlib.metadata import version
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond.errors import OutboundFailedError, OutboundRefusedError, TooLargeError
from millpond.outbound import targets
from millpond.outbound.addresses import is_public
from millpond.outbound.openings import Openings
from millpond.outbound.resolver import Resolver
from millpond.outbound.targets import Target

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    import httpcore2

    from millpond.outbound.addresses import Address
    from millpond.outbound.network import Pools, Wire

_LOOK_UP_SECONDS: Final = 5.0
_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_NOTHING: Final[Mapping[str, str]] = {}
_UNKNOWN: Final = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})
_HINT: Final = "Use a public URL, or have an operator allow the address with MILLPOND_OUTBOUND_ALLOW."


class OutboundResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a call."""

    status: int
    headers: dict[str, str]
    """Names in lower case; the values of repeated headers are joined with commas."""
    body: bytes
    is_cut: bool
    """Whether the body is incomplete: too long, interrupted or too slow. The status is valid all the same."""
    address: str
    """The IP address that was called."""
    seconds: float


class Streamed:
    """A response whose body is read piece by piece: ``async for chunk in streamed``."""

    def __init__(self, response: httpcore2.Response, size_max: int) -> None:
        self.status = response.status
        self.headers = _headers(response)
        self.address = _address(response)
        self._response = response
        self._size_max = size_max
        announced = self.headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > size_max:
            raise self._too_large()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async with aclosing(self._response.aiter_stream()) as chunks:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._size_max:
                    raise self._too_large()
                yield chunk

    def _too_large(self) -> TooLargeError:
        return TooLargeError(f"The response of the URL is larger than {self._size_max:,} bytes.")


class Outbound:
    """Calls user-supplied URLs, and rejects those that lead to private addresses or reserved ports.

    ``allow`` lists private targets and reserved ports that are allowed: ``loopback``, networks, addresses, names,
    ``*:PORT``. ``connections`` is the largest number of calls at once. ``resolve`` resolves names (by default with the
    machine's resolver), and ``tls`` defines which certificates are valid.
    """

    def __init__(
        self,
        allow: str | Iterable[str] = (),
        *,
        connections: int = 1_000,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._openings = Openings.read(allow)
        self._resolver = Resolver()
        self._resolve = resolve or self._resolver
        self._tls = tls
        self._connections = connections
        self._slots = asyncio.Semaphore(connections)
        self._pools: tuple[Pools, ...] | None = None

    def check(self, url: str, *, field: str = "url") -> Target:
        """Reject what can be rejected without resolving a name: malformed URLs, private addresses, internal names."""
        return self._check(targets.read(url, field=field), field)

    async def admit(self, url: str, *, field: str = "url") -> Target:
        """Reject a URL that leads to a private address now, so that the user learns of it at once.

        The URL is checked again at each call. If the resolver fails, the URL passes, because that is not its fault.
        """
        target = self.check(url, field=field)
        try:
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                await self._look_up(target.host, target.port, field=field)
        except socket.gaierror as error:
            if error.errno in _UNKNOWN:
                raise OutboundRefusedError("The host name does not exist.", field=field) from error
        except TimeoutError:
            pass
        return target

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NOTHING,
        body: bytes = b"",
        seconds: float = 15.0,
        size_max: int = 65_536,
        may: Iterable[str] = (),
    ) -> OutboundResponse:
        """Make one call, and return the response with at most the first ``size_max`` bytes of its body.

        A redirect is returned like any other response. ``seconds`` is the time for everything, from resolving the name
        to the last byte. ``may`` lists origins that this call may reach in any case (``https://api.example.com``).
        """
        started = time.perf_counter()
        response: httpcore2.Response | None = None
        content = bytearray()
        is_cut = True
        try:
            async with (
                self._call(method, url, headers, body, seconds=seconds, may=may) as response,
                aclosing(response.aiter_stream()) as chunks,
            ):
                async for chunk in chunks:
                    content += chunk
                    if len(content) > size_max:
                        break
                else:
                    is_cut = False
        except OutboundFailedError:
            if response is None:
                raise
        return OutboundResponse(
            status=response.status,
            headers=_headers(response),
            body=bytes(content[:size_max]),
            is_cut=is_cut,
            address=_address(response),
            seconds=time.perf_counter() - started,
        )

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] = _NOTHING,
        body: bytes = b"",
        seconds: float = 300.0,
        size_max: int,
        may: Iterable[str] = (),
    ) -> AsyncGenerator[Streamed]:
        """Make one call whose response is read piece by piece. A body larger than ``size_max`` raises an error."""
        async with self._call(method, url, headers, body, seconds=seconds, may=may) as response:
            yield Streamed(response, size_max)

    async def dial(self, url: str, *, seconds: float = 15.0) -> Wire:
        """Open a plain connection to the host of a URL, for a program that speaks HTTP itself. The caller closes it."""
        from millpond.outbound import network  # noqa: PLC0415 - as in _call

        target = self.check(url)
        try:
            async with asyncio.timeout(seconds):
                return await network.NetworkBackend(self._look_up).connect_tcp(target.host, target.port)
        except TimeoutError as error:
            raise OutboundFailedError(
                f"The connection could not be established within {seconds:g} s.", reason="timeout"
            ) from error

    async def close(self) -> None:
        self._resolver.close()
        for pools in self._pools or ():
            await pools.close()

    def _check(self, target: Target, field: str) -> Target:
        if target.address is not None:
            is_open = is_public(target.address) or self._openings.has_address(target.address, target.port)
        else:
            # The address of an internal name may be allowed: that is checked when the name is resolved.
            is_open = not target.is_name_inside or bool(self._openings.networks)
        if not (is_open or self._openings.has_name(target.host, target.port)):
            raise _private(field)
        if not self._openings.has_port(target.host, target.port, target.address):
            raise _reserved(target.port, field)
        return target

    async def _look_up(self, host: str, port: int, *, field: str = "url") -> Sequence[Address]:
        """All addresses of a host; if one of them, or the port at one of them, is not allowed, all are rejected."""
        target = Target(scheme="http", host=host, port=port, path="/", address=_literal(host))
        self._check(target, field)
        addresses = await self._addresses(host, port)
        if not all(self._openings.has_port(host, port, address) for address in addresses):
            raise _reserved(port, field)
        if self._openings.has_name(host, port):
            return addresses
        for address in addresses:
            is_open = not target.is_name_inside and is_public(address)
            if not (is_open or self._openings.has_address(address, port)):
                raise _private(field)
        return addresses

    async def _addresses(self, host: str, port: int) -> Sequence[Address]:
        literal = _literal(host)
        if literal is not None:
            return [literal]
        return [ip_address(found) for found in await self._resolve(host, port)]

    @asynccontextmanager
    async def _call(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, seconds: float, may: Iterable[str]
    ) -> AsyncGenerator[httpcore2.Response]:
        from millpond.outbound import network  # noqa: PLC0415 - most processes that import this module make no calls

        target = targets.read(url)
        is_free = any(target.origin == targets.read(origin).origin for origin in may)
        if not is_free:
            self._check(target, "url")
        if self._pools is None:
            # Two sets: a connection to an origin that only some calls may reach must not be used by other calls.
            self._pools = tuple(
                network.Pools(look_up, connections=self._connections, tls=self._tls)
                for look_up in (self._look_up, self._addresses)
            )
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline, self._slots, AsyncExitStack() as stack:
                sent = _request_headers(target, method, headers, body)
                response = await self._pools[is_free].call(target, method, sent, body)
                stack.push_async_callback(response.aclose)
                yield response
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise OutboundFailedError(
                f"The response was not complete within {seconds:g} s.", reason="timeout"
            ) from error
        except network.FAILURES as error:
            raise network.failure(error) from error


def _request_headers(target: Target, method: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """The headers of a call: the caller's, and those that are set here. They ask for an uncompressed response."""
    found = {"accept": "*/*", "accept-encoding": "identity", "user-agent": _user_agent()}
    found |= {name.lower(): value for name, value in headers.items() if name.lower() not in _OURS}
    if body or method in {"POST", "PUT", "PATCH"}:
        found["content-length"] = str(len(body))
    return {"host": target.authority} | found


@cache
def _user_agent() -> str:
    """Cached, because the version is read from the files of the package."""
    return f"Millpond/{version('millpond')}"


def _headers(response: httpcore2.Response) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _address(response: httpcore2.Response) -> str:
    extensions = cast("Mapping[str, Any]", response.extensions)  # pyright: ignore[reportUnknownMemberType] - theirs
    return str(extensions["network_stream"].address)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _reserved(port: int, field: str) -> OutboundRefusedError:
    hint = f"Use 80, 443 or another port from 1024, or have an operator allow HOST:{port} with MILLPOND_OUTBOUND_ALLOW."
    return OutboundRefusedError(f"The port {port} is reserved for another protocol.", field=field, hint=hint)


def _private(field: str) -> OutboundRefusedError:
    return OutboundRefusedError("The URL must be public; private addresses are rejected.", field=field, hint=_HINT)
