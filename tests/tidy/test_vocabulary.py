"""One word per idea: a class name has one meaning, and words that were given up do not come back."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_CLASS = re.compile(r"^ *class ([A-Z]\w+)", re.MULTILINE)
SOURCES = (ROOT / "src", ROOT / "products" / "src")

RETIRED = {
    "blueprint": "product",
    "errand": "bulk operation",
    "steward": "bulk runner",
    "dossier": "job detail",
    "tallier": "counter",
    "tallies": "counters",
    "mishap": "failure",
    "how manieth": "position",
    "begin anew": "restart",
    "begins anew": "restarts",
    "penstock": "Millpond",
}
"""Words of the first version, with those that took their place (see the glossary)."""
READ = ("src", "products", "ui/src", "docs", "examples", "scripts", "bench", "README.md", "CONTRIBUTING.md", "Makefile")


def _modules(*, wire: bool) -> Iterable[Path]:
    """A product's `wire` and `parameters`, and the core's `wire`, describe JSON; all other modules are code."""
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            if wire == ("wire" in path.parts or path.stem in {"wire", "parameters"}):
                yield path


def _twice(paths: Iterable[Path]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for name in _CLASS.findall(path.read_text("utf-8")):
            found[name].append(str(path.relative_to(ROOT)))
    return {name: sorted(places) for name, places in found.items() if len(places) > 1}


def test_a_class_name_has_one_meaning() -> None:
    """The JSON of a thing may have the thing's name, in each product's own vocabulary. Two things may not share one."""
    assert _twice(_modules(wire=False)) == {}


def test_a_name_in_the_native_json_has_one_meaning() -> None:
    assert _twice((ROOT / "src" / "millpond" / "wire").glob("*.py")) == {}


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_does_not_come_back(word: str) -> None:
    found = subprocess.run(
        ["git", "grep", "--untracked", "-I", "-i", "-n", "-e", word, "--", *READ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode in {0, 1}, found.stderr
    assert not found.stdout, f"say {RETIRED[word]!r}:\n{found.stdout}"
