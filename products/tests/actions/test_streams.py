"""The stream of a log: past lines, live ones, one status; resumed exactly, over a restart too."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import httpx2
import pytest
from products.tests.actions.deployments import STEPS, Deployment, Message, User, gate, messages, running_deployment

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from millpond.api.jobs.streams import Hub
    from tests.databases import DatabaseServer

READERS = 50


def texts(found: list[Message]) -> list[str]:
    return [message.data["text"] for message in found if message.event == "log"]


def names(found: list[Message]) -> list[str]:
    return [message.event for message in found]


def expected(count: int) -> list[str]:
    return [f"line {n}" for n in range(count)]


async def test_act_06_past_lines_come_then_live_ones_then_one_status(user: User) -> None:
    job_id = await user.submit("talk", name=(name := uuid4().hex), before=3, after=2)
    found: list[Message] = []
    async with asyncio.timeout(PATIENCE), user.watching(job_id) as described:
        async for message in described:
            found.append(message)
            if len(found) == 3:
                gate(name).set()
    assert names(found) == ["log"] * 5 + ["status"]
    assert texts(found) == expected(5)
    assert found[-1].data == {"state": "success", "output": {"lines": 5}}
    lines = await user.lines(job_id)
    assert [message.data for message in found[:-1]] == lines
    assert [message.id for message in found[:-1]] == [str(line["seq"]) for line in lines]


@pytest.mark.parametrize("times", [0, 1, 400])
async def test_act_07_the_stream_of_a_finished_job_replays_its_log_and_one_status(user: User, times: int) -> None:
    job = await user.done("greet", name="Ada", times=times)
    found = await user.watched(job["id"])
    assert names(found) == ["log"] * times + ["status"]
    assert [message.data for message in found[:-1]] == await user.lines(job["id"])
    assert found[-1].data == {"state": "success", "output": job["output"]}
    assert await user.watched(job["id"]) == found


async def test_act_07_so_do_those_of_failed_and_cancelled_ones(deployment: Deployment, user: User) -> None:
    failed = await user.done("break", how="badly")
    assert [(m.event, m.data.get("state"), m.data.get("output")) for m in await user.watched(failed["id"])] == [
        ("log", None, None),
        ("status", "failed", None),
    ]
    async with deployment.paused("greet"):
        job_id = await user.submit("greet", name="Ada")
        await user.send("POST", f"/api/jobs/{job_id}/cancel")
    (status,) = await user.watched(job_id)
    assert (status.event, status.data) == ("status", {"state": "cancelled", "output": None})


async def test_act_06_a_reader_resumes_after_any_line_with_none_lost_or_repeated(user: User) -> None:
    job = await user.done("talk", name=_open(), before=8, after=5)
    whole = await user.watched(job["id"])
    for n, message in enumerate(whole[:-1]):
        assert message.id is not None
        assert await user.watched(job["id"], message.id) == whole[n + 1 :]
    answer = await user.send("GET", f"/api/jobs/{job['id']}/stream?lastEventId={whole[3].id}")
    assert answer.text.count("event: log") == len(whole) - 5
    both = await user.send(
        "GET", f"/api/jobs/{job['id']}/stream?lastEventId={whole[3].id}", headers={"Last-Event-ID": str(whole[-2].id)}
    )
    assert both.text.count("event: log") == 0


def _open() -> str:
    name = uuid4().hex
    gate(name).set()
    return name


async def test_act_06_a_reader_that_has_the_end_is_asked_not_to_come_again(user: User) -> None:
    job = await user.done("greet", name="Ada")
    whole = await user.watched(job["id"])
    answer = await user.send("GET", f"/api/jobs/{job['id']}/stream", headers={"Last-Event-ID": str(whole[-1].id)})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize(
    ("last", "status", "code"),
    [
        ("msg_01h455vb4pex5vsknk084sn02q", 422, "invalid"),
        ("-1", 422, "invalid"),
        ("1e3", 422, "invalid"),
        ("99999999999999999999", 422, "invalid"),
        ("٣", 422, "invalid"),
        ("1", 409, "conflict"),  # there is such an event, but it is no line
        ("4000", 409, "conflict"),
        ("4294967296", 409, "conflict"),
    ],
)
async def test_act_06_an_id_that_is_malformed_foreign_or_of_the_future_is_refused(
    user: User, last: str, status: int, code: str
) -> None:
    job = await user.done("greet", name="Ada")
    path = f"/api/jobs/{job['id']}/stream"
    problem = await user.refused("GET", f"{path}?lastEventId={last}", status=status)
    assert (problem["code"], problem["field"]) == (code, "lastEventId")
    if last.isascii():
        problem = await user.refused("GET", path, status=status, headers={"Last-Event-ID": last})
        assert (problem["code"], problem["field"]) == (code, "Last-Event-ID")


async def test_act_06_what_is_no_line_makes_no_frame_but_counts(user: User) -> None:
    """Hundreds of events between two lines: more than a page, and more than are kept at hand."""
    job_id = await user.submit("mumble", name=(name := uuid4().hex))
    live: list[Message] = []
    async with asyncio.timeout(PATIENCE), user.watching(job_id) as described:
        async for message in described:
            live.append(message)
            gate(name).set()
    assert [*texts(live), live[-1].event] == ["before", "after", "status"]
    assert int(live[1].id or 0) - int(live[0].id or 0) > len(STEPS)
    assert await user.watched(job_id) == live
    assert await user.watched(job_id, live[0].id) == live[1:]


async def test_act_06_heartbeats_keep_a_silent_stream_open(deployment: Deployment, user: User) -> None:
    """A heartbeat is a comment, which readers pass over."""
    job_id = await user.submit("talk", name=(name := uuid4().hex), before=0, after=1)
    hub = cast("Hub", deployment.engine.audience)
    async with (
        asyncio.timeout(PATIENCE),
        user.http.stream("GET", f"/api/jobs/{job_id}/stream", headers=user.headers) as answer,
    ):
        found = ""
        async for text in answer.aiter_text():
            found += text
            if not gate(name).is_set():
                hub.ping()
            if ": ping" in found:
                gate(name).set()
    assert found.startswith("retry: 2000\n\n: ping\n\n")
    assert found.count("event: status") == 1


async def test_act_06_fifty_readers_get_every_line_once_over_a_restart(server: DatabaseServer, template: str) -> None:
    """Readers come back with the last id they saw, to a new server on the same port; some while it is down."""
    async with server.database(template) as dsn:
        before, after = 20, 20
        name = uuid4().hex
        async with running_deployment(dsn) as first:
            user = await first.user()
            job_id = await user.submit("talk", name=name, before=before, after=after)
            port = int(first.url.rpartition(":")[2])
            url = first.url
            readers = [asyncio.create_task(_read_on(url, user.key, job_id)) for _ in range(READERS)]
            await user.until(job_id, "running")
        gate(name).clear()
        async with running_deployment(dsn, port=port) as second:
            gate(name).set()
            async with asyncio.timeout(60):
                found = await asyncio.gather(*readers)
            job = await User(second.http, user.key, user.name).until(job_id, "success", "failed", "cancelled")
    assert job["state"] == "success"
    # The job was given back by the first server and begun again by the second: its lines are all there, in order.
    whole = found[0]
    assert all(each == whole for each in found)
    assert names(whole) == ["log"] * (len(whole) - 1) + ["status"]
    assert texts(whole)[-(before + after) :] == expected(before + after)
    ids = [int(message.id or 0) for message in whole]
    assert ids == sorted(set(ids))


async def _read_on(url: str, key: str, job_id: str) -> list[Message]:
    """As a browser: from the last id that was seen, until there is the end."""
    found: list[Message] = []
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=f"{url}/actions", timeout=PATIENCE) as http:
        while not found or found[-1].event != "status":
            if found:
                headers["Last-Event-ID"] = str(found[-1].id)
            try:
                async with http.stream("GET", f"/api/jobs/{job_id}/stream", headers=headers) as answer:
                    assert answer.status_code == 200
                    async with aclosing(messages(answer)) as described:
                        async for message in described:
                            found.append(message)  # noqa: PERF401 - what came before a break is kept
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)
    return found
