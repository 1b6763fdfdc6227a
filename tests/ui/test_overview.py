"""The overview in a real browser: it says what burns, moves by itself, and tells a newcomer what to do.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browsers import photograph

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from tests.ui.dashboards import Dash

QUEUE = "refused"
"""No other test waits for a job of this queue while it is paused here."""


def tile(page: Page, label: str) -> Locator:
    return page.locator(".tile").filter(has_text=label).locator(".tile-value")


def row(page: Page, queue: str) -> Locator:
    return page.get_by_role("table", name="queues").locator(f"[data-key='{queue}']")


async def test_the_numbers_move_without_a_reload(dash: Dash) -> None:
    """From nothing to something and back, on the page that was opened once."""
    shop = await dash.client("board")
    async with dash.page(f"/?tenant={shop.tenant}") as page:
        await expect(page.get_by_role("heading", name="Get started")).to_be_visible()
        await expect(page.get_by_role("status").filter(has_text="All systems normal.")).to_be_visible()
        await photograph(page, "ui/overview-empty")
        await page.evaluate("window.opened = true")
        slow = await shop.submit("slow")
        await expect(tile(page, "Running")).to_have_text("1")
        await expect(tile(page, "Credits held")).to_have_text("2")
        await expect(page.get_by_role("heading", name="Get started")).to_be_hidden()
        await shop.done("paint")
        await shop.done("refused", {"reason": "The picture has 3 faces."})
        await expect(tile(page, "Captured, 1 h")).to_have_text("4")
        await expect(tile(page, "Failed, 1 h")).to_have_text("1")
        await expect(page.get_by_role("table", name="Failures")).to_contain_text("faces")
        await expect(page.get_by_role("table", name="Tenants by spend")).to_contain_text(str(shop.tenant))
        chart = page.get_by_role("img", name="Throughput and failures")
        await expect(chart).to_have_attribute("aria-label", re.compile(r"submitted: latest [1-9]\d*|maximum [1-9]\d*"))
        await dash.admin.act("POST", f"jobs/{slow}/cancel", params={"tenant": shop.tenant})
        await expect(tile(page, "Running")).to_have_text("0")
        await expect(tile(page, "Credits held")).to_have_text("0")
        assert await page.evaluate("window.opened") is True


async def test_every_number_leads_to_what_it_counts(dash: Dash) -> None:
    shop = await dash.client("leads")
    slow = await shop.submit("slow")
    await shop.until(slow, "running")
    async with dash.page(f"/?tenant={shop.tenant}") as page:
        await expect(tile(page, "Running")).to_have_text("1")
        await tile(page, "Running").click()
        await expect(page).to_have_url(re.compile(rf"/jobs\?phase=leased&tenant={shop.tenant}"))
        await expect(page.locator(f"[data-key='{slow}']")).to_be_visible()
        await page.go_back()
        await tile(page, "Failed, 1 h").click()
        await expect(page).to_have_url(re.compile(r"/failures\?since=1h"))
        await page.go_back()
        await page.get_by_role("button", name="24h").click()
        await expect(page).to_have_url(re.compile("span=24h"))
        await expect(page.get_by_role("button", name="24h")).to_have_attribute("aria-pressed", "true")
    await dash.admin.act("POST", f"jobs/{slow}/cancel", params={"tenant": shop.tenant})


async def test_a_paused_queue_is_an_alarm_and_is_resumed(dash: Dash) -> None:
    """It is paused and resumed where the alarm is, by whoever asks twice; the audit tells of both."""
    async with dash.page("/", "operator") as page:
        await page.get_by_text("idle queues").click()
        await row(page, QUEUE).get_by_role("button", name=f"Pause {QUEUE}").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog).to_contain_text("No job of this queue starts until the queue is resumed")
        await dialog.get_by_role("button", name="Cancel").click()
        assert await _paused(dash) is False
        await row(page, QUEUE).get_by_role("button", name=f"Pause {QUEUE}").click()
        await dialog.get_by_role("button", name="Pause").click()
        alarm = page.get_by_role("link", name=f"Queue {QUEUE}:")
        await expect(alarm).to_be_visible()
        await expect(page.get_by_role("table", name="Queues", exact=True)).to_contain_text(f"{QUEUE} paused")
        assert await _paused(dash) is True
        await photograph(page, "ui/overview-alarm")
        await alarm.click()
        await expect(page).to_have_url(re.compile(rf"/kinds\?queue={QUEUE}"))
        await row(page, QUEUE).get_by_role("button", name=f"Resume {QUEUE}").click()
        await dialog.get_by_role("button", name="Resume").click()
        await expect(row(page, QUEUE).get_by_role("button", name=f"Pause {QUEUE}")).to_be_visible()
        assert await _paused(dash) is False
        await page.get_by_role("link", name="Overview").click()
        await page.get_by_text("idle queues").click()
        await expect(row(page, QUEUE)).to_be_visible()
        await expect(alarm).to_be_hidden()
    audit = await dash.admin.get("audit", subject=QUEUE)
    assert [entry["action"] for entry in audit["data"]][:2] == ["queue.resumed", "queue.paused"]


async def test_who_may_only_look_sees_what_there_is_to_do(dash: Dash) -> None:
    async with dash.page("/", "viewer", dark=True, narrow=True) as page:
        await expect(page.get_by_role("img", name="Throughput and failures")).to_be_visible()
        await photograph(page, "ui/overview-narrow-dark")
        await page.get_by_text("idle queues").click()
        button = row(page, QUEUE).get_by_role("button", name=f"Pause {QUEUE}")
        await expect(button).to_be_disabled()
        await expect(button).to_have_attribute("title", "This requires a key of scope operator.")


async def _paused(dash: Dash) -> bool:
    queues = (await dash.admin.get("queues"))["data"]
    return next(queue["paused_at"] for queue in queues if queue["queue"] == QUEUE) is not None
