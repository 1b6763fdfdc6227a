"""Reads the fenced blocks of a page, with the remarks for whoever runs them.

A remark is an HTML comment, which a reader does not see:

    <!-- not run: reason -->         the next block is not run
    <!-- background until: text -->  the next block goes on in the background once it has said this
    <!-- stop background -->         what runs in the background is stopped
    <!-- new session -->             Python is started again
    <!-- prints -->                  the next block is what the Python before it prints

A block whose first line is a comment with a file name alone, `# name.py` or `-- name.sql`, is saved under that name
instead of being run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
PAGES_OF_PRODUCTS = sorted([ROOT / "products" / "README.md", *(ROOT / "products" / "docs").rglob("*.md")])

_REMARK = re.compile(r"<!-- (not run|background until|stop background|new session|prints)(?:: (.*))? -->")
_FILE = re.compile(r"(?:# ([\w/]+\.py)|-- ([\w/]+\.sql))\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, or a remark that stands for itself (its language is then 'remark')."""

    page: Path
    line: int
    language: str
    text: str
    remark: str = ""
    detail: str = ""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file_name(self) -> str | None:
        found = _FILE.match(self.text)
        return found[1] or found[2] if found else None


def blocks(page: Path) -> Iterator[Block]:
    remark, detail = "", ""
    start, language, inside = 0, "", None
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        if inside is not None:
            if line.startswith("```"):
                yield Block(page, start, language, "".join(inside), remark, detail)
                remark, detail, inside = "", "", None
            else:
                inside.append(f"{line}\n")
        elif line.startswith("```"):
            start, language, inside = number, line[3:], []
        elif found := _REMARK.fullmatch(line):
            if found[1] in ("stop background", "new session"):
                yield Block(page, number, "remark", "", found[1])
            else:
                remark, detail = found[1], found[2] or ""
        else:
            assert not (line.strip() and remark), f"{page}:{number}: the remark {remark!r} stands before no block"
