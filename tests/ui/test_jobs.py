"""The list of jobs, in a real browser: a filter in the address, rows that keep still under the hand, acts on many."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from millpond.store.db import connect
from tests.acceptance.processes import until
from tests.browsers import fits, photograph
from tests.ui.dashboards import serious

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Locator, Page

    from tests.ui.dashboards import Caller, Dash

COUNT = 60
MANY = 12


def rows(page: Page) -> Locator:
    return page.get_by_role("table", name="Jobs").locator("tbody tr")


async def shown(page: Page) -> list[str | None]:
    return [await row.get_attribute("data-key") for row in await rows(page).all()]


async def submit_many(client: Caller, kind: str, count: int, given: dict[str, Any] | None = None) -> list[str]:
    answer = await client.act("POST", "jobs/bulk", {"jobs": [{"kind": kind, "input": given or {}}] * count})
    return [result["job"]["id"] for result in answer["results"]]


async def operation_of(dash: Dash, page: Page) -> dict[str, Any]:
    """The bulk operation that the page has led to, once it is over."""
    await expect(page).to_have_url(re.compile(r"/ui/bulk/bulk_"))
    operation_id = page.url.rpartition("/")[2]

    async def is_over() -> bool:
        return (await dash.admin.get(f"bulk/{operation_id}"))["finished_at"] is not None

    await until(is_over, 20)
    return await dash.admin.get(f"bulk/{operation_id}")


async def act(page: Page, action: str, **fields: str) -> None:
    """Press a button of the bar, fill in its dialog, and confirm."""
    await page.get_by_role("group", name="Bulk actions").get_by_role("button", name=f"{action}…").click()
    dialog = page.locator("dialog")
    for label, value in fields.items():
        field = dialog.get_by_label(label, exact=True)
        await (field.select_option(value) if label == "Format" else field.fill(value))
    await dialog.locator("button[type=submit]").click()


async def test_the_filter_is_in_the_address_the_fields_and_the_search_box(dash: Dash) -> None:
    client = await dash.client()
    good, bad = await client.done("echo"), await client.done("broken")
    async with dash.page(f"/jobs?tenant={client.tenant}") as page:
        await expect(rows(page)).to_have_count(2)
        await expect(page.locator("#search")).to_have_value(f"tenant:{client.tenant}")
        await page.get_by_label("State").select_option("Failed")
        await expect(rows(page)).to_have_count(1)
        await expect(page).to_have_url(re.compile("outcome=failed"))
        assert await shown(page) == [bad["id"]]
        await expect(rows(page).first).to_contain_text("ValueError: there are 7 bytes left")
        await expect(rows(page).first).to_contain_text("3 released")
        await expect(page.locator("#search")).to_have_value(f"tenant:{client.tenant} outcome:failed")

        await page.locator("#search").fill(f"tenant:{client.tenant} kind:ech* since:24h error:nothing")
        await page.locator("#search").press("Enter")
        await expect(page.get_by_text("No jobs match this filter.")).to_be_visible()
        await expect(page.get_by_label("Kind")).to_have_value("ech*")
        await expect(page.get_by_label("Submitted")).to_have_value("24h")
        await photograph(page, "ui/jobs-none-fits")
        await page.get_by_role("button", name="Remove error from the filter").click()
        await expect(rows(page)).to_have_count(1)
        assert await shown(page) == [good["id"]]

        await page.get_by_label("Kind").fill("broken")
        await page.get_by_label("Kind").press("Enter")
        await expect(rows(page).first).to_contain_text("broken")
        await page.go_back()
        await expect(rows(page).first).to_contain_text("echo")
        await rows(page).first.focus()
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(good["id"]))


async def test_new_jobs_appear_and_rows_under_the_hand_keep_still(dash: Dash) -> None:
    client = await dash.client()
    first = await client.submit("slow")
    async with dash.page(f"/jobs?tenant={client.tenant}") as page:
        await expect(rows(page)).to_have_count(1)
        await expect(rows(page).first).to_contain_text("working")
        await expect(rows(page).first).to_contain_text("2 held")
        second = await client.submit("echo")
        await expect(rows(page)).to_have_count(2)
        assert await shown(page) == [second, first]

        await page.get_by_label(f"Select {first}").check()
        third = await client.submit("echo")
        await client.act("POST", f"jobs/{first}/cancel")
        await expect(rows(page).last).to_contain_text("canceled")
        assert await shown(page) == [second, first]
        await expect(page.get_by_role("button", name="Show 1 newer job")).to_be_visible()
        await photograph(page, "ui/jobs-selected")
        assert await serious(page) == []
        await page.get_by_role("button", name="Show 1 newer job").click()
        assert await shown(page) == [third, second, first]
        await page.get_by_role("button", name="Clear the selection").click()
        await page.mouse.move(0, 0)
        fourth = await client.submit("echo")
        await expect(rows(page)).to_have_count(4)
        assert await shown(page) == [fourth, third, second, first]


async def test_pages_follow_each_other_without_a_gap(dash: Dash) -> None:
    client = await dash.client()
    ids = await submit_many(client, "echo", COUNT)
    async with dash.page(f"/jobs?tenant={client.tenant}") as page:
        await expect(rows(page)).to_have_count(50)
        seen = await shown(page)
        await page.get_by_role("button", name="Next page").click()
        await expect(page).to_have_url(re.compile("cursor="))
        await expect(rows(page)).to_have_count(COUNT - 50)
        seen += await shown(page)
        assert sorted(map(str, seen)) == sorted(ids)
        await page.reload()
        await expect(rows(page)).to_have_count(COUNT - 50)
        await page.get_by_role("button", name="First page").click()
        await expect(rows(page)).to_have_count(50)
        await photograph(page, "ui/jobs")


WALK = """
    select pg_get_functiondef(oid) as whole, pg_get_function_arguments(oid) as given,
        pg_get_function_identity_arguments(oid) as named, pg_get_function_result(oid) as found,
        proargnames[1:pronargs] as names
    from pg_proc where oid = 'millpond.view_summaries'::regproc
"""


@asynccontextmanager
async def looking_at_few(dash: Dash) -> AsyncIterator[None]:
    """The server looks at three jobs for a page, where it would look at thousands: that is its argument `walk`."""
    db = await connect(dash.dsn)
    (described,) = await db.fetch(WALK)
    passed = ", ".join("3" if name == "walk" else f"${n}" for n, name in enumerate(described["names"], 1))
    try:
        await db.execute(described["whole"].replace("view_summaries", "view_all_summaries", 1))
        await db.execute(
            f"create or replace function millpond.view_summaries({described['given']}) returns {described['found']}"
            f" language sql as 'select * from millpond.view_all_summaries({passed})'"
        )
        yield
    finally:
        await db.execute(described["whole"])
        await db.execute(f"drop function millpond.view_all_summaries({described['named']})")
        await db.close()


async def test_a_filter_that_fits_little_says_how_far_it_looked_and_goes_on(dash: Dash) -> None:
    client = await dash.client()
    wanted = await client.done("refused")
    await submit_many(client, "echo", 7)
    async with looking_at_few(dash), dash.page(f"/jobs?tenant={client.tenant}&kind=refused") as page:
        await expect(page.get_by_text("No matches. Searched back to")).to_be_visible()
        await photograph(page, "ui/jobs-onward")
        await page.get_by_role("button", name="Search until a match is found").click()
        await expect(rows(page)).to_have_count(1)
        assert await shown(page) == [wanted["id"]]
        assert "cursor=" in page.url

        await page.get_by_label("Kind").fill("compose")
        await page.get_by_label("Kind").press("Enter")
        await page.get_by_role("button", name="Search until a match is found").click()
        await expect(page.get_by_text("End of list: all jobs were searched.")).to_be_visible()


async def test_all_that_fit_are_canceled_with_progress(dash: Dash) -> None:
    client = await dash.client()
    before = (await client.get("wallet"))["available"]
    async with dash.paused("paint"):
        ids = await submit_many(client, "paint", MANY)
        kept = await client.done("echo")
        async with dash.page(f"/jobs?tenant={client.tenant}&kind=paint", "operator") as page:
            await page.get_by_role("button", name="Select all matching jobs").click()
            await expect(page.get_by_role("button", name="Refund…")).to_be_disabled()
            # Whoever takes one row out means those of the page that are left, and no longer all.
            await page.get_by_role("checkbox", name=f"Select {ids[-1]}").uncheck()
            await expect(page.locator(".jobs-bar strong")).to_have_text(f"{MANY - 1} selected")
            await page.get_by_role("button", name="Select all matching jobs").click()
            await page.get_by_role("button", name="Cancel…").click()
            dialog = page.locator("dialog")
            await expect(dialog.get_by_role("heading")).to_have_text(f"Cancel {MANY} jobs")
            await expect(dialog).to_contain_text("Credits held for them are released.")
            await expect(dialog.locator("li")).to_have_count(5)
            await photograph(page, "ui/jobs-bulk")
            assert await serious(page) == []
            await page.get_by_label("Reason").fill("wrong model")
            await dialog.locator("button[type=submit]").click()
            operation = await operation_of(dash, page)
            await expect(page.get_by_text("Finished.")).to_be_visible()
            await expect(page.locator(".tile", has_text="Succeeded")).to_contain_text(str(MANY))
            await photograph(page, "ui/bulk-done")
    assert (operation["state"], operation["done"], operation["arguments"]["reason"]) == ("done", MANY, "wrong model")
    states = {(await client.job(job_id))["outcome"] for job_id in ids}
    assert states == {"canceled"}
    assert (await client.job(kept["id"]))["outcome"] == "succeeded"
    assert (await client.get("wallet"))["available"] == before


async def test_selected_jobs_are_retried_refunded_and_put_first(dash: Dash) -> None:
    client = await dash.client()
    bad, left = await client.done("broken"), await client.done("broken")
    paid = await client.done("paint")
    later = await client.submit("echo", run_at="2030-01-01T00:00:00Z")
    here = f"/jobs?tenant={client.tenant}"
    async with dash.page(here) as page:
        for job_id, action, fields in (
            (bad["id"], "Retry", {}),
            (paid["id"], "Refund", {"Reason": "flat sky"}),
            (later, "Priority", {"Priority": "33"}),
        ):
            await page.get_by_label(f"Select {job_id}").check()
            await act(page, action, **fields)
            assert (await operation_of(dash, page))["done"] == 1
            await page.goto(f"{dash.ui}{here}")
    jobs = (await client.get("jobs"))["data"]
    assert [job["retry_of"] for job in jobs if job["retry_of"]] == [bad["id"]]
    assert (await client.job(left["id"]))["outcome"] == "failed"
    assert (await client.job(later))["priority"] == 33
    assert [entry["reason"] for entry in (await client.get("wallet/entries"))["data"] if entry["type"] == "adjust"] == [
        "flat sky"
    ]
    await client.act("POST", f"jobs/{later}/cancel")


async def test_a_viewer_of_an_empty_tenant_is_shown_how_to_begin(dash: Dash) -> None:
    client = await dash.client(credits=0)
    async with dash.page("/jobs", "viewer", tenant=client.tenant, narrow=True) as page:
        await expect(page.get_by_text("No jobs yet.")).to_be_visible()
        await expect(page.get_by_label("Tenant")).to_have_count(0)
        assert await fits(page)
        await photograph(page, "ui/jobs-empty-narrow")
        await client.done("echo")
        await page.keyboard.press(".")
        await expect(rows(page)).to_have_count(1)
        await expect(page.get_by_role("button", name="Select all jobs")).to_be_disabled()
        await page.get_by_role("button", name="Select this page").click()
        await expect(page.get_by_role("button", name="Cancel…")).to_be_disabled()
        assert await fits(page)
        await photograph(page, "ui/jobs-narrow")
