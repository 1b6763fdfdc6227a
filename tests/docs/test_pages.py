"""Every command and every line of Python in the documentation of the core works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import PAGES, ROOT, blocks
from tests.docs.session import run_page, runs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import DatabaseServer

NOT_RUN_MAX = 5
EMBEDDED = {"README.md", "tutorial.md", "tutorial-campaign.md"}
"""They use the embedded server, as their readers do; the other pages have a database given."""


@pytest.mark.parametrize("page", [page for page in PAGES if runs(page)], ids=lambda page: str(page.relative_to(ROOT)))
async def test_the_blocks_of_a_page_run(
    page: Path, server: DatabaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_page(page, tmp_path, monkeypatch, None if page.name in EMBEDDED else server)


def test_few_blocks_are_not_run() -> None:
    left_out = [block for page in PAGES for block in blocks(page) if block.remark == "not run"]
    assert len(left_out) <= NOT_RUN_MAX, "\n".join(f"{block.place}: {block.detail}" for block in left_out)
