"""The SQL of the package, cut into functions, queries and statements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import millpond
from millpond.store import queries

if TYPE_CHECKING:
    from collections.abc import Container

ROOT = Path(millpond.__file__).parent
SQL_FILES = sorted(path for path in ROOT.rglob("*.sql") if path.parent.name != "migrations")
PYTHON = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}
MIGRATIONS = "\n".join(path.read_text() for path in sorted(ROOT.glob("**/migrations/*.sql")))

_DATABASE = re.compile(r"comment on table millpond\.(\w+) is 'database: (\w+)\.")
_BODY = re.compile(r"\bas \$(\w*)\$(.*)\$\1\$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A function or a query of a noun's file."""

    noun: str
    what: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.noun}.{self.name}" if self.what == "name" else f"{self.noun}.{self.name}()"

    @property
    def code(self) -> str:
        """The text without its comments."""
        return re.sub(r"--[^\n]*", "", self.text)

    @property
    def statements(self) -> list[str]:
        """What is one statement to the database; a function's header is none."""
        body = _BODY.search(self.code)
        code = body[2] if body else self.code
        code = re.sub(r"^\s*(#variable_conflict \w+)?\s*(declare.*?)?\bbegin\b", "", code, count=1, flags=re.DOTALL)
        return [part.strip() for part in re.split(r";|\bthen\b|\belse\b|\bloop\b", code) if "millpond." in part]

    @property
    def tables(self) -> set[str]:
        return mentioned(self.code, DATABASES)

    @property
    def calls(self) -> set[str]:
        return mentioned(self.code, {block.name for block in FUNCTIONS}) - {self.name}


def mentioned(code: str, names: Container[str]) -> set[str]:
    """Which of these tables or functions of ours stand in a piece of SQL."""
    return {name for name in re.findall(r"millpond\.(\w+)", code) if name in names}


def called(code: str) -> set[str]:
    return {name for name in re.findall(r"millpond\.(\w+)\(", code) if name in {block.name for block in FUNCTIONS}}


def package_of(path: Path) -> str:
    return ".".join(("millpond", *path.parent.relative_to(ROOT).parts))


@cache
def blocks() -> tuple[Block, ...]:
    return tuple(
        Block(path.stem, what, name, text)
        for path in SQL_FILES
        for what, name, _, text in queries._blocks(package_of(path), path.stem)
    )


DATABASES: dict[str, str] = dict(_DATABASE.findall(MIGRATIONS)) | {"migrations": "both"}
"""Where each table lives: with the tenant, centrally, or in both places."""

FUNCTIONS = [block for block in blocks() if block.what == "function"]
QUERIES = [block for block in blocks() if block.what == "name"]

_COLUMN = re.compile(r"^    (\w+)\s+[a-z]", re.MULTILINE)
_TABLE = re.compile(r"create table millpond\.(\w+) \((.*?)^\)", re.DOTALL | re.MULTILINE)

COLUMNS = {
    name: {column for column in _COLUMN.findall(body) if column not in {"primary", "check", "unique"}}
    for name, body in _TABLE.findall(MIGRATIONS)
}
"""The columns of each table."""


def parameters(function: Block) -> set[str]:
    header = re.search(r"function millpond\.\w+\((.*?)\)\s*returns", function.code, re.DOTALL)
    return set(re.findall(r"(\w+) \w+(?:\[\])?(?:,|$)", header[1].replace("\n", " ").strip())) if header else set()
