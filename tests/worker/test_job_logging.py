"""What the code of a job logs by ``logging`` and structlog: it carries the job's id, and can go to the job's log."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from millpond import Millpond, logs
from millpond.worker import JobIdFilter, JobLogHandler, add_job_id, current_job
from millpond.worker.job_logging import Relay
from tests.worker.test_tracebacks import serving
from tests.worker.test_worker import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond import Job
    from millpond.store.db import Database

SHOP = logging.getLogger("shop")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the logger of the shop writes, with the id of the job."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(JobIdFilter())
    handler.setFormatter(logging.Formatter("%(job_id)s %(message)s"))
    SHOP.addHandler(handler)
    SHOP.setLevel(logging.INFO)
    SHOP.propagate = False
    yield stream
    SHOP.handlers.clear()


@pytest.fixture
def app() -> Millpond:
    app = Millpond()

    @app.kind("loud")
    async def loud(job: Job) -> None:
        SHOP.info("begins")
        await asyncio.gather(*(_work(n) for n in range(2)))

    @app.kind("loud_plain")
    def loud_plain(job: Job) -> None:
        SHOP.info("begins")
        for n in range(2):
            SHOP.warning("works on %d", n)

    return app


async def _work(n: int) -> None:
    SHOP.warning("works on %d", n)


@pytest.mark.parametrize("kind", ["loud", "loud_plain"])
async def test_records_carry_the_id_of_the_job(db: Database, app: Millpond, lines: io.StringIO, kind: str) -> None:
    async with serving(db, app) as site:
        jobs = [await run(site.engine, kind) for _ in range(2)]
    SHOP.info("over")
    expected = [f"{job.id} {text}" for job in jobs for text in ("begins", "works on 0", "works on 1")]
    assert lines.getvalue().splitlines() == [*expected, "- over"]
    assert current_job() is None


@pytest.mark.parametrize("kind", ["loud", "loud_plain"])
async def test_records_can_go_to_the_log_of_the_job(db: Database, app: Millpond, lines: io.StringIO, kind: str) -> None:
    SHOP.addHandler(JobLogHandler())
    async with serving(db, app) as site:
        job = await run(site.engine, kind)
        SHOP.warning("not about a job")
        found = (await site.get(f"/v1/jobs/{job.id}/logs", key=site.admin_key)).json()["data"]
    expected = [("info", "begins"), ("warning", "works on 0"), ("warning", "works on 1")]
    assert [(line["level"], line["text"]) for line in found] == expected


async def test_writing_to_the_log_of_a_job_does_not_log_to_it(
    db: Database, app: Millpond, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    SHOP.addHandler(JobLogHandler())
    async with serving(db, app) as site:
        noted = site.engine.note

        async def note(*notes: Any) -> bool:
            SHOP.info("a library that logs what it sends")
            return await noted(*notes)

        monkeypatch.setattr(site.engine, "note", note)
        job = await run(site.engine, "loud")
        found = (await site.get(f"/v1/jobs/{job.id}/logs", key=site.admin_key)).json()["data"]
    assert [line["text"] for line in found] == ["begins", "works on 0", "works on 1"]
    assert "- a library that logs what it sends" in lines.getvalue()


def _logging_to(logger: Any) -> Any:
    async def loud(job: Job) -> None:
        logger.info("works")

    return loud


async def test_events_of_structlog_carry_the_id_of_the_job(db: Database) -> None:
    app = Millpond()
    out = io.StringIO()
    for processors in ([structlog.contextvars.merge_contextvars], [add_job_id]):
        chain: list[Any] = [*processors, structlog.processors.JSONRenderer()]
        logger = structlog.wrap_logger(structlog.PrintLogger(out), processors=chain)
        app.kind(f"loud_{processors[0].__name__}")(_logging_to(logger))

    async with serving(db, app) as site:
        jobs = [await run(site.engine, kind) for kind in app.kinds]
    assert [json.loads(line)["job_id"] for line in out.getvalue().splitlines()] == [job.id for job in jobs]
    assert structlog.contextvars.get_contextvars() == {}


async def test_without_logging_of_its_own_a_warning_goes_to_the_log_of_the_process(
    db: Database, app: Millpond, lines: io.StringIO
) -> None:
    SHOP.addHandler(Relay(logging.WARNING))
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    try:
        async with serving(db, app) as site:
            job = await run(site.engine, "loud")
    finally:
        logs.silence()
    decoded = [line for line in map(json.loads, stream.getvalue().splitlines()) if line["event"] == "handler.warned"]
    assert [(line["job_id"], line["library"], line["text"]) for line in decoded] == [
        (job.id, "shop", "works on 0"),
        (job.id, "shop", "works on 1"),
    ]
