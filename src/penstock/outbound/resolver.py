"""Names into addresses, as the machine's own resolver knows them."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_THREADS: Final = 64


class Resolver:
    """Asks for each name once at a time, in threads of its own.

    A name whose server is silent holds a thread for many seconds. Those who wait for it share that one, and the
    threads that the rest of the process lives on are not touched.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._asked: dict[tuple[str, int], asyncio.Future[list[str]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        asked = self._asked.get((host, port))
        if asked is None:
            self._threads = self._threads or ThreadPoolExecutor(_THREADS, thread_name_prefix="resolver")
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)
            self._asked[host, port] = asked
            asked.add_done_callback(lambda done: self._forget((host, port), done))
        return await asyncio.shield(asked)

    def _forget(self, name: tuple[str, int], done: asyncio.Future[list[str]]) -> None:
        del self._asked[name]
        if not done.cancelled():
            done.exception()  # those who waited may all have gone

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(place[0]) for *_, place in found]
