"""The catalog of mutants: deliberate bugs as data, in TOML files by subject beside this module and the products' tests.

Each has the file and the exact text that it replaces, so it stops applying when that code is rewritten. A test of the
normal suite notices this: the list cannot go out of date unseen.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FOLDERS: Final = (Path(__file__).parent / "subjects", ROOT / "products" / "tests" / "mutants")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A deliberate bug, and the tests of which at least one must fail with it."""

    name: str
    file: str
    """The file that it changes, relative to the root of the repository."""
    old: str
    """The text that it replaces; it must occur exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """What pytest is called with: files, or single tests."""
    breaks: str
    """What goes wrong with it, in one sentence."""

    def applied(self, text: str) -> str | None:
        """The text of its file with the bug; None if the bug does not apply."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None


def mutants() -> tuple[Mutant, ...]:
    """All mutants, by subject. The name of each begins with the name of its subject."""
    found: list[Mutant] = []
    for path in sorted(path for folder in FOLDERS for path in folder.glob("*.toml")):
        for name, given in tomllib.loads(path.read_text("utf-8")).items():
            tests = tuple(given.pop("tests"))
            found.append(Mutant(name=f"{path.stem}.{name}", tests=tests, **given))
    return tuple(found)
