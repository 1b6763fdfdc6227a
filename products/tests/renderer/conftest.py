from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from products.tests.renderer.renderers import Receiver, Renderer, receiver, renderer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def running(anyio_backend: str) -> Iterator[Renderer]:
    """One for all tests that do it no harm. Pictures may come from this machine."""
    with renderer("--allow", "loopback") as one:
        yield one


@pytest.fixture
def hooks() -> Iterator[Receiver]:
    with receiver() as one:
        yield one
