"""Reads ``.sql`` files: named queries, and functions that are applied after migrations.

A file is a sequence of blocks. ``-- name: read :maybe`` starts a query and gives its shape;
``-- function: claim`` starts the definition of a function; ``-- fragment: fields`` starts text that statements of any
file insert as ``{noun.fields}``. A block ends at the next header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Shape = Literal["one", "maybe", "many", "exec"]

SOURCES: Final = (
    ("millpond.store", "guards"),
    ("millpond.store", "partitions"),
    ("millpond.store", "doctor"),
    ("millpond.store", "moving"),
    ("millpond.engine.queue", "registry"),
    ("millpond.engine.reads", "counters"),
    ("millpond.engine.queue", "dispatches"),
    ("millpond.engine.queue", "limits"),
    ("millpond.engine.jobs", "jobs"),
    ("millpond.engine.queue", "leases"),
    ("millpond.engine.composition", "steps"),
    ("millpond.engine.composition", "batches"),
    ("millpond.engine.composition", "client_batches"),
    ("millpond.engine.composition", "budgets"),
    ("millpond.engine.credits", "ledger"),
    ("millpond.engine.jobs", "events"),
    ("millpond.engine.jobs", "chunks"),
    ("millpond.engine.jobs", "idempotency"),
    ("millpond.engine.jobs", "transactions"),
    ("millpond.engine.tenant_databases", "remote"),
    ("millpond.engine.webhooks", "endpoints"),
    ("millpond.engine.webhooks", "deliveries"),
    ("millpond.engine.queue", "queues"),
    ("millpond.engine.queue", "schedules"),
    ("millpond.engine.queue", "fires"),
    ("millpond.engine", "verify"),
    ("millpond.engine.access", "access"),
    ("millpond.engine.reads", "views"),
    ("millpond.engine.reads", "summaries"),
    ("millpond.engine.bulk", "operations"),
    ("millpond.engine.credits", "holds"),
    ("millpond.engine.jobs", "artifacts"),
    ("millpond.engine.fleet", "workers"),
    ("millpond.engine.fleet", "scaling"),
    ("millpond.engine.providers", "predictions"),
    ("millpond.engine.providers", "callbacks"),
    ("millpond.engine.reads", "system"),
    ("millpond.services", "notifier"),
)
"""The SQL files, among them all with functions, in the order in which these are applied."""

_HEADER: Final = re.compile(r"^-- (name|function|fragment): (\w+)(?: :(\w+))?$", re.MULTILINE)
_INSERTION: Final = re.compile(r"\{(\w+)\.(\w+)\}")
_COMMENT: Final = re.compile(r"^--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A named statement; its shape states how many rows it returns."""

    name: str
    shape: Shape
    text: str


def queries(package: str, noun: str) -> Mapping[str, NamedQuery]:
    """The named queries of a file."""
    return {
        name: NamedQuery(f"{noun}.{name}", _shape(noun, name, shape), text)
        for what, name, shape, text in _blocks(package, noun)
        if what == "name"
    }


def functions(package: str, noun: str) -> Mapping[str, str]:
    """The definitions of the functions of a file."""
    return {name: text for what, name, _, text in _blocks(package, noun) if what == "function"}


def _shape(noun: str, name: str, given: str) -> Shape:
    for shape in get_args(Shape):
        if shape == given:
            return shape
    raise ValueError(f"{noun}.sql: {name} has no shape; give it one of {', '.join(get_args(Shape))}")


@cache
def _blocks(package: str, noun: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(
        (what, name, shape, _INSERTION.sub(_inserted, text))
        for what, name, shape, text in _split(_text(package, noun))
        if what != "fragment"
    )


def _inserted(insertion: re.Match[str]) -> str:
    noun, wanted = insertion.groups()
    (package,) = (package for package, other in SOURCES if other == noun)
    (found,) = (text for what, name, _, text in _split(_text(package, noun)) if (what, name) == ("fragment", wanted))
    return _COMMENT.sub("", found)


def _text(package: str, noun: str) -> str:
    return files(package).joinpath(f"{noun}.sql").read_text("utf-8")


def _split(text: str) -> Iterator[tuple[str, str, str, str]]:
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=False):
        yield header[1], header[2], header[3] or "", text[header.end() : end].strip()
