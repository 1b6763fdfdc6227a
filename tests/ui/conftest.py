"""One ``millpond up`` for all tests of the dashboard in a process: they share it, each with tenants of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ui.dashboards import PRODUCT, Dash, running_dash

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from playwright.async_api import Browser

    from tests.databases import DatabaseServer


@pytest.fixture(scope="session")
async def dash(
    anyio_backend: str, server: DatabaseServer, browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Dash]:
    """The server, its keys, a receiver of webhooks, and pages of the dashboard: see :class:`Dash`."""
    async with running_dash(server, browser, tmp_path_factory.mktemp("dash"), PRODUCT) as dash:
        yield dash


@pytest.fixture
def signed_in(dash: Dash) -> Callable[..., Awaitable[None]]:
    """``await signed_in(page, scope="viewer")``: gives the page's browser a session, and loads the page again."""
    return dash.sign_in
