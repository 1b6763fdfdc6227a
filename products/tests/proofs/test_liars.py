"""Workers that lie, over the fleet's protocol and as code beside the database: what partners are told stays sound."""

from __future__ import annotations

import asyncio
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from products.tests.partner.deployments import STARTS, kind_names
from products.tests.proofs.deployments import Deployment, User, running_deployment

from millpond import ids
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.queue.leases import End, Note
from millpond.engine.verify import verify
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import Name
from millpond_products.partner.routes import PRODUCT
from tests.factories import MINUTE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from tests.databases import DatabaseServer

FLEET = replace(PRODUCT, kinds=tuple(replace(kind, runs="fleet") for kind in KINDS.values()))
"""The product as one would have it whose handlers run on machines of others."""
NUMBERS = {
    b"7.0": "value",
    b"1.0000001": "value",
    b"-1": "value",
    b"-0.001": "value",
    b"1e308": "value",
    b"1e999": "value",
    b"NaN": "",
    b"Infinity": "",
    b"-Infinity": "",
    b"true": "value",
    b'"0.5"': "value",
    b"[0.5]": "value",
    b"{}": "value",
    b"null": "value",
    b"99999999999999999999": "value",
}
"""What is no progress, as JSON or as what some take for it; and the field that the refusal names, where it was read."""


@pytest.fixture(scope="module")
async def deployment(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_deployment(dsn, folder, [FLEET]) as running:
        yield running
        assert await verify(running.engine.db) == []


@dataclass(slots=True)
class Watched:
    """A job, as its partner sees it; every look is held against all before it."""

    partner: User
    name: Name
    path: str
    looks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    async def look(self) -> dict[str, Any]:
        response = await self.partner.request("GET", self.path)
        if response["status"] == "running":
            self.looks.append(response)
            order = ["queued", *KINDS[self.name].stages]
            places = [order.index(look["stage"]) for look in self.looks]
            values = [look["progress"] for look in self.looks]
            assert places == sorted(places), [look["stage"] for look in self.looks]
            assert values == sorted(values)
            assert all(isinstance(value, float | int) and 0 <= value <= 1 for value in values)
        return response


@dataclass(slots=True)
class Liar:
    """A worker of the fleet with one job."""

    deployment: Deployment
    token: str
    job: dict[str, Any]
    numbers: int = 0

    @property
    def lease(self) -> dict[str, Any]:
        return {name: self.job[name] for name in ("job_id", "lease_token")}

    async def call(self, verb: str, *, token: str = "", **body: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return await self.deployment.http.post(f"/v1/worker/{verb}", json=self.lease | body, headers=headers)

    async def note(self, **said: Any) -> httpx2.Response:
        self.numbers += 1
        return await self.call("note", notes=[{"number": self.numbers} | said])

    async def progress(self, value: bytes) -> httpx2.Response:
        """In the very bytes."""
        self.numbers += 1
        note = b'{"number": %d, "type": "progress", "value": %s}' % (self.numbers, value)
        lease = f'"job_id": "{self.job["job_id"]}", "lease_token": "{self.job["lease_token"]}"'.encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        body = b'{%s, "notes": [%s]}' % (lease, note)
        return await self.deployment.http.post("/v1/worker/note", content=body, headers=headers)


async def register(deployment: Deployment, *names: Name) -> str:
    secret = (await deployment.engine.access.make_key(actor="test", scope="worker"))[1]
    body = {"worker": f"liar-{uuid4().hex[:8]}", "routes": [KINDS[name].name for name in names]}
    answer = await deployment.http.post("/v1/worker/register", json=body, headers={"Authorization": f"Bearer {secret}"})
    assert answer.status_code == 201, answer.text
    return answer.json()["token"]


async def take(deployment: Deployment, token: str) -> Liar:
    answer = await deployment.http.post(
        "/v1/worker/poll", json={"want": 1}, headers={"Authorization": f"Bearer {token}"}
    )
    (job,) = answer.json()["jobs"]
    return Liar(deployment, token, job)


async def start(partner: User, name: Name) -> Watched:
    path, body = STARTS[name]
    started = await partner.request("POST", f"/partner/v1/projects/{await partner.new_project()}/{path}", body)
    return Watched(partner, name, started["locationUrl"])


async def began(deployment: Deployment, name: Name) -> tuple[Watched, Liar]:
    """A job in the hands of a liar."""
    watched = await start(await deployment.user(), name)
    await watched.look()
    liar = await take(deployment, await register(deployment, name))
    assert liar.job["job_id"].upper() == watched.path.rpartition("/")[2].upper()
    return watched, liar


def output(liar: Liar) -> dict[str, Any]:
    return {"projectId": f"prj_{liar.job['input']['project_id']}", "assets": []}


def problem(answer: httpx2.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


async def test_a_number_that_is_no_progress_is_refused_and_changes_nothing(deployment: Deployment) -> None:
    watched, liar = await began(deployment, "content_generate")
    assert (await liar.progress(b"0.25")).status_code == 200
    for value, field_ in NUMBERS.items():
        answer = await liar.progress(value)
        response = problem(answer, 422 if field_ else 400)
        if field_:
            assert response["field"].endswith("value"), (value, response)
        assert (await watched.look())["progress"] == 0.25
    for value in (b"0.2", b"0", b"-0.0", b"0.25", b"1e-320", b"0.25"):  # back, and again
        assert (await liar.progress(value)).status_code == 200
        assert (await watched.look())["progress"] == 0.25
    for value, seen in ((b"0.999999999999", 1.0), (b"1", 1.0), (b"0.5", 1.0)):
        assert (await liar.progress(value)).status_code == 200
        assert (await watched.look())["progress"] == seen
    assert (await liar.call("complete", output=output(liar))).status_code == 200
    assert (await watched.look())["status"] == "completed"


@pytest.mark.parametrize("name", kind_names())
async def test_stages_are_seen_in_their_order_alone(deployment: Deployment, name: Name) -> None:
    watched, liar = await began(deployment, name)
    first, *_, last = stages = KINDS[name].stages
    others = {stage for kind in KINDS.values() for stage in kind.stages} - set(stages)
    for strange in ("queued", "Planning", "", "done", " ", "x" * 300, "\u0000", *sorted(others)):
        response = problem(await liar.note(type="stage", stage=strange), 422)
        assert response["field"].startswith("notes[0]"), response
        assert (await watched.look())["stage"] == "queued"
    for stage in (stages[1], first, stages[1], last, first, *stages, last):  # a jump, back, again, to the end, back
        assert (await liar.note(type="stage", stage=stage)).status_code == 200
        await watched.look()
    assert watched.looks[-1]["stage"] == last
    many = [{"number": liar.numbers + 1 + n, "type": "stage", "stage": s} for n, s in enumerate(reversed(stages))]
    assert (await liar.call("note", notes=many)).status_code == 200
    assert (await watched.look())["stage"] == last
    assert (await liar.call("complete", output=output(liar))).status_code == 200


async def test_a_note_that_lies_about_itself_is_refused_or_passed_over(deployment: Deployment) -> None:
    watched, liar = await began(deployment, "influencer_create")
    for note in (
        {"type": "progress"},
        {"type": "stage"},
        {"type": "log"},
        {"type": "end", "text": "it is over"},
        {"type": "progress", "value": 0.9, "number": 0},
        {"type": "progress", "value": 0.9, "number": -1},
        {"type": "progress", "value": 0.9, "number": 2**31},
        {"type": "progress", "value": 0.9, "number": 1.5},
    ):
        assert problem(await liar.note(**note), 422)["field"].startswith("notes[0]")
    assert (await liar.note(type="log", text="quiet", value=0.7, stage="generating")).status_code == 200
    assert [(look["progress"], look["stage"]) for look in (await watched.look(),)] == [(0, "queued")]
    liar.numbers = 50
    assert (await liar.note(type="progress", value=0.5)).status_code == 200
    liar.numbers = 10  # a number that was passed by
    assert (await liar.note(type="progress", value=0.4)).status_code == 200
    assert (await watched.look())["progress"] == 0.5
    assert (await liar.call("fail", error={"code": "permanent", "message": "Enough."}, retry=False)).status_code == 200


async def test_nobody_speaks_with_the_token_of_another(deployment: Deployment) -> None:
    watched, liar = await began(deployment, "appstore_ingest")
    stranger = await register(deployment, "appstore_ingest")
    other, second = await began(deployment, "project_ingest_website")
    note = {"notes": [{"number": 1, "type": "progress", "value": 0.9}]}
    ends = {"complete": {"output": {}}, "fail": {"error": {"message": "no"}}, "requeue": {"reason": "no"}}
    for verb, body in {"note": note, **ends}.items():
        for token, lease in (
            (stranger, liar.lease),  # the lease is right, and another's
            (liar.token, liar.lease | {"lease_token": second.job["lease_token"]}),  # a real token, of another job
            (liar.token, liar.lease | {"lease_token": str(uuid4())}),
            (second.token, second.lease | {"job_id": liar.job["job_id"]}),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            answer = await deployment.http.post(f"/v1/worker/{verb}", json=lease | body, headers=headers)
            assert problem(answer, 409)["code"] == "lease_lost"
        for token in (watched.partner.key, "mp_nobody"):
            answer = await liar.call(verb, token=token, **body)
            assert answer.status_code in {401, 403}, answer.text
    for each in (watched, other):
        assert [(look["progress"], look["stage"]) for look in (await each.look(),)] == [(0, "queued")]
    for one in (liar, second):
        assert (await one.call("complete", output=output(one))).status_code == 200


@pytest.mark.parametrize("end", ["complete", "fail", "canceled"])
async def test_after_the_end_nothing_is_heard(deployment: Deployment, end: str) -> None:
    watched, liar = await began(deployment, "project_ingest_website")
    await liar.note(type="stage", stage="parsing")
    if end == "canceled":
        await watched.partner.request("POST", f"{watched.path}/cancel")
        assert (await liar.note(type="stage", stage="merging_context")).json() == {"cancel_requested": True}
        assert (await watched.look())["stage"] == "parsing"
        error, outcome = {"code": "canceled", "message": "It was canceled."}, "canceled"
        assert (await liar.call("fail", error=error, outcome=outcome)).status_code == 200
    elif end == "fail":
        failed = await liar.call("fail", error={"code": "permanent", "message": "No."}, retry=False)
        assert failed.status_code == 200, failed.text
    else:
        assert (await liar.call("complete", output=output(liar))).status_code == 200
    before = (await watched.partner.send("GET", watched.path)).content
    late: list[tuple[str, dict[str, Any]]] = [
        ("note", {"notes": [{"number": 99, "type": "progress", "value": 0.1}]}),
        ("note", {"notes": [{"number": 100, "type": "stage", "stage": "merging_context"}]}),
        ("complete", {"output": {"projectId": "prj_of-another", "assets": []}}),
        ("fail", {"error": {"code": "permanent", "message": "After all."}, "retry": False}),
        ("fail", {"error": {"code": "transient", "message": "Again."}}),
        ("requeue", {"reason": "again"}),
        ("park", {"memo": 1}),
    ]
    for verb, body in late:
        answer = await liar.call(verb, **body)
        is_repeat = verb == {"canceled": "fail"}.get(end, end)  # who says the same again may have lost the answer
        assert answer.status_code in ({200, 409} if is_repeat else {409}), (verb, answer.text)
    assert (await watched.partner.send("GET", watched.path)).content == before


async def test_a_second_attempt_takes_nothing_back(deployment: Deployment) -> None:
    """Another worker begins again: from zero, in its own words, and with numbers that were used."""
    watched, liar = await began(deployment, "content_generate")
    await liar.note(type="progress", value=0.6)
    await liar.note(type="stage", stage="assembling")
    await watched.look()
    assert (await liar.call("requeue", reason="away")).status_code == 200
    again = await take(deployment, await register(deployment, "content_generate"))
    assert again.job["job_id"] == liar.job["job_id"]
    for said in ({"type": "progress", "value": 0.0}, {"type": "stage", "stage": "planning"}):
        assert (await again.note(**said)).status_code == 200
        await watched.look()
    assert problem(await liar.note(type="progress", value=0.99), 409)["code"] == "lease_lost"
    response = await watched.look()
    assert (response["progress"], response["stage"]) == (0.6, "assembling")
    assert (await again.call("complete", output=output(again))).status_code == 200


async def test_code_that_goes_around_all_checks_changes_nothing_back_and_harms_nobody(deployment: Deployment) -> None:
    """A handler beside the database has the engine at hand: the statement itself holds what is written there."""
    engine, partner = deployment.engine, await deployment.user()
    path, body = STARTS["project_ingest_github"]
    starts = [
        partner.request("POST", f"/partner/v1/projects/{await partner.new_project()}/{path}", body) for _ in range(2)
    ]
    lying, honest = [Watched(partner, "project_ingest_github", (await start)["locationUrl"]) for start in starts]
    leases = await engine.claim(Lanes((KINDS["project_ingest_github"].name,)), 2, worker="liar", duration=MINUTE)
    by_id = {ids.text("job", lease.job_id): lease for lease in leases}
    lie, truth = (by_id[each.path.rpartition("/")[2].lower()] for each in (lying, honest))
    numbers, progress = itertools.count(1), itertools.count(1)

    async def write(value: float | None = None, stage: str | None = None) -> None:
        """What the liar says, and in the same moment something true of another job."""
        response, n = Note(lie, next(numbers), "progress", "{}", value, stage), next(progress)
        beside = Note(truth, n, "progress", "{}", n / 100)
        found = await asyncio.gather(engine.note(response), engine.note(beside), return_exceptions=True)
        assert found[1] is False
        assert (await honest.look())["progress"] == n / 100
        await lying.look()

    await write(0.5, "analyzing")
    for value in (7.0, -1.0, math.nan, math.inf, -math.inf, 1e308, 0.4):
        await write(value)
    for stage in ("cloning", "nonsense", "rendering", ""):
        await write(stage=stage)
    response = await lying.look()
    assert (response["stage"], response["progress"]) == ("analyzing", 0.5)
    for lease in leases:
        await engine.finish(End(lease, "succeeded", '{"assets": []}'))
