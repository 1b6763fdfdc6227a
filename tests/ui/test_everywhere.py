"""What holds for every page: it is for everybody, fits every screen, and talks to nobody else."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.async_api import expect

from tests.browsers import fits, photograph
from tests.ui.dashboards import WALL, serious

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.ui.dashboards import Caller, Dash

PAGES = (
    "/",
    "/jobs",
    "/batches",
    "/kinds",
    "/kinds/paint",
    "/schedules",
    "/schedules/new",
    "/fleet",
    "/failures",
    "/credits",
    "/credits?tab=holds",
    "/webhooks",
    "/inbox",
    "/playground",
    "/playground/paint",
    "/bulk",
    "/access",
    "/audit",
    "/system",
    "/nowhere",
)

DARK = ("/", "/jobs", "/schedules", "/kinds/paint", "/playground/paint", "/access")
"""Where axe looks at the dark colours too; other pages are made of the same parts, and it takes its time."""


async def test_every_page_is_for_everybody(dash: Dash) -> None:
    """Wide and light, narrow and dark: no serious finding of axe, nothing wider than the screen, no other host."""
    shop = await dash.client("pages")
    job = await shop.done("paint", {"prompt": "<img src=x onerror=alert(1)><script>alert(2)</script>"})
    broken = await shop.done("broken")
    daily = {"name": "daily", "kind": "paint", "account": shop.account, "cron": "0 3 * * *", "zone": "Asia/Tokyo"}
    schedule = await dash.admin.act("POST", "schedules", daily, params={"tenant": shop.tenant or ""})
    await dash.admin.act("POST", f"schedules/{schedule['id']}/run")
    scheduled = (f"/schedules/{schedule['id']}", f"/schedules/{schedule['id']}/edit")
    paths = (*PAGES, *scheduled, f"/jobs/{job['id']}", f"/jobs/{broken['id']}", f"/credits/{shop.tenant}/main")
    found: dict[str, list[str]] = {}
    async with dash.page("/") as page:
        hosts = _hosts(page)
        for path in paths:
            await _open(page, dash, path)
            found[f"wide {path}"] = await serious(page)
            await photograph(page, f"ui/all{_name(path)}-wide")
        assert hosts <= {urlsplit(dash.url).netloc, urlsplit(await _storage(shop, job["id"])).netloc}
    async with dash.page("/", dark=True, narrow=True) as page:
        for path in paths:
            await _open(page, dash, path)
            wrong = [] if await fits(page) else ["it is wider than the screen"]
            found[f"narrow {path}"] = [*wrong, *(await serious(page) if path in DARK else [])]
            await photograph(page, f"ui/all{_name(path)}-narrow")
    assert {place: wrong for place, wrong in found.items() if wrong} == {}


async def test_a_wall_screen_is_used(dash: Dash) -> None:
    await (await dash.client("wall")).done("echo")
    async with dash.page("/", size=WALL, dark=True) as page:
        await expect(page.locator(".chart canvas")).to_have_count(4)
        await photograph(page, "ui/wall")
        assert await fits(page)
        assert await page.locator("main").evaluate("main => main.getBoundingClientRect().right === innerWidth")
        root = page.locator("html")
        await expect(root).to_have_attribute("data-theme", "dark")
        await page.emulate_media(color_scheme="light")  # the system changes at dawn, and the page with it
        await expect(root).to_have_attribute("data-theme", "light")
        await page.get_by_label("Theme").select_option("dark")
        await expect(root).to_have_attribute("data-theme", "dark")


async def _open(page: Page, dash: Dash, path: str) -> None:
    await page.goto(f"{dash.ui}{path}")
    await page.get_by_role("heading", level=1).wait_for()
    await expect(page.locator(".skeleton")).to_have_count(0)


def _hosts(page: Page) -> set[str]:
    seen: set[str] = set()
    page.on("request", lambda request: seen.add(urlsplit(request.url).netloc or "here"))
    return seen


async def _storage(shop: Caller, job_id: str) -> str:
    return (await shop.get(f"jobs/{job_id}/artifacts"))["data"][0]["download"]["url"]


def _name(path: str) -> str:
    return re.sub("/([a-z]+)_", r"/\1-", path.partition("?")[0]).rstrip("/").replace("/", "-")[:24] or "-overview"
