"""A real server on a real socket, with the test product, keys and an HTTP client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.api.sites import Site, running_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.engine.engine import Engine


@pytest.fixture
async def site(engine: Engine) -> AsyncIterator[Site]:
    """The API of the test's engine."""
    async with running_site(engine) as running:
        yield running
