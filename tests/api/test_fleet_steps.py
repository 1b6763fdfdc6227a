"""Steps and children over the worker protocol: as a worker records them, and as one that means harm does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from millpond import Millpond, ids
from millpond.engine.composition import batches
from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.verify import verify
from millpond.kinds import Kind
from tests.api.sites import running_site
from tests.api.test_fleet import FleetServer, RemoteWorker, code, lease_of
from tests.factories import ACCOUNT, TENANT
from tests.lifecycles import LIFECYCLES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from millpond.store.db import Database

app = Millpond()


@app.kind("filmed", price=5, budget=20, runs="fleet")
async def filmed(job: Any, n: int = 0) -> None:
    """Runs on the fleet, and pays for its children."""


@app.kind("shot", price=3)
async def shot(job: Any, n: int = 0) -> None:
    """Costs three credits."""


@app.kind("cut", is_open=False)
async def cut(job: Any) -> None:
    """Is submitted by jobs of this app, and not by clients."""


app.add(Kind(name="restartable", lifecycle=LIFECYCLES[0], is_open=False))


@pytest.fixture
async def fleet_server(db: Database) -> AsyncIterator[FleetServer]:
    engine = Engine(db, app)
    await registry.register(db, app.kinds.values())
    async with running_site(engine) as site:
        await engine.grant(TENANT, ACCOUNT, 1_000)
        yield FleetServer(site, await site.key(scope="worker", tenant=None, account=None))
    await engine.workers.close()
    assert await verify(db) == []


async def leased(server: FleetServer, worker: RemoteWorker, n: int = 0) -> dict[str, str]:
    await server.site.engine.submit("filmed", {"n": n}, tenant=TENANT, account=ACCOUNT)
    (job,) = await worker.polled()
    return lease_of(job)


def children(count: int, kind: str = "shot", first: int = 1) -> dict[str, Any]:
    part = [{"kind": kind, "input": {"n": first + n}} for n in range(count)]
    return {"name": "shots", "total": count, "children": part}


async def test_a_step_is_recorded_once_whatever_is_sent_later(fleet_server: FleetServer) -> None:
    worker = await fleet_server.joined()
    lease = await leased(fleet_server, worker)
    first = (await worker.call("record", **lease, name="facts", result={"a": 1}, position=1)).json()
    assert (first["result"], first["is_done"], first["position"]) == ({"a": 1}, True, 1)
    for more in ({"result": 2}, {"seconds": 5}, {"position": 7}):
        assert (await worker.call("record", **lease, name="facts", **more)).json() == first
    again = await worker.call("spawn", **lease, **children(1) | {"name": "facts"})
    assert again.json() == first, "a name that is taken submits nothing"
    assert (await worker.call("recall", **lease)).json() == {"steps": [first]}
    assert (await worker.call("recall", **lease, after="facts")).json() == {"steps": []}
    assert (await worker.call("recall", **lease, after="\N{GRINNING FACE}" * 220)).json() == {"steps": []}
    assert code(await worker.call("suspend", **lease, name="facts")) == (422, "invalid")
    assert (await worker.call("complete", **lease)).status_code == 200


async def test_parts_of_children_come_in_order_and_each_once(fleet_server: FleetServer) -> None:
    worker = await fleet_server.joined()
    lease = await leased(fleet_server, worker)

    async def spawn(first: int, count: int, total: int = 4) -> httpx2.Response:
        part = [{"kind": "shot", "input": {"n": first + n + 1}} for n in range(count)]
        return await worker.call("spawn", **lease, name="shots", total=total, first=first, children=part)

    first = (await spawn(0, 2)).json()
    assert first["submitted"] == 2
    assert (await spawn(0, 2)).json() == first
    for part, field in (((3, 1), "first"), ((2, 1, 3), "total"), ((2, 3), "children")):
        answer = await spawn(*part)
        assert (*code(answer), answer.json()["field"]) == (422, "invalid", field)
    assert (await spawn(2, 2)).json()["submitted"] == 4
    assert (await spawn(1, 2)).json()["submitted"] == 4
    counts = (await fleet_server.site.get(f"/v1/jobs/{lease['job_id']}/children")).json()["counts"]
    assert (counts["submitted"], counts["ended"]) == (4, 0)
    waiting = (await worker.call("results", **lease, batch_id=first["batch_id"])).json()
    assert waiting == {"is_over": False, "total": 4, "children": []}
    assert (await worker.call("suspend", **lease, name="shots")).json()["state"] == "parked"
    for verb, body in (
        ("suspend", {"name": "shots"}),
        ("recall", {}),
        ("record", {"name": "late"}),
        ("spawn", children(1)),
        ("results", {"batch_id": first["batch_id"]}),
    ):
        assert code(await worker.call(verb, **lease, **body)) == (409, "lease_lost"), verb


async def test_children_of_other_jobs_are_not_shown(fleet_server: FleetServer) -> None:
    worker = await fleet_server.joined(slots=2)
    mine, other = await leased(fleet_server, worker, 1), await leased(fleet_server, worker, 2)
    batch = (await worker.call("spawn", **other, **children(1))).json()["batch_id"]
    for given, field in (
        ({"batch_id": batch}, "batch_id"),
        ({"batch_id": ids.text("batch", uuid4())}, "batch_id"),
        ({"batch_id": "job_x"}, "batch_id"),
        ({"batch_id": "batch_\0"}, "batch_id"),
        ({"batch_id": batch, "after": "nonsense"}, "after"),
    ):
        answer = await worker.call("results", **mine, **given)
        assert (*code(answer), answer.json()["field"]) == (404, "not_found", field)


async def test_children_that_cannot_be_paid_for_are_refused_together(fleet_server: FleetServer) -> None:
    worker = await fleet_server.joined()
    lease = await leased(fleet_server, worker)
    short = await worker.call("spawn", **lease, **children(7))
    assert (*code(short), short.json()["required"], short.json()["available"]) == (402, "insufficient_credits", 21, 20)
    same = await worker.call("spawn", **lease, **children(1, "filmed", first=0))
    assert (*code(same), same.json()["field"]) == (422, "child_cycle", "children")
    assert (await fleet_server.site.get(f"/v1/jobs/{lease['job_id']}/children")).json()["counts"]["submitted"] == 0
    assert (await worker.call("spawn", **lease, **children(6))).json()["submitted"] == 6


async def test_a_closed_kind_is_submitted_by_jobs_of_its_own_product_alone(fleet_server: FleetServer) -> None:
    worker = await fleet_server.joined()
    lease = await leased(fleet_server, worker)
    children = [{"kind": "cut"}, {"kind": "restartable"}]
    answer = await worker.call("spawn", **lease, name="cuts", total=2, children=children)
    assert (*code(answer), answer.json()["field"]) == (403, "forbidden", "children[1].kind")
    assert (await worker.call("spawn", **lease, name="cuts", total=1, children=children[:1])).json()["submitted"] == 1


async def test_children_of_which_not_all_were_submitted_are_canceled_with_their_parent(
    fleet_server: FleetServer,
) -> None:
    worker = await fleet_server.joined()
    lease = await leased(fleet_server, worker)
    part = children(2) | {"total": 5}
    assert (await worker.call("spawn", **lease, **part)).json()["submitted"] == 2
    assert (await worker.call("fail", **lease, error={"message": "It broke."})).json()["fate"] == "failed"
    engine = fleet_server.site.engine
    assert await engine.cancel_orphans(100) == 2
    assert await engine.cancel_orphans(100) == 0
    assert await batches.orphans(engine.db, 10) == [], "nothing is left to look for"
    balance = await engine.balance(TENANT, ACCOUNT)
    assert (balance.available, balance.held) == (1_000, 0)
