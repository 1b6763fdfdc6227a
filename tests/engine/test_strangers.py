"""Strangers: every statement that takes an id compares the tenant itself, whatever the code above it has checked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from millpond import wire
from millpond.engine.access import access
from millpond.engine.bulk import operations
from millpond.engine.credits import ledger
from millpond.engine.engine import Engine
from millpond.engine.jobs import artifacts, events, jobs
from millpond.engine.providers import predictions
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.reads import details
from millpond.engine.reads.views import SQL as VIEWS
from millpond.engine.webhooks import deliveries, endpoints
from millpond.outbound import Outbound
from millpond.webhooks import Hook
from tests.checks import unchanged
from tests.factories import ACCOUNT, STRANGER, TENANT, Factory
from tests.post import SECRET, VAULT
from tests.product import app

if TYPE_CHECKING:
    from millpond.storage.local import Local
    from millpond.store.db import Database

URL = "http://127.0.0.1:9/hook"
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)
EPOCH = 1
MANY = 10


@dataclass(frozen=True, slots=True)
class Owned:
    """The engine, and the ids of one of everything that a tenant may have."""

    engine: Engine
    make: Factory
    ids: dict[str, Any]


@pytest.fixture
async def owned(db: Database, clock: Any, files: Local) -> Owned:
    engine = Engine(db, app, storage=files, vault=VAULT, outbound=Outbound("loopback"))
    make = Factory(engine, clock)
    endpoint, _ = await engine.endpoints.make(TENANT, url=URL)
    pulled, _ = await engine.endpoints.make(TENANT, url=None, events=["started"])
    running = await make.leased("brief", hook=Hook(url=URL, secret=SECRET), tags={"team": "a"})
    ended = await make.ended("priced")
    failed = await make.ended("restartable", "failed")
    parked = await make.parked()
    waiting = await make.submitted("brief")
    sent = await engine.deliveries.list(TENANT, endpoint=endpoint.endpoint_id)
    key, _ = await engine.access.make_key(scope="client", tenant=TENANT, account=ACCOUNT, actor="test")
    file = await engine.artifacts.save(TENANT, ACCOUNT, name="x", content_type="text/plain", data=b"x")
    order = wire.MakeBulkOperation(action="cancel", filter=wire.JobFilter(tenant=TENANT, kind="brief"))
    operation, _ = await engine.bulk_operations.order(order, tenant=TENANT, bound=TENANT, actor="test", key=None)
    begun = await predictions.begin(db, TENANT, running.job_id, EPOCH, "replicate")
    return Owned(
        engine,
        make,
        {
            "running": running.job_id,
            "ended": ended.job_id,
            "failed": failed.job_id,
            "waiting": waiting.job_id,
            "parked": parked.job_id,
            "delivery": sent[0].delivery_id,
            "endpoint": endpoint.endpoint_id,
            "pulled": pulled.endpoint_id,
            "key": key.key_id,
            "artifact": file.artifact_id,
            "path": file.path,
            "operation": operation.operation_id,
            "prediction": begun.id,
        },
    )


# Each is a statement with its arguments, by the tenant that asks and the ids of what another owns.
READS: dict[str, Any] = {
    "a job": lambda t, i: (jobs.SQL["read"], i["ended"], t),
    "its memo": lambda t, i: (jobs.SQL["memo"], i["parked"], t),
    "its events": lambda t, i: (events.SQL["after"], i["ended"], t, 0, MANY),
    "its history": lambda t, i: (events.SQL["histories"], [i["ended"]], t),
    "its hook": lambda t, i: (deliveries.SQL["hook"], i["running"], t),
    "its ledger entries": lambda t, i: (details.SQL["entries"], i["ended"], t, MANY, ACCOUNT, "refund:"),
    "its predictions": lambda t, i: (details.SQL["predictions"], i["running"], t, MANY),
    "its first and last events": lambda t, i: (details.SQL["events"], i["ended"], t, 3, MANY),
    "its deliveries": lambda t, i: (deliveries.SQL["list_of_job"], t, LAST, None, MANY, i["ended"], None),
    "the deliveries of an endpoint": lambda t, i: (
        deliveries.SQL["list_of_endpoint"],
        *(t, LAST, None, MANY, i["endpoint"]),
    ),
    "a delivery": lambda t, i: (deliveries.SQL["read"], t, i["delivery"]),
    "an endpoint": lambda t, i: (endpoints.SQL["read"], t, i["endpoint"]),
    "a file at a path": lambda t, i: (artifacts.SQL["at_path"], t, i["path"]),
    "a file": lambda t, i: (artifacts.SQL["view"], t, None, [i["artifact"]], None),
    "a key": lambda t, i: (access.SQL["key"], i["key"], t),
    "a key to be changed": lambda t, i: (access.SQL["lock_key"], i["key"], t, None),
    "a bulk operation": lambda t, i: (operations.SQL["read"], i["operation"], t),
    "jobs by tag": lambda t, _: (VIEWS["tagged"], t, '{"team": "a"}', LAST, FIRST, MANY),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_a_statement_reads_for_the_owner_and_not_for_a_stranger(owned: Owned, read: Any) -> None:
    async def found(tenant: str) -> Any:
        query, *arguments = read(tenant, owned.ids)
        return await owned.engine.db.run(query, *arguments)

    assert await found(TENANT)
    assert not await found(STRANGER)


VERBS: dict[str, Any] = {
    "cancel": lambda t, i: (jobs.SQL["cancel"], t, i["waiting"], timedelta(0)),
    "cancel of an ended job": lambda t, i: (jobs.SQL["cancel"], t, i["ended"], timedelta(0)),
    "answer": lambda t, i: (jobs.SQL["answer"], t, i["parked"], '{"yes": true}'),
    "change of priority": lambda t, i: (jobs.SQL["prioritize"], t, i["waiting"], 7),
    "transition": lambda t, i: (jobs.SQL["transition_to"], t, i["waiting"], "failed"),
    "retry in place": lambda t, i: (jobs.SQL["revive"], t, i["failed"], timedelta(hours=1)),
    "refund": lambda t, i: (ledger.SQL["refund"], t, i["ended"], None, None, "it broke", "test", None),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_a_verb_finds_nothing_for_a_stranger(owned: Owned, verb: Any) -> None:
    query, *arguments = verb(STRANGER, owned.ids)
    async with unchanged(owned.engine.db):
        assert (await owned.engine.db.run(query, *arguments))["verdict"] == "absent"
    query, *arguments = verb(TENANT, owned.ids)
    assert (await owned.engine.db.run(query, *arguments))["verdict"] != "absent"


async def test_a_stranger_sends_no_delivery_again(owned: Owned) -> None:
    delivery = owned.ids["delivery"]
    async with unchanged(owned.engine.db):
        assert await owned.engine.db.run(deliveries.SQL["resend"], [delivery], STRANGER) == []
    assert len(await owned.engine.db.run(deliveries.SQL["resend"], [delivery], TENANT)) == 1


async def test_a_stranger_neither_pulls_nor_reports(owned: Owned) -> None:
    db, lease = owned.engine.db, timedelta(minutes=1)
    async with unchanged(db):
        assert await db.run(deliveries.SQL["pull"], STRANGER, owned.ids["pulled"], MANY, lease) == []
    pulled = await db.run(deliveries.SQL["pull"], TENANT, owned.ids["pulled"], MANY, lease)
    assert pulled
    assert await db.run(deliveries.SQL["out"], STRANGER, pulled[0]["delivery_id"]) is None
    assert await db.run(deliveries.SQL["out"], TENANT, pulled[0]["delivery_id"]) is not None


async def test_a_stranger_aborts_no_bulk_operation(owned: Owned) -> None:
    bulk = owned.engine.bulk_operations
    with pytest.raises(Exception, match="There is no"):
        await bulk.abort(owned.ids["operation"], tenant=STRANGER, actor="test")
    found = await owned.engine.db.run(operations.SQL["abort"], owned.ids["operation"], STRANGER)
    assert not found
    assert (await bulk.abort(owned.ids["operation"], tenant=TENANT, actor="test")).state == "aborted"


async def test_a_key_of_an_account_changes_no_key_of_another(owned: Owned) -> None:
    for account, is_found in (("bob", False), (ACCOUNT, True)):
        row = await owned.engine.db.run(access.SQL["lock_key"], owned.ids["key"], TENANT, account)
        assert (row is not None) == is_found


async def test_statements_of_products_lock_and_read_the_jobs_of_their_tenant(owned: Owned) -> None:
    async with owned.engine.db.transaction() as tx:
        for tenant, number in ((STRANGER, 0), (TENANT, 1)):
            locked = await tx.fetch(
                "select * from millpond.lock_attempt($1, $2, $3)", owned.ids["running"], tenant, EPOCH
            )
            assert len(locked) == number
        for tenant, state in ((STRANGER, None), (TENANT, "succeeded")):
            assert await tx.fetchval("select millpond.final_state($1, $2)", owned.ids["ended"], tenant) == state


async def test_an_endpoint_of_an_account_hears_nothing_of_its_namesake(owned: Owned) -> None:
    """Two tenants may have accounts of the same name."""
    engine = owned.engine
    mine, _ = await engine.endpoints.make(TENANT, url=URL, account=ACCOUNT)
    theirs, _ = await engine.endpoints.make(STRANGER, url=URL, account=ACCOUNT)
    await owned.make.submitted("free")
    await owned.make.serve("free")
    assert len(await engine.deliveries.list(TENANT, endpoint=mine.endpoint_id)) == 1
    assert await engine.deliveries.list(STRANGER, endpoint=theirs.endpoint_id) == []
    assert await engine.deliveries.list(TENANT, endpoint=theirs.endpoint_id) == []


async def test_an_account_sees_neither_jobs_nor_files_of_another(owned: Owned) -> None:
    engine = owned.engine
    await engine.grant(TENANT, "bob", 10)
    theirs = await engine.submit("brief", tenant=TENANT, account="bob", tags={"team": "a"})
    page = await engine.views.jobs(TENANT, ACCOUNT, tags={"team": "a"})
    assert [job.job_id for job in page.data] == [owned.ids["running"]]
    rows = await engine.db.read(
        VIEWS["page"], TENANT, ACCOUNT, LAST, None, None, None, MANY, MANY, None, [theirs.job_id, owned.ids["running"]]
    )
    assert [row["id"] for row in rows] == [owned.ids["running"]]
    lease = (await engine.claim(Lanes(["brief"]), MANY, worker="w", duration=timedelta(minutes=1)))[-1]
    assert lease.account == "bob"
    made = await engine.artifacts.save(
        TENANT, "bob", name="y", content_type="text/plain", data=b"y", job_id=lease.job_id
    )
    assert [each.id for each in await engine.artifacts.of_job(TENANT, lease.job_id, "bob")] == [made.id]
    assert await engine.artifacts.of_job(TENANT, lease.job_id, ACCOUNT) == []
