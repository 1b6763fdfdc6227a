"""One running ``millpond up`` for many commands: they take turns, and each leaves it usable."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.processes import Shell, shell
from tests.cli.ups import up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.cli.ups import Up
    from tests.databases import DatabaseServer


@pytest.fixture(scope="package")
async def system(
    anyio_backend: str, server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Shell, Up]]:
    """A shell in a folder where a ``millpond up`` runs, and what is known of that."""
    async with server.database() as dsn:
        with shell(tmp_path_factory.mktemp("system"), dsn) as sh:
            yield sh, await up(sh)


@pytest.fixture
def sh(tmp_path: Path, dsn: str) -> Iterator[Shell]:
    with shell(tmp_path, dsn) as made:
        yield made
