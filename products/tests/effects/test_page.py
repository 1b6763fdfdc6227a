"""The page in a real browser: a real upload, a job that a worker runs over HTTP, and what the user sees of it.

Pictures of what is seen lie in build/effects afterwards.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from playwright.async_api import expect
from products.tests.effects.deployments import Deployment, Worker, lease, picture

from tests.browsers import fits, opened, photograph, show_key
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page


@asynccontextmanager
async def browsing(
    browser: Browser, deployment: Deployment, key: str, *, dark: bool = False, narrow: bool = False
) -> AsyncIterator[Page]:
    async with opened(browser, f"{deployment.url}{deployment.root}/", dark=dark, narrow=narrow) as page:
        await show_key(page, "Client key", key)
        yield page


async def pick(page: Page, slug: str) -> None:
    """Choose an effect; the first one is chosen before the form is there."""
    await page.locator("#order").wait_for()
    await page.locator(f"input[value='{slug}']").check()


async def choose(page: Page, slug: str, data: bytes, name: str = "sunset.png") -> None:
    await pick(page, slug)
    await page.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": data})


async def slow_uploads(page: Page, bytes_a_second: int) -> None:
    """So that there is something to see between the beginning and the end."""
    tools = await page.context.new_cdp_session(page)
    limits = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_a_second}
    await tools.send("Network.enable")
    await tools.send("Network.emulateNetworkConditions", limits)


async def next_job(worker: Worker) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while True:
            answer = await worker.post("/api/worker/poll", {"wait": 5})
            if answer["job"] is not None:
                return answer["job"]


async def test_efx_25_the_page_shows_a_result(browser: Browser, deployment: Deployment) -> None:
    slug = await deployment.workflow()
    user, worker = await deployment.user(), await deployment.worker(slug)
    async with browsing(browser, deployment, user.key) as page:
        await choose(page, slug, picture("teal", (640, 360)))
        await photograph(page, "effects/1-chosen")
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        await expect(page.locator("#steps li.now")).to_contain_text(re.compile("Preparing|Applying"))
        await photograph(page, "effects/2-working")
        await worker.complete(job, picture("orange", (640, 360)))
        shown = page.locator("#shown img")
        await expect(shown).to_be_visible()
        assert await shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 640
        await expect(page.locator("#balance")).to_have_text("95")
        await photograph(page, "effects/3-result")
        video = (await user.get("/api/videos"))["data"][0]
        assert (video["status"], video["title"]) == ("completed", "sunset.png")
        await page.get_by_role("button", name="Upload another").click()
        await expect(page.get_by_role("button", name="Apply")).to_be_disabled()


async def test_efx_25_the_page_takes_what_is_dropped_and_shows_how_far_the_upload_is(
    browser: Browser, deployment: Deployment
) -> None:
    slug = await deployment.workflow()
    user = await deployment.user()
    async with browsing(browser, deployment, user.key) as page:
        await slow_uploads(page, 4_000_000)
        await pick(page, slug)
        await page.evaluate(
            """() => {
                const data = new Uint8Array(3_000_000);
                const transfer = new DataTransfer();
                transfer.items.add(new File([data], "large.png", { type: "image/png" }));
                document.getElementById("drop").dispatchEvent(
                    new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer }));
                window.shares = [];
                new MutationObserver(() => window.shares.push(document.getElementById("upload-bar").value)).observe(
                    document.getElementById("upload-bar"), { attributes: true });
            }"""
        )
        await expect(page.locator("#drop-text")).to_contain_text("large.png (3 MB)")
        await page.get_by_role("button", name="Apply").click()
        await expect(page.locator("#steps li").first).to_have_class("now")
        shares = await page.evaluate("window.shares")
        assert shares == sorted(shares)
        assert shares[-1] == 1
        assert any(0 < share < 1 for share in shares)
        assert len((await user.get("/api/ai-jobs"))["data"]) == 1
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#failure-text")).to_have_text("It was canceled.")
    assert await user.balance() == 100


async def test_efx_25_the_page_shows_an_error_and_goes_on(browser: Browser, deployment: Deployment) -> None:
    slug = await deployment.workflow()
    user, worker = await deployment.user(), await deployment.worker(slug)
    async with browsing(browser, deployment, user.key, dark=True, narrow=True) as page:
        await choose(page, slug, picture())
        await photograph(page, "effects/4-narrow-dark")
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        error = '{"exception_message": "The GPU ran out of memory."}'
        await worker.post("/api/worker/fail", lease(job) | {"error": error})
        await expect(page.locator("#failure-text")).to_have_text("The GPU ran out of memory.")
        await expect(page.locator("#balance")).to_have_text("100")
        await photograph(page, "effects/5-failure-narrow-dark")
        assert await fits(page)
        await page.get_by_role("button", name="Upload another").click()
        await expect(page.locator("#drop")).to_be_visible()


async def test_efx_25_the_page_survives_failed_polls_and_a_reload(browser: Browser, deployment: Deployment) -> None:
    slug = await deployment.workflow()
    user, worker = await deployment.user(), await deployment.worker(slug)
    async with browsing(browser, deployment, user.key) as page:
        await choose(page, slug, picture())
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        await page.route("**/api/videos/*", lambda route: route.abort())
        await expect(page.locator("#notice")).to_contain_text("Trying again")
        await expect(page.locator("#steps")).to_be_visible()
        await photograph(page, "effects/6-notice")
        await page.unroute("**/api/videos/*")
        await expect(page.locator("#notice")).to_be_hidden()
        await page.reload()
        await expect(page.locator("#steps")).to_be_visible()
        await worker.complete(job)
        await expect(page.locator("#shown img")).to_be_visible()
        assert set(await page.evaluate("window.pauses")) == {2000}


async def test_efx_25_the_page_can_be_used_by_keyboard_and_says_what_is_missing(
    browser: Browser, deployment: Deployment
) -> None:
    slug = await deployment.workflow(price=500)
    user = await deployment.user()
    async with browsing(browser, deployment, user.key, narrow=True) as page:
        await choose(page, slug, picture())
        await page.locator("#start").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#order-error")).to_have_text("Insufficient token balance. It costs 500 tokens.")
        await photograph(page, "effects/7-refused-narrow")
        nameless = "e => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-labelledby'))"
        controls = "Array.from(document.querySelectorAll('input, button, a[href]'))"
        assert await page.evaluate(f"{controls}.filter({nameless}).length") == 0


async def test_efx_25_a_wrong_key_is_reported(browser: Browser, deployment: Deployment) -> None:
    async with browsing(browser, deployment, "mp_client_wrong") as page:
        await expect(page.locator("#key-error")).to_contain_text("malformed")
        await photograph(page, "effects/0-key")


async def test_efx_25_a_key_behind_the_address_does_not_stay_there(browser: Browser, deployment: Deployment) -> None:
    user = await deployment.user()
    page = await browser.new_page()
    await page.goto(f"{deployment.url}{deployment.root}#key={user.key}")
    await expect(page.locator("#balance")).to_have_text("100")
    assert page.url == f"{deployment.url}{deployment.root}/"
    await page.close()
