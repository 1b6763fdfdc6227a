"""Schedules in a real browser: what is due when, what came of it, and what an operator does about it.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import asyncpg
from playwright.async_api import expect

from millpond import ids
from tests.acceptance.processes import until
from tests.browsers import NARROW, fits, photograph
from tests.ui.actions import confirm, pictures
from tests.ui.dashboards import DESKTOP, serious

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.ui.dashboards import Caller, Dash

NIGHTLY = {"kind": "echo", "account": "main", "cron": "17 3 * * *", "zone": "Europe/Berlin"}


async def made(dash: Dash, client: Caller, name: str = "nightly", **body: Any) -> dict[str, Any]:
    return await dash.admin.act(
        "POST", "schedules", NIGHTLY | {"name": name} | body, params={"tenant": client.tenant or ""}
    )


async def fires(dash: Dash, schedule: dict[str, Any]) -> list[dict[str, Any]]:
    return (await dash.admin.get(f"schedules/{schedule['id']}/fires"))["data"]


async def act(page: Page, name: str) -> None:
    """Press a button of the page, and the button of the same name in the dialog that asks."""
    await page.get_by_role("button", name=name, exact=True).click()
    await confirm(page, name)


async def test_a_schedule_is_created_by_a_form_that_checks_its_timing(dash: Dash) -> None:
    client = await dash.client("planner")
    tenant = client.tenant or ""
    async with dash.page(f"/schedules?tenant={tenant}", "operator") as page:
        await expect(page.get_by_text("No schedules yet.")).to_be_visible()
        await page.get_by_role("button", name="Create schedule").click()
        create = page.get_by_role("button", name="Create schedule")
        await expect(create).to_be_disabled()
        await page.get_by_label("Name", exact=True).fill("nightly")
        await expect(page.get_by_label("Tenant", exact=True)).to_have_value(tenant)
        await page.get_by_label("Kind", exact=True).select_option("paint")
        await page.get_by_label("Account", exact=True).fill("main")
        # What is wrong with the timing is shown beside its field before anything is sent.
        cron, zone = page.get_by_label("Cron expression"), page.get_by_label("Time zone")
        await cron.fill("61 * * * *")
        await expect(page.locator(".field").filter(has=cron).get_by_role("alert")).to_contain_text("bad minute")
        await cron.fill("30 9 * * MON-FRI")
        await expect(page.get_by_text("Due Monday to Friday at 09:30.")).to_be_visible()
        await zone.fill("Europe/Berln")
        await expect(page.locator(".field").filter(has=zone).get_by_role("alert")).to_contain_text("Europe/Berlin")
        await zone.fill("Europe/Berlin")
        await expect(page.get_by_role("list", name="Next due times").get_by_role("listitem")).to_have_count(5)
        await page.get_by_label("prompt").fill("a harbour")
        await page.get_by_label("Tags").fill("team=ads")
        assert await serious(page) == []
        await pictures(page, "schedule-new")
        # What the server refuses is shown beside its field, too.
        due_field = page.get_by_label("Due field")
        await due_field.fill("nonsense")
        await create.click()
        await expect(page.get_by_role("alert")).to_contain_text("nonsense")
        await due_field.fill("")
        await create.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("nightly")
        (schedule,) = (await dash.admin.get("schedules", tenant=tenant))["data"]
        detail = await dash.admin.get(f"schedules/{schedule['id']}")
        assert detail["input"]["prompt"] == "a harbour"
        shown = (detail["cron"], detail["zone"], detail["tags"], detail["overlap"])
        assert shown == ("30 9 * * MON-FRI", "Europe/Berlin", {"team": "ads"}, "queue")
        await expect(page.get_by_text("Monday to Friday at 09:30")).to_be_visible()


async def test_a_schedule_is_changed_and_deleted(dash: Dash) -> None:
    client = await dash.client("changer")
    tenant = client.tenant or ""
    schedule = await made(dash, client, input={"a": 1}, tags={"team": "ads"})
    async with dash.page(f"/schedules/{schedule['id']}", "operator") as page:
        # Only what was changed is changed.
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Overlap").select_option("skip")
        await page.get_by_label("Timing").select_option("every")
        await page.get_by_label("Interval").fill("15m")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("every 15 minutes")).to_be_visible()
        changed = await dash.admin.get(f"schedules/{schedule['id']}")
        assert (changed["cron"], changed["every_seconds"], changed["overlap"]) == (None, 900, "skip")
        assert (changed["input"], changed["tags"]) == ({"a": 1}, {"team": "ads"})
        # A name is taken once.
        await page.goto(f"{dash.ui}/schedules/new?tenant={tenant}")
        name = page.get_by_label("Name", exact=True)
        await name.fill("nightly")
        await page.get_by_label("Kind", exact=True).select_option("echo")
        await page.get_by_label("Account", exact=True).fill("main")
        await page.get_by_role("button", name="Create schedule").click()
        await expect(page.locator(".field").filter(has=name).get_by_role("alert")).to_contain_text("nightly")
        await page.goto(f"{dash.ui}/schedules/{schedule['id']}")
        await act(page, "Delete")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Schedules")
        assert (await dash.admin.get("schedules", tenant=tenant))["data"] == []


async def test_a_schedule_is_run_paused_resumed_and_backfilled(dash: Dash) -> None:
    client = await dash.client("runner")
    schedule = await made(dash, client, tags={"team": "ads"})
    async with dash.page(f"/schedules/{schedule['id']}", "operator") as page:
        await expect(page.get_by_role("list", name="Next due times").get_by_role("listitem")).to_have_count(10)
        await expect(page.get_by_text("daily at 03:17")).to_be_visible()
        await expect(page.get_by_text("It has not fired yet.")).to_be_visible()
        await act(page, "Run now")
        table = page.get_by_role("table", name="Fires")
        row = table.locator("tbody tr")
        await expect(row).to_contain_text("manual")
        await expect(row).to_contain_text("succeeded")
        (fire,) = await fires(dash, schedule)
        # From the job back to its schedule.
        await row.get_by_role("link").first.click()
        await expect(page).to_have_url(re.compile(fire["job_id"]))
        await page.get_by_role("link", name="nightly", exact=True).click()
        await expect(page).to_have_url(re.compile(schedule["id"]))
        await act(page, "Pause")
        await expect(page.locator(".page-aside")).to_contain_text("paused")
        await expect(page.get_by_text("Paused since")).to_be_visible()
        await act(page, "Resume")
        await expect(page.locator(".page-aside")).to_contain_text("active")
        # A backfill tells how much it is before it begins.
        await page.get_by_role("button", name="Backfill").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("From").fill("2025-06-04T00:00")
        await dialog.get_by_label("To").fill("2025-06-01T00:00")
        await expect(dialog.get_by_role("status")).to_contain_text("must begin before its end")
        await confirm(page, "Backfill")
        since = dialog.locator(".field").filter(has=page.get_by_label("From"))
        await expect(since.get_by_role("alert")).to_contain_text("must begin before its end")
        await dialog.get_by_label("From").fill("2020-01-01T00:00")
        await expect(dialog.get_by_role("status")).to_contain_text("more than 1,000 due times")
        await dialog.get_by_label("From").fill("2025-06-01T00:00")
        await dialog.get_by_label("To").fill("2025-06-04T00:00")
        await expect(dialog.get_by_role("status")).to_contain_text("3 due times, 3 without a job. Submits 3 jobs.")
        assert await serious(page) == []
        await pictures(page, "schedule-backfill")
        await confirm(page, "Backfill")
        await expect(row).to_have_count(4)
        await expect(table.get_by_text("succeeded")).to_have_count(4)
        await page.get_by_role("button", name="Backfill").click()
        await dialog.get_by_label("From").fill("2025-06-01T00:00")
        await dialog.get_by_label("To").fill("2025-06-04T00:00")
        await expect(dialog.get_by_role("status")).to_contain_text("3 due times, 0 without a job. Nothing to submit.")
        await page.keyboard.press("Escape")
        assert await serious(page) == []
        await pictures(page, "schedule")
        await page.get_by_label("Outcome").select_option("failed")
        await expect(page.get_by_text("No fires match this filter.")).to_be_visible()


async def test_the_list_shows_when_each_is_due_and_what_came_of_it_last(dash: Dash) -> None:
    client = await dash.client("lister")
    tenant = client.tenant or ""
    nightly = await made(dash, client)
    await made(dash, client, "quarterly", cron=None, zone=None, every="15m", catch_up="all", catch_up_max=7)
    await made(dash, client, "once", cron=None, zone=None, at="2099-12-31T12:00:00Z")
    await made(dash, client, "odd", cron="7 1-3 */2 * MON#1")
    await dash.admin.act("POST", f"schedules/{nightly['id']}/run")
    paused = await made(dash, client, "paused")
    await dash.admin.act("POST", f"schedules/{paused['id']}/pause")
    async with dash.page(f"/schedules?tenant={tenant}", "viewer") as page:
        await expect(page.get_by_role("button", name="Create schedule")).to_be_disabled()
        table = page.get_by_role("table", name="Schedules")
        rows = table.locator("tbody tr")
        await expect(rows).to_have_count(5)
        row = table.locator(f"[data-key='{nightly['id']}']")
        await expect(row).to_contain_text(re.compile(r"daily at 03:17.*Europe/Berlin.*in \d+ (h|min|s).*03:17"))
        await expect(row).to_contain_text("succeeded")
        await expect(rows.filter(has_text="quarterly")).to_contain_text("every 15 minutes")
        await expect(rows.filter(has_text="quarterly")).to_contain_text("all (at most 7)")
        await expect(rows.filter(has_text="once")).to_contain_text("31 Dec 2099, 12:00 UTC")
        await expect(rows.filter(has_text="odd")).to_contain_text("7 1-3 */2 * MON#1")
        await expect(table.locator(f"[data-key='{paused['id']}']")).to_contain_text("paused")
        assert await serious(page) == []
        await pictures(page, "schedules")
        await page.get_by_label("State").select_option("paused")
        await expect(rows).to_have_count(1)
        await expect(page).to_have_url(re.compile("state=paused"))
        await page.get_by_label("Name", exact=True).fill("nightly")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("No schedules match this filter.")).to_be_visible()
        await page.get_by_role("button", name="Clear the filter").click()
        await page.goto(f"{dash.ui}/schedules?tenant={tenant}&name=nightly")
        await rows.first.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("nightly")


async def test_schedules_come_in_pages(dash: Dash) -> None:
    client = await dash.client("many")
    for number in range(51):
        await made(dash, client, f"s{number}")
    async with dash.page(f"/schedules?tenant={client.tenant}") as page:
        rows = page.get_by_role("table", name="Schedules").locator("tbody tr")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Next page").click()
        await expect(rows).to_have_count(1)
        await page.go_back()
        await expect(rows).to_have_count(50)


async def test_what_was_refused_and_skipped_says_why(dash: Dash) -> None:
    poor = await dash.client("poor", credits=0)
    refused = await made(dash, poor, kind="paint", cron=None, zone=None, every="1s")

    async def is_refused() -> bool:
        return len(await fires(dash, refused)) > 1

    await until(is_refused, 20)
    async with dash.page(f"/?tenant={poor.tenant}") as page:
        # The overview tells of it, and search finds it.
        alarm = page.get_by_role("link", name=re.compile("submits no jobs: the last 2 were refused"))
        await alarm.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("nightly")
        await dash.admin.act("POST", f"schedules/{refused['id']}/pause")
        table = page.get_by_role("table", name="Fires")
        await expect(table.locator("tbody tr").first).to_contain_text("insufficient_credits")
        await pictures(page, "schedule-refused")
        await page.goto(f"{dash.ui}/jobs")
        await page.get_by_label("Search by id").fill(refused["id"][:-2])
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(refused["id"]))
    slow = await dash.client("busy")
    skipping = await made(dash, slow, kind="parked", overlap="skip", cron=None, zone=None, every="1s")

    async def is_skipped() -> bool:
        return any(fire["outcome"] == "skipped" for fire in await fires(dash, skipping))

    await until(is_skipped, 20)
    await dash.admin.act("POST", f"schedules/{skipping['id']}/pause")
    async with dash.page(f"/schedules/{skipping['id']}?outcome=skipped") as page:
        row = page.get_by_role("table", name="Fires").locator("tbody tr").first
        await expect(row).to_contain_text("The job of the previous due time had not ended.")


async def test_an_orphaned_schedule_says_so_and_is_only_deleted(dash: Dash) -> None:
    client = await dash.client("orphan")
    schedule = await made(dash, client)
    connection = await asyncpg.connect(dash.dsn)
    try:  # as if an app had declared it, and no longer did
        await connection.execute(
            "update millpond.schedules set source = 'code', app_kinds = '{}', orphaned_at = clock_timestamp(),"
            " due_at = null, next_at = null where id = $1",
            ids.parse("sched", schedule["id"]),
        )
    finally:
        await connection.close()
    async with dash.page(f"/?tenant={client.tenant}", "operator") as page:
        await page.get_by_role("link", name=re.compile("is orphaned")).click()
        await expect(page.get_by_role("alert")).to_contain_text("Orphaned since")
        await expect(page.get_by_role("button", name="Edit")).to_be_disabled()
        assert await serious(page) == []
        await pictures(page, "schedule-orphaned")
        await act(page, "Delete")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Schedules")


async def test_a_viewer_sees_what_it_may_not_do(dash: Dash) -> None:
    client, other = await dash.client("watched"), await dash.client("other")
    schedule, hidden = await made(dash, client), await made(dash, other)
    async with dash.page(f"/schedules/{schedule['id']}", "viewer", tenant=client.tenant) as page:
        for name in ("Run now", "Pause", "Backfill", "Edit", "Delete"):
            await expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
        await page.goto(f"{dash.ui}/schedules")
        await expect(page.get_by_role("table", name="Schedules").locator("tbody tr")).to_have_count(1)
        await page.goto(f"{dash.ui}/schedules/{hidden['id']}")
        await expect(page.get_by_role("alert")).to_contain_text("There is no schedule")
        await page.goto(f"{dash.ui}/schedules/new")
        await page.set_viewport_size(NARROW)
        assert await fits(page)
        await page.set_viewport_size(DESKTOP)
        await photograph(page, "ui/schedule-new-viewer")
        await expect(page.get_by_role("button", name="Create schedule")).to_be_disabled()
