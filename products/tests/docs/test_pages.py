"""Every command and every line of Python in the documentation of the products works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PAGES_OF_PRODUCTS, ROOT, blocks
from tests.docs.session import run_page, runs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import DatabaseServer


RUN = [page for page in PAGES_OF_PRODUCTS if runs(page)]


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_blocks_of_a_page_run(
    page: Path, server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_page(page, tmp_path, monkeypatch, server)


def test_every_block_is_run() -> None:
    assert [block.place for page in PAGES_OF_PRODUCTS for block in blocks(page) if block.remark == "not run"] == []
