"""Takes the screenshots of the documentation from the running product: ``make pictures``.

The outline of each page lies beside its picture: tags, roles, headings and labels, without data. A test compares it
with the page as it is now, so that a picture does not show what no longer exists.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from PIL import Image
from tests.acceptance.processes import shell, until
from tests.browsers import opened, running_browser, show_key
from tests.cli.ups import up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from playwright.async_api import Browser, Page, ViewportSize
    from tests.cli.ups import Up

ROOT = Path(__file__).parents[1]
APP = ROOT / "docs" / "pictures" / "shop.py"
SIZE: ViewportSize = {"width": 1280, "height": 800}
COLOURS = 256
CREATED = 201
PAUSE = 2_000
"""Longer than the page waits before it asks again."""
ENVIRONMENT = {"MILLPOND_GRACE": "1s", "MILLPOND_REFRESH": "1s"}
PRODUCTS = ("shoe", "lamp", "kettle", "boots", "scarf", "hat", "boots", "cup", "pen")
_OUTLINE = (Path(__file__).parent / "pictures" / "outline.js").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Scene:
    """A running ``millpond up`` with some jobs."""

    served: Up
    job: str = ""
    """One that has succeeded."""
    campaign: str = ""
    """One with children, which asks a question."""
    schedule: str = ""
    """One that has fired."""

    @asynccontextmanager
    async def dashboard(self, browser: Browser, path: str) -> AsyncIterator[Page]:
        async with opened(browser, f"{self.served.url}/ui/favicon", size=SIZE) as page:
            key = {"key": self.served.ready["admin_key"]}
            answer = await page.request.post(f"{self.served.url}/ui/session", data=key)
            if answer.status != CREATED:
                raise RuntimeError(await answer.text())
            await page.goto(f"{self.served.url}/ui{path}")
            yield page


@asynccontextmanager
async def overview(scene: Scene, browser: Browser) -> AsyncIterator[Page]:
    async with scene.dashboard(browser, "/") as page:
        await page.get_by_role("table", name="Failures").get_by_text("no photo").wait_for()
        await page.get_by_role("table", name="Tenants by spend").wait_for()
        yield page


@asynccontextmanager
async def job(scene: Scene, browser: Browser) -> AsyncIterator[Page]:
    async with scene.dashboard(browser, f"/jobs/{scene.job}?of=dev") as page:
        await page.get_by_text("as it should be").first.wait_for()
        yield page


@asynccontextmanager
async def campaign(scene: Scene, browser: Browser) -> AsyncIterator[Page]:
    async with scene.dashboard(browser, f"/jobs/{scene.campaign}?of=dev") as page:
        await page.get_by_role("button", name="Children of scene").first.click()
        await page.get_by_role("list", name="Children of scene").get_by_text("succeeded").first.wait_for()
        yield page


@asynccontextmanager
async def schedule(scene: Scene, browser: Browser) -> AsyncIterator[Page]:
    async with scene.dashboard(browser, f"/schedules/{scene.schedule}") as page:
        await page.get_by_role("table", name="Fires").get_by_text("succeeded").first.wait_for()
        yield page


@asynccontextmanager
async def studio(scene: Scene, browser: Browser) -> AsyncIterator[Page]:
    async with opened(browser, f"{scene.served.url}/studio/", size=SIZE) as page:
        await show_key(page, "Client key", scene.served.ready["client_key"])
        await page.get_by_role("button", name="use it").click()
        for name in ("Voice", "Film"):
            await page.get_by_label(name).uncheck()
        await page.get_by_role("button", name="Make it").click()
        await page.locator(".card").filter(has_text="Picture").locator("img").wait_for()
        yield page


PICTURES: dict[Path, Callable[[Scene, Browser], AbstractAsyncContextManager[Page]]] = {
    ROOT / "docs" / "pictures" / "overview.png": overview,
    ROOT / "docs" / "pictures" / "job.png": job,
    ROOT / "docs" / "pictures" / "campaign.png": campaign,
    ROOT / "docs" / "pictures" / "schedule.png": schedule,
}
PICTURES_OF_PRODUCTS = {ROOT / "products" / "docs" / "pictures" / "studio.png": studio}


async def stage(served: Up) -> Scene:
    """Jobs that have succeeded, failed and still run."""
    made = [await served.submit("ad", {"product": name, "style": "loud"}) for name in PRODUCTS]
    made += [await served.submit("caption", {"product": name}) for name in PRODUCTS]
    for each in made:
        await served.until("ended", each)
    asking = await served.submit("campaign", {"product": "shoe"})
    await served.until_waiting("question", asking)
    for name in PRODUCTS[:2]:
        await served.submit("video", {"product": name})
    headers = {"Authorization": f"Bearer {served.ready['admin_key']}"}
    async with httpx2.AsyncClient(base_url=served.url, headers=headers) as http:
        daily = {"name": "daily-captions", "kind": "caption", "account": "dev", "input": {"product": "lamp"}}
        daily |= {"cron": "30 6 * * MON-FRI", "zone": "Europe/Berlin", "overlap": "skip"}
        scheduled = (await http.post("/v1/schedules?tenant=dev", json=daily)).json()["id"]
        for _ in range(3):
            (await http.post(f"/v1/schedules/{scheduled}/run")).raise_for_status()

    async def is_counted() -> bool:
        async with httpx2.AsyncClient(base_url=served.url, headers=headers) as http:
            board = (await http.get("/v1/board")).json()
        return len(board["failures"]) > 0

    await until(is_counted)
    return Scene(served, made[0], asking, scheduled)


async def settled(page: Page) -> str:
    """The outline, once it is the same twice."""
    last = ""
    while last != (now := await outline(page)):
        last = now
        await page.wait_for_timeout(PAUSE)
    return now


async def outline(page: Page) -> str:
    """What the page consists of, without its data: repeated parts count once, numbers not at all."""
    lines: list[str] = await page.evaluate(_OUTLINE)
    return "".join(f"{re.sub(r'[0-9]+', 'N', line)}\n" for line in lines)


def small(png: bytes) -> bytes:
    """The same picture with a palette: a third of the size."""
    made = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(COLOURS).save(made, "PNG", optimize=True)
    return made.getvalue()


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="millpond-pictures-") as folder, shell(Path(folder), None) as sh:
        served = await up(sh, APP, "--product", "studio", **ENVIRONMENT)
        async with running_browser() as browser:
            scene = await stage(served)
            for path, show in (PICTURES | PICTURES_OF_PRODUCTS).items():
                async with show(scene, browser) as page:
                    path.with_suffix(".outline").write_text(await settled(page), "utf-8")
                    path.write_bytes(small(await page.screenshot(animations="disabled")))
                print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} kB")


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
