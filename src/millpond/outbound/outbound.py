"""Calls to URLs of users."""

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
_HINT: Final = "Name one that the whole world can reach, or have an operator open it (MILLPOND_OUTBOUND_ALLOW)."


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    """Names in small letters; what came several times is joined with commas."""
    body: bytes
    is_cut: bool
    """The body went on, or broke off, or took too long. The status was told all the same."""
    address: str
    """Where the call went."""
    seconds: float


class Streamed:
    """An answer whose body is read piece by piece: ``async for chunk in streamed``."""

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
        return TooLargeError(f"What the URL answers is larger than {self._size_max:,} bytes.")


class Outbound:
    """Calls URLs that users gave us, and none that leads inside.

    ``allow`` opens parts of the inside: ``loopback``, networks, addresses, names; ``connections`` is how many calls are
    under way at once. ``resolve`` looks up names (the machine's resolver unless told otherwise) and ``tls`` says which
    certificates are good.
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
        """Refuse what can be refused without asking anybody: the shape of a URL, addresses, names of the inside."""
        return self._check(targets.read(url, field=field), field)

    async def admit(self, url: str, *, field: str = "url") -> Target:
        """Refuse what leads inside now; so its giver is told at once. Whenever it is called, it is checked again.

        A resolver that fails is no fault of the URL: that passes.
        """
        target = self.check(url, field=field)
        try:
            async with asyncio.timeout(_LOOK_UP_SECONDS):
                await self._look_up(target.host, target.port, field=field)
        except socket.gaierror as error:
            if error.errno in _UNKNOWN:
                raise OutboundRefusedError("There is no host of that name.", field=field) from error
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
    ) -> Answer:
        """Make one call, and bring what was answered: the first ``size_max`` bytes of it at most.

        A redirect is an answer like any other. ``seconds`` is for all of it, from the name to the last byte. ``may``
        names origins that are open to this call (``https://api.example.com``).
        """
        started = time.perf_counter()
        told: httpcore2.Response | None = None
        content = bytearray()
        is_cut = True
        try:
            async with (
                self._call(method, url, headers, body, seconds=seconds, may=may) as told,
                aclosing(told.aiter_stream()) as chunks,
            ):
                async for chunk in chunks:
                    content += chunk
                    if len(content) > size_max:
                        break
                else:
                    is_cut = False
        except OutboundFailedError:
            if told is None:
                raise
        return Answer(
            status=told.status,
            headers=_headers(told),
            body=bytes(content[:size_max]),
            is_cut=is_cut,
            address=_address(told),
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
        """Make one call whose answer is read piece by piece. One that is larger than ``size_max`` is an error."""
        async with self._call(method, url, headers, body, seconds=seconds, may=may) as response:
            yield Streamed(response, size_max)

    async def dial(self, url: str, *, seconds: float = 15.0) -> Wire:
        """Make a bare connection to where a URL leads, for programs that speak by themselves. The caller closes it."""
        from millpond.outbound import network  # noqa: PLC0415 - as in _call

        target = self.check(url)
        try:
            async with asyncio.timeout(seconds):
                return await network.Door(self._look_up).connect_tcp(target.host, target.port)
        except TimeoutError as error:
            raise OutboundFailedError(f"There was no connection within {seconds:g} s.", reason="timeout") from error

    async def close(self) -> None:
        self._resolver.close()
        for pools in self._pools or ():
            await pools.close()

    def _check(self, target: Target, field: str) -> Target:
        if target.address is not None:
            is_open = is_public(target.address) or self._openings.has_address(target.address, target.port)
        else:
            # What a name of the inside leads to may have been opened as an address: that is seen when it is looked up.
            is_open = not target.is_name_inside or bool(self._openings.networks)
        if not (is_open or self._openings.has_name(target.host, target.port)):
            raise _leads_inside(field)
        return target

    async def _look_up(self, host: str, port: int, *, field: str = "url") -> Sequence[Address]:
        """All addresses of a host; one among them that leads inside is enough to refuse them all."""
        target = Target(scheme="http", host=host, port=port, path="/", address=_literal(host))
        self._check(target, field)
        addresses = await self._addresses(host, port)
        if self._openings.has_name(host, port):
            return addresses
        for address in addresses:
            is_open = not target.is_name_inside and is_public(address)
            if not (is_open or self._openings.has_address(address, port)):
                raise _leads_inside(field)
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
        from millpond.outbound import network  # noqa: PLC0415 - most processes that know of us never call anybody

        target = targets.read(url)
        is_free = any(target.origin == targets.read(origin).origin for origin in may)
        if not is_free:
            self._check(target, "url")
        if self._pools is None:
            # Where an origin is open to some calls only, no other call must find a connection to it: hence two.
            self._pools = tuple(
                network.Pools(look_up, connections=self._connections, tls=self._tls)
                for look_up in (self._look_up, self._addresses)
            )
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline, self._slots, AsyncExitStack() as stack:
                response = await self._pools[is_free].call(target, method, _sent(target, method, headers, body), body)
                stack.push_async_callback(response.aclose)
                yield response
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise OutboundFailedError(f"There was no whole answer within {seconds:g} s.", reason="timeout") from error
        except network.FAILURES as error:
            raise network.failure(error) from error


def _sent(target: Target, method: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """The headers of a call: the caller's, and those that are ours to say. Nothing compressed is asked for."""
    told = {"accept": "*/*", "accept-encoding": "identity", "user-agent": _user_agent()}
    told |= {name.lower(): value for name, value in headers.items() if name.lower() not in _OURS}
    if body or method in {"POST", "PUT", "PATCH"}:
        told["content-length"] = str(len(body))
    return {"host": target.authority} | told


@cache
def _user_agent() -> str:
    """Once: it is read from the files of the package."""
    return f"Millpond/{version('millpond')}"


def _headers(response: httpcore2.Response) -> dict[str, str]:
    told: dict[str, str] = {}
    for raw_name, raw_value in response.headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        told[name] = f"{told[name]}, {value}" if name in told else value
    return told


def _address(response: httpcore2.Response) -> str:
    extensions = cast("Mapping[str, Any]", response.extensions)  # pyright: ignore[reportUnknownMemberType] - theirs
    return str(extensions["network_stream"].address)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _leads_inside(field: str) -> OutboundRefusedError:
    return OutboundRefusedError("The URL leads inside a network, or nowhere.", field=field, hint=_HINT)
