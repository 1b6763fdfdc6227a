"""The documentation points to what exists, and says what the code says."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from millpond.lifecycle import LIFECYCLE_EVENTS
from tests.docs.blocks import PAGES as OF_CORE
from tests.docs.blocks import PAGES_OF_PRODUCTS, ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CORE, PRODUCTS = ROOT / "src" / "millpond", ROOT / "products" / "src" / "millpond_products"
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


GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text("utf-8")
TERMS = {
    term.strip() for row in re.findall(r"^\| ([^|]+) \|", GLOSSARY.lower(), re.MULTILINE) for term in row.split(",")
}
ALIASES = {
    "composition": "child",
    "bulk": "bulk operation",
    "callers_transaction": "transaction",
    "copywriting": "copy",
    "databases": "tenant database",
    "emitter": "emit",
    "groups": "auto scaling group",
    "idempotency": "idempotency key",
    "limits": "rate limit",
    "migrate": "migration",
    "moving": "move",
    "note_queue": "note",
    "open_streams": "stream",
    "operations": "bulk operation",
    "planning": "plan",
    "plugin_migrations": "migration",
    "renderings": "rendering",
    "ruleset": "rule set",
    "sets": "rule set",
    "verification": "verify",
}
"""Modules whose name is short for a term, within their folder, or another form of it."""
TECHNICAL = {
    "": "ids log_sink logs redaction values work",
    "api": "advice calls manual members native openapi pages parameters protocol samples schemas server startup",
    "cli": (
        "autoscale comfyui config database db deployment development example files follow forward options processes "
        "reach serve show up"
    ),
    "client": "admin clients files ports requests sse trust watching",
    "engine": "engine remote",
    "integrations": (
        "cache cloud disclosure faults identity machine metadata meter program replicate server truncation"
    ),
    "outbound": "addresses network openings ports proxy resolver targets",
    "storage": "files local s3 sigv4",
    "store": "binaries cluster db locks log process queries server wire",
    "testing": "clocks harness plugin",
    "ui": "browsers pages server",
    "wire": "shapes",
    "worker": ("calls channel context job_calls job_logging loops pooled process raised references remote transfers"),
    "products": "allowed catalog log_events models programs",
    "products.actions": (
        "action_jobs checks frames http_request lines once parameters run_command trigger_github_workflow wire"
    ),
    "products.effects": "admin ai_jobs decoding files operators parameters seed wire",
    "products.github": "github",
    "products.guard": "wire",
    "products.llm": "model",
    "products.pages": "fetching reading",
    "products.partner": (
        "asking cloning content_making git identifiers influencer_making ingest_appstore ingest_github ingest_website "
        "outside parameters partner_jobs pull_requests starting webhook_endpoints wire"
    ),
    "products.renderer": (
        "backdrops brush canvas captions figures films hair hooks images lettering models palettes "
        "pictures press presses process rooms sounds speech voice wares"
    ),
    "products.rules": "shapes urls",
    "products.studio": "chat generate grammar markup parameters scraping studio_jobs wire",
}
"""Modules named for a technique, a format, a command, another product, or what everybody knows, by layer."""


def _modules() -> Iterator[tuple[str, str]]:
    """Each module with its layer."""
    for folder, prefix in ((CORE, ""), (PRODUCTS, "products")):
        for path in folder.rglob("*.py"):
            layers = [part for part in (prefix, *path.relative_to(folder).parts[:-1][:1]) if part]
            if not path.stem.startswith("__"):
                yield ".".join(layers), path.stem


def _is_term(module: str) -> bool:
    word = ALIASES.get(module, module).replace("_", " ")
    return not TERMS.isdisjoint({word, word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)})


def test_every_noun_of_the_domain_is_in_the_glossary() -> None:
    unknown: dict[str, set[str]] = defaultdict(set)
    for layer, module in _modules():
        if not _is_term(module):
            unknown[layer].add(module)
    assert unknown == {layer: set(modules.split()) for layer, modules in TECHNICAL.items()}


def test_every_label_of_the_navigation_is_in_the_glossary() -> None:
    frame = (ROOT / "ui" / "src" / "parts" / "frame.tsx").read_text("utf-8")
    labels = re.findall(r'\{ to: "/\w*", title: "([^"]+)"', frame)
    assert labels
    assert [label for label in labels if not _is_term(label.lower())] == []


def test_the_glossary_is_in_alphabetical_order() -> None:
    for section in GLOSSARY.split("\n## ")[1:]:
        terms = [row.lower() for row in re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)[2:]]
        assert terms == sorted(set(terms))
