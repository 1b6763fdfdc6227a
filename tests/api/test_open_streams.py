"""Open streams: limited by key and by account, and counted until they end."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import httpx2
import pytest

from millpond.settings import Settings
from tests.api.sites import Site, running_site
from tests.checks import until
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.engine import Engine


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    async with running_site(engine, settings=Settings(streams_per_key=2, streams_per_account=3)) as running:
        yield running


async def opened(stack: AsyncExitStack, site: Site, path: str, key: str | None) -> httpx2.Response:
    """A stream that stays open until the end of the test; only its head is read."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    http = await stack.enter_async_context(httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE))
    return await stack.enter_async_context(http.stream("GET", path, headers=headers))


async def refused(stack: AsyncExitStack, site: Site, path: str, key: str | None) -> str:
    answer = await opened(stack, site, path, key)
    await answer.aread()
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    return answer.json()["detail"]


async def test_a_key_and_an_account_have_so_many_streams(site: Site) -> None:
    job_id = await site.submitted()
    path = f"/v1/jobs/{job_id}/stream"
    other = await site.key()
    token = (await site.post(f"/v1/jobs/{job_id}/tokens", {})).json()["token"]
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        for _ in range(2):
            assert (await opened(stack, site, path, site.client_key)).status_code == 200
        assert await refused(stack, site, path, site.client_key) == "The key has 2 open streams already."
        assert (await opened(stack, site, path, other)).status_code == 200
        assert await refused(stack, site, path, other) == "The account has 3 open streams already."
        assert "account" in await refused(stack, site, f"{path}?token={token}", None), "it is a stream of that account"
        # Operators have their own limit, and use up nobody else's.
        for one in (path, "/v1/board/stream"):
            assert (await opened(stack, site, one, site.admin_key)).status_code == 200
        assert "key" in await refused(stack, site, "/v1/board/stream", site.admin_key)
        assert site.hub.streams == 4, "those that were refused are closed"

    async def is_empty() -> bool:
        return site.app._streams.total == 0 and site.hub.streams == 0

    await until(is_empty)
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        assert (await opened(stack, site, path, site.client_key)).status_code == 200
