"""Reads a noun's ``.sql`` file: named queries, and the functions that migration re-applies.

A file is a sequence of blocks. ``-- name: read :maybe`` starts a query and tells its shape;
``-- function: claim`` starts the definition of a function. What follows up to the next header is the block.
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
    ("millpond.engine", "registry"),
    ("millpond.engine", "tallies"),
    ("millpond.engine", "dispatches"),
    ("millpond.engine", "jobs"),
    ("millpond.engine", "leases"),
    ("millpond.engine", "ledger"),
    ("millpond.engine", "events"),
    ("millpond.engine", "idempotency"),
    ("millpond.engine", "transactions"),
    ("millpond.engine", "split"),
    ("millpond.engine", "endpoints"),
    ("millpond.engine", "deliveries"),
    ("millpond.engine", "queues"),
    ("millpond.engine", "verify"),
    ("millpond.engine", "access"),
    ("millpond.engine", "views"),
    ("millpond.engine", "lines"),
    ("millpond.engine", "errands"),
    ("millpond.engine", "holds"),
    ("millpond.engine", "artifacts"),
    ("millpond.engine", "workers"),
    ("millpond.engine", "scaling"),
    ("millpond.engine", "submissions"),
    ("millpond.engine", "callbacks"),
    ("millpond.engine", "system"),
    ("millpond.services", "bell"),
)
"""Every SQL file, in the order in which their functions are applied."""

_HEADER: Final = re.compile(r"^-- (name|function): (\w+)(?: :(\w+))?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Query:
    """A statement by name; its shape says how many rows it gives."""

    name: str
    shape: Shape
    text: str


def queries(package: str, noun: str) -> Mapping[str, Query]:
    """The named queries of one noun."""
    return {
        name: Query(f"{noun}.{name}", _shape(noun, name, shape), text)
        for what, name, shape, text in _blocks(package, noun)
        if what == "name"
    }


def functions(package: str, noun: str) -> Mapping[str, str]:
    """The definitions of one noun's functions."""
    return {name: text for what, name, _, text in _blocks(package, noun) if what == "function"}


def _shape(noun: str, name: str, given: str) -> Shape:
    for shape in get_args(Shape):
        if shape == given:
            return shape
    raise ValueError(f"{noun}.sql: {name} has no shape; give it one of {', '.join(get_args(Shape))}")


@cache
def _blocks(package: str, noun: str) -> tuple[tuple[str, str, str, str], ...]:
    return tuple(_split(files(package).joinpath(f"{noun}.sql").read_text("utf-8")))


def _split(text: str) -> Iterator[tuple[str, str, str, str]]:
    headers = list(_HEADER.finditer(text))
    ends = [*(header.start() for header in headers[1:]), len(text)]
    for header, end in zip(headers, ends, strict=False):
        yield header[1], header[2], header[3] or "", text[header.end() : end].strip()
