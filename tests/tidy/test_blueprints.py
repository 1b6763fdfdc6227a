"""A blueprint adds nothing to the engine: no module below the blueprints knows a word of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond.blueprints.catalog import BLUEPRINTS
from millpond.lifecycle import STANDARD
from millpond.renderer.models import MODELS
from tests.tidy.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.api.blueprint import Blueprint

PACKAGES = ("engine", "store", "storage", "services", "worker", "api", "client")
LISTS = {ROOT / "settings.py", ROOT / "logs.py"}
"""What an operator may set, and what may stand in his log: one list each for the whole of what he runs."""
COMMON = {"guard"}
"""Names that the engine has a meaning of its own for: the database's guard, the guard around URLs."""
OFFERED = {model.name.replace("-", "_") for model in MODELS}
"""What the renderer makes: any product may ask for it, and a kind that does is called so."""
BELOW = sorted(
    {
        path
        for package in PACKAGES
        for form in ("*.py", "*.sql", "*.js", "*.html")
        for path in (ROOT / package).rglob(form)
    }
    | set(ROOT.glob("*.py")) - LISTS
)


def words(blueprint: Blueprint) -> set[str]:
    """What is a blueprint's own: its name, its kinds, their stages, its tables, and states that nobody else has."""
    kinds = {kind.name for kind in blueprint.kinds} - COMMON
    stages = {stage for kind in blueprint.kinds for stage in kind.stages}
    states = set(blueprint.lifecycle.states) - set(STANDARD.states)
    migrations = (ROOT / "blueprints" / blueprint.name / "migrations").glob("*.sql")
    tables = {name for path in migrations for name in re.findall(r"create table millpond\.(\w+)", path.read_text())}
    told = {part for name in kinds for part in name.split(".")[1:]}
    telling = {word for word in stages | states | told if is_telling(word)} - OFFERED
    return {blueprint.name} - COMMON | kinds | tables | telling


def is_telling(word: str) -> bool:
    """Whether nobody says it by chance: `copy` and `pending` are anybody's words, `content_generate` is not."""
    return "_" in word or "-" in word


def pattern(blueprint: Blueprint) -> re.Pattern[str]:
    """Its words, by themselves or as a part of a name; a common one only where it is no word but a literal."""
    own = [rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])" for word in sorted(words(blueprint))]
    literal = [rf"""(["'/]){blueprint.name}(?:[."'/])"""] if blueprint.name in COMMON else []
    return re.compile("|".join([*own, *literal]), re.IGNORECASE)


@pytest.mark.parametrize("blueprint", BLUEPRINTS, ids=lambda blueprint: blueprint.name)
def test_nothing_below_the_blueprints_knows_a_word_of_one(blueprint: Blueprint) -> None:
    sought = pattern(blueprint)
    found = [
        f"{place(path)}:{number}: {line.strip()}"
        for path in BELOW
        for number, line in lines(path)
        if sought.search(line)
    ]
    assert found == []


def test_what_is_looked_for_would_be_found() -> None:
    """Each blueprint's own sources have its words, so the search is no empty one."""
    assert {path.parent.name for path in BELOW} >= {*PACKAGES, "millpond"}
    for blueprint in BLUEPRINTS:
        sources = (ROOT / "blueprints" / blueprint.name).rglob("*.py")
        assert any(pattern(blueprint).search(line) for path in sources for _, line in lines(path)), blueprint.name


def lines(path: Path) -> enumerate[str]:
    return enumerate(path.read_text("utf-8").splitlines(), start=1)


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))
