"""Who calls whom: the interpreter itself tells of every connection and every name that is looked up."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_watching: list[list[tuple[str, Any]]] = []


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or not event.startswith("socket."):
        return
    if event == "socket.connect":
        _heard((event, arguments[1]))
    elif event in {"socket.getaddrinfo", "socket.gethostbyname"}:
        _heard((event, arguments[0]))
    elif event in {"socket.sendto", "socket.sendmsg"}:
        _heard((event, arguments[-1]))


def _heard(what: tuple[str, Any]) -> None:
    for seen in _watching:
        seen.append(what)


sys.addaudithook(_hear)  # for good: an interpreter forgets none


@contextlib.contextmanager
def watched() -> Iterator[list[tuple[str, Any]]]:
    """Every connection that is tried, and every name that is looked up, while the block lasts."""
    seen: list[tuple[str, Any]] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)
