"""Bulk operations, in a real browser: ordered, watched, stopped, and what they made."""

from __future__ import annotations

import asyncio
import csv
import re
from typing import TYPE_CHECKING

import msgspec
from playwright.async_api import expect

from millpond.store.db import connect
from tests.browsers import fits, photograph
from tests.ui.dashboards import serious
from tests.ui.test_jobs import act, operation_of, submit_many

if TYPE_CHECKING:
    from tests.ui.dashboards import Dash

COUNT = 12


async def test_a_bulk_operation_is_aborted_under_way_and_what_is_done_stays_done(dash: Dash) -> None:
    client = await dash.client()
    held = await connect(dash.dsn)
    async with dash.paused("paint"):
        await submit_many(client, "paint", COUNT)
        async with dash.page(f"/jobs?tenant={client.tenant}") as page:
            claim = held.transaction()
            await claim.start()
            # Whoever wants to give credits back to the account waits for us.
            await held.execute("select from millpond.accounts where tenant = $1 for update", client.tenant)
            await page.get_by_role("button", name="Select all matching jobs").click()
            await act(page, "Cancel")
            await expect(page.locator(".page-head .badge")).to_have_text("running")
            await photograph(page, "ui/bulk-running")
            assert await serious(page) == []
            await page.get_by_role("button", name="Abort…").click()
            await expect(page.locator("dialog")).to_contain_text("are kept")
            await page.locator("dialog").get_by_role("button", name="Abort").click()
            # It stops at the next job: that is soon where its wait for the account is over just now.
            await expect(page.locator(".page-head .badge")).to_have_text(re.compile("abort(ing|ed)"))
            await claim.rollback()
            operation = await operation_of(dash, page)
            await expect(page.get_by_text("Changes made before the abort are kept.")).to_be_visible()
            await photograph(page, "ui/bulk-aborted")
        assert operation["state"] == "aborted"
        assert operation["done"] < COUNT
        jobs = (await client.get("jobs"))["data"]
        assert sum(job["outcome"] == "canceled" for job in jobs) == operation["done"]
        for job in jobs:
            await client.act("POST", f"jobs/{job['id']}/cancel")
    await held.close()


async def test_an_export_is_downloaded_whole(dash: Dash) -> None:
    client = await dash.client()
    ids = await submit_many(client, "echo", COUNT, {"text": 'a, "b" and\nc', "sum": "=1+1"})
    for job_id in ids:
        await client.until(job_id, "succeeded")
    async with dash.page(f"/jobs?tenant={client.tenant}") as page:
        for form in ("ndjson", "csv"):
            await page.goto(f"{dash.ui}/jobs?tenant={client.tenant}")
            await page.get_by_role("button", name="Select all matching jobs").click()
            await act(page, "Export", Format=form)
            operation = await operation_of(dash, page)
            link = page.get_by_role("link", name=f"Download {operation['result']['name']}")
            async with page.expect_download() as downloading:
                await link.click()
            path = await (await downloading.value).path()
            text = await asyncio.to_thread(path.read_text, "utf-8")
            found = (
                [msgspec.json.decode(line)["id"] for line in text.splitlines()]
                if form == "ndjson"
                else [row["id"] for row in csv.DictReader(text.splitlines())]
            )
            assert sorted(found) == sorted(ids)
        await photograph(page, "ui/bulk-export")
        assert await serious(page) == []


async def test_refusals_are_reported_with_a_sample(dash: Dash) -> None:
    client = await dash.client()
    job = await client.until(await client.submit("parked"), "parked")
    async with dash.page(f"/jobs?tenant={client.tenant}", dark=True, narrow=True) as page:
        await page.get_by_label(f"Select {job['id']}").check()
        await act(page, "Retry")
        operation = await operation_of(dash, page)
        assert (operation["done"], operation["refused"]) == (0, 1)
        refused = page.get_by_role("table", name="Refused jobs by reason")
        await expect(refused).to_contain_text(operation["refusals"][0]["message"])
        await expect(refused.get_by_role("link")).to_have_attribute("title", job["id"])
        assert await fits(page)
        await photograph(page, "ui/bulk-refused-narrow-dark")
        assert await serious(page) == []


async def test_the_ledger_is_verified_and_bulk_operations_are_listed(dash: Dash) -> None:
    made = await dash.admin.act("POST", "bulk", {"action": "verify"})
    async with dash.page(f"/bulk/{made['id']}") as page:
        operation = await operation_of(dash, page)
        assert operation["result"]["ok"], operation
        await expect(page.get_by_text("All invariants hold")).to_be_visible()
        await photograph(page, "ui/bulk-verified")
        await page.goto(f"{dash.ui}/bulk")
        table = page.get_by_role("table", name="Bulk operations")
        await expect(table.locator("tbody tr").first).to_contain_text("verify the entire ledger")
        await photograph(page, "ui/bulk")
        assert await serious(page) == []
    client = await dash.client()
    async with dash.page("/bulk", "viewer", tenant=client.tenant) as page:
        await expect(page.get_by_text("No bulk operations yet.")).to_be_visible()
        await photograph(page, "ui/bulk-empty")
        await page.goto(f"{dash.ui}/bulk/{made['id']}")
        await expect(page.get_by_role("alert")).to_contain_text("There is no bulk operation")
