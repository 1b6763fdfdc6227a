"""Names into addresses, as the machine's own resolver knows them."""

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
"""For how long a good answer is kept."""
_THREADS: Final = 32  # for names that are known to be quick, and as many for all others
_SHARE: Final = 4  # of the latter, so many at once for names of one domain
_QUICK: Final = 1.0
_KNOWN_MAX: Final = 10_000


class Resolver:
    """Asks for each name once at a time, in threads of its own, and keeps what it was told for a moment.

    A name whose server is silent holds a thread for many seconds, and whoever has a domain has as many such names as
    he likes. So a name that has not just proved to be quick waits for threads that are apart, and of those the names
    of one domain have a few. Names that are known to be quick are never behind them.

    That answers are kept opens no way inside. Whoever connects checks the addresses he was told, each time and however
    old they are, and connects to one of these and no other: a name that begins to lead elsewhere is found out then.
    """

    def __init__(self) -> None:
        self._quick: ThreadPoolExecutor | None = None
        self._others: ThreadPoolExecutor | None = None
        self._asked: dict[str, asyncio.Future[list[str]]] = {}
        self._known: dict[str, tuple[float, list[str]]] = {}
        """Names that were quick the last time: when that was, and what they led to."""
        self._shares: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        told_at, addresses = self._known.get(host, (0.0, []))
        if addresses and time.monotonic() < told_at + KEPT_SECONDS:
            return addresses
        asked = self._asked.get(host)
        if asked is None:
            asked = self._asked[host] = asyncio.ensure_future(self._ask(host, port))
            asked.add_done_callback(lambda done: self._forget(host, done))
        return await asyncio.shield(asked)

    async def _ask(self, host: str, port: int) -> list[str]:
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
        """What the names of a domain share; it is forgotten when none of them waits."""
        domain = ".".join(host.rstrip(".").split(".")[-2:])
        share = self._shares.get(domain)
        if share is None:
            share = self._shares[domain] = asyncio.Semaphore(_SHARE)
        return share

    def _forget(self, host: str, done: asyncio.Future[list[str]]) -> None:
        del self._asked[host]
        if not done.cancelled():
            done.exception()  # those who waited may all have gone

    def close(self) -> None:
        for asked in self._asked.values():
            asked.cancel()
        for threads in (self._quick, self._others):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)


def _timed(host: str, port: int) -> tuple[list[str], float]:
    """What a name leads to, and how long it took to be told: not how long it waited for a thread."""
    began = time.monotonic()
    found = _look_up(host, port)
    return found, time.monotonic() - began


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]
