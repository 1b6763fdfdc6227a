"""The screenshots of the documentation show the pages as they are: their outlines are compared."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from docs import pictures

from tests.acceptance.processes import shell, until
from tests.cli.ups import up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser, Page

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

BYTES_MAX = 150_000


@pytest.fixture(scope="module")
async def scene(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[pictures.Scene]:
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("pictures"), dsn) as sh:
            served = await up(sh, pictures.APP, **pictures.ENVIRONMENT)
            yield await pictures.stage(served)


@pytest.mark.parametrize("path", pictures.PICTURES, ids=lambda path: path.stem)
async def test_a_picture_shows_the_page_as_it_is(scene: pictures.Scene, browser: Browser, path: Path) -> None:
    """If it does not: `make pictures`, and look at what it made."""
    async with pictures.PICTURES[path](scene, browser) as page:
        await is_pictured(page, path)


async def is_pictured(page: Page, path: Path) -> None:
    wanted = path.with_suffix(".outline").read_text("utf-8")

    async def is_like() -> bool:
        return await pictures.outline(page) == wanted

    with suppress(AssertionError):  # which would not show the difference
        await until(is_like)
    assert await pictures.outline(page) == wanted


@pytest.mark.parametrize("path", [*pictures.PICTURES, *pictures.PICTURES_OF_PRODUCTS], ids=lambda path: path.stem)
def test_a_picture_is_small(path: Path) -> None:
    assert path.stat().st_size < BYTES_MAX
