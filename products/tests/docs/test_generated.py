"""The generated parts of both documentations are what the code says. What makes them needs both wheels."""

from __future__ import annotations

import importlib.util

from tests.docs.blocks import ROOT


async def test_generated_parts_are_fresh(empty_dsn: str) -> None:
    """`docs/generate.py` rewrites them."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert [str(page.relative_to(ROOT)) for page in await generate.stale_pages(empty_dsn)] == []
