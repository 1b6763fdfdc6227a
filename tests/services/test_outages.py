"""Without the database, everything in the background pauses, and never for longer than a few seconds."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from millpond.api.jobs.jobs import export_line
from millpond.api.jobs.streams import Hub, Listener
from millpond.engine.engine import Engine
from millpond.engine.reads.streams import Position
from millpond.engine.webhooks.vault import Vault
from millpond.errors import OverdueError, UnavailableError
from millpond.retry import Backoff
from millpond.services import all_services
from millpond.services.courier import courier
from millpond.services.notifier import Notifier
from millpond.services.service import Service
from millpond.settings import Settings
from millpond.store.db import Database
from tests.checks import until
from tests.product import app
from tests.waiting import PATIENCE

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
    hub.join(Listener(), "acme", uuid4(), Position(0))
    stop = asyncio.Event()
    services = {each.name: each.run for each in all_services(engine, Settings(), export_line)}
    parts = services | {"hub": hub.run, "notifier": notifier.run}
    for name in ("courier", "sweeper"):  # skips a database, see below; has no files here
        del parts[name]
    tasks = [asyncio.create_task(run(stop), name=name) for name, run in parts.items()]
    await until(lambda: has_all(longest, parts))
    stop.set()
    await asyncio.gather(*tasks)
    await engine.close()
    assert max(longest.values()) <= FEW_SECONDS, longest


async def test_a_service_continues_soon_after_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage may end in errors of other kinds, such as a cut statement or a deadlock."""
    longest: list[timedelta] = []
    delay = Backoff.delay

    def recorded(backoff: Backoff, _failures: int, chance: float) -> timedelta:
        longest.append(delay(backoff, FAILURES, chance))
        stop.set()
        return timedelta(0)

    async def fail() -> int:
        raise OverdueError

    stop = asyncio.Event()
    monkeypatch.setattr(Backoff, "delay", recorded)
    await Service("failing", timedelta(seconds=1), fail).run(stop)
    assert max(longest) <= FEW_SECONDS


async def test_the_courier_looks_at_an_unavailable_database_again_within_seconds(
    anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    async def unavailable(*_: object) -> NoReturn:
        looked.append(time.monotonic())
        raise UnavailableError

    monkeypatch.setattr("millpond.engine.webhooks.deliveries.due", unavailable)
    vault = Vault([bytes(32)])
    engine = Engine(await Database.open("postgresql://127.0.0.1:1/nowhere", patience=1), app, vault=vault)
    stop = asyncio.Event()
    running = asyncio.create_task(courier(engine, Settings()).run(stop))

    async def has_looked() -> bool:
        return len(looked) > 3

    async with asyncio.timeout(PATIENCE):
        await until(has_looked)
    stop.set()
    await running
    await engine.close()
    assert looked[3] - looked[2] <= FEW_SECONDS.total_seconds()


async def has_all(found: dict[str, timedelta], expected: dict[str, Any]) -> bool:
    return expected.keys() <= found.keys()
