"""Health: whether this process lives, and whether it can serve."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from millpond import wire
from millpond.api.calls import reply
from millpond.store import migrate

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply

_PATIENCE: Final = 2.0
_TTL: Final = 1.0


async def live(call: Call) -> Reply:  # noqa: ARG001 - a handler like the others
    return reply(wire.Health(status="ok", version=version("millpond"), checks={}))


async def ready(call: Call) -> Reply:
    """Whether the database answers, knows our schema, and streams are served."""
    checks = {"database": await _database(call), "streams": "ok" if call.desk.hub.is_alive else "not running"}
    is_ok = set(checks.values()) == {"ok"}
    status = "ok" if is_ok else "unavailable"
    return reply(wire.Health(status=status, version=version("millpond"), checks=checks), 200 if is_ok else 503)


async def _database(call: Call) -> str:
    """Asked for by anybody, so at most once a second however often it is."""
    sight = call.desk.sight
    if time.monotonic() >= sight.until:
        sight.until = time.monotonic() + _TTL
        sight.told = await _look(call.engine.db.dsn)
    return sight.told


async def _look(dsn: str) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            found = await migrate.status(dsn)
    except Exception:  # noqa: BLE001 - whatever it is, the answer is the same, and it tells nothing of the inside
        return "not reachable"
    return "not migrated" if found.pending else "ok"
