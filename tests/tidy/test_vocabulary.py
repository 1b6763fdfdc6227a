"""One word per idea: a class name has one meaning, and words that were given up do not come back."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLASS = re.compile(r"^ *class ([A-Z]\w+)", re.MULTILINE)
SOURCES = (ROOT / "src", ROOT / "products" / "src")

SAME_THING = {
    "Accepted": "products.actions.wire products.partner.wire products.studio.wire wire.jobs",
    "Alarm": "engine.reads.board wire.board",
    "Answer": "products.partner.wire wire.shapes",
    "Artifact": "wire.artifacts work",
    "Artifacts": "engine.jobs.artifacts wire.artifacts",
    "Asset": "integrations.comfyui.graph products.effects.wire",
    "Attempt": "engine.reads.timelines wire.views",
    "Audit": "products.effects.wire wire.access",
    "AuditEntry": "products.effects.wire wire.access",
    "Board": "engine.reads.board wire.board",
    "Budget": "engine.composition.budgets wire.jobs",
    "BulkOperations": "engine.bulk.operations wire.bulk",
    "Canceled": "products.partner.wire wire.jobs",
    "Batch": "engine.composition.batches wire.batches",
    "BatchJob": "engine.composition.client_batches wire.batches",
    "ChildCounts": "engine.composition.batches wire.jobs",
    "Chunk": "wire.jobs work",
    "Deliveries": "engine.webhooks.deliveries wire.webhooks",
    "DeliveryTry": "engine.webhooks.deliveries wire.webhooks",
    "Durations": "engine.reads.estimates wire.kinds",
    "Effect": "products.effects.effects products.effects.wire",
    "EndpointStats": "engine.webhooks.endpoints wire.webhooks",
    "Endpoints": "engine.webhooks.endpoints products.partner.wire wire.webhooks",
    "Entry": "engine.credits.ledger products.studio.wire wire.credits",
    "ErrorBody": "products.effects.wire products.partner.wire products.studio.wire",
    "Event": "engine.jobs.events wire.jobs",
    "Failure": "engine.reads.counters wire.board",
    "Failures": "engine.reads.counters wire.board",
    "Fires": "engine.queue.fires wire.schedules",
    "Hold": "engine.credits.holds wire.views",
    "Identity": "integrations.aws.metadata products.effects.wire wire.worker",
    "Job": (
        "products.actions.wire products.effects.wire products.guard.wire products.partner.wire "
        "products.studio.wire wire.jobs worker.context"
    ),
    "JobComposition": "engine.reads.details wire.views",
    "JobDetail": "engine.reads.details wire.views",
    "JobError": "products.partner.wire wire.jobs",
    "JobSummaries": "engine.reads.summaries wire.bulk",
    "JobSummary": "engine.reads.summaries wire.bulk",
    "Jobs": "products.actions.wire products.effects.wire products.partner.wire products.studio.wire wire.jobs",
    "LeaseRequest": "products.partner.lease_requests products.partner.wire",
    "ListAudit": "api.parameters products.effects.parameters",
    "ListJobs": (
        "api.parameters products.actions.parameters products.effects.parameters products.partner.parameters "
        "products.studio.parameters"
    ),
    "Logs": "products.actions.wire wire.jobs",
    "MakeEndpoint": "products.partner.wire wire.webhooks",
    "MakeJob": "products.effects.wire products.guard.wire",
    "MakeUpload": "products.effects.wire wire.worker",
    "MakeVideo": "products.effects.wire products.studio.wire",
    "NewEndpoint": "products.partner.wire wire.webhooks",
    "OfTenant": "api.parameters products.partner.parameters",
    "Poll": "products.effects.wire wire.worker",
    "Project": "products.partner.projects products.partner.wire",
    "Question": "engine.composition.steps wire.jobs",
    "Queue": "engine.queue.queues products.guard.wire",
    "Queues": "products.guard.wire wire.kinds",
    "ReadJob": "api.parameters products.partner.parameters",
    "ReadLogs": "api.parameters products.actions.parameters",
    "Refund": "engine.credits.ledger wire.bulk",
    "Registered": "products.effects.wire wire.worker",
    "Request": "products.partner.wire wire.shapes",
    "Resource": "products.partner.resources products.partner.wire",
    "Rule": "products.guard.wire products.rules.rule",
    "LimitKey": "engine.queue.limits wire.limits",
    "LimitWait": "engine.queue.limits wire.limits",
    "Limits": "engine.queue.limits wire.limits",
    "Schedules": "engine.queue.schedules wire.schedules",
    "Session": "engine.access.sessions wire.sessions",
    "SignedRequest": "engine.webhooks.deliveries wire.webhooks",
    "Span": "engine.reads.timelines wire.views",
    "Spender": "engine.reads.counters wire.board",
    "Submit": "products.actions.wire wire.jobs",
    "Token": "engine.access.credentials wire.jobs",
    "Video": "products.effects.videos products.effects.wire",
    "Violation": "engine.verify wire.access",
    "Wallet": "products.effects.wire testing.harness wire.credits",
    "Worker": "products.effects.wire worker.worker",
    "Workers": "engine.fleet.workers products.effects.wire wire.kinds",
    "Workflow": "products.effects.wire products.effects.workflows",
}
"""The names of several classes for one thing: as it is stored, in JSON, and in the JSON of the products' own APIs."""

RETIRED = {
    "begin anew": "restart",
    "begins anew": "restarts",
    "blueprint": "product",
    "dossier": "job detail",
    "errand": "bulk operation",
    "how manieth": "position",
    "mishap": "failure",
    "parcel": "signed request",
    "penstock": "Millpond",
    "steward": "bulk runner",
    "tallier": "counter",
    "tallies": "counters",
}
"""Words of the first version, with those that took their place (see the glossary)."""
RETIRED_NAMES = {
    "away": "remote",
    "bell": "notifier",
    "books": "plugin migrations",
    "borrowed": "caller's transaction",
    "desk": "app state",
    "door": "executor",
    "finds": "search",
    "guest": "waiter",
    "hall": "poll group",
    "homes": "tenant databases",
    "hurry": "poll soon",
    "hush": "stop polling",
    "insist": "retry",
    "is_away": "is_remote",
    "moment": "lifecycle event",
    "pile": "counters",
    "say": "report",
    "says": "reports",
    "sights": "operator views",
    "stir": "notify",
    "tell": "report",
    "tells": "reports",
    "told": "reported",
    "town": "tenant",
    "yard": "tests",
}
"""Words that are retired as names in code; in sentences they are plain English."""
RETIRED_CLASSES = {
    "Fold": "merge",
    "Line": "job summary",
    "Ring": "notify",
    "Shift": "transition to",
    "Split": "tenant databases",
}
"""As the name of a class; as the name of a value, the word is plain."""
RETIRED_IN_TITLES = {"tell", "tells", "told"}
"""Of the words above, those that the name of a test, which is a sentence, does not contain either."""
RETIRED_LABELS = {
    "Most": "Limit",
    "Whose": "Account",
    "Where it is": "Stage",
    "Leave it": "Cancel",
}
EXEMPT_NAMES = {
    "products/src/millpond_products/partner/planning.py": {"says"},  # what somebody in a video says
    "products/src/millpond_products/partner/personas.py": {"homes"},  # cities
    "products/src/millpond_products/renderer/figures.py": {"away"},  # from the viewer
}
READ = (
    "src",
    "products",
    "ui/src",
    "docs",
    "examples",
    "scripts",
    "bench",
    "tests",
    "README.md",
    "CONTRIBUTING.md",
    "Makefile",
    "conftest.py",
    f":!{Path(__file__).relative_to(ROOT)}",
)


def _modules_of_classes() -> dict[str, str]:
    """The modules that define each class name of more than one module."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in SOURCES:
        for path in folder.rglob("*.py"):
            module = ".".join(path.relative_to(folder).with_suffix("").parts).removeprefix("millpond.")
            for name in _CLASS.findall(path.read_text("utf-8")):
                found[name].append(module.removeprefix("millpond_"))
    return {name: " ".join(sorted(modules)) for name, modules in found.items() if len(modules) > 1}


def test_a_class_name_has_one_meaning() -> None:
    """Two things may not share a name, whether they are code or JSON."""
    assert _modules_of_classes() == SAME_THING


def _files(*patterns: str) -> list[str]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    return subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def _bound(tree: ast.AST) -> Iterator[str]:
    """The names that a module binds. What it only uses may be a library's, such as the ``tell`` of a file."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name
            case _:
                pass


def _retired(name: str) -> set[str]:
    """The retired words in a name: as the whole name, or in the sentence that is the name of a test."""
    plain = name.strip("_")
    if plain.startswith("test_"):
        return RETIRED_IN_TITLES & set(plain.split("_"))
    return ({plain} & RETIRED_CLASSES.keys()) | ({plain.lower()} & RETIRED_NAMES.keys())


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
    assert not found.stdout, f"write {RETIRED[word]!r}:\n{found.stdout}"


def test_no_module_binds_a_retired_name() -> None:
    found: dict[str, set[str]] = {}
    for file in _files("*.py"):
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        names = {word for name in _bound(tree) for word in _retired(name)} - EXEMPT_NAMES.get(file, set())
        if names:
            found[file] = names
    assert found == {}


def test_no_file_has_a_retired_name() -> None:
    assert [file for file in _files() if set(Path(file).with_suffix("").parts) & RETIRED_NAMES.keys()] == []


@pytest.mark.parametrize("label", RETIRED_LABELS)
def test_no_page_has_a_retired_label(label: str) -> None:
    pages = {file: (ROOT / file).read_text("utf-8") for file in _files("ui/src/*.tsx", "products/src/*.html")}
    assert [file for file, text in pages.items() if re.search(rf"[\">]{label}[\"<]", text)] == []
