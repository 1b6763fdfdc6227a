"""Health: whether this process is alive, and whether it can serve."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from millpond import wire
from millpond.api.calls import reply
from millpond.api.routes import Route
from millpond.api.scopes import ANYBODY
from millpond.errors import UnavailableError
from millpond.store import migrate

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.engine import Engine

_PATIENCE: Final = 5.0
_TTL: Final = 1.0


async def live(call: Call) -> Reply:  # noqa: ARG001 - a handler like the others
    return reply(wire.Health(status="ok", version=version("millpond"), checks={}))


async def ready(call: Call) -> Reply:
    """Whether the database responds and has the current schema, and streams are served."""
    checks = {"database": await _database(call), "streams": "ok" if call.state.hub.is_alive else "not running"}
    is_ok = set(checks.values()) == {"ok"}
    status = "ok" if is_ok else "unavailable"
    return reply(wire.Health(status=status, version=version("millpond"), checks=checks), 200 if is_ok else 503)


async def _database(call: Call) -> str:
    """Check the database, at most once a second: anybody may request this."""
    database_check = call.state.database_check
    if time.monotonic() >= database_check.until:
        database_check.until = time.monotonic() + _TTL
        database_check.status = await _look(call.engine)
    return database_check.status


async def _look(engine: Engine) -> str:
    """The state of the database in a few fixed words, which reveal no internals."""
    try:
        async with asyncio.timeout(_PATIENCE):
            found = await migrate.status(engine.db.dsn)
    except Exception as error:  # noqa: BLE001 - any error means that it is not ready
        return engine.db.repair or getattr(error, "state", UnavailableError.state)
    if found.is_read_only:
        return "read-only"
    if engine.db.is_disk_full:
        return "disk full"
    return "not migrated" if found.pending else "ok"


ROUTES: Final = (
    Route(
        method="GET",
        path="/healthz",
        handle=live,
        summary="Check whether the process is alive.",
        who=ANYBODY,
        answers={200: wire.Health},
    ),
    Route(
        method="GET",
        path="/readyz",
        handle=ready,
        summary="Check whether the process is ready to serve.",
        who=ANYBODY,
        answers={200: wire.Health, 503: wire.Health},
    ),
)
