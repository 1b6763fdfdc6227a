"""One word per idea: a class name has one meaning, and words that were given up do not come back."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    pass

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
    "BulkOperations": "engine.bulk.operations wire.bulk",
    "Canceled": "products.partner.wire wire.jobs",
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
    "Hold": "engine.credits.holds wire.views",
    "Identity": "integrations.aws.metadata products.effects.wire wire.worker",
    "Job": (
        "products.actions.wire products.effects.wire products.guard.wire products.partner.wire "
        "products.studio.wire wire.jobs worker.context"
    ),
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
    "Queue": "engine.queue.queues products.guard.wire",
    "Queues": "products.guard.wire wire.kinds",
    "ReadJob": "api.parameters products.partner.parameters",
    "ReadLogs": "api.parameters products.actions.parameters",
    "Refund": "engine.credits.ledger wire.bulk",
    "Registered": "products.effects.wire wire.worker",
    "Request": "products.partner.wire wire.shapes",
    "Resource": "products.partner.resources products.partner.wire",
    "Rule": "products.guard.wire products.rules.rule",
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
