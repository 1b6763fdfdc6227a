"""The screenshots of the products' documentation show their pages as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from docs import pictures

from tests.acceptance.processes import shell
from tests.cli.ups import up
from tests.ui.test_pictures import is_pictured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
async def scene(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[pictures.Scene]:
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("pictures"), dsn) as sh:
            yield pictures.Scene(await up(sh, "--product", "studio", **pictures.ENVIRONMENT))


@pytest.mark.parametrize("path", pictures.PICTURES_OF_PRODUCTS, ids=lambda path: path.stem)
async def test_a_picture_shows_the_page_as_it_is(scene: pictures.Scene, browser: Browser, path: Path) -> None:
    """If it does not: `make pictures`, and look at what it made."""
    async with pictures.PICTURES_OF_PRODUCTS[path](scene, browser) as page:
        await is_pictured(page, path)
