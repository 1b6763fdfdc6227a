"""A real Chromium for tests of pages: one for all tests of a process."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.async_api import ViewportSize, async_playwright, expect
from ui.hatch_build import NODE

from tests import packages
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

CHROMIUM = packages.browser()
NO_BROWSER = "pages need a browser: install Chromium, or let `make test-packages` tell why npm brings none"
# Playwright's own Node.js needs a library that a small machine lacks.
os.environ.setdefault("PLAYWRIGHT_NODEJS_PATH", str(NODE))
PICTURES = Path(__file__).parents[1] / "build"
"""What was seen lies there afterwards, in a folder for each page, if ``PICTURES`` is set: drawing takes its time."""
NARROW: ViewportSize = {"width": 360, "height": 740}
WIDE: ViewportSize = {"width": 1000, "height": 860}
_PATIENCE = PATIENCE * 1_000
# No machine that tests has a graphics processor; to play one takes longer than to draw without.
_OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-gpu-rasterization"]
_IMPATIENT = """
    const later = window.setTimeout;
    window.pauses = [];
    window.setTimeout = (act, pause, ...more) => {
        if (pause >= 1000) window.pauses.push(pause);
        return later(act, pause >= 1000 ? pause / 10 : pause, ...more);
    };
"""
"""The page's own pauses, written down and shortened."""


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    assert CHROMIUM is not None, NO_BROWSER
    expect.set_options(timeout=_PATIENCE)  # a busy machine is slow, and not wrong
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=_OPTIONS)
        yield running
        await running.close()


@asynccontextmanager
async def opened(
    browser: Browser, url: str, *, dark: bool = False, narrow: bool = False, size: ViewportSize = WIDE
) -> AsyncIterator[Page]:
    """A page; an error of its script, a dialog, or something that its policy forbids, fails the test."""
    context = await browser.new_context(color_scheme="dark" if dark else "light", viewport=NARROW if narrow else size)
    await context.add_init_script(_IMPATIENT)
    page = await context.new_page()
    page.set_default_timeout(_PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
    page.on("dialog", lambda dialog: wrong.append(dialog.message))
    await page.goto(url)
    yield page
    await context.close()
    assert wrong == []


async def show_key(page: Page, label: str, key: str) -> None:
    await page.get_by_label(label).fill(key)
    await page.get_by_role("button", name="Continue").click()


async def photograph(page: Page, name: str) -> None:
    """Keep what is seen; ``name`` is that of the page's folder and of the picture."""
    if os.environ.get("PICTURES"):
        await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


async def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return await page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
