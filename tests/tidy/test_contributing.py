"""The instructions for adding a field to a job name files and definitions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

_PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
_SECTION = _PAGE.partition("## Add a field to a job\n")[2].partition("\n## ")[0]
_CODE = re.compile(r"`([^`]+)`")
_MIGRATION = "store/migrations/NNNN_name.sql"


def _path(code: str) -> Path:
    return ROOT / code if code.startswith(("src/", "ui/", "tests/")) else ROOT / "src" / "millpond" / code


def _parts(line: str) -> tuple[set[str], set[str]]:
    """The paths and the names of a line."""
    codes = {code for code in _CODE.findall(line) if code != _MIGRATION and " " not in code}
    paths = {code for code in codes if "/" in code or code.endswith(".py")}
    return paths, {code.removeprefix("millpond.").removesuffix("()") for code in codes - paths}


def test_the_files_exist() -> None:
    paths, _ = _parts(_SECTION)
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not _path(path).exists()] == []


@pytest.mark.parametrize("row", [row for row in re.findall(r"^\| .*", _SECTION, re.MULTILINE) if "`" in row])
def test_the_names_of_a_row_are_in_its_files(row: str) -> None:
    paths, names = _parts(row)
    words = {word for path in paths for word in re.findall(r"\w+", _path(path).read_text("utf-8"))}
    assert names - words == set()
