"""The documentation points to what exists, and says what the code says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from millpond.lifecycle import LIFECYCLE_EVENTS
from tests.docs.blocks import PAGES as OF_CORE
from tests.docs.blocks import PAGES_OF_PRODUCTS, ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ = [*OF_CORE, *PAGES_OF_PRODUCTS]
PAGES = [*READ, ROOT / "CONTRIBUTING.md"]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```(?:bash|console)$.*?^```$|`make [^`]*`", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\bmake ([a-z-]+)")
_MADE = re.compile(r"^([a-z-]+):", re.MULTILINE)


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _links(page: Path) -> Iterator[str]:
    text = _FENCE.sub("", page.read_text("utf-8"))
    return (link for link in _LINK.findall(text) if not link.startswith(("http://", "https://")))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{_named(page)} links to {link}"
        assert not anchor or anchor in _anchors(target), f"{_named(page)} links to {link}"


def test_every_page_can_be_found_from_the_readme() -> None:
    found, pending = set[str](), [ROOT / "README.md"]
    while pending:
        page = pending.pop()
        if _named(page) in found:
            continue
        found.add(_named(page))
        targets = ((page.parent / link.partition("#")[0]).resolve() for link in _links(page))
        pending += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert {_named(page) for page in READ if page.name != "CHANGELOG.md"} <= found


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_make_targets_exist(page: Path) -> None:
    made = set(_MADE.findall((ROOT / "Makefile").read_text("utf-8")))
    for code in _CODE.findall(page.read_text("utf-8")):
        assert set(_TARGET.findall(code)) <= made


def test_every_event_of_a_job_is_described() -> None:
    text = (ROOT / "docs" / "reference" / "job-events.md").read_text("utf-8")
    for event in LIFECYCLE_EVENTS:
        assert f"`{event}`" in text


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_diagrams_can_be_read(page: Path) -> None:
    """GitHub takes a semicolon in a sequence diagram for the end of a statement."""
    for block in blocks(page):
        if block.language == "mermaid":
            kind = block.text.split(maxsplit=1)[0]
            assert kind in {"flowchart", "sequenceDiagram", "stateDiagram-v2"}, block.place
            assert kind != "sequenceDiagram" or ";" not in block.text, block.place


def test_the_example_is_small() -> None:
    assert len((ROOT / "examples" / "postcards" / "app.py").read_text("utf-8").splitlines()) < 60


ARCHITECTURE = (ROOT / "docs" / "internals" / "architecture.md").read_text("utf-8")


@pytest.mark.parametrize("layer", ["engine", "services"])
def test_the_picture_has_every_module_of_a_layer(layer: str) -> None:
    (box,) = re.findall(rf'^    {layer}\["<b>{layer}</b><br/>(.*)"\]$', ARCHITECTURE, re.MULTILINE)
    modules = {path.stem for path in (ROOT / "src" / "millpond" / layer).rglob("*.py")}
    assert modules - set(re.findall(r"\w+", box)) <= {"__init__", "engine", "service"}


def test_the_picture_has_every_package() -> None:
    (drawn,) = re.findall(r"^flowchart TB\n(.*?)^```$", ARCHITECTURE, re.MULTILINE | re.DOTALL)
    folders = (ROOT / "src" / "millpond", ROOT / "products" / "src" / "millpond_products")
    packages = {path.parent.name for folder in folders for path in folder.glob("*/__init__.py")}
    assert packages - set(re.findall(r"\w+", drawn)) == set()


def test_the_architecture_names_what_exists() -> None:
    named = set(re.findall(r"`((?:src|products|ui)/[\w./]+)`", ARCHITECTURE))
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("database", ["tenant", "central", "both"])
def test_the_picture_has_every_table_in_its_database(database: str) -> None:
    (drawn,) = re.findall(
        rf'^    subgraph \w+\["database: {database}"\]\n(.*?)^    end$', ARCHITECTURE, re.MULTILINE | re.DOTALL
    )
    schema = (ROOT / "tests" / "migrations" / "schema.sql").read_text("utf-8")
    kept = re.findall(rf"^table millpond\.(\w+)[^\n]*\n    -- database: {database}\.", schema, re.MULTILINE)
    whole = {table for table in kept if not table.endswith("_default")}
    assert set(re.findall(r"^        (\w+)", drawn, re.MULTILINE)) == whole


GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8").lower()
PLAIN = {"engine", "native", "callers_transaction", "databases", "operations", "outputs", "remote", "transactions"}
"""Modules named for what everybody knows, or for two terms that stand there by themselves."""


def test_every_noun_of_the_engine_is_in_the_glossary() -> None:
    folders = (ROOT / "src" / "millpond" / "engine", ROOT / "src" / "millpond" / "services")
    nouns = {path.stem for folder in folders for path in folder.rglob("*.py") if path.stem != "__init__"} - PLAIN
    singular = {noun: re.sub(r"ies$", "y", noun).removesuffix("s").replace("_", " ") for noun in nouns}
    assert [noun for noun, word in sorted(singular.items()) if word not in GLOSSARY] == []


def test_every_label_of_the_navigation_is_in_the_glossary() -> None:
    frame = (ROOT / "ui" / "src" / "parts" / "frame.tsx").read_text("utf-8")
    labels = re.findall(r'\{ to: "/\w*", title: "([^"]+)"', frame)
    assert labels
    terms = {term.strip() for row in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE) for term in row.split(",")}
    stems = {term.removesuffix("s") for term in terms}
    unknown = [label for label in labels if label.lower().removesuffix("s") not in stems]
    assert [label for label in unknown if label != "Bulk operations"] == []  # which becomes "Bulk operations"
