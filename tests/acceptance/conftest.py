"""What the acceptance tests share: a shell on a database of the test's own, and an engine beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.engine.engine import Engine
from millpond.engine.queue import registry
from millpond.engine.verify import verify
from tests.acceptance.processes import Shell, shell
from tests.acceptance.product import app

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from millpond.store.db import Database


@pytest.fixture
def sh(tmp_path: Path, dsn: str) -> Iterator[Shell]:
    with shell(tmp_path, dsn) as made:
        yield made


@pytest.fixture
async def engine(db: Database, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    """The customer's side of the product; every invariant must hold when the test is over."""
    await registry.register(db, app.kinds.values())
    engine = Engine(db, app)
    await engine.grant("acme", "ann", 1_000)
    yield engine
    if "unsound" not in request.keywords:
        assert await verify(db) == []
