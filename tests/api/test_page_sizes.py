"""Pages are bounded in bytes: they end early with a cursor, and what is large is read by its link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millpond.api.jobs.jobs import PART_MAX
from millpond.client import AsyncClient
from millpond.engine.reads import views
from millpond.engine.reads.views import BYTES_MAX
from tests.factories import ACCOUNT, TENANT

if TYPE_CHECKING:
    from tests.api.sites import Site
    from tests.factories import Factory

SIZE = PART_MAX - 1_000
COUNT = BYTES_MAX // SIZE * 3 // 2
OVERHEAD = 1.05
"""What the other members of the jobs of a page add to it."""


async def pages(site: Site, path: str, after: str, **query: Any) -> list[dict[str, Any]]:
    """All pages of a list; ``after`` names its cursor in the response."""
    found: list[dict[str, Any]] = []
    name = "cursor" if after == "next_cursor" else "after"
    while not found or found[-1][after]:
        given = query | ({name: found[-1][after]} if found else {})
        answer = await site.get(path, params=given)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= BYTES_MAX * OVERHEAD + PART_MAX
        found.append(answer.json())
    return found


@pytest.fixture
async def job_ids(site: Site) -> list[str]:
    """Jobs with inputs that are more than a page together; the newest first."""
    given = {"text": "x" * SIZE}
    made = [
        await site.engine.submit("free", given, tenant=TENANT, account=ACCOUNT, tags={"set": "large"})
        for _ in range(COUNT)
    ]
    return [job.id for job in reversed(made)]


@pytest.mark.parametrize(
    "query",
    [{}, {"tag": "set:large"}, {"since": "24h"}],
    ids=["all", "by tag", "by a filter of summaries"],
)
async def test_a_page_of_jobs_ends_at_its_size(site: Site, job_ids: list[str], query: dict[str, str]) -> None:
    found = await pages(site, "/v1/jobs", "next_cursor", limit=200, **query)
    assert [job["id"] for page in found for job in page["data"]] == job_ids, "each once, and none is missing"
    assert len(found) > 1
    assert len(found[0]["data"]) < len(job_ids)


async def test_a_page_of_a_rare_tag_ends_at_its_size(
    site: Site, job_ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest jobs are found by a walk that stops before the page is full, and the others by the index on tags."""
    monkeypatch.setattr(views, "WALK", COUNT // 2)
    found = await pages(site, "/v1/jobs", "next_cursor", limit=200, tag="set:large")
    assert [job["id"] for page in found for job in page["data"]] == job_ids
    assert len(found) > 1


async def test_a_page_of_the_jobs_of_a_product_ends_at_its_size(site: Site, job_ids: list[str], make: Factory) -> None:
    """The job of another lifecycle counts for the first of the pages that are read, and is not in the result."""
    await make.submitted("reviewed", {"text": "x" * SIZE})
    found: list[str] = []
    before = None
    while not found or before is not None:
        page = await site.engine.views.jobs_of("standard", TENANT, ACCOUNT, before=before, limit=200)
        assert sum(len(job.input) for job in page.data) <= BYTES_MAX + PART_MAX
        before = page.before
        found += [job.id for job in page.data]
    assert found == job_ids


async def test_a_page_of_events_ends_at_its_size(site: Site, make: Factory) -> None:
    job = await make.submitted("free")
    rows = [(number, "x" * SIZE) for number in range(COUNT)]
    async with site.engine.db.transaction() as tx:
        for number, text in rows:
            await tx.execute(
                "insert into millpond.events (tenant, job_id, seq, at, type, state, data)"
                " select j.tenant, j.id, j.events + 1 + $2, millpond.clock(), 'log', j.state,"
                " jsonb_build_object('text', $3::text) from millpond.jobs j where j.id = $1",
                job.job_id,
                number,
                text,
            )
        await tx.execute("update millpond.jobs set events = events + $2 where id = $1", job.job_id, COUNT)
    for path in ("events", "logs"):
        found = await pages(site, f"/v1/jobs/{job.id}/{path}", "next", limit=1_000)
        seqs = [item["seq"] for page in found for item in page["data"]]
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert len(seqs) >= COUNT
        assert len(found) > 1


async def test_a_large_input_and_output_are_left_out_of_a_list(site: Site, make: Factory) -> None:
    large = {"text": "x" * (PART_MAX + 1)}
    lease = await make.leased("free", large)
    await make.finish(lease, output=large)
    (listed,) = (await site.get("/v1/jobs")).json()["data"]
    assert (listed["input"], listed["output"], listed["omitted"]) == (None, None, ["input", "output"])
    whole = (await site.get(listed["links"]["self"])).json()
    assert (whole["input"], whole["output"], whole["omitted"]) == (large, large, [])
    async with AsyncClient(site.url, site.client_key) as client:
        (handle,) = [handle async for handle in client.jobs()]
        assert handle.output == large, "the SDK reads what was left out"
