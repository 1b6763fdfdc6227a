"""The pages of products in the frames of the dashboard's playground, in a real browser.

Pictures of what is seen lie in build/ui afterwards.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from playwright.async_api import expect
from products.tests.deployments import NOWHERE
from products.tests.effects.deployments import Worker, picture
from products.tests.effects.test_page import next_job

from tests.acceptance.processes import until
from tests.ui.actions import pictures
from tests.ui.dashboards import Dash, running_dash, serious
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

ENVIRONMENT = {
    # No test asks for a picture of a provider: the renderer stays at home.
    "MILLPOND_REPLICATE_URL": NOWHERE,
    "MILLPOND_GITHUB_URL": NOWHERE,
    "MILLPOND_ITUNES_URL": NOWHERE,
}


@pytest.fixture(scope="module")
async def dash(
    anyio_backend: str, server: DatabaseServer, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Dash]:
    folder = tmp_path_factory.mktemp("dash")
    async with running_dash(server, browser, folder, "--product", "all", **ENVIRONMENT) as running:
        yield running


async def test_a_viewer_is_made_no_key_for_a_page(dash: Dash) -> None:
    """The page takes one that it was given."""
    async with dash.page("/playground", "viewer") as page:
        await page.get_by_role("tab", name="Guard").click()
        await expect(page.get_by_role("button", name="Sign in to the page")).to_be_disabled()
        await expect(page.frame_locator("iframe").get_by_label("Admin key")).to_be_visible()


async def playground_keys(dash: Dash, tenant: str | None) -> list[Any]:
    found = (await dash.admin.get("keys", tenant=tenant))["data"]
    return [key for key in found if (key["name"] or "").startswith("playground")]


async def test_a_rule_is_tried_in_the_frame_of_the_guard(dash: Dash) -> None:
    client = await dash.client("guarded")
    async with dash.page(f"/playground?page=guard&{client.query}") as page:
        await page.clock.install()
        await page.get_by_role("button", name="Sign in to the page").click()
        frame = page.frame_locator("iframe")
        await expect(frame.locator("#workspace")).to_be_visible()
        await frame.get_by_label("Look for").select_option("pii")
        await frame.locator("#draft-action").select_option("redact")
        await frame.get_by_role("button", name="Try it").click()
        await expect(frame.locator("#trial-result mark")).to_have_text(["ann@example.com"])
        assert await serious(page) == []
        await pictures(page, "playground-guard")
        (key,) = await playground_keys(dash, client.tenant)
        assert (key["scope"], key["revoked_at"]) == ("operator", None)
        made, end = (datetime.fromisoformat(key[name]) for name in ("created_at", "expires_at"))
        assert end - made <= timedelta(minutes=10)
        # It is renewed while the page is open, and the page takes the new one.
        kept = "JSON.parse(sessionStorage.getItem('key:guard')).key"
        first = await page.evaluate(kept)
        await page.clock.fast_forward("08:00")

        async def is_renewed() -> bool:
            return await page.evaluate(kept) != first

        await until(is_renewed, 20)
        async with page.expect_request("**/guard/**") as asked:
            await frame.get_by_role("button", name="Try it").click()
        headers = await (await asked.value).all_headers()
        assert headers["authorization"] == f"Bearer {await page.evaluate(kept)}"
        # Who leaves gives the key back; who signs out too.
        await page.get_by_role("link", name="Overview").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert await page.evaluate("sessionStorage.getItem('key:guard')") is None
        await expect_revoked(dash, client.tenant, 2)
        await page.goto(f"{dash.ui}/playground?page=guard&{client.query}")
        await page.get_by_role("button", name="Sign in to the page").click()
        await expect(frame.locator("#workspace")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        await expect_revoked(dash, client.tenant, 3)


async def expect_revoked(dash: Dash, tenant: str | None, count: int) -> None:
    async def is_so() -> bool:
        return [key["revoked_at"] is not None for key in await playground_keys(dash, tenant)] == [True] * count

    await until(is_so, 20)


async def test_an_effect_is_applied_in_its_frame(dash: Dash) -> None:
    client = await dash.client("effects")
    secret = (await dash.admin.act("POST", "keys", {"scope": "worker"}))["key"]
    async with httpx2.AsyncClient(base_url=f"{dash.url}/effects", timeout=PATIENCE) as http:
        body = {"worker_id": client.tenant, "workflow_slugs": ["invert"]}
        response = await http.post("/api/worker/register", json=body, headers={"X-Fleet-Secret": secret})
        assert response.is_success, response.text
        worker = Worker(http, {"Authorization": f"Bearer {response.json()['token']}"}, client.tenant or "")
        async with dash.page(f"/playground?page=studio&{client.query}") as page:
            frame = page.frame_locator("iframe")
            await page.get_by_role("button", name="Sign in to the page").click()
            await expect(frame.locator("#balance")).to_have_text("1,000")
            await page.get_by_role("tab", name="Effects").click()
            await page.get_by_role("button", name="Sign in to the page").click()
            await frame.locator("input[value='invert']").check()
            file = {"name": "sunset.png", "mimeType": "image/png", "buffer": picture("teal", (320, 180))}
            await frame.locator("#file").set_input_files([file])  # pyright: ignore[reportArgumentType]
            await frame.get_by_role("button", name="Apply").click()
            await worker.complete(await next_job(worker), picture("orange", (320, 180)))
            shown = frame.locator("#shown img")
            await expect(shown).to_be_visible()
            assert await shown.evaluate("image => image.decode().then(() => image.naturalWidth)") == 320
            await pictures(page, "playground-effects")
            await page.get_by_role("link", name="Overview").click()
            await expect_revoked(dash, client.tenant, 2)
        await worker.post("/api/worker/deregister", {})
