"""The playground in a real browser: a form from a schema, its price, a job to its picture.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.async_api import expect

from tests.ui.actions import pictures
from tests.ui.dashboards import serious
from tests.ui.product import picture

if TYPE_CHECKING:
    from playwright.async_api import Page

    from tests.ui.dashboards import Dash

pytestmark = pytest.mark.slow


async def submit(page: Page) -> str:
    await page.get_by_role("button", name="Submit").click()
    await expect(page).to_have_url(re.compile("job=job_"))
    return re.findall("job=(job_[0-9a-z]+)", page.url)[-1]


async def test_a_form_is_made_from_a_schema(dash: Dash) -> None:
    client = await dash.client("forms")
    async with dash.page(f"/playground/compose?{client.query}") as page:
        price = page.get_by_role("status", name="Price")
        # Without what is required there is no price, and no job; the server's words stand at the field.
        await expect(price).to_contain_text("title")
        await page.get_by_label("title").fill("ab")
        await page.get_by_role("button", name="Submit").click()
        await expect(page.get_by_label("title")).to_have_attribute("aria-invalid", "true")
        await expect(page.locator("[data-path='input.title'] .wrong")).to_contain_text("length >= 3")
        # All that a schema may say: choices, limits, switches, lists of objects, an object that may be left out.
        await page.get_by_label("title").fill("The harbour")
        await page.get_by_label("style").select_option("oil")
        await page.get_by_label("copies").fill("4")
        await expect(price).to_contain_text("8cr")
        await expect(price).to_contain_text("enough credits")
        await page.get_by_label("is draft").check()
        for number, text in enumerate(("sky", "sea", "ship")):
            await page.get_by_role("button", name="Add to layers").click()
            await page.locator(f"[name='input.layers[{number}].text']").fill(text)
        await expect(page.get_by_role("button", name="Add to layers")).to_be_disabled()
        await page.get_by_role("button", name="Remove layers 1").click()
        await page.get_by_role("button", name="Add frame").click()
        await page.get_by_label("colour").select_option("gold")
        await page.get_by_label("extra").fill('{"seed": 7}')
        file = {"name": "pier.png", "mimeType": "image/png", "buffer": picture(96, 64)}
        await page.get_by_label("A file for input.photo").set_input_files([file])  # pyright: ignore[reportArgumentType]
        await expect(page.get_by_label("photo", exact=True)).to_have_value(re.compile("^art_"))
        photo = await page.get_by_label("photo", exact=True).input_value()
        assert await serious(page) == []
        await pictures(page, "playground-form")
        # The same as JSON, in which it can be changed too; what was typed survives a reload.
        await page.get_by_role("tab", name="JSON").click()
        written = msgspec.json.decode(await page.get_by_label("Input", exact=True).input_value())
        wanted: dict[str, Any] = {
            "title": "The harbour",
            "style": "oil",
            "copies": 4,
            "is_draft": True,
            "layers": [{"opacity": 1.0, "text": "sea"}, {"opacity": 1.0, "text": "ship"}],
            "frame": {"colour": "gold", "width": 4},
            "photo": photo,
            "extra": {"seed": 7},
        }
        assert written == wanted
        changed = msgspec.json.encode(wanted | {"copies": 500}).decode()
        await page.get_by_label("Input", exact=True).fill(changed)
        await page.reload()
        await page.get_by_role("tab", name="Form").click()
        await expect(page.get_by_label("copies")).to_have_value("500")
        assert await page.get_by_label("style").evaluate("choice => choice.selectedOptions[0].text") == "oil"
        await expect(price).to_contain_text("copies")
        await page.get_by_label("copies").fill("2")
        await expect(price).to_contain_text("4cr")
        job_id = await submit(page)
        result = page.get_by_role("region", name="Result")
        await expect(result).to_contain_text("succeeded")
        await expect(result.get_by_role("log")).to_contain_text("composing The harbour")
        job = await client.job(job_id)
        assert job["input"] == wanted | {"copies": 2}
        assert (job["captured"], job["account"]) == (4, "main")


async def test_a_job_runs_to_its_picture_and_another_begins_with_its_input(dash: Dash) -> None:
    client = await dash.client("painters", credits=10)
    async with dash.page(f"/playground/paint?{client.query}", "operator") as page:
        await page.get_by_label("prompt").fill("a <b>lighthouse</b>")
        job_id = await submit(page)
        result = page.get_by_role("region", name="Result")
        await expect(result.get_by_role("progressbar")).to_be_visible()
        await expect(result.get_by_role("img", name="picture.png")).to_be_visible()
        shown = result.get_by_role("img", name="picture.png")
        assert await shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 96
        await expect(result).to_contain_text("load → denoise → upload")
        await expect(result).to_contain_text("cost 4cr")
        await expect(result.get_by_role("log")).to_contain_text("the sky came out flat")
        assert await serious(page) == []
        await pictures(page, "playground-result")
        await page.get_by_role("tab", name="Python").click()
        await expect(page.get_by_role("group", name="Code")).to_contain_text('"a <b>lighthouse</b>"')
        # Another one, of what this one was given; then there is not enough for a third.
        await page.goto(f"{dash.ui}/playground?from={job_id}&of={client.tenant}")
        await expect(page.get_by_label("prompt")).to_have_value("a <b>lighthouse</b>")
        await expect(page).to_have_url(re.compile(f"/playground/paint\\?.*for={client.tenant}"))
        # What was typed outlives the session: it is sent when somebody has signed in again.
        await page.get_by_label("prompt").fill("a pier")
        submitting = page.get_by_role("button", name="Submit", include_hidden=True)
        await page.context.clear_cookies()
        await submitting.dispatch_event("click")  # also if the page has found out by itself
        again = page.get_by_role("dialog")
        await expect(again).to_contain_text("Your unsaved input is kept.")
        await again.get_by_label("Key").fill(await dash.key("operator"))
        await again.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(re.compile("job=job_"))
        second = re.findall("job=(job_[0-9a-z]+)", page.url)[-1]
        assert (await client.job(second))["input"]["prompt"] == "a pier"
        assert second != job_id
        await client.until(second, "succeeded")
        await page.get_by_label("prompt").fill("a mole")
        await expect(page.get_by_role("status", name="Price")).to_contain_text("not enough credits")
        await page.get_by_role("button", name="Submit").click()
        await expect(page.get_by_role("alert")).to_contain_text("insufficient_credits")
        assert (await client.get("wallet"))["available"] == 2


async def test_a_viewer_may_look_at_forms_alone(dash: Dash) -> None:
    async with dash.page("/playground", "viewer") as page:
        await pictures(page, "playground-kinds")
        assert await serious(page) == []
        await page.get_by_role("link", name="paint", exact=True).click()
        await expect(page.get_by_role("button", name="Submit")).to_be_disabled()
        await expect(page.get_by_role("button", name="Submit")).to_have_attribute(
            "title", "This requires a key of scope operator."
        )
