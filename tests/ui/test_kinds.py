"""Kinds and queues in a real browser: what there is, what it takes and costs, how it lives, and where its jobs are.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect

from tests.browsers import fits, photograph

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

    from tests.ui.dashboards import Dash


FIELDS = {
    "title": re.compile("required.*string.*at least 3 characters; at most 60 characters.*What it is called"),
    "style": re.compile('default "ink"'),
    "copies": re.compile("integer.*at least 1; at most 10"),
    "layers": re.compile("list of object"),
    "layers[].text": re.compile("required.*string"),
    "frame": re.compile("object or null|null or object"),
    "frame.colour": re.compile('one of "black", "gold", "none"'),
}
"""What the page must tell of an input with fields within fields."""


def state(page: Page, name: str) -> Locator:
    return page.locator(f".diagram [data-state='{name}']")


async def test_every_kind_is_listed_with_its_price_and_where_its_jobs_are(dash: Dash) -> None:
    """Those as well that no client submits here."""
    shop = await dash.client("kinds")
    parked = await shop.submit("parked")
    await shop.until(parked, "parked")
    async with dash.page(f"/kinds?tenant={shop.tenant}") as page:
        table = page.get_by_role("table", name="Kinds")
        known = (await dash.admin.get("kinds", closed="true"))["data"]
        await expect(table.locator("tbody tr")).to_have_count(len(known))
        assert "review" in {kind["name"] for kind in known if not kind["is_open"]}
        await expect(table.locator("[data-key='paint']")).to_contain_text("4cr")
        await expect(table.locator("[data-key='parked']")).to_contain_text("1 parked")
        await expect(page.get_by_role("table", name="Queues").locator("[data-key='paint']")).to_contain_text("ok")
        await photograph(page, "ui/kinds-wide")
        await table.locator("[data-key='parked'] a").first.press("Enter")
        await expect(page.get_by_role("heading", level=1, name="parked")).to_be_visible()
        await expect(state(page, "parked").locator(".diagram-count")).to_have_text("1")
        await shop.act("POST", f"jobs/{parked}/answer", {"answer": "yes"})
        await expect(state(page, "succeeded").locator(".diagram-count")).to_have_text("1")
        await expect(state(page, "parked").locator(".diagram-count")).to_have_text("0")
        await page.get_by_role("link", name="1 job succeeded").click()
        await expect(page.locator(f"[data-key='{parked}']")).to_be_visible()


async def test_a_kind_reports_what_it_takes_and_how_it_runs(dash: Dash) -> None:
    async with dash.page("/kinds/compose") as page:
        fields = page.get_by_role("table", name="Input fields")
        for name, described in FIELDS.items():
            await expect(fields.locator(f"[data-key='{name}']")).to_contain_text(described)
        await expect(page.get_by_text("Additional fields are allowed.")).to_be_hidden()
        await page.get_by_role("tab", name="JSON schema").click()
        await expect(page.get_by_role("group", name="schema")).to_contain_text("properties")
        await expect(page.get_by_role("img", name="Run time")).to_be_visible()
        await page.goto(f"{dash.ui}/kinds/paint")
        for stage in ("load", "denoise", "upload"):
            await expect(page.locator(".kinds-stage-list")).to_contain_text(stage)
        await expect(page.get_by_role("link", name="Open in playground")).to_have_attribute(
            "href", "/ui/playground/paint"
        )
        await expect(page.get_by_role("link", name="Jobs of this kind")).to_have_attribute(
            "href", "/ui/jobs?kind=paint"
        )
        await photograph(page, "ui/kind-wide")


async def test_every_lifecycle_is_drawn_in_full(dash: Dash) -> None:
    """Each state once, and each as it stands in the table beside; on a desk and in the hand."""
    known = (await dash.admin.get("kinds", closed="true"))["data"]
    drawn = {kind["lifecycle"]["name"]: kind for kind in known}
    assert drawn.keys() == {"standard", "stubborn", "reviewed"}
    async with dash.page("/kinds") as page:
        for name, kind in drawn.items():
            await _is_whole(page, kind)
            await photograph(page, f"ui/diagram-{name}")
    async with dash.page("/kinds", dark=True, narrow=True) as page:
        await _is_whole(page, drawn["reviewed"])
        assert await fits(page)
        await photograph(page, "ui/kind-narrow-dark")


GO = "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }"
"""To another page of the dashboard, without loading it again."""


async def _is_whole(page: Page, kind: dict[str, Any]) -> None:
    await page.evaluate(GO, f"/ui/kinds/{kind['name']}")
    lifecycle = kind["lifecycle"]
    await expect(page.get_by_role("heading", level=1, name=kind["name"])).to_be_visible()
    await expect(page.locator(".diagram [data-state]")).to_have_count(len(lifecycle["states"]))
    await page.get_by_text("As a table").click()
    table = page.get_by_role("table", name=f"States and transitions of {lifecycle['name']}")
    for name in lifecycle["states"]:
        ways = {
            transition["to_state"]
            for transition in lifecycle["transitions"]
            if transition["from_state"] == name and transition["to_state"] != name
        }
        await expect(table.locator(f"[data-key='{name}'] li")).to_have_count(len(ways))
    await page.get_by_text("As a table").click()


async def test_who_may_only_look_cannot_pause(dash: Dash) -> None:
    shop = await dash.client("looks")
    for scope, tenant, why in (
        ("viewer", None, "This requires a key of scope operator."),
        ("operator", shop.tenant, "This applies to all tenants; your key is limited to one."),
    ):
        async with dash.page("/kinds?queue=paint", scope, tenant=tenant) as page:
            button = page.get_by_role("button", name="Pause paint")
            await expect(button).to_be_disabled()
            await expect(button).to_have_attribute("title", why)
            await expect(page.get_by_role("table", name="Kinds").locator("tbody tr")).to_have_count(1)
