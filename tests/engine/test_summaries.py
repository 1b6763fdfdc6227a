"""Jobs found by what they have in common."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from millpond import wire
from millpond.engine.queue.leases import End, Return
from millpond.engine.reads import summaries
from millpond.errors import InvalidError
from tests.factories import STRANGER, TENANT

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from tests.factories import Factory


async def found(engine: Engine, tenant: str | None = None, *, limit: int = 50, **given: Any) -> list[UUID]:
    """All that fit, page by page."""
    wanted = summaries.sought(wire.JobFilter(tenant=tenant, **given), tenant, datetime.now(UTC))
    ids: list[UUID] = []
    before: UUID | None = None
    while True:
        page = await engine.summaries.page(wanted, before=before, limit=limit)
        assert len(page.data) <= limit
        ids += [line.job_id for line in page.data]
        if page.before is None:
            return ids
        assert before is None or page.before < before
        before = page.before


async def fail(make: Factory, kind: str, code: str, message: str = "It broke.") -> UUID:
    lease = await make.leased(kind)
    await make.engine.finish(End(lease, "failed", None, {"code": code, "message": message}))
    return lease.job_id


@pytest.fixture
async def system(make: Factory) -> dict[str, UUID]:
    """One job of each sort."""
    return {
        "ready": (await make.submitted("fair")).job_id,
        "waiting": (await make.submitted("priced", run_at=datetime.now(UTC) + timedelta(hours=1))).job_id,
        "stranger": (await make.engine.submit("free", tenant=STRANGER, account="bob")).job_id,
        "succeeded": (await make.ended("staged")).job_id,
        "failed": await fail(make, "priced", "boom"),
        "other": await fail(make, "brief", "bang"),
        "parked": (await make.parked()).job_id,
        "leased": (await make.leased("metered", {"units": 0})).job_id,
    }


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["leased", "parked", "other", "failed", "succeeded", "stranger", "waiting", "ready"]),
    ({"tenant": TENANT}, ["leased", "parked", "other", "failed", "succeeded", "waiting", "ready"]),
    ({"tenant": STRANGER}, ["stranger"]),
    ({"tenant": TENANT, "account": "nobody"}, []),
    ({"tenant": STRANGER, "account": "bob"}, ["stranger"]),
    ({"kind": "brief"}, ["parked", "other"]),
    ({"kind": "f*"}, ["stranger", "ready"]),
    ({"kind": "*", "phase": "waiting"}, ["waiting"]),
    ({"phase": "leased"}, ["leased"]),
    ({"phase": "leased", "tenant": STRANGER}, []),
    ({"phase": "ready"}, ["stranger", "ready"]),
    ({"phase": "ready", "tenant": TENANT}, ["ready"]),
    ({"phase": "ended"}, ["other", "failed", "succeeded"]),
    ({"state": "parked"}, ["parked"]),
    ({"state": "failed"}, ["other", "failed"]),
    ({"state": "no_such_state"}, []),
    ({"outcome": "succeeded"}, ["succeeded"]),
    ({"outcome": "failed"}, ["other", "failed"]),
    ({"outcome": "failed", "tenant": STRANGER}, []),
    ({"outcome": "failed", "kind": "priced"}, ["failed"]),
    ({"outcome": "canceled"}, []),
    ({"error": "bang"}, ["other"]),
    ({"error": "bang", "tenant": TENANT, "account": "ann"}, ["other"]),
    ({"since": "1h"}, ["leased", "parked", "other", "failed", "succeeded", "stranger", "waiting", "ready"]),
    ({"until": "1h"}, []),
    ({"outcome": "failed", "until": "1h"}, []),
    ({"phase": "ready", "until": "1h"}, []),
]


async def test_every_filter_finds_its_jobs_in_pages_of_any_size(
    engine: Engine, system: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    for given, names in FILTERS:
        expected = [system[name] for name in names]
        assert await found(engine, **given) == expected, given
        assert await found(engine, **given, limit=1) == expected, given
    monkeypatch.setattr(summaries, "WALK", 2)
    for given, names in FILTERS:
        assert await found(engine, **given) == [system[name] for name in names], given


async def test_a_page_says_how_far_it_has_looked(
    engine: Engine, system: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = summaries.sought(wire.JobFilter(outcome="succeeded"), None, datetime.now(UTC))
    whole = await engine.summaries.page(wanted)
    assert (whole.before, whole.searched_to, whole.examined) == (None, None, len(system))
    monkeypatch.setattr(summaries, "WALK", 2)
    page = await engine.summaries.page(wanted)
    assert (page.data, page.before, page.examined) == ([], system["parked"], 2)
    assert page.searched_to is not None
    assert abs(page.searched_to - datetime.now(UTC)) < timedelta(minutes=1)
    monkeypatch.setattr(summaries, "_COUNT_SECONDS", 60.0)
    count = await engine.summaries.count(wanted)
    assert (count.matched, count.is_capped) == (1, False)


async def test_a_line_reports_all_but_the_job_s_words(engine: Engine, make: Factory, system: dict[str, UUID]) -> None:
    fields = {line.job_id: line for line in (await engine.summaries.page(summaries.ParsedFilter())).data}
    failed, leased = fields[system["failed"]], fields[system["leased"]]
    assert (failed.error_code, failed.error_message, failed.outcome, failed.captured) == (
        "boom",
        "It broke.",
        "failed",
        0,
    )
    assert (leased.worker, leased.is_canceling, failed.worker) == ("w", False, None)
    assert failed.fingerprint is not None
    assert await found(engine, fingerprint=failed.fingerprint) == [system["failed"]]
    await engine.cancel(TENANT, system["leased"])
    await fail(make, "priced", "boom", "x" * 1_000)
    newest, *_, still = (await engine.summaries.page(summaries.ParsedFilter(kind=None, phase=None))).data
    assert len(newest.error_message or "") == 200
    assert still.job_id == system["ready"]
    (canceling,) = (await engine.summaries.page(summaries.ParsedFilter(phase="leased"))).data
    assert canceling.is_canceling


async def test_a_code_is_found_whatever_became_of_the_job(engine: Engine, make: Factory) -> None:
    error = {"code": "boom", "message": "It broke."}
    failed = await fail(make, "priced", "boom")
    again, canceled = [await make.leased("priced") for _ in range(2)]
    for lease in (again, canceled):
        await engine.give_back(Return(lease, "attempt", error, timedelta(minutes=9)))
    await engine.cancel(TENANT, canceled.job_id)
    assert await found(engine, error="boom") == [canceled.job_id, again.job_id, failed]
    assert await found(engine, error="boom", outcome="failed") == [failed]
    assert await found(engine, error="boom", phase="waiting") == [again.job_id]
    assert await found(engine, error="boom", outcome="canceled") == [canceled.job_id]


async def test_failures_that_have_no_fingerprint_yet_are_found_by_a_walk(
    engine: Engine, make: Factory, system: dict[str, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with engine.db.transaction() as tx:
        await tx.execute("update millpond.migrations set applied_at = clock_timestamp() where number = 12")
        await tx.execute("alter table millpond.jobs disable trigger user")
        await tx.execute("update millpond.jobs set fingerprint = null")
        await tx.execute("alter table millpond.jobs enable trigger user")
    assert await found(engine, outcome="failed") == [system["other"], system["failed"]]
    later = await fail(make, "priced", "boom")
    monkeypatch.setattr(summaries, "WALK", 2)
    assert await found(engine, outcome="failed") == [later, system["other"], system["failed"]]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"since": "soon"}, "since"),
        ({"until": "2026-01-01T00:00:00"}, "until"),
        ({"since": "1h", "until": "2h"}, "until"),
        ({"since": "0s"}, "since"),
        ({"account": "ann"}, "tenant"),
    ],
)
def test_a_filter_that_cannot_be_meant_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        summaries.sought(wire.JobFilter(**given), None, datetime.now(UTC))
    assert refused.value.field == field
