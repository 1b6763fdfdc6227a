"""The page in a real browser: from the page of a product to what the provider made of it, and what it costs.

Pictures of what is seen lie in build/studio afterwards.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browsers import fits, opened, photograph, show_key
from tests.doubles.replicate import Script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page
    from products.tests.studio.deployments import Deployment


@asynccontextmanager
async def browsing(
    browser: Browser, deployment: Deployment, key: str, *, dark: bool = False, narrow: bool = False
) -> AsyncIterator[Page]:
    async with opened(browser, f"{deployment.url}/studio/", dark=dark, narrow=narrow) as page:
        await show_key(page, "Client key", key)
        yield page


async def test_the_pages_are_strict_about_what_they_load(deployment: Deployment) -> None:
    for path in ("/", "/sample"):
        page = await deployment.http.get(path)
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "*" not in policy
        parts = re.findall(r'(?:src|href|content)="(static/[^"]+)"', page.text)
        assert parts
        for part in parts:
            assert (await deployment.http.get(f"/{part}")).status_code == 200
    assert not re.search(r"https?://", (await deployment.http.get("/")).text)
    assert (await deployment.http.get("/static/page.html")).status_code == 404
    moved = await deployment.http.get(f"{deployment.url}/studio", follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, "/studio/")


async def test_an_ad_is_made_from_the_sample_page(browser: Browser, deployment: Deployment) -> None:
    user = await deployment.user(100)
    async with browsing(browser, deployment, user.key) as page:
        await expect(page.locator("#balance")).to_have_text("100")
        await page.locator("input[value=ugc_video]").uncheck()
        await page.get_by_role("button", name="Make it for 9 credits").click()
        for kind in ("scrape", "copy", "static_ad", "tts"):
            await expect(page.locator(f"[data-type={kind}] .status")).to_have_text("completed")
        await expect(page.locator("[data-type=scrape]")).to_contain_text("Fell Kettle")
        await expect(page.locator("[data-type=copy] blockquote")).not_to_be_empty()
        shown = page.locator("[data-type=static_ad] img")
        assert await shown.evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
        await expect(page.locator("#balance")).to_have_text("91")
        await photograph(page, "studio/1-made")
    jobs = (await user.get("/api/jobs"))["data"]
    assert sorted(job["type"] for job in jobs) == ["copy", "scrape", "static_ad", "tts"]
    assert await user.balance() == 91


async def test_what_goes_wrong_is_reported_on_its_card(browser: Browser, deployment: Deployment) -> None:
    user = await deployment.user(4)
    deployment.provider.plan = lambda _: Script(status="failed", error="The model is unwell.")
    async with browsing(browser, deployment, user.key, dark=True) as page:
        await page.get_by_role("button", name="Make it").click()
        expected = re.compile(
            r"^It costs 5 credits, and you have [02]\.$"
        )  # the voice may be paid for before, or after
        await expect(page.locator("[data-type=static_ad] .error")).to_have_text(expected)
        await expect(page.locator("[data-type=tts] .error")).to_have_text("The model is unwell.")
        await expect(page.locator("#balance")).to_have_text("2")
        await photograph(page, "studio/2-dark")
        await page.get_by_role("button", name="Make another").click()
        await page.get_by_role("textbox", name="Product page").fill(f"{deployment.shop_url}/gone")
        await page.get_by_role("button", name="Make it").click()
        await expect(page.locator("[data-type=scrape] .error")).to_have_text("The page answered 404.")
        await expect(page.locator("[data-type=copy] .status")).to_have_text("not started")
        await expect(page.locator("#balance")).to_have_text("2")


async def test_it_can_be_canceled_and_fits_a_phone(browser: Browser, deployment: Deployment) -> None:
    user = await deployment.user(50)
    deployment.provider.plan = lambda _: Script(seconds=float("inf"))
    async with browsing(browser, deployment, user.key, narrow=True) as page:
        assert await fits(page)
        await page.get_by_role("button", name="Make it").click()
        film = page.locator("[data-type=ugc_video]")
        await expect(film.locator(".status")).to_have_text("processing")
        await photograph(page, "studio/3-narrow")
        assert await fits(page)
        await film.get_by_role("button", name="Cancel").click()
        await expect(film.locator(".status")).to_have_text("canceled")
        await expect(page.locator("#balance")).to_have_text("41")
        for kind in ("static_ad", "tts"):
            await page.locator(f"[data-type={kind}]").get_by_role("button", name="Cancel").click()
            await expect(page.locator(f"[data-type={kind}] .status")).to_have_text("canceled")
    assert await user.balance() == 48


async def test_a_wrong_key_is_reported(browser: Browser, deployment: Deployment) -> None:
    async with browsing(browser, deployment, "mp_client_nonsense") as page:
        await expect(page.locator("#key-error")).not_to_be_empty()
        await expect(page.locator("#order")).to_be_hidden()
