"""Every command and every line of Python in the documentation works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks
from tests.docs.session import SILENT, Session

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import DatabaseServer

NOT_RUN_MAX = 5
WITH_BLOCKS = [page for page in PAGES if any(block.language not in SILENT for block in blocks(page))]


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_blocks_of_a_page_run(
    page: Path, server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """README and tutorial use the embedded server, as their readers do; the other pages have a database given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("DATABASE_URL", raising=False)
    if page.name in ("README.md", "tutorial.md"):
        await read(page, Session(tmp_path))
        return
    async with server.database() as url:
        monkeypatch.setenv("DATABASE_URL", url)
        await read(page, Session(tmp_path, url))


async def read(page: Path, session: Session) -> None:
    try:
        for block in blocks(page):
            await session.run(block)
    finally:
        await session.close()


def test_few_blocks_are_not_run() -> None:
    left_out = [block for page in PAGES for block in blocks(page) if block.remark == "not run"]
    assert len(left_out) <= NOT_RUN_MAX, "\n".join(f"{block.place}: {block.detail}" for block in left_out)
