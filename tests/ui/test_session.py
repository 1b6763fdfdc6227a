"""Signing in, roles, and a session that ends: it says so, and takes nothing away that was typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browsers import opened, photograph

if TYPE_CHECKING:
    from tests.ui.dashboards import Dash

SILENCER = """
    const add = EventSource.prototype.addEventListener;
    EventSource.prototype.addEventListener = function (type, hear) {
        add.call(this, type, (event) => window.isSilent || hear(event));
    };
"""
"""Nothing comes through any more while ``isSilent``, and no connection ends."""


async def test_a_key_signs_in_and_a_link_does_too(dash: Dash) -> None:
    async with opened(dash.browser, f"{dash.ui}/jobs") as page:
        await page.get_by_role("heading", name="Millpond").wait_for()
        await photograph(page, "ui/sign-in-wide")
        await page.get_by_label("Key").fill("mpk_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("alert").wait_for()
        await page.get_by_label("Key").fill(dash.admin_key)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Jobs", exact=True).wait_for()  # where one was going
        await page.get_by_text("DEV", exact=True).wait_for()
        await page.get_by_role("link", name="Overview").click()
        await page.get_by_role("region", name="Status").wait_for()
        await page.evaluate("sessionStorage.setItem('draft:playground:echo', 'mine')")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("Key").wait_for()
        # Whoever comes next finds nothing of who was there before.
        assert await page.evaluate("sessionStorage.length") == 0
        await page.route("**/api/v1/board*", lambda route: route.abort())
        await page.get_by_label("Key").fill(await dash.key("viewer"))
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("status", name="Loading").first.wait_for()  # of one panel, or of several
        await page.unroute("**/api/v1/board*")
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_label("Key").wait_for()
        await page.goto(f"{dash.ui}/audit#key={dash.admin_key}")
        await page.get_by_role("heading", name="Audit").wait_for()
        assert dash.admin_key not in page.url
        assert await page.evaluate("document.cookie") == ""  # no script can read it
        assert dash.admin_key not in await page.evaluate("JSON.stringify([localStorage, sessionStorage])")


async def test_a_link_replaces_no_session_without_asking(dash: Dash) -> None:
    viewer = await dash.key("viewer")
    async with dash.page("/jobs") as page:
        asked = page.get_by_role("dialog", name="Sign in with the key from this link?")
        for way in ("goto", "hash"):
            await page.get_by_role("heading", name="Jobs", exact=True).wait_for()
            if way == "goto":
                await page.goto("about:blank")
                await page.goto(f"{dash.ui}/jobs#key={viewer}")
            else:
                await page.evaluate("key => { location.hash = `key=${key}`; }", viewer)
            await asked.wait_for()
            assert viewer not in page.url
            if way == "goto":
                await asked.get_by_role("button", name="Cancel").click()
                await expect(page.locator(".who")).to_contain_text("admin")
        await photograph(page, "ui/session-link")
        await asked.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".who")).to_contain_text("viewer")


async def test_a_server_that_is_away_is_waited_for_and_an_address_that_is_none_is_reported(dash: Dash) -> None:
    async with dash.page("/jobs") as page:
        problem = {"detail": "The database cannot be reached.", "code": "unavailable"}
        await page.route("**/ui/session", lambda route: route.fulfill(status=503, json=problem))
        await page.goto(f"{dash.ui}/jobs/%ff")
        await expect(page.get_by_role("alert")).to_contain_text("The database cannot be reached.")
        assert await page.get_by_label("Key").count() == 0
        await page.unroute("**/ui/session")
        await expect(page.get_by_role("heading", name="Job", exact=True)).to_be_visible()
        await expect(page.get_by_role("alert")).to_contain_text("%ff")


async def test_a_session_that_ends_loses_nothing_that_was_typed(dash: Dash) -> None:
    shop = await dash.client("typed", credits=5)
    async with dash.page(f"/credits/{shop.tenant}/main") as page:
        await page.get_by_role("button", name="Grant").click()
        dialog = page.get_by_role("dialog", name="Grant credits to main")
        grant = dialog.get_by_role("button", name="Grant", include_hidden=True)
        await dialog.get_by_label("Credits").fill("7")
        await dialog.get_by_label("Reason").fill("typed before the session ended")
        await page.context.clear_cookies()
        await grant.dispatch_event("click")  # also if the page has found out by itself
        again = page.get_by_role("dialog", name="You have been signed out")
        await again.wait_for()
        await photograph(page, "ui/session-ended")
        for _ in range(4):
            await page.keyboard.press("Escape")
        second = (await dash.admin.act("POST", "keys", {"scope": "admin", "name": "the second"}))["key"]
        await again.get_by_label("Key").fill(second)
        await again.get_by_role("button", name="Sign in").click()
        # Nobody does in his own name what another has asked for.
        await expect(dialog.get_by_role("alert")).to_contain_text("but the second is now signed in")
        assert (await shop.get("wallet"))["available"] == 5
        await page.context.clear_cookies()
        await grant.dispatch_event("click")  # also if the page has found out by itself
        await again.get_by_label("Key").fill(second)
        await again.get_by_role("button", name="Sign in").click()
        await page.get_by_text("now has 12 available credits").wait_for()  # what was asked for is done, once
    assert (await shop.get("wallet"))["available"] == 12
    entries = (await shop.get("wallet/entries"))["data"]
    assert [entry["reason"] for entry in entries][:1] == ["typed before the session ended"]


async def test_an_expired_session_says_so(dash: Dash) -> None:
    made = await dash.admin.act("POST", "keys", {"scope": "viewer", "name": "short"})
    dash.keys["viewer", "short"] = made["key"]
    async with opened(dash.browser, f"{dash.ui}/#key={made['key']}") as page:
        await page.get_by_role("heading", name="Overview").wait_for()
        await page.get_by_role("searchbox").fill("half a thought")
        await dash.admin.act("DELETE", f"keys/{made['id']}")
        await page.get_by_role("dialog").wait_for()
        assert await page.get_by_role("searchbox", include_hidden=True).input_value() == "half a thought"


async def test_a_viewer_sees_and_cannot_act(dash: Dash) -> None:
    shop = await dash.client("viewed")
    held = await shop.submit("parked")
    await shop.until(held, "parked")
    async with dash.page(f"/jobs/{held}", "viewer") as page:
        cancel = page.get_by_role("button", name="Cancel")
        await cancel.wait_for()
        assert await cancel.is_disabled()
        # And what a page does not offer, the server refuses.
        status = await page.evaluate(
            """async (id) => {
                const session = await (await fetch("../session")).json();
                const headers = {"Millpond-Csrf": session.csrf, "Content-Type": "application/json"};
                return (await fetch(`../api/v1/jobs/${id}/cancel`, {method: "POST", headers})).status;
            }""",
            held,
        )
        assert status == 403
    assert (await shop.job(held))["state"] == "parked"
    await shop.act("POST", f"jobs/{held}/cancel")


async def test_an_operator_of_one_tenant_sees_that_one_alone(dash: Dash) -> None:
    mine, other = await dash.client("mine"), await dash.client("other")
    job, hidden = await mine.done("echo"), await other.done("echo")
    async with dash.page("/jobs", "operator", tenant=mine.tenant) as page:
        await page.locator(f'tr[data-key="{job["id"]}"]').wait_for()
        assert await page.locator(f'tr[data-key="{hidden["id"]}"]').count() == 0
        await page.goto(f"{dash.ui}/jobs/{hidden['id']}")
        await page.get_by_role("alert").wait_for()
        # What is about all says so, instead of being refused.
        await page.goto(f"{dash.ui}/credits")
        verify = page.get_by_role("button", name="Verify the ledger")
        await expect(verify).to_have_attribute("title", "This applies to all tenants; your key is limited to one.")
        for path in ("system", "inbox", "fleet"):
            await page.goto(f"{dash.ui}/{path}")
            await expect(page.get_by_text("This page covers all tenants.")).to_be_visible()
            assert await page.get_by_role("alert").count() == 0


async def test_hidden_tabs_rest_and_keys_lead_everywhere(dash: Dash) -> None:
    async with dash.page("/") as page:
        live = page.locator("button.live")
        # A stream that says nothing any more is lost, though nobody has closed it.
        await page.add_init_script(SILENCER)
        await page.reload()
        await live.get_by_text("live as of").wait_for()
        await page.evaluate("window.isSilent = true")
        await live.get_by_text("connection lost").wait_for()
        await page.evaluate("window.isSilent = false")
        await live.get_by_text("live as of").wait_for()
        await page.evaluate(
            """() => {
                Object.defineProperty(document, "hidden", {value: true, configurable: true});
                document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        await live.get_by_text("paused").wait_for()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done, 900)))")
        assert asked == []
        await page.evaluate(
            """() => {
                Object.defineProperty(document, "hidden", {value: false, configurable: true});
                document.dispatchEvent(new Event("visibilitychange"));
            }"""
        )
        await live.get_by_text("live as of").wait_for()
        for keys, title in ((("g", "c"), "Credits"), (("g", "s"), "System"), (("g", "o"), "Overview")):
            for key in keys:
                await page.keyboard.press(key)
            await page.get_by_role("heading", name=title, level=1).wait_for()
        await page.keyboard.press("?")
        await page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        assert await page.evaluate("document.activeElement.id") == "search"
