"""Views: what clients read, page by page, however many of them come at once and however much there is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond import ids
from millpond.engine.queue.leases import Note
from millpond.engine.reads import views
from millpond.engine.reads.views import JobView
from millpond.errors import InvalidError, NotFoundError
from tests.databases import Between
from tests.factories import ACCOUNT, ERROR, OWNER, STRANGER, TENANT, progress, stage

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.store.queries import NamedQuery
    from tests.factories import Factory

OTHERS = (("bob", TENANT), (None, STRANGER), (ACCOUNT, STRANGER))
"""Callers of whom no job of the tests is."""


@pytest.fixture
def statements(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked for clients, by name."""
    asked: list[str] = []

    async def count(query: NamedQuery, *arguments: Any) -> Any:
        asked.append(query.name)
        return await engine.db.read(query, *arguments)

    counted = Between(engine.db, read=count)
    monkeypatch.setattr(engine.tenant_databases, "of", lambda _: counted)
    return asked


async def submitted(engine: Engine, count: int, **options: Any) -> list[UUID]:
    """Jobs, the newest first."""
    wanted: list[Any] = [{"kind": "free", **OWNER} | options for _ in range(count)]
    made = await engine.submit_many(wanted)
    return sorted((job.job_id for job in made if not isinstance(job, Exception)), reverse=True)


# One job


async def test_a_job_is_seen_as_it_stands(engine: Engine, make: Factory) -> None:
    lease = await make.leased("free", {"b": 1, "a": [1.5, None, "é"]})
    await engine.note(stage(lease, 1, "planning"))
    await engine.note(progress(lease, 2, 0.3))
    view = await engine.views.job(TENANT, ACCOUNT, lease.job_id)
    record = await engine.read(TENANT, lease.job_id)
    same = {name: getattr(record, name) for name in JobView.__struct_fields__}
    decoded = msgspec.structs.asdict(view) | {"input": json.loads(view.input), "progress": record.progress}
    assert decoded == same
    assert view.progress == 0.3
    assert view.id == record.id


async def test_the_end_of_a_job_is_seen_as_json_text(engine: Engine, make: Factory) -> None:
    lease = await make.leased("priced")
    await make.finish(lease, output={"url": "x"})
    ended = await engine.views.job(TENANT, ACCOUNT, lease.job_id)
    assert (ended.phase, ended.outcome, json.loads(ended.output or "")) == ("ended", "succeeded", {"url": "x"})
    failed = await make.ended(outcome="failed")
    assert json.loads((await engine.views.job(TENANT, ACCOUNT, failed.job_id)).error or "") == ERROR


async def test_what_a_handler_keeps_for_itself_is_not_shown(engine: Engine, make: Factory) -> None:
    lease = await make.parked(memo={"secret": "plan"})
    assert "plan" not in repr(await engine.views.job(TENANT, ACCOUNT, lease.job_id))


@pytest.mark.parametrize(("account", "tenant"), [(ACCOUNT, TENANT), (None, TENANT), (None, None)])
async def test_a_job_is_seen_by_its_account_its_tenant_and_who_runs_it_all(
    engine: Engine, make: Factory, account: str | None, tenant: str | None
) -> None:
    made = await make.submitted()
    for given in (made.id, made.job_id):
        assert (await engine.views.job(tenant, account, given)).job_id == made.job_id


@pytest.mark.parametrize(("account", "tenant"), OTHERS)
async def test_to_others_a_job_looks_absent(engine: Engine, make: Factory, account: str | None, tenant: str) -> None:
    made = await make.submitted()
    with pytest.raises(NotFoundError) as foreign:
        await engine.views.job(tenant, account, made.job_id)
    with pytest.raises(NotFoundError) as absent:
        await engine.views.job(tenant, account, missing := ids.new())
    assert str(foreign.value).replace(made.id, ids.text("job", missing)) == str(absent.value)


async def test_what_is_no_id_is_not_found(engine: Engine) -> None:
    for given in ("", "job_", "key_01k9abcdefghjkmnpqrstvwxyz", "\0", "é"):
        with pytest.raises(NotFoundError):
            await engine.views.job(TENANT, ACCOUNT, given)


# Many at once


async def test_callers_that_come_at_once_share_a_statement(
    engine: Engine, make: Factory, statements: list[str]
) -> None:
    made = [
        (f"t{n % 7}", f"a{n % 3}", (await make.submitted(tenant=f"t{n % 7}", account=f"a{n % 3}")).job_id)
        for n in range(40)
    ]
    found = await asyncio.gather(*(engine.views.job(*ask) for ask in made * 3))
    assert [(view.tenant, view.account, view.job_id) for view in found] == made * 3
    assert len(statements) < 5


async def test_in_a_crowd_everybody_sees_their_own_alone(engine: Engine, make: Factory) -> None:
    """The statement answers for all of them: what it found for one must not reach another."""
    made = {name: (await make.submitted(tenant=name)).job_id for name in ("a", "b", "c")}
    asks = [(tenant, account, job) for tenant in made for job in made.values() for account in (ACCOUNT, None, "zed")]
    answers = await asyncio.gather(*(engine.views.job(*ask) for ask in asks), return_exceptions=True)
    for (tenant, account, job), answer in zip(asks, answers, strict=True):
        if made[tenant] == job and account != "zed":
            assert isinstance(answer, JobView)
            assert (answer.tenant, answer.job_id) == (tenant, job)
        else:
            assert isinstance(answer, NotFoundError)


async def test_who_runs_it_all_shares_no_statement_with_clients(
    engine: Engine, make: Factory, statements: list[str]
) -> None:
    made = await make.submitted()
    operator, client, stranger = await asyncio.gather(
        engine.views.job(None, None, made.job_id),
        engine.views.job(TENANT, ACCOUNT, made.job_id),
        engine.views.job(STRANGER, None, made.job_id),
        return_exceptions=True,
    )
    assert operator == client
    assert isinstance(stranger, NotFoundError)
    assert statements == ["views.jobs"]


# Pages of jobs


async def test_jobs_come_in_pages_the_newest_first(engine: Engine) -> None:
    made = await submitted(engine, 5)
    first = await engine.views.jobs(TENANT, ACCOUNT, limit=2)
    second = await engine.views.jobs(TENANT, ACCOUNT, limit=2, before=first.before)
    third = await engine.views.jobs(TENANT, ACCOUNT, limit=2, before=ids.text("job", second.data[-1].job_id))
    assert [view.job_id for page in (first, second, third) for view in page.data] == made
    assert (first.before, second.before, third.before) == (made[1], made[3], None)


async def test_a_page_that_is_just_full_is_the_last(engine: Engine) -> None:
    await submitted(engine, 2)
    assert (await engine.views.jobs(TENANT, ACCOUNT, limit=2)).before is None
    assert (await engine.views.jobs(TENANT, "zed")).data == []


async def test_a_page_is_of_an_account_a_tenant_or_everybody(engine: Engine) -> None:
    ann, bob = await submitted(engine, 2), await submitted(engine, 1, account="bob")
    stranger = await submitted(engine, 1, tenant=STRANGER)

    async def seen(*whose: Any) -> list[UUID]:
        return [view.job_id for view in (await engine.views.jobs(*whose)).data]

    assert await seen(TENANT, ACCOUNT) == ann
    assert await seen(TENANT, "bob") == bob
    assert await seen(TENANT) == sorted(ann + bob, reverse=True)
    assert await seen(STRANGER) == stranger
    assert await seen(STRANGER, ACCOUNT) == stranger
    assert await seen(None) == sorted(ann + bob + stranger, reverse=True)


async def test_an_account_of_no_tenant_is_refused(engine: Engine) -> None:
    with pytest.raises(InvalidError) as caught:
        await engine.views.jobs(None, ACCOUNT)
    assert caught.value.field == "tenant"


@pytest.mark.parametrize("limit", [0, 201, -1, True, "5", 2**70])
async def test_a_page_has_a_sane_size(engine: Engine, limit: Any) -> None:
    with pytest.raises(InvalidError) as caught:
        await engine.views.jobs(TENANT, limit=limit)
    assert caught.value.field == "limit"


async def test_a_page_may_be_of_one_kind_state_or_phase(engine: Engine, make: Factory) -> None:
    ended = (await make.ended("priced")).job_id
    leased = (await make.leased("priced")).job_id
    waiting = (await make.submitted("free")).job_id
    for whose in ((TENANT, ACCOUNT), (TENANT,), (None,)):
        for filters, expected in (
            ({"kind": "priced"}, [leased, ended]),
            ({"state": "running"}, [leased]),
            ({"phase": "ended"}, [ended]),
            ({"kind": "free", "phase": "ready"}, [waiting]),
            ({"kind": "free", "phase": "ended"}, []),
            ({"state": "\N{SNOWMAN}"}, []),
        ):
            page = await engine.views.jobs(*whose, **filters)
            assert ([view.job_id for view in page.data], page.before) == (expected, None)


@pytest.mark.parametrize("whose", [(TENANT, ACCOUNT), (TENANT,), (None,)])
async def test_a_rare_job_is_found_in_steps_of_a_bounded_length(
    engine: Engine, make: Factory, monkeypatch: pytest.MonkeyPatch, whose: tuple[Any, ...]
) -> None:
    """A page may be empty and still have a next one; whoever goes on misses nothing."""
    monkeypatch.setattr(views, "WALK", 10)
    rare = [(await make.submitted("drawn", {"width": 1})).job_id]
    await submitted(engine, 23)
    rare.insert(0, (await make.submitted("drawn", {"width": 1})).job_id)
    await submitted(engine, 9)  # with which the rare one is the last that the first step comes to
    found, pages, before = list[Any](), 0, None
    while pages == 0 or before is not None:
        page = await engine.views.jobs(*whose, kind="drawn", before=before)
        found += [view.job_id for view in page.data]
        pages, before = pages + 1, page.before
    assert found == rare
    assert pages == 4


async def test_without_filters_a_page_is_full_however_short_the_steps(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "WALK", 10)
    made = await submitted(engine, 25)
    found, before = list[Any](), None
    for expected in (8, 8, 8, 1):
        page = await engine.views.jobs(TENANT, limit=8, before=before)
        assert len(page.data) == expected
        found += [view.job_id for view in page.data]
        before = page.before
    assert (found, before) == (made, None)


# Events and logs


async def test_events_come_in_pages_in_order(engine: Engine, make: Factory) -> None:
    job = await make.ended("priced")
    whole = await engine.events(TENANT, job.job_id)
    first = await engine.views.events(TENANT, ACCOUNT, job.id, limit=2)
    rest = await engine.views.events(TENANT, ACCOUNT, job.id, after=first.after or 0)
    assert [event.seq for event in (*first.data, *rest.data)] == [event.seq for event in whole]
    assert (first.after, rest.after) == (2, None)
    for event, view in zip(whole, (*first.data, *rest.data), strict=True):
        assert (view.type, view.state, view.at) == (event.type, event.state, event.at)
        assert (None if view.data is None else json.loads(view.data)) == event.data
    assert (await engine.views.events(TENANT, None, job.id, after=len(whole))).data == []
    assert (await engine.views.events(None, None, job.id)).after is None


async def test_logs_are_what_the_code_wrote(engine: Engine, make: Factory) -> None:
    lease = await make.leased("staged")
    await engine.note(stage(lease, 1, "planning"))
    assert (await engine.views.logs(TENANT, ACCOUNT, lease.job_id)).data == []
    for n in range(2, 6):
        await engine.note(Note(lease, n, "log", f'{{"text": "{n}"}}'))
    page = await engine.views.logs(TENANT, ACCOUNT, lease.job_id, limit=3)
    rest = await engine.views.logs(TENANT, ACCOUNT, lease.job_id, after=page.after or 0)
    assert [json.loads(view.data or "")["text"] for view in (*page.data, *rest.data)] == ["2", "3", "4", "5"]
    assert {view.type for view in page.data} == {"log"}


@pytest.mark.parametrize(("account", "tenant"), OTHERS)
async def test_to_others_nothing_happened(engine: Engine, make: Factory, account: str | None, tenant: str) -> None:
    made = await make.submitted()
    for read in (engine.views.events, engine.views.logs):
        for job_id in (made.job_id, ids.new()):
            with pytest.raises(NotFoundError, match="There is no job"):
                await read(tenant, account, job_id)


@pytest.mark.parametrize("after", [-1, 2**31, True, "1", None])
async def test_a_number_that_cannot_be_is_refused(engine: Engine, make: Factory, after: Any) -> None:
    made = await make.submitted()
    with pytest.raises(InvalidError) as caught:
        await engine.views.events(TENANT, ACCOUNT, made.job_id, after=after)
    assert caught.value.field == "after"


# Money


async def test_a_wallet_and_its_entries_are_seen_as_they_are(engine: Engine, make: Factory) -> None:
    await make.ended("priced")
    await make.leased("priced")
    assert await engine.views.wallet(TENANT, ACCOUNT) == await engine.balance(TENANT, ACCOUNT)
    whole = await engine.entries(TENANT, ACCOUNT)
    first = await engine.views.entries(TENANT, ACCOUNT, limit=3)
    rest = await engine.views.entries(TENANT, ACCOUNT, before=first.before)
    assert [*first.data, *rest.data] == whole
    assert (first.before, rest.before) == (whole[2].seq, None)


async def test_a_wallet_that_was_never_used_has_nothing(engine: Engine, make: Factory) -> None:
    await make.credits()
    for tenant, account in ((TENANT, "bob"), (STRANGER, ACCOUNT)):
        wallet = await engine.views.wallet(tenant, account)
        assert (wallet.tenant, wallet.account, wallet.available) == (tenant, account, 0)
        assert (await engine.views.entries(tenant, account)).data == []
