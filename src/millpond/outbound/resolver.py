"""Resolves names to addresses, with the machine's own resolver."""

from __future__ import annotations

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_SECONDS: Final = 5.0
"""How long a result is kept."""
_THREADS: Final = 32  # for names that are known to be fast, and as many for all others
_SHARE: Final = 4  # of the latter, the most at once for the names of one domain
_QUICK: Final = 1.0
_KNOWN_MAX: Final = 10_000


class Resolver:
    """Resolves each name once at a time, in threads of its own, and keeps the result for a moment.

    A name whose DNS server does not respond blocks a thread for many seconds, and the owner of a domain can have any
    number of such names. So a name whose last lookup was not fast is resolved in a separate set of threads, in which
    the names of one domain can only use a few. Names that are known to be fast never wait for the others.

    Keeping results does not weaken the guard. The caller checks the addresses before each connection, however old they
    are, and connects to one of these and no other: if a name now resolves to a private address, it is rejected then.
    """

    def __init__(self) -> None:
        self._quick: ThreadPoolExecutor | None = None
        self._others: ThreadPoolExecutor | None = None
        self._pending: dict[str, asyncio.Future[list[str]]] = {}
        self._known: dict[str, tuple[float, list[str]]] = {}
        """The names whose last lookup was fast: its time and its addresses."""
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        resolved_at, addresses = self._known.get(host, (0.0, []))
        if addresses and time.monotonic() < resolved_at + KEPT_SECONDS:
            return addresses
        pending = self._pending.get(host)
        if pending is None:
            pending = self._pending[host] = asyncio.ensure_future(self._resolve(host, port))
            pending.add_done_callback(lambda done: self._forget(host, done))
        return await asyncio.shield(pending)

    async def _resolve(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        if self._known.pop(host, None) is not None:
            self._quick = self._quick or ThreadPoolExecutor(_THREADS, thread_name_prefix="resolver")
            addresses, seconds = await loop.run_in_executor(self._quick, _timed, host, port)
        else:
            self._others = self._others or ThreadPoolExecutor(_THREADS, thread_name_prefix="resolver")
            async with self._share(host):
                addresses, seconds = await loop.run_in_executor(self._others, _timed, host, port)
        if seconds < _QUICK:
            if len(self._known) >= _KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[host] = time.monotonic(), addresses
        return addresses

    def _share(self, host: str) -> asyncio.Semaphore:
        """The semaphore that the names of a domain share; it is dropped when none of them waits."""
        domain = ".".join(host.rstrip(".").split(".")[-2:])
        share = self._shares.get(domain)
        if share is None:
            share = self._shares[domain] = asyncio.Semaphore(_SHARE)
        return share

    def _forget(self, host: str, done: asyncio.Future[list[str]]) -> None:
        del self._pending[host]
        if not done.cancelled():
            done.exception()  # retrieved here, because all waiting callers may be gone

    def close(self) -> None:
        for pending in self._pending.values():
            pending.cancel()
        for threads in (self._quick, self._others):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)


def _timed(host: str, port: int) -> tuple[list[str], float]:
    """The addresses of a name, and how long the lookup took, without the wait for a thread."""
    began = time.monotonic()
    found = _look_up(host, port)
    return found, time.monotonic() - began


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]
