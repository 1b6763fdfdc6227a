"""The board over HTTP: numbers of one event, over time, and as they change."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from millpond import ids
from millpond.api import principals
from millpond.api.operators import board
from millpond.engine.queue.leases import End
from millpond.errors import UnavailableError
from millpond.settings import Settings
from tests.api.sites import running_site
from tests.checks import until
from tests.factories import ERROR, MINUTE, STRANGER, TENANT, Factory
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from millpond.engine.engine import Engine
    from tests.api.sites import Site


async def ask(site: Site, path: str, key: str | None = None, **query: str) -> dict[str, Any]:
    answer = await site.send("GET", path, key=key or site.admin_key, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def viewer(engine: Engine, tenant: str | None) -> str:
    _, secret = await engine.access.make_key(scope="viewer", tenant=tenant, actor="test")
    return secret


async def test_the_board_reports_where_everything_stands(site: Site, make: Factory) -> None:
    await make.submitted("brief", tenant=STRANGER)
    await make.ended("priced")
    lease = await make.leased("priced")
    await make.engine.finish(End(lease, "failed", error=ERROR))
    await make.leased("staged")
    await make.submitted("priced")
    response = await ask(site, "/v1/board")
    keys = ("ready", "waiting", "leased", "parked", "delivering", "held", "slots", "refresh")
    assert [response[key] for key in keys] == [2, 0, 1, 0, 0, 15, None, 5.0]
    assert [response[f"{key}_1h"] for key in ("succeeded", "failed", "ended", "captured")] == [1, 1, 2, 5]
    assert {queue["queue"] for queue in response["queues"]} >= {"priced", "staged", "brief"}
    assert response["workers"] == {"ok": 0, "draining": 0, "deaf": 0, "unready": 0, "unapproved": 0, "lost": 0}
    assert response["tenants"] == [{"tenant": TENANT, "captured": 5, "jobs": 2}]
    (failure,) = response["failures"]
    assert (failure["code"], failure["count"], failure["released"], failure["tenants"]) == ("boom", 1, 5, 1)
    assert failure["sample"] == ids.text("job", lease.job_id)
    listed = await ask(site, "/v1/failures", since="1h", kind="priced")
    assert [one["fingerprint"] for one in listed["data"]] == [failure["fingerprint"]]
    assert len(listed["data"][0]["counts"]) * listed["step_seconds"] == 3600

    kinds = {one["kind"]: one for one in (await ask(site, "/v1/board/kinds"))["data"]}
    assert kinds["priced"] == {"kind": "priced", "states": {"failed": 1, "queued": 1, "succeeded": 1}, "held": 5}
    series = await ask(site, "/v1/board/series", span="6h", kind="priced")
    assert len(series["at"]) * series["step_seconds"] == 6 * 3600
    assert [sum(series[key]) for key in ("submitted", "succeeded", "failed", "captured")] == [3, 1, 1, 5]
    assert {len(column) for column in series.values() if isinstance(column, list)} == {len(series["at"])}
    assert series["run_p50"][-1] is not None or series["run_p50"][-2] is not None


async def test_a_principal_of_one_tenant_sees_its_own(site: Site, make: Factory) -> None:
    await make.submitted("brief", tenant=STRANGER)
    await make.ended("priced")
    await make.ended("priced", "failed")
    key = await viewer(site.engine, STRANGER)
    response = await ask(site, "/v1/board", key)
    assert [response[name] for name in ("ready", "held", "ended_1h", "queues", "failures", "tenants")] == [
        1,
        5,
        0,
        [],
        [],
        [],
    ]
    assert response == await ask(site, "/v1/board", tenant=STRANGER) | {"at": response["at"]}
    assert [one["kind"] for one in (await ask(site, "/v1/board/kinds", key))["data"]] == ["brief"]
    assert sum((await ask(site, "/v1/board/series", key))["submitted"]) == 1
    assert (await ask(site, "/v1/failures", key))["data"] == []
    of_account = await site.key(scope="admin")
    for path in ("/v1/board", "/v1/board/kinds", "/v1/board/series", "/v1/board/stream", "/v1/failures"):
        refused = await site.send("GET", path, key=key, params={"tenant": TENANT})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert (await site.get(path)).status_code == 403  # a client
        small = await site.get(path, key=of_account)
        assert (small.status_code, "one account" in small.json()["detail"]) == (403, True), path


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("/v1/board/series", {"span": "2h"}, "span"),
        ("/v1/board/series", {"kind": "no such/\n"}, "kind"),
        ("/v1/failures", {"since": "1y"}, "since"),
        ("/v1/board", {"span": "1h"}, "span"),
    ],
)
async def test_what_cannot_be_asked_is_said_precisely(
    still_site: Site, path: str, query: dict[str, str], field: str
) -> None:
    refused = await still_site.send("GET", path, key=still_site.admin_key, params=query)
    assert (refused.status_code, refused.json()["code"], refused.json()["field"]) == (422, "invalid", field)


async def test_alarms_say_what_is_on_fire(site: Site, make: Factory) -> None:
    await site.engine.pause("free")
    await make.submitted("staged")
    await make.clock.advance(MINUTE)
    for _ in range(10):
        await make.ended("priced", "failed")
    alarms = (await ask(site, "/v1/board"))["alarms"]
    found = {(alarm["subject"]["type"], alarm["subject"]["id"]): alarm for alarm in alarms}
    fingerprint = (await ask(site, "/v1/failures"))["data"][0]["fingerprint"]
    assert found["queue", "free"]["level"] == "warn"
    assert found["queue", "staged"]["level"] == "bad"
    assert "no worker" in found["queue", "staged"]["text"]
    assert found["failure", fingerprint]["level"] == "bad"
    assert "10 of 10 jobs" in found["failure", fingerprint]["text"]
    assert [alarm["level"] for alarm in alarms] == sorted(alarm["level"] for alarm in alarms)


# Watching


@asynccontextmanager
async def watching(site: Site, *, key: str | None = None, **query: str) -> AsyncIterator[AsyncIterator[str]]:
    headers = {"Authorization": f"Bearer {key or site.admin_key}"}
    async with (
        httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http,
        http.stream("GET", "/v1/board/stream", headers=headers, params=query) as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        yield answer.aiter_lines()


async def boards(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    async for line in lines:
        if line.startswith("data: "):
            yield json.loads(line[6:])


async def test_who_watches_hears_that_nothing_has_changed(engine: Engine) -> None:
    async with running_site(engine, settings=Settings(refresh=timedelta(seconds=1))) as site, watching(site) as lines:
        heard = [line async for line in until_ping(lines)]
    assert heard[-2:] == ["event: ping", "data:"]


async def until_ping(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    is_last = False
    async for line in lines:
        yield line
        if is_last:
            return
        is_last = line == "event: ping"


async def test_those_who_watch_share_a_look_and_are_notified_of_changes(
    engine: Engine, make: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    permits = asyncio.Semaphore(0)  # each is for one look
    seen = engine.counters.counts

    async def counts(tenant: str | None = None) -> Any:
        await permits.acquire()
        return await seen(tenant)

    monkeypatch.setattr(engine.counters, "counts", counts)
    async with running_site(engine, settings=Settings(refresh=timedelta(seconds=1))) as site:
        async with watching(site) as one, watching(site) as other:
            streams = [boards(one), boards(other)]
            permits.release()
            assert [(await anext(stream))["ended_1h"] for stream in streams] == [0, 0]
            await make.submitted("free")
            permits.release()
            assert [(await anext(stream))["ready"] for stream in streams] == [1, 1]
            await make.serve("free")
            for _ in range(1_000):
                permits.release()
            while (await anext(streams[0]))["ended_1h"] == 0:
                pass
            async for line in one:  # nothing has changed
                if line == "event: ping":
                    break
        await until(lambda: _is_unwatched(site))
        await until(lambda: _is(lambda: "board" not in {task.get_name() for task in asyncio.all_tasks()}))
        await make.submitted("free", tenant=STRANGER)
        async with watching(site, tenant=STRANGER) as lines:
            stream = boards(lines)
            assert (await anext(stream))["ready"] == 1
            site.stop.set()
            assert [described async for described in stream] == []  # it ends


async def test_a_board_that_is_looked_at_by_hand_waits_for_its_database(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    seen = engine.counters.counts

    async def counts(tenant: str | None = None) -> Any:
        looks.append(time.monotonic())
        if len(looks) == 1:
            raise UnavailableError
        return await seen(tenant)

    monkeypatch.setattr(engine.counters, "counts", counts)
    async with running_site(engine, settings=Settings(refresh=timedelta(0))) as site, watching(site) as lines:
        assert (await anext(boards(lines)))["ready"] == 0
    first, second = looks
    assert second - first >= board.RECHECK_SECONDS


async def test_a_key_watches_so_often_and_no_tenant_that_there_is_not(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board, "READERS_MAX", 2)
    absent = await site.order("GET", "/v1/board/stream?tenant=nobody")
    assert (absent.status_code, absent.json()["field"]) == (404, "tenant")
    async with watching(site) as one, watching(site, tenant=TENANT) as other:
        for lines in (one, other):
            await anext(boards(lines))
        refused = await site.order("GET", "/v1/board/stream")
        assert (refused.status_code, refused.json()["limit"]) == (429, 2)
        assert int(refused.headers["retry-after"]) >= 1
        assert site.app.state.readers.total() == 2
    await until(lambda: _is_unwatched(site))
    assert not site.app.state.readers
    async with watching(site) as lines:
        await anext(boards(lines))


async def test_who_has_lost_the_key_learns_no_more(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(principals, "RECHECK_SECONDS", 0.05)
    async with running_site(engine, settings=Settings(refresh=timedelta(seconds=1))) as site:
        made = (await site.order("POST", "/v1/keys", {"scope": "viewer"})).json()
        async with asyncio.timeout(PATIENCE), watching(site, key=made["key"]) as lines:
            stream = boards(lines)
            assert (await anext(stream))["ready"] == 0
            await site.order("DELETE", f"/v1/keys/{made['id']}")
            assert [described async for described in stream] == []
        await until(lambda: _is_unwatched(site))


async def _is(found: Callable[[], bool]) -> bool:
    return found()


async def _is_unwatched(site: Site) -> bool:
    return not site.app.state.watched


# Metrics


async def test_metrics_report_how_long_jobs_waited_and_ran(site: Site, make: Factory) -> None:
    await make.ended("priced")
    text = (await site.send("GET", "/metrics", key=site.admin_key)).text
    for name in ("wait", "run"):
        assert f'millpond_job_{name}_seconds_count{{kind="priced"}} 1.0' in text
        assert f'millpond_job_{name}_seconds_bucket{{kind="priced",le="+Inf"}} 1.0' in text
