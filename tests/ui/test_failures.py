"""Failures in a real browser: put together by what they have in common, and run again once the cause is mended.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.acceptance.processes import until
from tests.browsers import fits, photograph
from tests.ui.dashboards import serious, shows_traceback

if TYPE_CHECKING:
    from tests.ui.dashboards import Dash


async def test_a_failure_shows_the_traceback_of_its_example(dash: Dash) -> None:
    shop = await dash.client("fails")
    await shop.done("broken")
    mark = (await dash.admin.get("failures", since="1h", tenant=shop.tenant))["data"][0]["fingerprint"]
    async with dash.page(f"/failures/{mark}?tenant={shop.tenant}", "viewer") as page:
        await shows_traceback(page.locator("main"))


async def test_failures_are_grouped_and_retried_all_at_once(dash: Dash) -> None:
    """Two whose messages differ in numbers are one group; a bulk operation runs both again, and nothing else."""
    shop = await dash.client("fails")
    failed = [await shop.done("broken", {"number": number}) for number in (7, 12_345)]
    other = await shop.done("refused")
    assert {job["outcome"] for job in (*failed, other)} == {"failed"}
    async with dash.page(f"/failures?tenant={shop.tenant}", "operator") as page:
        rows = page.get_by_role("table", name="Failures").locator("tbody tr")
        await expect(rows).to_have_count(2)
        group = rows.filter(has_text="bytes left")
        await expect(group.locator(".failures-count")).to_have_text("2")
        await expect(group).to_contain_text("6cr")
        await photograph(page, "ui/failures-wide")
        await group.get_by_role("link", name=re.compile("bytes left")).click()
        jobs = page.get_by_role("table", name="Jobs with this failure")
        for job in failed:
            await expect(jobs.locator(f"[data-key='{job['id']}']")).to_be_visible()
        await expect(jobs.locator("tbody tr")).to_have_count(2)
        await expect(jobs).to_contain_text("there are 7 bytes left, and 8 are needed")
        assert await serious(page) == []
        await photograph(page, "ui/failure-wide")
        await page.get_by_role("button", name="Retry all since").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_role("heading", name="Retry 2 jobs")).to_be_visible()
        await photograph(page, "ui/failure-dialog")
        await dialog.get_by_role("button", name="Retry").click()
        await expect(page).to_have_url(re.compile(r"/bulk/bulk_\w+"))
        operation = page.url.rpartition("/")[2].partition("?")[0]

        async def is_done() -> bool:
            return (await dash.admin.get(f"bulk/{operation}"))["state"] == "done"

        await until(is_done, 20)
    response = await dash.admin.get(f"bulk/{operation}")
    assert (response["action"], response["done"], response["refused"]) == ("retry", 2, 0)
    found = (await dash.admin.get("board/jobs", tenant=shop.tenant, kind="broken"))["data"]
    assert len(found) == 4
    assert len((await dash.admin.get("board/jobs", tenant=shop.tenant, kind="refused"))["data"]) == 1


async def test_a_time_can_be_named_and_nothing_is_done_where_nothing_fits(dash: Dash) -> None:
    shop = await dash.client("since")
    job = await shop.done("broken")
    mark = (await dash.admin.get("failures", since="1h", tenant=shop.tenant))["data"][0]["fingerprint"]
    async with dash.page(f"/failures/{mark}?tenant={shop.tenant}") as page:
        await expect(page.locator(f"[data-key='{job['id']}']")).to_be_visible()
        await page.get_by_label("Submitted").select_option("since a time")
        button = page.get_by_role("button", name="Retry all since")
        await expect(button).to_be_disabled()
        await page.get_by_label("Since", exact=True).fill("2099-01-01T00:00")
        await button.click()
        await expect(page.locator(".toast")).to_contain_text("No jobs match")
    assert len((await dash.admin.get("board/jobs", tenant=shop.tenant))["data"]) == 1


async def test_where_nothing_failed_it_says_so(dash: Dash) -> None:
    shop = await dash.client("fine")
    async with dash.page(f"/failures?tenant={shop.tenant}", "viewer") as page:
        await expect(page.get_by_text("No failures in the last 24 hours.")).to_be_visible()
        await page.get_by_role("button", name="7d").click()
        await expect(page.get_by_text("No failures in the last 7 days.")).to_be_visible()
        await expect(page).to_have_url(re.compile("since=7d"))
        await photograph(page, "ui/failures-empty")


async def test_who_may_only_look_cannot_retry(dash: Dash) -> None:
    shop = await dash.client("views")
    await shop.done("broken")
    mark = (await dash.admin.get("failures", since="1h", tenant=shop.tenant))["data"][0]["fingerprint"]
    async with dash.page(f"/failures/{mark}", "viewer", tenant=shop.tenant, dark=True, narrow=True) as page:
        button = page.get_by_role("button", name="Retry all since")
        await expect(button).to_be_disabled()
        await expect(button).to_have_attribute("title", "This requires a key of scope operator.")
        await expect(page.get_by_role("table", name="Jobs with this failure").locator("tbody tr")).to_have_count(1)
        assert await fits(page)
        await photograph(page, "ui/failure-narrow-dark")
