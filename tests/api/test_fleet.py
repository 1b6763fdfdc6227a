"""The worker protocol over HTTP, as a worker speaks it and as one that means harm does."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest

from millpond import ids
from millpond.engine.engine import Engine
from millpond.engine.fleet.workers import FleetSettings
from millpond.engine.queue.leases import BYTES_MAX
from millpond.errors import StorageUnavailableError
from millpond.settings import Settings
from millpond.storage.local import Local
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, TENANT
from tests.product import app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.store.db import Database
    from tests.clocks import Clock

KIND = "filmed"


@dataclass(slots=True)
class FleetServer:
    """A site with a fleet."""

    site: Site
    secret: str

    async def register(self, worker: str = "w1", *, key: str | None = "", **body: Any) -> httpx2.Response:
        body = {"worker": worker, "routes": [KIND], **body}
        return await self.site.post("/v1/worker/register", body, key=self.secret if key == "" else key)

    async def joined(self, worker: str = "w1", **body: Any) -> RemoteWorker:
        answer = await self.register(worker, **body)
        assert answer.status_code == 201, answer.text
        return RemoteWorker(self.site, answer.json()["token"], answer.json()["id"])

    async def job(self, **options: Any) -> str:
        engine = self.site.engine
        await engine.grant(TENANT, ACCOUNT, 5)
        return (await engine.submit(KIND, {"n": 1}, tenant=TENANT, account=ACCOUNT, **options)).id


@dataclass(slots=True)
class RemoteWorker:
    """A worker that has registered."""

    site: Site
    token: str
    id: str

    async def call(self, verb: str, **body: Any) -> httpx2.Response:
        return await self.site.post(f"/v1/worker/{verb}", body, key=self.token)

    async def polled(self, **body: Any) -> list[dict[str, Any]]:
        answer = await self.call("poll", **body)
        assert answer.status_code == 200, answer.text
        return answer.json()["jobs"]


@pytest.fixture
async def fleet_server(site: Site) -> FleetServer:
    return FleetServer(site, await site.key(scope="worker", tenant=None, account=None))


def lease_of(job: dict[str, Any]) -> dict[str, str]:
    return {"job_id": job["job_id"], "lease_token": job["lease_token"]}


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# A whole life


async def test_a_worker_joins_works_and_leaves(fleet_server: FleetServer) -> None:
    answer = await fleet_server.register(slots=2, capabilities={"gpu": "A10"})
    response = answer.json()
    assert answer.status_code == 201
    assert (response["worker"], response["routes"], response["is_approved"]) == ("w1", [KIND], True)
    assert (response["lease_seconds"], response["heartbeat_seconds"], response["poll_seconds_max"]) == (900, 30, 30)
    remote_worker = RemoteWorker(fleet_server.site, response["token"], response["id"])
    job_id = await fleet_server.job()
    (job,) = await remote_worker.polled(want=2)
    assert job["job_id"] == job_id
    assert (job["kind"], job["route"], job["tenant"], job["account"], job["input"]) == (
        KIND,
        KIND,
        TENANT,
        ACCOUNT,
        {"n": 1},
    )
    assert (job["epoch"], job["attempts"], job["price"], job["stages"], job["downloads"]) == (
        1,
        0,
        5,
        ["drawing", "cutting"],
        {},
    )
    lease = lease_of(job)
    noted = await remote_worker.call(
        "note",
        **lease,
        notes=[
            {"number": 1, "type": "stage", "stage": "drawing"},
            {"number": 2, "type": "progress", "value": 0.25},
            {"number": 3, "type": "log", "text": "hello", "level": "info"},
        ],
    )
    assert (noted.status_code, noted.json()) == (200, {"cancel_requested": False})
    beat = await remote_worker.call("heartbeat", jobs=[lease])
    assert beat.json() == {
        "jobs": [
            {
                **lease,
                "is_held": True,
                "cancel_requested": False,
                "lease_seconds": 900.0,
                "downloads": {},
                "uploads": {},
            }
        ],
        "is_draining": False,
    }
    done = await remote_worker.call("complete", **lease, output={"url": "x"}, captured=3)
    assert (done.status_code, done.json()) == (200, {"job_id": job_id, "state": "succeeded"})
    again = await remote_worker.call("complete", **lease, output={"url": "y"}, captured=3)
    assert again.json() == done.json()
    seen = (await fleet_server.site.get(f"/v1/jobs/{job_id}")).json()
    assert (seen["output"], seen["captured"], seen["progress"]) == ({"url": "x"}, 3, 1.0)
    assert (await remote_worker.call("deregister")).status_code == 204
    assert code(await remote_worker.call("poll")) == (401, "unauthorized")
    actions = [
        entry["action"] for entry in (await fleet_server.site.order("GET", "/v1/audit?limit=100")).json()["data"]
    ]
    for action in ("worker.registered", "job.leased", "job.completed", "worker.deregistered"):
        assert actions.count(action) == 1


async def test_what_one_poll_gets_has_a_size(fleet_server: FleetServer) -> None:
    """The others stay where they were in the queue, and nobody was ever given them."""
    engine = fleet_server.site.engine
    await engine.grant(TENANT, ACCOUNT, 200)
    given = {"text": "x" * 250_000}
    made = [(await engine.submit(KIND, given, tenant=TENANT, account=ACCOUNT)).id for _ in range(40)]
    workers = [await fleet_server.joined(name, slots=100) for name in ("w1", "w2")]
    taken: list[str] = []
    while len(taken) < len(made):
        waiting = [worker.call("poll", want=100, wait=30) for worker in workers[: 2 if not taken else 1]]
        for answer in await asyncio.gather(*waiting):
            assert answer.status_code == 200
            assert len(answer.content) <= BYTES_MAX * 1.05 + 250_000
            jobs = answer.json()["jobs"]
            assert {(job["epoch"], job["attempts"]) for job in jobs} == {(1, 0)}
            taken += [job["job_id"] for job in jobs]
    assert sorted(taken) == sorted(made)
    audited = (await fleet_server.site.order("GET", "/v1/audit?limit=100&action=job.leased")).json()["data"]
    assert sorted(entry["subject"] for entry in audited) == sorted(made)


async def test_the_secret_may_stand_in_its_own_header(fleet_server: FleetServer) -> None:
    headers = {"X-Fleet-Secret": fleet_server.secret}
    answer = await fleet_server.site.post(
        "/v1/worker/register", {"worker": "w", "routes": [KIND]}, key=None, headers=headers
    )
    assert answer.status_code == 201


async def test_a_job_may_fail_be_retried_requeued_and_parked(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined(slots=4)
    for _ in range(4):
        await fleet_server.job()
    jobs = await remote_worker.polled(want=4)
    error = {"code": "oom", "message": "Out of memory.", "node": "3"}
    answers = [
        await remote_worker.call("fail", **lease_of(jobs[0]), error=error),
        await remote_worker.call("fail", **lease_of(jobs[1]), error=error, retry=True, retry_after=30),
        await remote_worker.call("requeue", **lease_of(jobs[2]), reason="spot"),
        await remote_worker.call("park", **lease_of(jobs[3]), memo={"at": 2}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert [answer.json().get("fate") for answer in answers[:3]] == ["failed", "requeued", "requeued"]
    seen = [(await fleet_server.site.get(f"/v1/jobs/{job['job_id']}")).json() for job in jobs]
    assert [job["phase"] for job in seen] == ["ended", "waiting", "ready", "parked"]
    assert seen[0]["error"] == error
    assert [job["attempts"] for job in seen] == [0, 1, 0, 0]


async def test_text_is_written_once_in_order_and_within_limits(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    await fleet_server.job()
    (job,) = await remote_worker.polled()

    async def emit(*chunks: tuple[int, str]) -> dict[str, Any]:
        numbered = [{"number": number, "text": text} for number, text in chunks]
        emitted = await remote_worker.call("emit", jobs=[{**lease_of(job), "chunks": numbered}])
        assert emitted.status_code == 200, emitted.text
        (result,) = emitted.json()["jobs"]
        return result

    assert await emit((1, "Once "), (2, "upon ")) == {
        **lease_of(job),
        "is_held": True,
        "cancel_requested": False,
        "error": None,
    }
    assert (await emit((2, "upon "), (3, "a time")))["error"] is None
    refusals = {
        "number 4": (5, "later"),
        "NUL character": (4, "a\0b"),
        "65,537 bytes": (4, "x" * 65_537),
        "is empty": (4, ""),
    }
    for message, chunk in refusals.items():
        error = (await emit(chunk))["error"]
        assert message in error["message"]
        assert error["field"] == ("number" if message == "number 4" else "chunks[0].text")
    text = (await fleet_server.site.get(f"/v1/jobs/{job['job_id']}/text")).json()
    assert (text["text"], text["number"]) == ("Once upon a time", 3)
    await fleet_server.site.post(f"/v1/jobs/{job['job_id']}/cancel")
    assert (await emit((4, "!")))["cancel_requested"]


async def test_a_cancel_reaches_the_worker(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    await fleet_server.job()
    (job,) = await remote_worker.polled()
    await fleet_server.site.post(f"/v1/jobs/{job['job_id']}/cancel")
    assert (await remote_worker.call("heartbeat", jobs=[lease_of(job)])).json()["jobs"][0]["cancel_requested"]
    noted = await remote_worker.call("note", **lease_of(job), notes=[{"number": 1, "type": "log", "text": "x"}])
    assert noted.json()["cancel_requested"]
    ended = await remote_worker.call("fail", **lease_of(job), error={"message": "stopped"}, outcome="canceled")
    assert ended.json()["fate"] == "canceled"


# Waiting


async def test_a_poll_is_answered_as_soon_as_there_is_a_job(fleet_server: FleetServer) -> None:
    remote_workers = [await fleet_server.joined(f"w{n}") for n in range(4)]
    polls = [asyncio.create_task(remote_worker.polled(wait=30)) for remote_worker in remote_workers]
    await _waiting(fleet_server, 4)
    jobs = {await fleet_server.job() for _ in range(4)}
    async with asyncio.timeout(PATIENCE):
        given = await asyncio.gather(*polls)
    assert {job["job_id"] for found in given for job in found} == jobs


async def test_a_caller_that_has_gone_is_handed_nothing(fleet_server: FleetServer) -> None:
    gone, staying = await fleet_server.joined("gone"), await fleet_server.joined("staying")
    body = json.dumps({"wait": 30}).encode()
    head = (
        f"POST /v1/worker/poll HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {gone.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    _, writer = await asyncio.open_connection("127.0.0.1", fleet_server.site.port)
    writer.write(head.encode() + body)
    await _waiting(fleet_server, 1)
    writer.transport.abort()
    await _waiting(fleet_server, 0)
    job_id = await fleet_server.job()
    assert [job["job_id"] for job in await staying.polled(wait=30)] == [job_id]


async def test_many_wait_without_a_connection_to_the_database(fleet_server: FleetServer) -> None:
    """More polls than the pool has connections, and yet there is one for whoever wants to know something."""
    fleet_server.site.engine.workers.settings = replace(FleetSettings(), workers_max=200)
    remote_workers = [await fleet_server.joined(f"w{n}") for n in range(15)]
    polls = [asyncio.create_task(remote_worker.polled(wait=30)) for remote_worker in remote_workers]
    await _waiting(fleet_server, 15)
    assert (await fleet_server.site.order("GET", "/v1/routes")).json()["data"][0]["workers"]["idle"] == 15
    jobs = {await fleet_server.job() for _ in range(15)}
    async with asyncio.timeout(PATIENCE):
        given = await asyncio.gather(*polls)
    assert {job["job_id"] for found in given for job in found} == jobs


async def _waiting(fleet_server: FleetServer, polls: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while fleet_server.site.engine.workers.waiting != polls:
            await asyncio.sleep(0.005)


# Who may not


async def test_who_may_not_register_is_shown_why(fleet_server: FleetServer) -> None:
    site = fleet_server.site
    of_tenant = await site.key(scope="worker", tenant=TENANT, account=None)
    answers = {
        "client": await fleet_server.register(key=site.client_key),
        "admin": await fleet_server.register(key=site.admin_key),
        "nobody": await fleet_server.register(key=None),
        "wrong": await fleet_server.register(
            key=fleet_server.secret[:-1] + ("x" if fleet_server.secret[-1] != "x" else "y")
        ),
        "tenant": await fleet_server.register(key=of_tenant),
        "route": await fleet_server.register(routes=["free"]),
        "no route": await fleet_server.register(routes=[]),
        "name": await fleet_server.register("a b"),
        "nul": await fleet_server.register("a\0"),
        "slots": await fleet_server.register(slots=0),
        "field": await fleet_server.register(colour="red"),
    }
    assert {name: code(answer) for name, answer in answers.items()} == {
        "client": (403, "forbidden"),
        "admin": (403, "forbidden"),
        "nobody": (401, "unauthorized"),
        "wrong": (401, "unauthorized"),
        "tenant": (403, "forbidden"),
        "route": (422, "unknown_route"),
        "no route": (422, "invalid"),
        "name": (422, "invalid"),
        "nul": (422, "invalid"),
        "slots": (422, "invalid"),
        "field": (422, "invalid"),
    }
    assert answers["route"].json()["field"] == "routes[0]"
    assert await site.engine.workers.list() == []


async def test_a_name_and_the_cap_are_kept(engine: Engine, clock: Clock) -> None:
    async with running_site(engine, settings=Settings(fleet_max=2)) as site:
        fleet_server = FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
        first = await fleet_server.joined("a")
        taken = await fleet_server.register("a")
        assert code(taken) == (409, "worker_alive")
        assert int(taken.headers["Retry-After"]) <= 61
        await fleet_server.joined("b")
        full = await fleet_server.register("c")
        assert code(full) == (429, "fleet_full")
        assert full.headers["Retry-After"] == "60"

        await clock.advance(timedelta(seconds=61))
        await fleet_server.joined("a")
        assert code(await first.call("poll")) == (401, "unauthorized")


VERBS = (
    *("poll", "heartbeat", "note", "complete", "fail", "requeue", "park", "upload", "download", "deregister"),
    *("recall", "record", "spawn", "results", "suspend", "emit"),
)


async def test_only_a_worker_that_is_in_says_anything(fleet_server: FleetServer) -> None:
    site = fleet_server.site
    remote_worker = await fleet_server.joined()
    for verb in VERBS:
        for key in (site.client_key, site.admin_key, fleet_server.secret, "mpw_" + "0" * 60, None):
            answer = await site.post(f"/v1/worker/{verb}", {}, key=key)
            assert code(answer) == (401, "unauthorized"), (verb, key)
    assert (await site.get("/v1/jobs", key=remote_worker.token)).status_code == 401  # its token opens nothing else
    await site.order("POST", f"/v1/workers/{remote_worker.id}/revoke")
    for verb in VERBS:
        assert code(await remote_worker.call(verb)) == (403, "worker_revoked"), verb


async def test_one_that_is_not_approved_is_reported(engine: Engine) -> None:
    async with running_site(engine, settings=Settings(fleet_approval="manual")) as site:
        fleet_server = FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
        assert not (await fleet_server.register("shy")).json()["is_approved"]
        remote_worker = await fleet_server.joined("w1")
        assert code(await remote_worker.call("poll")) == (403, "worker_unapproved")
        await site.order("POST", f"/v1/workers/{remote_worker.id}/approve")
        assert await remote_worker.polled() == []


FENCED = {
    "note": {"notes": [{"number": 1, "type": "log", "text": "x"}]},
    "complete": {"output": {}},
    "fail": {"error": {"message": "x"}},
    "requeue": {"reason": "x"},
    "park": {"memo": 1},
    "upload": {"name": "a.png", "content_type": "image/png", "size": 1},
    "download": {"artifact_id": "art_00000000000000000000000000"},
    "recall": {},
    "record": {"name": "facts", "result": 1},
    "spawn": {"name": "shots", "total": 1, "children": [{"kind": "free"}]},
    "results": {"batch_id": "batch_00000000000000000000000000"},
    "suspend": {"name": "facts"},
}


async def test_a_stale_or_foreign_lease_changes_nothing(fleet_server: FleetServer) -> None:
    remote_worker, other = await fleet_server.joined("w1"), await fleet_server.joined("w2")
    await fleet_server.job()
    await fleet_server.job()
    (mine,), (theirs,) = await remote_worker.polled(), await other.polled()
    before = [(await fleet_server.site.get(f"/v1/jobs/{job['job_id']}")).text for job in (mine, theirs)]
    wrong = [
        (other, lease_of(mine)),
        (remote_worker, {**lease_of(mine), "lease_token": theirs["lease_token"]}),
        (remote_worker, {**lease_of(mine), "lease_token": str(uuid4())}),
        (remote_worker, {**lease_of(mine), "job_id": ids.text("job", uuid4())}),
    ]
    for verb, more in FENCED.items():
        for who, lease in wrong:
            assert code(await who.call(verb, **lease, **more)) == (409, "lease_lost"), verb
    assert [(await fleet_server.site.get(f"/v1/jobs/{job['job_id']}")).text for job in (mine, theirs)] == before
    beat = (await other.call("heartbeat", jobs=[lease_of(mine)])).json()["jobs"][0]
    assert not beat["is_held"]


async def test_text_under_a_stale_or_foreign_lease_is_not_written(fleet_server: FleetServer) -> None:
    """Each job of a request has a result of its own."""
    remote_worker, other = await fleet_server.joined("w1"), await fleet_server.joined("w2")
    await fleet_server.job()
    await fleet_server.job()
    (mine,), (theirs,) = await remote_worker.polled(), await other.polled()
    stale = {**lease_of(mine), "lease_token": str(uuid4())}
    unknown = {**lease_of(mine), "job_id": ids.text("job", uuid4())}
    asked = [lease_of(mine), lease_of(theirs), stale, unknown]
    chunks = [{"number": 1, "text": "mine"}]
    emitted = await remote_worker.call("emit", jobs=[{**lease, "chunks": chunks} for lease in asked])
    assert emitted.status_code == 200, emitted.text
    results = emitted.json()["jobs"]
    assert [{name: result[name] for name in lease_of(mine)} for result in results] == asked
    assert [result["is_held"] for result in results] == [True, False, False, False]
    assert [result["error"] for result in results] == [None] * 4
    texts = [(await fleet_server.site.get(f"/v1/jobs/{job['job_id']}/text")).json()["text"] for job in (mine, theirs)]
    assert texts == ["mine", ""]
    wrong = await remote_worker.call("emit", jobs=[{**lease_of(mine), "job_id": "job_x", "chunks": chunks}])
    assert (*code(wrong), wrong.json()["field"]) == (404, "not_found", "jobs[0].job_id")


async def test_a_revoke_takes_the_jobs_away_now(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    job_id = await fleet_server.job()
    (job,) = await remote_worker.polled()
    response = (await fleet_server.site.order("POST", f"/v1/workers/{remote_worker.id}/revoke")).json()
    assert (response["status"], response["jobs"]) == ("revoked", 0)
    assert code(await remote_worker.call("complete", **lease_of(job), output={})) == (403, "worker_revoked")
    assert (await fleet_server.site.get(f"/v1/jobs/{job_id}")).json()["phase"] == "ready"
    assert code(await fleet_server.register("w1")) == (403, "worker_revoked")


# Bad input


ASK = '{LEASE, "name": "x", "question": {'
CHILD = '{LEASE, "name": "x", "total": 1, "children": [{'
NONSENSE = [
    ("poll", '{"want": 0}', "want"),
    ("poll", '{"want": 101}', "want"),
    ("poll", '{"wait": 31}', "wait"),
    ("poll", '{"wait": -1}', "wait"),
    ("poll", '{"wait": "soon"}', "wait"),
    ("poll", '{"colour": "red"}', "colour"),
    ("heartbeat", '{"jobs": [{"job_id": "job_x"}]}', "jobs[0].lease_token"),
    ("heartbeat", '{"jobs": [' + ",".join(["{}"] * 1_001) + "]}", "jobs"),
    ("complete", '{"job_id": "x", "lease_token": "nonsense"}', "lease_token"),
    ("emit", '{"jobs": []}', "jobs"),
    ("emit", '{"jobs": [{LEASE, "chunks": []}]}', "jobs[0].chunks"),
    ("emit", '{"jobs": [{LEASE, "chunks": [{"number": 0, "text": "x"}]}]}', "jobs[0].chunks[0].number"),
    ("emit", '{"jobs": [{LEASE, "chunks": [{"number": 1}]}]}', "jobs[0].chunks[0].text"),
    ("emit", '{"jobs": [{LEASE, "chunks": [{"number": 1, "text": 7}]}]}', "jobs[0].chunks[0].text"),
    ("note", '{LEASE, "notes": []}', "notes"),
    ("note", '{LEASE, "notes": [{"number": 0, "type": "log"}]}', "notes[0].number"),
    ("note", '{LEASE, "notes": [{"number": 1, "type": "progress", "value": 1.5}]}', "notes[0].value"),
    ("note", '{LEASE, "notes": [{"number": 1, "type": "shout"}]}', "notes[0].type"),
    ("complete", '{LEASE, "output": "a\\u0000b"}', "output"),
    ("complete", '{LEASE, "captured": -1}', "captured"),
    ("complete", '{LEASE, "captured": 6}', "captured"),
    ("fail", '{LEASE, "error": "text"}', "error"),
    ("fail", '{LEASE, "error": {}, "outcome": "succeeded"}', "outcome"),
    ("fail", '{LEASE, "error": {}, "retry_after": -1}', "retry_after"),
    ("recall", '{LEASE, "after": "' + "x" * 221 + '"}', "after"),
    ("recall", '{LEASE, "after": "a\\u0000b"}', "after"),
    ("record", '{LEASE, "name": ""}', "name"),
    ("record", '{LEASE, "name": "a\\u0000b"}', "name"),
    ("record", '{LEASE, "name": "x", "type": "children"}', "type"),
    ("record", '{LEASE, "name": "x", "seconds": 0}', "seconds"),
    ("record", '{LEASE, "name": "x", "seconds": 1e300}', "seconds"),
    ("record", '{LEASE, "name": "x", "position": 0}', "position"),
    ("record", '{LEASE, "name": "x", "position": 2147483648}', "position"),
    ("record", '{LEASE, "name": "x", "result": "a\\u0000b"}', "result"),
    ("record", '{LEASE, "name": "x", "result": 1' + "0" * 30 + "}", "result"),
    ("record", '{LEASE, "name": "x", "result": "' + "x" * 300_000 + '"}', "result"),
    ("record", ASK + '"question": ""}}', "question.question"),
    ("record", ASK + '"question": "a\\u0000b"}}', "question.question"),
    ("record", ASK + '"question": "?", "who": "anybody"}}', "question.who"),
    ("record", ASK + '"question": "?", "who": "key_1"}}', "question.who"),
    ("record", ASK + '"question": "?", "schema": 5}}', "question.schema"),
    ("record", ASK + '"question": "?", "schema": {"type": 5}}}', "question.schema"),
    ("record", ASK + '"question": "?", "schema": {"pattern": "("}}}', "question.schema"),
    ("record", ASK + '"question": "?", "schema": {"$ref": "http://127.0.0.1:9/x"}}}', "question.schema"),
    ("record", ASK + '"question": "?", "schema": {"$ref": "file:///etc/passwd"}}}', "question.schema"),
    ("record", ASK + '"question": "?", "schema": ' + '{"not":' * 40 + "{}" + "}" * 42, "question.schema"),
    ("spawn", '{LEASE, "name": "x", "total": 1, "children": []}', "children"),
    ("spawn", '{LEASE, "name": "x", "total": 0, "children": [{"kind": "free"}]}', "total"),
    ("spawn", '{LEASE, "name": "x", "total": 10001, "children": [{"kind": "free"}]}', "total"),
    ("spawn", '{LEASE, "name": "x", "total": 1, "children": [{"kind": "free"}, {"kind": "free"}]}', "children"),
    ("spawn", '{LEASE, "name": "x", "total": 2, "first": 2, "children": [{"kind": "free"}]}', "children"),
    ("spawn", '{LEASE, "name": "x", "total": 2, "first": 1, "children": [{"kind": "free"}]}', "first"),
    ("spawn", '{LEASE, "name": "x", "total": 2, "first": -1, "children": [{"kind": "free"}]}', "first"),
    ("spawn", '{LEASE, "name": "a\\u0000b", "total": 1, "children": [{"kind": "free"}]}', "name"),
    ("spawn", CHILD + '"kind": "nothing"}]}', "kind"),
    ("spawn", CHILD + '"kind": "free", "colour": "red"}]}', "children[0].colour"),
    ("spawn", CHILD + '"kind": "free", "input": {"x": "a\\u0000b"}}]}', "input.x"),
    ("spawn", CHILD + '"kind": "free", "tags": {"a b": "c"}}]}', "tags"),
    ("spawn", CHILD + '"kind": "free", "priority": 101}]}', "children[0].priority"),
    ("spawn", CHILD + '"kind": "free", "route": "elsewhere"}]}', "route"),
    ("spawn", CHILD + '"kind": "free", "run_at": "9999-01-01T00:00:00Z"}]}', "run_at"),
    ("spawn", CHILD + '"kind": "free", "run_at": "2030-01-01T00:00:00"}]}', "children[0].run_at"),
    ("spawn", CHILD + '"kind": "free", "expires_in": 1e300}]}', "children[0].expires_in"),
    ("spawn", CHILD + '"kind": "metered", "input": {"units": -1}}]}', "price"),
    ("results", '{LEASE, "batch_id": 5}', "batch_id"),
    ("suspend", '{LEASE, "name": "absent"}', "name"),
    ("suspend", '{LEASE, "name": "a\\u0000b"}', "name"),
]


async def test_nonsense_is_refused_by_name_and_the_lease_stays(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    await fleet_server.job()
    (job,) = await remote_worker.polled()
    wrong: list[tuple[str, str, str]] = []
    for verb, body, field in NONSENSE:
        text = body.replace("LEASE", f'"job_id": "{job["job_id"]}", "lease_token": "{job["lease_token"]}"')
        answer = await fleet_server.site.send(
            "POST",
            f"/v1/worker/{verb}",
            key=remote_worker.token,
            content=text,
            headers={"Content-Type": "application/json"},
        )
        if answer.status_code != 422 or not answer.json().get("field", "").startswith(field):
            wrong.append((verb, body[:200], answer.text))
    assert wrong == [], "\n".join(map(str, wrong))
    assert (await remote_worker.call("heartbeat", jobs=[lease_of(job)])).json()["jobs"][0]["is_held"]


async def test_numbers_that_are_none_are_no_json(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    for text in ('{"wait": NaN}', '{"wait": Infinity}', '{"wait": 1', "\xff"):
        answer = await fleet_server.site.send(
            "POST",
            "/v1/worker/poll",
            key=remote_worker.token,
            content=text.encode("latin-1"),
            headers={"Content-Type": "application/json"},
        )
        assert code(answer) == (400, "malformed")


async def test_a_long_error_is_shortened_and_an_endless_one_refused(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    job_id = await fleet_server.job()
    (job,) = await remote_worker.polled()
    size = 100 * 1024 * 1024
    head = (
        f"POST /v1/worker/fail HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {remote_worker.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    )
    answer = await fleet_server.site.raw(head.encode() + b'{"error": {"message": "' + b"x" * 10_000, until_closed=False)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert (await remote_worker.call("heartbeat", jobs=[lease_of(job)])).json()["jobs"][0]["is_held"]
    failed = await remote_worker.call("fail", **lease_of(job), error={"code": "big", "message": "m" * 500_000, "n": 1})
    assert failed.json()["fate"] == "failed"
    error = (await fleet_server.site.get(f"/v1/jobs/{job_id}")).json()["error"]
    assert error["code"] == "big"
    assert len(error["message"]) < 3_000


# Files


async def test_files_are_signed_for_whoever_holds_the_job(db: Database, tmp_path: Path) -> None:
    """The bytes themselves go between worker and storage; here they are put there by hand."""
    engine = Engine(db, app, storage=Local(tmp_path, "http://files.example"))
    async with running_site(engine) as site:
        fleet_server = FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
        own = await engine.artifacts.save(TENANT, ACCOUNT, name="in.png", content_type="image/png", data=b"in")
        alien = await engine.artifacts.save(TENANT, "bob", name="x.png", content_type="image/png", data=b"no")
        await engine.grant(TENANT, ACCOUNT, 5)
        given = {"image": own.id, "more": [alien.id, "art_nonsense"]}
        await engine.submit(KIND, given, tenant=TENANT, account=ACCOUNT)
        remote_worker = await fleet_server.joined()
        (job,) = await remote_worker.polled()
        assert list(job["downloads"]) == [own.id]
        assert job["downloads"][own.id]["method"] == "GET"
        assert code(await remote_worker.call("download", **lease_of(job), artifact_id=alien.id)) == (404, "not_found")
        again = await remote_worker.call("download", **lease_of(job), artifact_id=own.id)
        assert again.json()["url"].startswith("http://files.example/")
        file = {"name": "out.png", "content_type": "image/png", "size": 3}
        made = (await remote_worker.call("upload", **lease_of(job), **file)).json()
        assert made["upload"]["method"] == "PUT"
        names = [own.id, made["artifact_id"], alien.id]
        beat = (await remote_worker.call("heartbeat", jobs=[{**lease_of(job), "renew": names}])).json()["jobs"][0]
        assert (list(beat["downloads"]), list(beat["uploads"])) == ([own.id], [made["artifact_id"]])
        files = [{"id": made["artifact_id"], "size": 3}]
        missing = await remote_worker.call("complete", **lease_of(job), output={}, artifacts=files)
        assert code(missing) == (422, "artifact_missing")
        foreign = await remote_worker.call(
            "complete", **lease_of(job), output={}, artifacts=[{"id": own.id, "size": 2}]
        )
        assert code(foreign) == (404, "not_found")
        record = await engine.artifacts.read(TENANT, made["artifact_id"])
        await engine.artifacts.store.write(record.path, b"out", content_type="image/png")
        wrong = await remote_worker.call("complete", **lease_of(job), output={}, artifacts=[{**files[0], "size": 4}])
        assert code(wrong) == (422, "artifact_mismatch")
        for _ in range(2):
            done = await remote_worker.call(
                "complete", **lease_of(job), output={"file": made["artifact_id"]}, artifacts=files
            )
            assert done.status_code == 200, done.text
        late = await remote_worker.call("upload", **lease_of(job), **file)
        assert code(late) == (409, "lease_lost")
    await engine.workers.close()


# Operators


async def test_operators_see_and_steer_the_fleet(fleet_server: FleetServer) -> None:
    site = fleet_server.site
    remote_worker = await fleet_server.joined(slots=3, capabilities={"gpu": "L4"})
    await fleet_server.job()
    (job,) = await remote_worker.polled()
    (seen,) = (await site.order("GET", "/v1/workers")).json()["data"]
    assert (seen["id"], seen["worker"], seen["status"], seen["jobs"], seen["slots"]) == (
        remote_worker.id,
        "w1",
        "busy",
        1,
        3,
    )
    assert seen["capabilities"] == {"gpu": "L4"}
    assert seen["address"] == "127.0.0.1"
    assert remote_worker.token not in json.dumps(seen)
    drained = (await site.order("POST", f"/v1/workers/{remote_worker.id}/drain")).json()
    assert drained["status"] == "draining"
    polled = (await remote_worker.call("poll", want=2)).json()
    assert polled == {"jobs": [], "is_draining": True}
    assert (await remote_worker.call("heartbeat", jobs=[lease_of(job)])).json()["is_draining"]
    assert (await site.order("POST", f"/v1/workers/{remote_worker.id}/resume")).json()["status"] == "busy"
    await site.engine.workers.open_route(f"{KIND}:blur")
    assigned = await site.order("PUT", f"/v1/workers/{remote_worker.id}/routes", {"routes": [f"{KIND}:blur"]})
    assert assigned.json()["routes"] == [f"{KIND}:blur"]
    wrong = await site.order("PUT", f"/v1/workers/{remote_worker.id}/routes", {"routes": ["nowhere"]})
    assert code(wrong) == (422, "unknown_route")
    rotated = await site.order("POST", f"/v1/workers/{remote_worker.id}/rotate", {})
    assert rotated.status_code == 201
    assert code(await remote_worker.call("poll")) == (401, "unauthorized")
    remote_worker.token = rotated.json()["token"]
    assert (await remote_worker.call("complete", **lease_of(job), output={})).status_code == 200
    entries = (await site.order("GET", "/v1/audit?limit=100")).json()["data"]
    fields = {entry["action"]: entry for entry in entries}
    for action in ("worker.drained", "worker.resumed", "worker.assigned", "worker.rotated"):
        assert fields[action]["subject"] == remote_worker.id
        assert fields[action]["actor"].startswith("key_")
        assert fields[action]["data"]["address"] == "127.0.0.1"
    assert not any(remote_worker.token in json.dumps(entry) for entry in entries)


async def test_operators_see_why_a_worker_takes_no_jobs(fleet_server: FleetServer) -> None:
    site = fleet_server.site
    remote_worker = await fleet_server.joined(slots=3)
    (at_first,) = (await site.order("GET", "/v1/workers")).json()["data"]
    assert (at_first["status"], at_first["unready_at"], at_first["unready_reason"]) == ("idle", None, None)
    for reason in ("ComfyUI does not respond.", "ComfyUI does not respond."):
        assert (await remote_worker.call("readiness", unready_reason=reason)).status_code == 204
        (seen,) = (await site.order("GET", "/v1/workers")).json()["data"]
        assert (seen["status"], seen["unready_reason"]) == ("unready", reason)
    board = (await site.order("GET", "/v1/board")).json()
    assert (board["workers"]["ok"], board["workers"]["unready"]) == (0, 1)
    assert "Worker w1 takes no jobs: ComfyUI does not respond." in [alarm["text"] for alarm in board["alarms"]]
    assert (await site.order("POST", f"/v1/workers/{remote_worker.id}/drain")).json()["status"] == "draining"
    assert (await site.order("POST", f"/v1/workers/{remote_worker.id}/resume")).json()["status"] == "unready"
    assert (await remote_worker.call("readiness", unready_reason=None)).status_code == 204
    (at_last,) = (await site.order("GET", "/v1/workers")).json()["data"]
    assert (at_last["status"], at_last["unready_at"], at_last["unready_reason"]) == ("idle", None, None)


async def test_an_unready_worker_is_no_capacity_of_its_routes(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    answer = await remote_worker.call("readiness", unready_reason="The card is gone.")
    assert answer.status_code == 204, answer.text
    load = (await fleet_server.site.order("GET", f"/v1/scaling/{KIND}")).json()
    assert load["workers"] == {"idle": 0, "busy": 0, "draining": 0}


async def test_what_is_about_all_tenants_is_not_for_one(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    key = await fleet_server.site.key(scope="admin", tenant=TENANT, account=None)
    answer = await fleet_server.site.post(f"/v1/workers/{remote_worker.id}/revoke", key=key)
    assert code(answer) == (403, "forbidden")


async def test_a_route_reports_how_many_workers_it_wants(fleet_server: FleetServer) -> None:
    await fleet_server.joined()
    for _ in range(3):
        await fleet_server.job()
    response = (
        await fleet_server.site.order("GET", f"/v1/scaling/{KIND}?target_wait=0&jobs_per_worker=2&max=9")
    ).json()
    assert (response["desired_workers"], response["ready"], response["workers"]) == (
        2,
        3,
        {"idle": 1, "busy": 0, "draining": 0},
    )
    assert (await fleet_server.site.order("GET", "/v1/scaling")).json()["data"][0]["route"] == KIND
    assert (await fleet_server.site.order("GET", "/v1/scaling/nowhere")).status_code == 404
    metrics = (await fleet_server.site.order("GET", "/metrics", headers={"Accept": "text/plain"})).text
    assert f'millpond_route_depth{{phase="ready",route="{KIND}"}} 3.0' in metrics
    assert f'millpond_route_workers{{route="{KIND}",status="idle"}} 1.0' in metrics


async def test_an_output_that_names_a_file_which_was_never_stored_is_not_taken(fleet_server: FleetServer) -> None:
    remote_worker = await fleet_server.joined()
    job_id = await fleet_server.job()
    (job,) = await remote_worker.polled()
    about = {"name": "a.png", "content_type": "image/png", "size": 3}
    made = (await remote_worker.call("upload", **lease_of(job), **about)).json()
    done = {"output": {"pictures": [made["artifact_id"]]}}
    assert code(await remote_worker.call("complete", **lease_of(job), **done)) == (422, "artifact_missing")
    assert (await fleet_server.site.engine.read(TENANT, job_id)).phase == "leased"
    record = await fleet_server.site.engine.artifacts.read(TENANT, made["artifact_id"])
    await fleet_server.site.engine.artifacts.store.write(record.path, b"abc", content_type="image/png")
    assert (await remote_worker.call("complete", **lease_of(job), **done)).status_code == 200
    listed = await fleet_server.site.engine.artifacts.of_job(TENANT, ids.parse("job", job_id))
    assert [file.id for file in listed] == [made["artifact_id"]]


async def test_files_that_cannot_be_signed_now_cost_no_job_an_attempt(
    fleet_server: FleetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = fleet_server.site.engine
    remote_worker = await fleet_server.joined(slots=2)
    file = await engine.artifacts.save(TENANT, ACCOUNT, name="in.png", content_type="image/png", data=b"x")
    await engine.grant(TENANT, ACCOUNT, 10)
    for given in ({"image": file.id}, {"n": 1}):
        await engine.submit(KIND, given, tenant=TENANT, account=ACCOUNT)

    def unavailable(*_: object, **__: object) -> Any:
        raise StorageUnavailableError

    with monkeypatch.context() as broken:
        broken.setattr(engine.artifacts.store, "sign_get", unavailable)
        jobs = await remote_worker.polled(want=2)
    assert [(job["epoch"], job["downloads"]) for job in jobs] == [(1, {}), (1, {})]
    asked = await remote_worker.call("download", **lease_of(jobs[0]), artifact_id=file.id)
    assert asked.status_code == 200
    for job in jobs:
        assert (await remote_worker.call("complete", **lease_of(job), output=None)).status_code == 200
