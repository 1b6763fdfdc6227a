"""The playground in a real browser: a rule is written and tried, and a whole job sent through, with the inbox.

Pictures of what is seen lie in build/guard afterwards.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from playwright.async_api import expect
from products.tests.guard.deployments import Customer, Deployment, running_deployment

from tests.browsers import NARROW, WIDE, fits, opened, photograph, show_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def deployment(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Deployment]:
    async with server.database(template) as dsn, running_deployment(dsn, with_inbox=True) as running:
        yield running


@asynccontextmanager
async def browsing(browser: Browser, customer: Customer) -> AsyncIterator[Page]:
    async with opened(browser, f"{customer.deployment.url}{customer.deployment.root}/") as page:
        # The inbox is shown to keys of all tenants only, and the page asks for the tenant of such a key.
        await show_key(page, "Admin key", await customer.deployment.key(scope="admin"))
        await expect(page.locator("#key-error")).to_contain_text("tenant")
        await page.get_by_label("Tenant").fill(customer.name)
        await page.get_by_role("button", name="Continue").click()
        await expect(page.locator("#workspace")).to_be_visible()
        yield page


async def pictures(page: Page, name: str) -> None:
    """As it looks in the light, in the dark and on a telephone; nowhere is it wider than the window."""
    for look, size in (("light", WIDE), ("dark", WIDE), ("narrow", NARROW)):
        await page.emulate_media(color_scheme="dark" if look == "dark" else "light")
        await page.set_viewport_size(size)
        await photograph(page, f"guard/{name}-{look}")
        assert await fits(page), look
    await page.set_viewport_size(WIDE)


async def test_a_rule_is_written_tried_and_a_job_goes_through(browser: Browser, customer: Customer) -> None:
    async with browsing(browser, customer) as page:
        # Try it before it is kept: with letters of which JavaScript counts two where there is one.
        await page.get_by_label("Look for").select_option("pii")
        await page.locator("#draft-action").select_option("redact")
        await page.locator("#trial-text").fill("😀 I am ann@example.com <b>!</b>")
        await page.get_by_role("button", name="Try it").click()
        await expect(page.locator("#trial-result mark")).to_have_text(["ann@example.com"])
        await expect(page.locator("#trial-result .outcome")).to_have_text("✓ It passes.")
        await expect(page.locator("#trial-result .shown").last).to_have_text("😀 I am [EMAIL] <b>!</b>")
        await expect(page.locator("#rules li")).to_have_count(0)
        await pictures(page, "tried")
        await page.locator("#draft-name").fill("No addresses")
        await page.get_by_role("button", name="Add the rule").click()
        await expect(page.locator("#rules li")).to_have_count(1)
        # Another one, that blocks; then they change places.
        await page.get_by_label("Look for").select_option("keywords")
        await page.locator("#draft-action").select_option("block")
        await page.locator("#draft-name").fill("No secrets")
        await page.get_by_role("button", name="Add the rule").click()
        await expect(page.locator("#rules strong")).to_have_text(["No addresses", "No secrets"])
        await page.get_by_role("button", name="Move No secrets up").click()
        await expect(page.locator("#rules strong")).to_have_text(["No secrets", "No addresses"])
        await page.locator("#trial-text").fill("The secret is ann@example.com.")
        await page.get_by_role("button", name="Try it").click()
        await expect(page.locator("#trial-result .outcome")).to_have_text("✕ It is blocked.")
        await expect(page.locator("#trial-result mark")).to_have_text(["secret", "ann@example.com"])
        await expect(page.locator("#trial-result .verdicts li")).to_have_count(2)
        # And now the whole way, to the inbox.
        await expect(page.locator("#job-url")).to_have_value(re.compile(r"/inbox/guard-[0-9a-f]{12}$"))
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("#steps .now")).to_have_text("awaiting response")
        await expect(page.locator("#work-found .shown")).to_have_text(["Please write to [EMAIL]."])
        await page.locator("#response-text").fill("I will write to ann.")
        await pictures(page, "awaiting")
        await page.get_by_role("button", name="Submit the response").click()
        await expect(page.locator("#steps .now")).to_have_text("completed")
        await expect(page.locator("#hook-list summary")).to_have_count(2)
        await expect(page.locator("#hook-list .good")).to_have_count(2)
        await page.locator("#hook-list summary").last.click()
        await expect(page.locator("#hook-list pre").last).to_contain_text('"event": "job.completed"')
        await pictures(page, "completed")
        # What is blocked, and what cannot be.
        await page.locator("#job-text").fill("Tell me the secret.")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator("#steps .bad")).to_have_text("inbound blocked")
        await page.get_by_role("button", name="Delete No secrets").click()
        await expect(page.locator("#rules strong")).to_have_text(["No addresses"])
        await page.get_by_label("Look for").select_option("pattern")
        await page.get_by_label("Regular expression (RE2)").fill("(")
        await page.get_by_role("button", name="Add the rule").click()
        await expect(page.locator("#draft-error")).to_contain_text("matcher.pattern")
        await pictures(page, "refused")


async def test_the_page_asks_for_a_tenant_where_the_key_has_none(browser: Browser, deployment: Deployment) -> None:
    context = await browser.new_context(viewport=NARROW)
    page = await context.new_page()
    await page.goto(f"{deployment.url}{deployment.root}/")
    await pictures(page, "key")
    await page.get_by_label("Admin key").fill("mp_admin_nobody")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#key-error")).not_to_be_empty()
    await page.get_by_label("Admin key").fill(await deployment.key(scope="admin"))
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#key-error")).to_contain_text("tenant")
    await page.get_by_label("Tenant").fill("acme")
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#workspace")).to_be_visible()
    await expect(page.locator("#account")).to_have_text("acme")
    await page.reload()
    await expect(page.locator("#workspace")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("#key")).to_be_visible()
    await context.close()


async def test_the_page_is_ours_alone(deployment: Deployment) -> None:
    page = await deployment.http.get("/")
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    parts = re.findall(r'(?:src|href)="(static/[^"]+)"', page.text)
    assert len(parts) >= 3
    for part in parts:
        assert (await deployment.http.get(f"/{part}")).status_code == 200
    assert (await deployment.http.get("/static/nothing.js")).status_code == 404
    script = (await deployment.http.get("/static/page.js")).text
    assert not re.search("innerHTML|insertAdjacentHTML|eval|document.write", script)
    answer = await deployment.http.get(deployment.url + deployment.root)
    assert (answer.status_code, answer.headers["location"]) == (308, "/guard/")
