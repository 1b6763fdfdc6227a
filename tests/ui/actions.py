"""What tests of several pages do alike: answer a dialog, take down what is told once, photograph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.async_api import expect

from tests.browsers import NARROW, fits, photograph
from tests.ui.dashboards import DESKTOP

if TYPE_CHECKING:
    from playwright.async_api import Page


async def confirm(page: Page, action: str) -> None:
    """Answer the dialog with its button."""
    await page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()


async def shown_once(page: Page, title: str) -> str:
    """The secret that is shown under this title; the dialog is closed."""
    shown = page.get_by_role("textbox", name=title)
    await expect(shown).to_be_visible()
    secret = await shown.input_value()
    await page.get_by_role("button", name="Done").click()
    return secret


async def pictures(page: Page, name: str) -> None:
    """As it looks on a desk in the light and on a telephone in the dark; nowhere is it wider than the window."""
    for look, size in (("wide", DESKTOP), ("narrow", NARROW)):
        await page.emulate_media(color_scheme="dark" if size == NARROW else "light")
        await page.set_viewport_size(size)
        await photograph(page, f"ui/{name}-{look}")
        assert await fits(page), look
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(DESKTOP)
