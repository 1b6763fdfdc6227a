"""The database goes away and comes back; the worker waits for it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from millpond import logs
from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.errors import UnavailableError
from millpond.store.embedded import open_embedded
from tests.acceptance.processes import shell, until
from tests.acceptance.product import app

if TYPE_CHECKING:
    from pathlib import Path

OWNER: dict[str, Any] = {"tenant": "acme", "account": "ann"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped"])
async def test_a_worker_waits_for_a_database_that_comes_back(
    anyio_backend: str, tmp_path: Path, number: signal.Signals
) -> None:
    """What it ran meanwhile it finishes when it can, and its log stays one JSON line an event."""
    postgres = open_embedded(tmp_path / "data")
    with shell(tmp_path, postgres.dsn) as sh:
        engine = await Engine.open(postgres.dsn, app)
        await engine.grant("acme", "ann", 100)
        go = tmp_path / "go"
        running = await engine.submit("waits", {"file": str(go)}, **OWNER)
        worker = sh.worker(MILLPOND_LEASE="60s")

        async def is_(job_id: object, phase: str) -> bool:
            return (await engine.read("acme", str(job_id))).phase == phase

        await until(lambda: is_(running.id, "leased"))
        os.kill(postgres.pid, number)
        await until(lambda: asyncio.to_thread(lambda: "db.unavailable" in worker.stderr))
        go.touch()
        with pytest.raises(UnavailableError):
            await engine.submit("quick", **OWNER)
        postgres.stop()  # it does no more than to ask for the status
        postgres = open_embedded(tmp_path / "data")
        try:
            late = await engine.submit("quick", **OWNER)
            await until(lambda: is_(running.id, "ended"))
            await until(lambda: is_(late.id, "ended"))
            job = await engine.read("acme", running.id)
            assert (job.outcome, job.epoch) == ("succeeded", 1)
            worker.terminate()
            assert worker.wait() == 0
            assert {line["event"] for line in worker.log} <= logs.CATALOGUE.keys()
            assert await verify(engine.db) == []
        finally:
            await engine.close()
            worker.close()
            postgres.stop()
