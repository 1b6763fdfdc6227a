"""Credits and access in the browser: wallets, holds, grants and corrections, keys; all of it audited."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.acceptance.processes import until
from tests.browsers import photograph

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

    from tests.ui.dashboards import Dash


async def test_a_wallet_is_granted_adjusted_and_limited(dash: Dash) -> None:
    shop = await dash.client("wallet", credits=100)
    await shop.done("refused")
    async with dash.page(f"/credits?tenant={shop.tenant}") as page:
        await page.get_by_role("table", name="Wallets").get_by_text("main").click()
        await page.get_by_role("heading", name="main", exact=True).wait_for()

        await page.get_by_role("button", name="Grant").click()
        await _fill(page, Credits="50", Reason="a gift", Reference="gift-1")
        await page.get_by_role("dialog").get_by_role("button", name="Grant").click()
        await page.get_by_text("now has 150 available credits").wait_for()

        await page.get_by_role("button", name="Adjust").click()
        await _fill(page, **{"Credits (negative to remove)": "-1000"}, Reason="too much")
        await page.get_by_role("dialog").get_by_role("button", name="Adjust").click()
        await page.get_by_role("dialog").get_by_role("alert").wait_for()  # refused, and what was typed is still there
        assert await page.get_by_role("dialog").get_by_label("Reason").input_value() == "too much"
        await _fill(page, **{"Credits (negative to remove)": "-20"})
        await page.get_by_role("dialog").get_by_role("button", name="Adjust").click()
        await page.get_by_text("now has 130 available credits").wait_for()

        await page.get_by_role("button", name="Limit").click()
        await _fill(page, **{"Limit of active jobs": "3"})
        await page.get_by_role("dialog").get_by_role("button", name="Set limit").click()
        await page.get_by_text("limit 3").wait_for()

        ledger = page.get_by_role("table", name="Entries")
        for type in ("grant", "adjust", "hold", "release"):
            await ledger.get_by_text(type, exact=True).first.wait_for()
        await photograph(page, "ui/wallet-wide")
    found = await shop.get("wallet")
    assert (found["available"], found["active_max"]) == (130, 3)
    audit = await dash.admin.get("audit", tenant=shop.tenant)
    assert {"account.capped"} <= {entry["action"] for entry in audit["data"]}


async def test_a_grant_whose_answer_is_lost_is_made_once(dash: Dash) -> None:
    shop = await dash.client("lost", credits=5)

    async def lose(route: Route) -> None:
        await route.fetch()
        await route.abort()

    async with dash.page(f"/credits?tenant={shop.tenant}") as page:
        dialog = page.get_by_role("dialog")
        await page.get_by_role("button", name="Grant credits").click()
        await _fill(page, Tenant=shop.tenant or "", Account="team/a", Credits="7", Reason="a gift")
        await page.route("**/api/v1/grants", lose, times=1)
        await dialog.get_by_role("button", name="Grant").click()
        await expect(dialog.get_by_role("alert")).to_contain_text("repeating this request has no further effect")
        await dialog.get_by_role("button", name="Grant").click()
        await page.get_by_text("team/a now has 7 available credits").wait_for()
        await page.goto(f"{dash.ui}/credits/{shop.tenant}/team%2Fa")
        await page.get_by_role("heading", name="team/a").wait_for()
        await expect(page.get_by_role("table", name="Entries").locator("tbody tr")).to_have_count(1)


async def test_holds_are_reported_by_age_and_the_ledger_is_verified(dash: Dash) -> None:
    shop = await dash.client("holds")
    held = await shop.submit("parked")
    await shop.until(held, "parked")
    async with dash.page(f"/credits?tenant={shop.tenant}&tab=holds") as page:
        row = page.get_by_role("table", name="Holds").locator(f'tr[data-key="{held}"]')
        await row.wait_for()
        assert "parked" in await row.inner_text()
        await photograph(page, "ui/holds-wide")
        await page.get_by_role("button", name="Verify the ledger").click()
        await page.get_by_role("dialog").get_by_role("button", name="Verify").click()
        await page.get_by_text("done", exact=True).first.wait_for()
        await photograph(page, "ui/verify-wide")
    await shop.act("POST", f"jobs/{held}/cancel")


async def test_keys_are_made_rotated_and_revoked(dash: Dash) -> None:
    shop = await dash.client("keys")
    async with dash.page(f"/access/{shop.tenant}") as page:
        await page.get_by_role("button", name="Create key").click()
        await page.get_by_label("Scope").select_option("viewer")
        await _fill(page, Name="the night shift", **{"Valid for": "1h"})
        await page.get_by_role("dialog").get_by_role("button", name="Create").click()
        element = page.get_by_role("textbox", name="New key")
        secret = await element.input_value()
        for _ in range(4):
            await page.keyboard.press("Escape")  # nobody loses it by a key that was meant for something else
        await page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(); }")
        await page.get_by_role("button", name="Copy", exact=True).click()
        await expect(page.locator(".toast").last).to_contain_text("Select the secret and copy it manually.")
        assert await element.evaluate("field => field.selectionEnd - field.selectionStart") == len(secret)
        await photograph(page, "ui/access-secret")
        await page.get_by_role("button", name="Done").click()

        row = page.get_by_role("table", name="Keys").locator("tr", has_text="the night shift")
        await row.get_by_role("button", name="Rotate").click()
        await page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        await page.get_by_role("textbox", name="New key").wait_for()
        await page.get_by_role("button", name="Done").click()
        await row.nth(1).get_by_role("button", name="Revoke").click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await row.get_by_text("revoked").wait_for()
        await photograph(page, "ui/access-wide")

        async def is_refused() -> bool:
            answer = await dash.http.get("/v1/queues", headers={"Authorization": f"Bearer {secret}"})
            return answer.status_code == 401

        await until(is_refused, 20)
        await page.goto(f"{dash.ui}/audit?tenant={shop.tenant}&action=key.")
        for word in ("key.made", "key.rotated", "key.revoked"):
            await page.get_by_role("table").get_by_text(word).first.wait_for()
        assert secret not in await page.content()
        await photograph(page, "ui/audit-wide")


async def test_tenants_and_accounts_are_made(dash: Dash) -> None:
    async with dash.page("/access") as page:
        await page.get_by_role("button", name="Create tenant").click()
        await _fill(page, Name="bad name!")
        await page.get_by_role("dialog").get_by_role("button", name="Create").click()
        await expect(page.get_by_role("dialog").get_by_role("alert")).to_have_count(1)  # at the field, and there alone
        await _fill(page, Name="new-tenant")
        await page.get_by_role("dialog").get_by_role("button", name="Create").click()
        await page.get_by_text("Tenant new-tenant created.").wait_for()
        await page.goto(f"{dash.ui}/access/new-tenant")
        await page.get_by_text("No accounts yet.").wait_for()
        await page.get_by_role("button", name="Create account").click()
        await _fill(page, Name="first")
        await page.get_by_role("dialog").get_by_role("button", name="Create").click()
        await page.get_by_role("table", name="Accounts").get_by_text("first").wait_for()
    found = await dash.admin.get("tenants/new-tenant/accounts")
    assert [account["account"] for account in found["data"]] == ["first"]


async def test_the_system_reports_how_it_is_and_keeps_its_secrets(dash: Dash) -> None:
    async with dash.page("/system") as page:
        await page.get_by_role("heading", name="Configuration").wait_for()
        described = await page.get_by_role("main").inner_text()
        assert "PostgreSQL" in described
        assert dash.admin_key not in described
        await photograph(page, "ui/system-wide")


async def _fill(page: Page, **fields: str) -> None:
    for label, value in fields.items():
        await page.get_by_role("dialog").get_by_label(label, exact=True).fill(value)
