"""Without the database, everything in the background pauses, and never for longer than a few seconds."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from millpond.api.jobs.jobs import export_line
from millpond.api.jobs.streams import Hub, Listener
from millpond.engine.engine import Engine
from millpond.retry import Backoff
from millpond.services import all_services
from millpond.services.notifier import Notifier
from millpond.settings import Settings
from millpond.store.db import Database
from tests.checks import until
from tests.product import app

if TYPE_CHECKING:
    import pytest

FEW_SECONDS = timedelta(seconds=5)
FAILURES = 20


async def test_no_pause_grows_beyond_a_few_seconds(anyio_backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Services, the notifier and the hub of the streams, after an outage of any length."""
    longest: dict[str, timedelta] = {}
    delay = Backoff.delay

    def recorded(backoff: Backoff, _failures: int, chance: float) -> timedelta:
        task = asyncio.current_task()
        assert task is not None
        longest[task.get_name()] = delay(backoff, FAILURES, chance)
        return timedelta(seconds=0.1)

    monkeypatch.setattr(Backoff, "delay", recorded)
    engine = Engine(await Database.open("postgresql://127.0.0.1:1/nowhere", patience=1), app)
    notifier = Notifier(engine)
    hub = Hub(engine, notifier)
    hub.join(Listener(), "acme", uuid4(), 0)
    stop = asyncio.Event()
    services = {each.name: each.run for each in all_services(engine, Settings(), export_line)}
    parts = services | {"hub": hub.run, "notifier": notifier.run}
    for name in ("bulk_runner", "courier", "sweeper"):  # two services in one; skips a database; has no files here
        del parts[name]
    tasks = [asyncio.create_task(run(stop), name=name) for name, run in parts.items()]
    await until(lambda: has_all(longest, parts))
    stop.set()
    await asyncio.gather(*tasks)
    await engine.close()
    assert max(longest.values()) <= FEW_SECONDS, longest


async def has_all(found: dict[str, timedelta], expected: dict[str, Any]) -> bool:
    return expected.keys() <= found.keys()
