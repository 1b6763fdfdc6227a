"""Webhooks in a real browser: made, changed, tested, failed, sent once more, rotated, disabled, deleted; and the inbox.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from millpond import webhooks
from tests.acceptance.processes import until
from tests.ui.actions import confirm, pictures, shown_once
from tests.ui.dashboards import serious

if TYPE_CHECKING:
    from tests.ui.dashboards import Caller, Dash

pytestmark = pytest.mark.slow


async def make_endpoint(dash: Dash, tenant: str, url: str) -> dict[str, Any]:
    return await dash.admin.act("POST", "endpoints", {"url": url}, params={"tenant": tenant})


async def failed_delivery(dash: Dash, client: Caller, endpoint: str) -> str:
    """A delivery that was given up: it was told so when nobody tried any more."""
    query = {"tenant": client.tenant, "endpoint": endpoint}
    found: list[Any] = []

    async def is_tried() -> bool:
        nonlocal found
        found = (await dash.admin.get("deliveries", **query))["data"]
        return bool(found) and found[0]["tries"] > 0

    await until(is_tried, 20)
    return found[0]["id"]


async def test_a_webhook_that_failed_is_sent_once_more(dash: Dash) -> None:
    client = await dash.client("hooked")
    query = {"tenant": client.tenant}
    sick = dash.there.url("flaky", client.tenant or "", times=1, status=500)
    async with dash.page("/webhooks") as page:
        # Made by hand, with its secret told once.
        await page.get_by_role("button", name="Create endpoint").click()
        await page.get_by_label("Tenant").fill(client.tenant or "")
        await page.get_by_label("URL").fill("ftp://example.com")
        await confirm(page, "Create")
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The URL must begin with")
        assert await serious(page) == []
        await pictures(page, "endpoint-make")
        await page.get_by_label("URL").fill(sick)
        await confirm(page, "Create")
        secret = await shown_once(page, "Endpoint secret")
        await expect(page.get_by_role("heading", level=1)).to_have_text(sick)
        endpoint = page.url.rpartition("/")[2].partition("?")[0]
        # A job ends, and its first delivery fails.
        await client.done("echo")
        delivery = await failed_delivery(dash, client, endpoint)
        await page.goto(f"{dash.ui}/deliveries/{delivery}?of={client.tenant}")
        await expect(page.locator(".page-aside")).to_contain_text("pending")
        first = page.locator("details").filter(has_text="Attempt 1")
        await expect(first).to_contain_text("500")
        await expect(first).to_contain_text("webhook-signature")
        await expect(page.get_by_role("group", name="Body")).to_contain_text('"type": "job.succeeded"')
        # Once more, by hand.
        await page.get_by_role("button", name="Resend").click()
        await confirm(page, "Resend")
        await expect(page.locator(".page-aside")).to_contain_text("delivered")
        await expect(page.locator("details").filter(has_text="Attempt 2")).to_contain_text("200")
        response = await dash.admin.get(f"deliveries/{delivery}", **query)
        (taken,) = dash.there.of(client.tenant or "")
        assert (response["state"], response["body"]) == ("delivered", taken.body.decode())
        webhooks.verify(taken.body, taken.headers, secret)
        assert await serious(page) == []
        await pictures(page, "delivery")
        # It stands in the list, which can be filtered; the filter is in the address.
        await page.goto(f"{dash.ui}/webhooks?tab=deliveries&tenant={client.tenant}")
        await page.get_by_label("State").select_option("delivered")
        await expect(page).to_have_url(re.compile("state=delivered"))
        await page.reload()
        await expect(page.get_by_label("State")).to_have_value("delivered")
        await expect(page.get_by_role("table", name="Deliveries").get_by_role("row")).to_have_count(2)
        await page.get_by_label("Endpoint").fill(endpoint)
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(f"endpoint={endpoint}"))
        await pictures(page, "deliveries")
        await page.get_by_label("State").select_option("failed")
        await expect(page.get_by_text("No deliveries match this filter.")).to_be_visible()


async def test_an_endpoint_is_changed_tested_rotated_and_taken_away(dash: Dash) -> None:
    client = await dash.client("delivered")
    query = {"tenant": client.tenant}
    name = client.tenant or ""
    made = await make_endpoint(dash, name, dash.there.url("healthy", name))
    async with dash.page(f"/webhooks/{made['id']}?of={name}") as page:
        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("job.started").check()
        await page.get_by_label("Description").fill("for the tests")
        await confirm(page, "Save")
        await expect(page.get_by_text("for the tests")).to_be_visible()
        assert "job.started" in (await dash.admin.get(f"endpoints/{made['id']}", **query))["events"]
        # A new secret, beside the old one for a while.
        await page.get_by_role("button", name="Rotate secret").click()
        await confirm(page, "Rotate")
        new = await shown_once(page, "Endpoint secret")
        assert new != made["secret"]
        # A test, which is signed with both.
        await page.get_by_role("button", name="Send test").click()
        await expect(page.get_by_label("Event", exact=True)).to_have_value("job.succeeded")
        await page.get_by_label("Event", exact=True).select_option("job.failed")
        await confirm(page, "Send test")
        await expect(page).to_have_url(re.compile("/deliveries/msg_"))
        await expect(page.locator(".page-aside")).to_contain_text("delivered")
        (taken,) = dash.there.of(name)
        for secret in (new, made["secret"]):
            webhooks.verify(taken.body, taken.headers, secret)
        # Off and on.
        await page.goto(f"{dash.ui}/webhooks/{made['id']}?of={name}")
        await page.get_by_role("button", name="Disable").click()
        await page.get_by_label("Reason").fill("moving house")
        await confirm(page, "Disable")
        await expect(page.get_by_role("alert")).to_contain_text("moving house")
        await expect(page.get_by_role("button", name="Send test")).to_be_disabled()
        await page.get_by_role("button", name="Enable").click()
        await confirm(page, "Enable")
        await expect(page.locator(".page-aside")).to_contain_text("active")
        await page.get_by_role("button", name="Resend failed").click()
        await page.locator("dialog").get_by_label("Deliveries", exact=True).select_option("all")
        await confirm(page, "Resend")
        await until(lambda: _seen(dash, name, 2), 20)
        assert await serious(page) == []
        await pictures(page, "endpoint")
        await page.goto(f"{dash.ui}/webhooks?tenant={name}")
        row = page.get_by_role("row").filter(has_text=f"/healthy/{name}")
        await expect(row).to_contain_text("100 %")
        assert await serious(page) == []
        await pictures(page, "webhooks")
        await row.get_by_role("link").click()
        await page.get_by_role("button", name="Delete").click()
        await confirm(page, "Delete")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Webhooks")
        assert (await dash.admin.get("endpoints", **query))["data"] == []


async def test_deliveries_come_in_pages(dash: Dash) -> None:
    client = await dash.client("paged")
    query = {"tenant": client.tenant}
    made = await dash.admin.act("POST", "endpoints", {}, params=query)  # without a URL: nothing is sent
    test = f"endpoints/{made['id']}/test"
    await asyncio.gather(*(dash.admin.act("POST", test, {}, params=query) for _ in range(51)))
    async with dash.page(f"/webhooks/{made['id']}?of={client.tenant}") as page:
        rows = page.get_by_role("table", name="Deliveries").locator("tbody tr")
        await expect(rows).to_have_count(50)
        await page.get_by_role("button", name="Next page").click()
        await expect(rows).to_have_count(1)
        await expect(page).to_have_url(re.compile("cursor=msg_"))
        await page.go_back()
        await expect(rows).to_have_count(50)


async def _seen(dash: Dash, name: str, count: int) -> bool:
    return len(dash.there.of(name)) == count


async def test_the_inbox_shows_what_came(dash: Dash) -> None:
    client = await dash.client("letters")
    made = await make_endpoint(dash, client.tenant or "", f"{dash.url}/inbox/{client.tenant}")
    async with dash.page(f"/webhooks?tenant={client.tenant}", "operator") as page:
        await page.get_by_role("link", name="Inbox", exact=True).click()
        await dash.admin.act("POST", f"endpoints/{made['id']}/test", {}, params={"tenant": client.tenant})
        letter = page.locator("details").filter(has_text=client.tenant or "")
        await expect(letter).to_contain_text("valid signature")
        await letter.locator("summary").click()
        await expect(letter).to_contain_text("webhook-id")
        await expect(letter.get_by_role("group", name=re.compile("Body of"))).to_contain_text('"type"')
        assert await serious(page) == []
        await pictures(page, "inbox")
        await page.get_by_role("button", name="Clear").click()
        await expect(page.get_by_text("No webhooks received yet.")).to_be_visible()


async def test_a_viewer_sees_what_it_may_not_do(dash: Dash) -> None:
    client = await dash.client("watched")
    made = await make_endpoint(dash, client.tenant or "", dash.there.url("healthy", client.tenant or ""))
    async with dash.page(f"/webhooks/{made['id']}", "viewer", tenant=client.tenant) as page:
        for name in ("Send test", "Resend failed", "Edit", "Rotate secret", "Disable", "Delete"):
            await expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
        other = await dash.client("other")
        await page.goto(f"{dash.ui}/webhooks?tenant={other.tenant}")
        await expect(page.get_by_role("alert")).to_contain_text("another tenant")
