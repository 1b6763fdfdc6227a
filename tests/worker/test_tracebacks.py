"""The traceback of a handler's error: operators read it, and clients never do."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from millpond import Millpond, PermanentError, Worker, logs
from millpond.engine.engine import Engine
from millpond.engine.jobs import tracebacks as kept
from millpond.engine.queue import registry
from millpond.errors import StoreError
from millpond.redaction import MASK, redact
from millpond.work import Return
from millpond.worker import RemoteSource, tracebacks
from tests.api.sites import Site, running_site
from tests.checks import until
from tests.factories import ACCOUNT, OWNER, TENANT
from tests.worker.test_worker import run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from millpond import Job
    from millpond.store.db import Database

SECRET = "hunter2-hunter2"


def fail_deeply(password: str) -> None:
    local = f"a local value and {password}"
    raise ValueError(f"cannot connect to postgres://ann:{SECRET}@db/shop with password={password}, {len(local)}")


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("info", as_json=True, stream=stream)
    yield stream
    logs.silence()


@pytest.fixture
def app() -> Millpond:
    app = Millpond()

    @app.kind("broken", attempts_max=1)
    async def broken(job: Job) -> None:
        fail_deeply(SECRET)

    @app.kind("broken_plain", attempts_max=1)
    def broken_plain(job: Job) -> None:
        fail_deeply(SECRET)

    @app.kind("refusing")
    async def refusing(job: Job) -> None:
        try:
            fail_deeply(SECRET)
        except ValueError as error:
            raise PermanentError("No.") from error

    @app.kind("far", runs="fleet", queue="gpu", attempts_max=1)
    def far(job: Job) -> None:
        fail_deeply(SECRET)

    return app


@asynccontextmanager
async def serving(db: Database, app: Millpond) -> AsyncIterator[Site]:
    await registry.register(db, app.kinds.values())
    async with running_site(Engine(db, app)) as site:
        yield site


async def attempts(site: Site, job_id: str) -> list[dict[str, Any]]:
    answer = await site.order("GET", f"/v1/board/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()["attempts"]


def assert_is_of_the_handler(text: str) -> None:
    lines = text.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "in broken" in lines[1] or "in far" in lines[1] or "in refusing" in lines[1]  # no frame of the worker
    assert "fail_deeply" in text
    assert SECRET not in text
    assert "a local value and" not in text.replace('local = f"a local value and {password}"', "")


@pytest.mark.parametrize("kind", ["broken", "broken_plain", "refusing"])
async def test_operators_read_where_the_code_of_a_job_raised(
    db: Database, app: Millpond, log: io.StringIO, kind: str
) -> None:
    async with serving(db, app) as site:
        job = await run(site.engine, kind)
        (attempt,) = await attempts(site, job.id)
        assert_is_of_the_handler(attempt["traceback"])
    (line,) = [line for line in map(json.loads, log.getvalue().splitlines()) if line["event"] == "handler.raised"]
    assert line["traceback"] == attempt["traceback"]
    assert line["job_id"] == job.id
    assert SECRET not in log.getvalue().replace(json.dumps(job.error["message"])[1:-1], "")


async def test_clients_read_the_code_and_the_message_only(db: Database, app: Millpond) -> None:
    async with serving(db, app) as site:
        job = await run(site.engine, "broken")
        seen = [
            (await site.get(f"/v1/jobs/{job.id}{part}")).text for part in ("", "/events", "/logs", "/stream?after=0")
        ]
        seen.append((await site.get("/v1/jobs")).text)
        assert json.loads(seen[0])["error"].keys() == {"code", "message"}
        assert not [text for text in seen if "Traceback" in text or "fail_deeply" in text]
        assert (await site.get(f"/v1/board/jobs/{job.id}")).status_code == 403


async def test_the_role_of_clients_cannot_read_tracebacks(db: Database, app: Millpond) -> None:
    async with serving(db, app) as site:
        await run(site.engine, "broken")
    async with db.transaction() as tx:
        assert await tx.fetchval("select count(*) from millpond.tracebacks") == 1
        if await tx.fetchval("select to_regrole('millpond_client') is not null"):
            allowed = await tx.fetchval(
                "select has_table_privilege('millpond_client', 'millpond.tracebacks', 'select')"
            )
            assert allowed is False


async def test_a_fleet_worker_reports_its_tracebacks(db: Database, app: Millpond) -> None:
    async with serving(db, app) as site:
        secret = await site.key(scope="worker", tenant=None, account=None)
        job_id = (await site.engine.submit("far", {}, tenant=TENANT, account=ACCOUNT)).id
        stop = asyncio.Event()
        working = asyncio.create_task(Worker(RemoteSource(site.url, secret), app).run(stop))

        async def has_ended() -> bool:
            return (await site.engine.read(TENANT, job_id)).phase == "ended"

        await until(has_ended)
        stop.set()
        await working
        (attempt,) = await attempts(site, job_id)
        assert_is_of_the_handler(attempt["traceback"])


async def test_a_traceback_that_cannot_be_stored_delays_no_outcome(
    db: Database, app: Millpond, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise StoreError

    monkeypatch.setattr(kept, "keep", refuse)
    async with serving(db, app) as site:
        job = await run(site.engine, "broken")
        assert (job.outcome, job.error["code"]) == ("failed", "handler_failed")
        assert [attempt["traceback"] for attempt in await attempts(site, job.id)] == [None]


async def test_only_the_holder_of_a_lease_stores_a_traceback_and_old_ones_are_dropped(
    db: Database, app: Millpond
) -> None:
    async with serving(db, app) as site:
        await site.engine.submit("broken", {}, **OWNER)
        source = site.engine.source()
        await source.open(app, 1, Worker(source, app))
        (lease,) = await source.claim(1, is_waiting=False)
        async with db.transaction() as tx:
            await tx.execute(
                "insert into millpond.tracebacks select $1, n, $2, now(), 'old' from generate_series(-20, 0) n",
                lease.job_id,
                lease.tenant,
            )
        await site.engine.keep_traceback(lease, "now")
        await site.engine.give_back(_interrupted(lease))
        await site.engine.keep_traceback(lease, "too late")
        found = await kept.of_job(db, lease.tenant, lease.job_id)
        assert (len(found), found[lease.epoch]) == (kept.KEPT, "now")


def _interrupted(lease: Any) -> Any:
    return Return(lease, "interruption", {"code": "interrupted", "message": "x"})


# Rendering


def rendered(error: Exception) -> str:
    try:
        raise error
    except type(error) as raised:
        return tracebacks.render(raised) or ""


def test_a_long_traceback_keeps_its_beginning_and_its_end() -> None:
    first = error = ValueError("the first")
    for number in range(500):
        error.__context__ = ValueError(f"number {number} " + "x" * 300)
        error = error.__context__
    text = rendered(first)
    assert len(text) <= tracebacks.LENGTH_MAX
    assert "the first" in text
    assert "number 499" in text
    assert "lines are left out" in text


def test_an_error_that_cannot_be_shown_is_named() -> None:
    class UnspeakableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert "UnspeakableError" in rendered(UnspeakableError())


def test_what_was_never_raised_has_no_traceback() -> None:
    assert tracebacks.render(ValueError("x")) is None


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("postgres://ann:pa55word@db/shop", "pa55word"),
        ("redis://:pa55word@cache", "pa55word"),
        ("password='pa55 word'", "pa55 word"),
        ("connect(password = 'pa55 word', n=1)", "pa55 word"),
        ('{"api_key": "pa55word", "n": 1}', "pa55word"),
        ("https://bucket/file?X-Amz-Signature=pa55word&n=1", "pa55word"),
        ("Authorization: Bearer pa55word1234", "pa55word1234"),
        ("the key sk-pa55wordpa55word is wrong", "pa55wordpa55word"),
        ("the key mpt_pa55wordpa55word is wrong", "pa55wordpa55word"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("-----BEGIN PRIVATE KEY-----\npa55word\n-----END PRIVATE KEY-----", "pa55word"),
        ("the value of SHOP_TOKEN is from-the-environment", "from-the-environment"),
    ],
)
def test_secrets_are_removed(text: str, secret: str) -> None:
    clean = redact(text, {"SHOP_TOKEN": "from-the-environment", "HOME": "wrong"})
    assert secret not in clean
    assert MASK in clean


def test_what_is_no_secret_stays() -> None:
    text = 'File "/srv/app.py", line 3, in tokenize\n  key = names[n]\nKeyError: "n" at http://host:80/x?a=1'
    assert redact(text, {"HOME": "/srv/app.py"}) == text
