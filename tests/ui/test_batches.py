"""Batches in a real browser: how far they are, what they cost, their jobs, and their cancel.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.ui.actions import confirm, pictures
from tests.ui.dashboards import serious

if TYPE_CHECKING:
    from tests.ui.dashboards import Caller, Dash


async def made(client: Caller, *kinds: str, **body: Any) -> dict[str, Any]:
    return await client.act("POST", "batches", {"jobs": [{"kind": kind} for kind in kinds]} | body)


async def test_a_batch_shows_how_far_it_is_and_is_canceled(dash: Dash) -> None:
    client = await dash.client("batched")
    kinds = ("echo", "echo", "echo", "refused", "parked", "parked")
    batch = await made(client, *kinds, name="catalogue", tags={"team": "ads"})
    async with dash.page(f"/batches?tenant={client.tenant}", "operator") as page:
        table = page.get_by_role("table", name="Batches")
        row = table.locator(f"[data-key='{batch['id']}']")
        await expect(row).to_contain_text("4 of 6")
        await expect(row).to_contain_text("3 succeeded, 1 failed, 2 active")
        await expect(row).to_contain_text("running")
        assert await serious(page) == []
        await pictures(page, "batches")
        await page.get_by_label("State").select_option("canceled")
        await expect(page.get_by_text("No batches match this filter.")).to_be_visible()
        await page.get_by_role("button", name="Clear the filter").click()
        await page.goto(f"{dash.ui}/batches?tenant={client.tenant}&tag=team:ads")
        await row.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("catalogue")
        jobs = page.get_by_role("table", name="Jobs").locator("tbody tr")
        await expect(jobs).to_have_count(6)
        assert await serious(page) == []
        await pictures(page, "batch")
        await page.get_by_label("Outcome").select_option("failed")
        await expect(jobs).to_have_count(1)
        await expect(jobs).to_contain_text("The picture has no faces.")
        # From a job back to its batch.
        await jobs.get_by_role("link").first.click()
        await expect(page).to_have_url(re.compile("/jobs/job_"))
        await page.locator(f"a[title='{batch['id']}']").click()
        await expect(page).to_have_url(re.compile(batch["id"]))
        await page.get_by_role("button", name="Cancel batch").click()
        await expect(page.get_by_role("dialog")).to_contain_text("the 2 jobs that have not ended are canceled")
        await confirm(page, "Cancel batch")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        await expect(page.locator(".page-aside")).to_have_text("canceled")
        await expect(page.get_by_role("button", name="Cancel batch")).to_be_disabled()
        ended = await client.get(f"batches/{batch['id']}")
        assert (ended["succeeded"], ended["failed"], ended["canceled"]) == (3, 1, 2)


async def test_batches_come_in_pages_and_are_found(dash: Dash) -> None:
    client = await dash.client("batches")
    for _ in range(51):
        batch = await made(client, "echo")
    async with dash.page(f"/batches?tenant={client.tenant}", "viewer") as page:
        rows = page.get_by_role("table", name="Batches").locator("tbody tr")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Next page").click()
        await expect(rows).to_have_count(1)
        await page.get_by_label("Search by id").fill(batch["id"])
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(f"/batches/{batch['id']}"))
        await expect(page.get_by_role("button", name="Cancel batch")).to_be_disabled()
        await expect(page.locator(".page-aside")).to_have_text("completed")
