"""One ``millpond up`` for all tests of the dashboard in a process: they share it, each with tenants of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.acceptance.processes import shell
from tests.cli.ups import up
from tests.doubles.receivers import receivers
from tests.ui.places import PRODUCT, Dash
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from playwright.async_api import Browser

    from tests.databases import Server

ENVIRONMENT = {
    "MILLPOND_RATE_LIMIT": "100000",
    "MILLPOND_GRACE": "1s",
    "MILLPOND_SLOTS": "40",
    "MILLPOND_REFRESH": "1s",
    # No test asks for a picture of a provider: the renderer stays at home.
    "MILLPOND_RENDERER_URL": "http://127.0.0.1:9",
    "MILLPOND_GITHUB_URL": "http://127.0.0.1:9",
    "MILLPOND_ITUNES_URL": "http://127.0.0.1:9",
}


@pytest.fixture(scope="session")
async def dash(
    anyio_backend: str, server: Server, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Dash]:
    """The server, its keys, a receiver of webhooks, and pages of the dashboard: see :class:`Dash`."""
    folder = tmp_path_factory.mktemp("dash")
    async with server.database() as dsn, receivers() as there:
        with shell(folder, dsn) as sh:
            running = await up(sh, PRODUCT, **ENVIRONMENT)
            limits = httpx2.Limits(max_connections=None)
            async with httpx2.AsyncClient(base_url=running.url, timeout=PATIENCE, limits=limits) as http:
                yield Dash(running.url, running.ready["admin_key"], http, there, browser, dsn, folder)


@pytest.fixture
def signed_in(dash: Dash) -> Callable[..., Awaitable[None]]:
    """``await signed_in(page, scope="viewer")``: gives the page's browser a session, and loads the page again."""
    return dash.sign_in
