"""A product adds nothing to the core: no module of Millpond knows a word of one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import millpond_products
from millpond.lifecycle import STANDARD
from millpond_products.catalog import PRODUCTS
from millpond_products.renderer.models import MODELS
from tests.tidy.sources import ROOT

if TYPE_CHECKING:
    from millpond.product import Product

PRODUCTS_FOLDER = Path(millpond_products.__file__).parent
DASHBOARD = ROOT.parents[1] / "ui" / "src"
PACKAGES = ("engine", "store", "storage", "services", "worker", "api", "client")
LISTS = {ROOT / "settings.py", ROOT / "logs.py"}
"""What an operator may set, and what may stand in his log: one list each for the whole of what he runs."""
COMMON = {"actions", "effects", "guard"}
"""Words with a meaning of their own in the core: operators' actions, code's effects, the database's guard."""
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
    | {path for path in DASHBOARD.rglob("*") if path.suffix in {".ts", ".tsx", ".css", ".html"}}
)


def words(product: Product) -> set[str]:
    """What is a product's own: its name, its kinds, their stages, its tables, and states that nobody else has."""
    kinds = {kind.name for kind in product.kinds} - COMMON
    stages = {stage for kind in product.kinds for stage in kind.stages}
    states = set(product.lifecycle.states) - set(STANDARD.states)
    migrations = (PRODUCTS_FOLDER / product.name / "migrations").glob("*.sql")
    tables = {name for path in migrations for name in re.findall(r"create table millpond\.(\w+)", path.read_text())}
    fields = {part for name in kinds for part in name.split(".")[1:]}
    telling = {word for word in stages | states | fields if is_telling(word)} - OFFERED
    return {product.name} - COMMON | kinds | tables | telling


def is_telling(word: str) -> bool:
    """Whether nobody says it by chance: `copy` and `pending` are anybody's words, `content_generate` is not."""
    return "_" in word or "-" in word


def pattern(product: Product) -> re.Pattern[str]:
    """Its words, by themselves or as a part of a name; a common one only where it is no word but a literal or a key."""
    own = [rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])" for word in sorted(words(product))]
    name = product.name
    literal = [rf"""["'/]{name}[."'/]|(?:^|[{{,])\s*{name}: ["'{{[]"""] if name in COMMON else []
    return re.compile("|".join([*own, *literal]), re.IGNORECASE)


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda product: product.name)
def test_the_core_knows_no_word_of_a_product(product: Product) -> None:
    sought = pattern(product)
    found = [
        f"{place(path)}:{number}: {line.strip()}"
        for path in BELOW
        for number, line in lines(path)
        if sought.search(line)
    ]
    assert found == []


def test_what_is_looked_for_would_be_found() -> None:
    """Each product's own sources have its words, so the search is no empty one."""
    assert {path.parent.name for path in BELOW} >= {*PACKAGES, "millpond", "pages", "parts"}
    for product in PRODUCTS:
        sources = (PRODUCTS_FOLDER / product.name).rglob("*.py")
        assert any(pattern(product).search(line) for path in sources for _, line in lines(path)), product.name


def lines(path: Path) -> enumerate[str]:
    return enumerate(path.read_text("utf-8").splitlines(), start=1)


def place(path: Path) -> str:
    return str(path.relative_to(ROOT.parents[1]))
