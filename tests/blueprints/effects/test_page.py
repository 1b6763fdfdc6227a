"""The page in a real browser: a real upload, a job that a worker runs over HTTP, and what the user sees of it.

Pictures of what is seen lie in build/page afterwards.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import ViewportSize, async_playwright, expect

from tests.blueprints.effects.places import Place, Worker, lease, picture

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PICTURES = Path(__file__).parents[3] / "build" / "page"
NARROW: ViewportSize = {"width": 360, "height": 740}
WIDE: ViewportSize = {"width": 1000, "height": 860}

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH")


IMPATIENT = """
    const later = window.setTimeout;
    window.pauses = [];
    window.setTimeout = (act, pause, ...more) => {
        if (pause >= 1000) window.pauses.push(pause);
        return later(act, pause >= 1000 ? pause / 10 : pause, ...more);
    };
"""
"""The page's own pauses, written down and shortened."""


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        await running.close()


@asynccontextmanager
async def browsing(
    browser: Browser, place: Place, key: str, *, dark: bool = False, narrow: bool = False
) -> AsyncIterator[Page]:
    """A page with a key in it; an error in its script, or something that its policy forbids, fails the test."""
    context = await browser.new_context(color_scheme="dark" if dark else "light", viewport=NARROW if narrow else WIDE)
    await context.add_init_script(IMPATIENT)
    page = await context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
    await page.goto(f"{place.url}{place.root}/")
    await page.get_by_label("Client key").fill(key)
    await page.get_by_role("button", name="Continue").click()
    yield page
    await context.close()
    assert wrong == []


async def choose(page: Page, slug: str, data: bytes, name: str = "sunset.png") -> None:
    await page.locator(f"input[value='{slug}']").check()
    await page.locator("#file").set_input_files({"name": name, "mimeType": "image/png", "buffer": data})


async def slow_uploads(page: Page, bytes_a_second: int) -> None:
    """So that there is something to see between the beginning and the end."""
    tools = await page.context.new_cdp_session(page)
    limits = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_a_second}
    await tools.send("Network.enable")
    await tools.send("Network.emulateNetworkConditions", limits)


async def photograph(page: Page, name: str) -> None:
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


async def next_job(worker: Worker) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            answer = await worker.post("/api/worker/poll", {"wait": 5})
            if answer["job"] is not None:
                return answer["job"]


async def test_efx_25_the_page_shows_a_result(browser: Browser, place: Place) -> None:
    slug = await place.workflow()
    user, worker = await place.user(), await place.worker(slug)
    async with browsing(browser, place, user.key) as page:
        await choose(page, slug, picture("teal", (640, 360)))
        await photograph(page, "1-chosen")
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        await expect(page.locator("#steps li.now")).to_contain_text(re.compile("Preparing|Applying"))
        await photograph(page, "2-working")
        await worker.complete(job, picture("orange", (640, 360)))
        shown = page.locator("#shown img")
        await expect(shown).to_be_visible()
        assert await shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 640
        await expect(page.locator("#balance")).to_have_text("95")
        await photograph(page, "3-result")
        video = (await user.get("/api/videos"))["data"][0]
        assert (video["status"], video["title"]) == ("completed", "sunset.png")
        await page.get_by_role("button", name="Upload another").click()
        await expect(page.get_by_role("button", name="Apply")).to_be_disabled()


async def test_efx_25_the_page_takes_what_is_dropped_and_shows_how_far_the_upload_is(
    browser: Browser, place: Place
) -> None:
    slug = await place.workflow()
    user = await place.user()
    async with browsing(browser, place, user.key) as page:
        await slow_uploads(page, 4_000_000)
        await page.locator(f"input[value='{slug}']").check()
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


async def test_efx_25_the_page_shows_an_error_and_goes_on(browser: Browser, place: Place) -> None:
    slug = await place.workflow()
    user, worker = await place.user(), await place.worker(slug)
    async with browsing(browser, place, user.key, dark=True, narrow=True) as page:
        await choose(page, slug, picture())
        await photograph(page, "4-narrow-dark")
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        error = '{"exception_message": "The GPU ran out of memory."}'
        await worker.post("/api/worker/fail", lease(job) | {"error": error})
        await expect(page.locator("#failure-text")).to_have_text("The GPU ran out of memory.")
        await expect(page.locator("#balance")).to_have_text("100")
        await photograph(page, "5-failure-narrow-dark")
        assert await page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
        await page.get_by_role("button", name="Upload another").click()
        await expect(page.locator("#drop")).to_be_visible()


async def test_efx_25_the_page_survives_failed_polls_and_a_reload(browser: Browser, place: Place) -> None:
    slug = await place.workflow()
    user, worker = await place.user(), await place.worker(slug)
    async with browsing(browser, place, user.key) as page:
        await choose(page, slug, picture())
        await page.get_by_role("button", name="Apply").click()
        job = await next_job(worker)
        await page.route("**/api/videos/*", lambda route: route.abort())
        await expect(page.locator("#notice")).to_contain_text("Trying again")
        await expect(page.locator("#steps")).to_be_visible()
        await photograph(page, "6-notice")
        await page.unroute("**/api/videos/*")
        await expect(page.locator("#notice")).to_be_hidden()
        await page.reload()
        await expect(page.locator("#steps")).to_be_visible()
        await worker.complete(job)
        await expect(page.locator("#shown img")).to_be_visible()
        assert set(await page.evaluate("window.pauses")) == {2000}


async def test_efx_25_the_page_can_be_used_by_keyboard_and_says_what_is_missing(browser: Browser, place: Place) -> None:
    slug = await place.workflow(price=500)
    user = await place.user()
    async with browsing(browser, place, user.key, narrow=True) as page:
        await choose(page, slug, picture())
        await page.locator("#start").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("#order-error")).to_have_text("Insufficient token balance. It costs 500.")
        await photograph(page, "7-refused-narrow")
        nameless = "e => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-labelledby'))"
        controls = "Array.from(document.querySelectorAll('input, button, a[href]'))"
        assert await page.evaluate(f"{controls}.filter({nameless}).length") == 0


async def test_efx_25_a_wrong_key_is_told(browser: Browser, place: Place) -> None:
    async with browsing(browser, place, "ps_client_wrong") as page:
        await expect(page.locator("#key-error")).to_contain_text("not a key")
        await photograph(page, "0-key")


async def test_efx_25_a_key_behind_the_address_does_not_stay_there(browser: Browser, place: Place) -> None:
    user = await place.user()
    page = await browser.new_page()
    await page.goto(f"{place.url}{place.root}#key={user.key}")
    await expect(page.locator("#balance")).to_have_text("100")
    assert page.url == f"{place.url}{place.root}/"
    await page.close()
