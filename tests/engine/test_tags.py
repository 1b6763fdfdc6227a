"""Tags: short texts that a job is given at its submit, and by which it is found."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from millpond import wire
from millpond.api.jobs.jobs import export_line, to_wire
from millpond.engine.jobs.transactions import submit_in
from millpond.engine.reads import summaries, views
from millpond.errors import IdempotencyConflictError, InvalidError
from millpond.services.bulk_runner import BulkRunner
from tests.factories import ACCOUNT, OWNER, STRANGER, TENANT
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.engine.engine import Engine
    from tests.factories import Factory

TAGS = {"team": "ads", "env/region.a-1_": "prod: eu, größer ✓", "empty": ""}
WRONG: list[tuple[Any, str, str]] = [
    ([], "tags", "It must be an object of keys and texts."),
    ({f"k{n}": "" for n in range(17)}, "tags", "It has 17 tags; the limit is 16."),
    ({"": "x"}, "tags", "The key '' must be 1 to 64 letters, digits and . _ / - long."),
    ({"k" * 65: "x"}, "tags", f"The key '{'k' * 65}' must be 1 to 64 letters, digits and . _ / - long."),
    ({"a:b": "x"}, "tags", "The key 'a:b' must be 1 to 64 letters, digits and . _ / - long."),
    ({"größe": "x"}, "tags", "The key 'größe' must be 1 to 64 letters, digits and . _ / - long."),
    ({"team": 5}, "tags.team", "It must be text."),
    ({"team": None}, "tags.team", "It must be text."),
    ({"team": "x" * 257}, "tags.team", "It has 257 characters; the limit is 256."),
    *(
        ({"team": f"a{c}b"}, "tags.team", "It must be one line of text without control characters.")
        for c in "\n\t\x1b\x7f\x85\u2028"
    ),
]
IDS = [str(n) for n in range(len(WRONG))]


async def found(engine: Engine, tenant: str | None = None, **given: Any) -> list[UUID]:
    wanted = summaries.sought(wire.JobFilter(tenant=tenant, **given), tenant, datetime.now(UTC))
    return [line.job_id for line in (await engine.summaries.page(wanted)).data]


async def in_sql(engine: Engine, tags: Any, key: str | None = None) -> Any:
    async with engine.db.transaction() as tx:
        return await tx.fetchrow(
            "select * from millpond.submit('free', '{}', $1, $2, idempotency_key => $3, tags => $4::jsonb)",
            TENANT,
            ACCOUNT,
            key,
            None if tags is None else json.dumps(tags),
        )


# What a tag may be


@pytest.mark.parametrize(("tags", "field", "message"), WRONG, ids=IDS)
async def test_a_tag_that_cannot_be_is_refused_by_its_key(engine: Engine, tags: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await engine.submit("free", **OWNER, tags=tags)
    assert (caught.value.field, caught.value.message) == (field, message)


@pytest.mark.parametrize(("tags", "field", "message"), WRONG, ids=IDS)
async def test_sql_refuses_the_same_tags_in_the_same_words(engine: Engine, tags: Any, field: str, message: str) -> None:
    with pytest.raises(asyncpg.PostgresError) as caught:
        await in_sql(engine, tags)
    assert (caught.value.sqlstate, caught.value.column_name) == ("PS101", field)  # type: ignore[attr-defined]
    assert str(caught.value).startswith(f"{field}: {message}")


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidError, match="one line of text"):
        views.tags_text({"team": "\ud800"})


async def test_the_limits_themselves_are_allowed(engine: Engine) -> None:
    limit = {f"{n:064}": "✓" * 256 for n in range(16)}
    made = await engine.submit("free", **OWNER, tags=limit)
    assert (await engine.read(TENANT, made.job_id)).tags == limit
    row = await in_sql(engine, limit)
    assert (await engine.read(TENANT, row["job_id"])).tags == limit


# Where they are set and seen


async def test_tags_are_there_however_a_job_is_submitted(engine: Engine, make: Factory, dsn: str) -> None:
    one = await engine.submit("free", **OWNER, tags=TAGS)
    many = await engine.submit_many(
        [{"kind": "free", **OWNER, "tags": {"n": str(n)} if n % 2 else None} for n in range(4)]
    )
    async with engine.db.transaction() as tx:
        within = await engine.submit("free", **OWNER, tags=TAGS, tx=tx)
    by_sql = await in_sql(engine, TAGS)
    none = [await engine.submit("free", **OWNER), await engine.submit("free", **OWNER, tags={})]
    for job_id, tags in (
        (one.job_id, TAGS),
        *((job.job_id, {"n": str(n)} if n % 2 else {}) for n, job in enumerate(many) if not isinstance(job, Exception)),
        (within.job_id, TAGS),
        (by_sql["job_id"], TAGS),
        *((job.job_id, {}) for job in none),
    ):
        assert (await engine.read(TENANT, job_id)).tags == tags
        assert to_wire(await engine.views.job(TENANT, ACCOUNT, job_id)).tags == tags
    async with engine.db.transaction() as tx:
        stored = await tx.fetchval("select count(*) from millpond.jobs where tags is not null")
    assert stored == 5  # those without have none, and not an empty object: they are not in the index
    wanted = summaries.sought(wire.JobFilter(ids=[one.id]), TENANT, datetime.now(UTC))
    assert (await engine.summaries.page(wanted)).data[0].tags == TAGS


def test_tags_are_set_on_a_connection_that_blocks(engine: Engine, dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        made = submit_in(connection, app, "free", **OWNER, tags=TAGS)
        row = connection.execute("select tags from millpond.jobs where id = %s", [made.job_id]).fetchone()
    assert row == (TAGS,)


# What a key stands for


@pytest.mark.parametrize("first", [TAGS, None])
@pytest.mark.parametrize("way", ["engine", "tx", "sql"])
async def test_tags_are_part_of_what_a_key_stands_for(
    engine: Engine, first: Mapping[str, str] | None, way: str
) -> None:
    other = {"team": "other"}

    async def submit(tags: Any) -> Any:
        match way:
            case "sql":
                return (await in_sql(engine, tags, "k"))["is_replay"]
            case "tx":
                async with engine.db.transaction() as tx:
                    made = await engine.submit("free", **OWNER, tags=tags, idempotency_key="k", tx=tx)
            case _:
                made = await engine.submit("free", **OWNER, tags=tags, idempotency_key="k")
        return made.is_replay

    assert not await submit(first)
    assert await submit(first)
    with pytest.raises((IdempotencyConflictError, asyncpg.PostgresError), match="already used"):
        await submit(other)


# Retries


async def test_a_retry_as_a_new_job_keeps_the_tags(engine: Engine, make: Factory) -> None:
    lease = await make.leased("free", tags=TAGS)
    await make.finish(lease, "failed")
    for key in ("k", "k", None):
        again = await engine.retry(TENANT, lease.job_id, idempotency_key=key)
        assert (await engine.read(TENANT, again.job_id)).tags == TAGS


# Search


async def test_jobs_are_found_by_all_of_their_tags(engine: Engine, make: Factory) -> None:
    a = (await make.submitted(tags={"team": "ads", "env": "prod"})).job_id
    b = (await make.submitted(tags={"team": "ads"})).job_id
    await make.submitted(tags={"team": "adsx"})
    await make.submitted()
    c = (await engine.submit("free", tenant=STRANGER, account="bob", tags={"team": "ads"})).job_id
    for tenant, tags, expected in (
        (TENANT, {"team": "ads"}, [b, a]),
        (TENANT, {"team": "ads", "env": "prod"}, [a]),
        (TENANT, {"env": "test"}, []),
        (None, {"team": "ads"}, [c, b, a]),
    ):
        assert await found(engine, tenant, tag=[f"{key}:{value}" for key, value in tags.items()]) == expected
        page = await engine.views.jobs(tenant, tags=tags)
        assert [job.job_id for job in page.data] == expected


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        (["team"], "'team' is not a key and a value."),
        (["team:a", "team:b"], "The key 'team' is given twice, with different values."),
        (["a b:c"], "The key 'a b' must be 1 to 64 letters, digits and . _ / - long."),
        (["team:\n"], "It must be one line of text without control characters."),
        ([], "It names no tag."),
    ],
)
async def test_a_filter_that_is_no_tag_is_refused(engine: Engine, tag: list[str], message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        await found(engine, TENANT, tag=tag)
    assert caught.value.message == message
    assert (caught.value.field or "").startswith("tag")


@pytest.mark.parametrize("tenant", [TENANT, None])
async def test_beyond_the_newest_jobs_the_index_finds_the_rest_in_the_same_page(
    engine: Engine, make: Factory, monkeypatch: pytest.MonkeyPatch, tenant: str | None
) -> None:
    """A walk over so many jobs finds the first; the others may lie thousands of walks below it."""
    for module in (views, summaries):
        monkeypatch.setattr(module, "WALK", 5)
    monkeypatch.setattr(views, "TAGGED", 3)
    rare: list[UUID] = []
    for n in range(8):
        rare.append((await make.submitted("fair" if n == 2 else "free", tags={"team": "ads"})).job_id)
        await engine.submit_many([{"kind": "free", **OWNER} for _ in range(7)])
    rare.reverse()
    pages, before = list[list[UUID]](), None
    while not pages or before is not None:
        page = await engine.views.jobs(tenant, kind="free", tags={"team": "ads"}, before=before, limit=3)
        pages, before = [*pages, [job.job_id for job in page.data]], page.before
    expected = [job_id for n, job_id in enumerate(rare) if n != 5]
    assert [job_id for each in pages for job_id in each] == expected
    assert len(pages) <= 4
    wanted = summaries.sought(wire.JobFilter(tag=["team:ads"], kind="free"), tenant, datetime.now(UTC))
    lines, steps, before = list[UUID](), 0, None
    while not steps or before is not None:
        part = await engine.summaries.page(wanted, before=before, limit=3)
        lines, steps, before = [*lines, *(line.job_id for line in part.data)], steps + 1, part.before
    assert lines == expected
    assert steps <= 4
    monkeypatch.setattr(views, "TAGGED", 100)
    count = await engine.summaries.count(wanted)
    assert (count.matched, count.searched_to, [line.job_id for line in count.sample]) == (7, None, expected[:5])


async def test_the_index_reports_no_other_tenant(engine: Engine, make: Factory) -> None:
    await engine.submit("free", tenant=STRANGER, account="bob", tags={"team": "ads"})
    own = (await make.submitted(tags={"team": "ads"})).job_id
    last = UUID(int=2**128 - 1)
    assert await views.tagged_in(engine.db, TENANT, '{"team": "ads"}', last) == ([own], None)


async def test_the_second_wall_stands_before_tags_too(engine: Engine, make: Factory) -> None:
    """Even a statement that names no tenant sees, by the role for clients, its callers' tags alone."""
    own = (await make.submitted(tags={"team": "ads"})).job_id
    other = (await engine.submit("free", tenant=STRANGER, account="bob", tags={"team": "ads"})).job_id
    async with engine.db.transaction() as tx:
        await tx.execute("set local role millpond_client")
        await tx.execute("select set_config('millpond.callers', $1, true)", TENANT)
        seen = await tx.fetch('select id from millpond.jobs where tags @> \'{"team": "ads"}\'')
        assert [row["id"] for row in seen] == [own]
        named = await tx.fetch(
            "select * from millpond.tagged_jobs(null, '{}', $1, $2, 9)", UUID(int=2**128 - 1), UUID(int=0)
        )
        assert [row["job_id"] for row in named] == [own]
    assert other != own


# Bulk operations


async def test_a_bulk_operation_is_about_the_jobs_with_a_tag(engine: Engine, make: Factory) -> None:
    meant = [(await make.submitted(tags={"team": "ads"})).job_id for _ in range(3)]
    others = [(await make.submitted(tags={"team": "x"})).job_id, (await make.submitted()).job_id]
    wanted = wire.JobFilter(tenant=TENANT, tag=["team:ads"])
    assert (await engine.bulk_operations.preview(wanted, tenant=TENANT)).matched == 3
    order = wire.MakeBulkOperation(action="cancel", filter=wanted)
    operation, _ = await engine.bulk_operations.order(order, tenant=TENANT, bound=TENANT, actor="op")
    assert (operation.filter.tag, operation.estimate) == (["team:ads"], None)
    await BulkRunner(engine, export_line).act()
    after = await engine.bulk_operations.read(operation.operation_id)
    assert (after.done, after.refused) == (3, 0)
    assert {(await engine.read(TENANT, job_id)).outcome for job_id in meant} == {"canceled"}
    assert {(await engine.read(TENANT, job_id)).outcome for job_id in others} == {None}


async def test_an_empty_list_of_tags_does_not_mean_every_job(engine: Engine) -> None:
    order = wire.MakeBulkOperation(action="cancel", filter=wire.JobFilter(tag=[]))
    with pytest.raises(InvalidError) as caught:
        await engine.bulk_operations.order(order, tenant=None, bound=None, actor="op")
    assert caught.value.field == "filter.tag"
