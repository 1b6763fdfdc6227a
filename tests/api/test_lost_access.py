"""Access that is lost while a request is open: a stream ends, and a long poll is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from millpond.api import principals
from millpond.engine.access import access
from millpond.errors import UnavailableError
from tests.factories import ACCOUNT, TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.api.sites import Site

STEP = 0.1
WAIT = 30


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything as usual, in shorter times."""
    monkeypatch.setattr(principals, "RECHECK_SECONDS", STEP)
    monkeypatch.setattr(access, "KEEP", 2 * STEP)
    monkeypatch.setattr(access, "RENEW", STEP)


async def revoked_elsewhere(db: Database) -> None:
    """Revoke every key and worker as another process does, whose notification is lost."""
    async with db.transaction() as tx:
        await tx.execute("update millpond.keys set revoked_at = millpond.clock()")
        await tx.execute("update millpond.workers set revoked_at = millpond.clock()")


async def streamed(site: Site, path: str, key: str | None, then: Callable[[], Any]) -> bytes:
    """What comes of a stream after its first bytes and after ``then``, until it ends."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with (
        asyncio.timeout(PATIENCE),
        httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http,
        http.stream("GET", path, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        parts: AsyncIterator[bytes] = answer.aiter_bytes()
        await anext(parts)
        await then()
        return b"".join([part async for part in parts])


async def held_up(site: Site, request: Any, db: Database) -> httpx2.Response:
    """The response to a long poll whose caller loses access while it waits."""
    async with asyncio.timeout(PATIENCE):
        answer = asyncio.create_task(request)
        while not (site.hub._watches or site.engine.workers.waiting):
            await asyncio.sleep(0.01)
        await revoked_elsewhere(db)
        return await answer


def test_the_times_add_up_to_five_seconds() -> None:
    """A key may have been looked up just before it was revoked, and checked just before its cache entry was too old."""
    assert access.KEEP + principals.RECHECK_SECONDS + principals._SLOT < 5


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("path", ["/v1/jobs/{}/stream", "/v1/jobs/{}/events", "/v1/board/stream"])
async def test_a_stream_ends_when_its_key_is_revoked(site: Site, db: Database, path: str) -> None:
    job_id = await site.submitted()
    key = site.admin_key if "board" in path else site.client_key
    own = path.format(job_id)
    if path.endswith("events"):
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http:
            headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
            async with http.stream("GET", own, headers=headers) as answer:
                parts = answer.aiter_bytes()
                await anext(parts)
                await revoked_elsewhere(db)
                rest = b"".join([part async for part in parts])
    else:
        rest = await streamed(site, own, key, lambda: revoked_elsewhere(db))
    assert b"event: end" not in rest
    assert site.hub.streams == 0
    assert (await site.get(f"/v1/jobs/{job_id}")).status_code == 401


@pytest.mark.usefixtures("soon")
async def test_a_stream_ends_when_its_token_expires(site: Site) -> None:
    job_id = await site.submitted()
    token = (await site.post(f"/v1/jobs/{job_id}/tokens", {"expires_in": "1s"})).json()["token"]
    path = f"/v1/jobs/{job_id}/stream?token={token}"
    assert b"event: end" not in await streamed(site, path, None, lambda: asyncio.sleep(0))
    assert (await site.get(path, key=None)).status_code == 401


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("by", ["a token", "a key"])
async def test_a_stream_ends_when_its_caller_expires_during_an_outage(
    site: Site, db: Database, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    job_id = await site.submitted()
    path = f"/v1/jobs/{job_id}/stream"
    if by == "a token":
        path += "?token=" + (await site.post(f"/v1/jobs/{job_id}/tokens", {"expires_in": "2s"})).json()["token"]
        key = None
    else:
        key = await site.key(expires_in="2s")
    monkeypatch.setattr(access, "_SECRET_KEEP", STEP)

    async def unavailable(*_: Any) -> Any:
        raise UnavailableError

    async def go() -> None:
        monkeypatch.setattr(type(db), "run", unavailable)

    assert b"event: end" not in await streamed(site, path, key, go)
    assert site.hub.streams == 0


@pytest.mark.usefixtures("soon")
async def test_a_stream_stays_open_while_the_database_cannot_say(
    site: Site, engine: Engine, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await site.submitted()
    asked = 0

    async def unreachable(_: str) -> Any:
        nonlocal asked
        asked += 1
        raise principals.StoreError("away")

    async def come_and_go() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(engine.access, "authenticate", unreachable)
            while asked < 3:
                await asyncio.sleep(STEP / 10)
        assert site.hub.streams == 1
        await revoked_elsewhere(db)

    await streamed(site, f"/v1/jobs/{job_id}/stream", site.client_key, come_and_go)
    assert site.hub.streams == 0


@pytest.mark.usefixtures("soon")
async def test_a_wait_for_a_job_is_refused_when_its_key_is_revoked(site: Site, db: Database) -> None:
    job_id = await site.submitted()
    answer = await held_up(site, site.get(f"/v1/jobs/{job_id}?wait={WAIT}"), db)
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert answer.json()["detail"] == "The key was revoked."
    assert not site.hub._watches


@pytest.mark.usefixtures("soon")
async def test_a_poll_for_jobs_is_refused_when_its_worker_is_revoked(site: Site, db: Database) -> None:
    secret = await site.key(scope="worker", tenant=None, account=None)
    made = await site.post("/v1/worker/register", {"worker": "w1", "routes": ["filmed"]}, key=secret)
    token = made.json()["token"]
    answer = await held_up(site, site.post("/v1/worker/poll", {"wait": WAIT}, key=token), db)
    assert (answer.status_code, answer.json()["code"]) == (403, "worker_revoked")
    await site.engine.grant(TENANT, ACCOUNT, 5)
    job = await site.engine.submit("filmed", {"n": 1}, tenant=TENANT, account=ACCOUNT)
    assert (await site.engine.views.job(TENANT, ACCOUNT, job.id)).phase == "ready", "no poll has taken it"
