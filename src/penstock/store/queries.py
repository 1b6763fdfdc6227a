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
    ("penstock.store", "guards"),
    ("penstock.store", "partitions"),
    ("penstock.store", "doctor"),
    ("penstock.store", "moving"),
    ("penstock.engine", "registry"),
    ("penstock.engine", "tallies"),
    ("penstock.engine", "dispatches"),
    ("penstock.engine", "jobs"),
    ("penstock.engine", "leases"),
    ("penstock.engine", "ledger"),
    ("penstock.engine", "events"),
    ("penstock.engine", "idempotency"),
    ("penstock.engine", "transactions"),
    ("penstock.engine", "split"),
    ("penstock.engine", "endpoints"),
    ("penstock.engine", "deliveries"),
    ("penstock.engine", "queues"),
    ("penstock.engine", "verify"),
    ("penstock.engine", "access"),
    ("penstock.engine", "views"),
    ("penstock.engine", "lines"),
    ("penstock.engine", "errands"),
    ("penstock.engine", "holds"),
    ("penstock.engine", "artifacts"),
    ("penstock.engine", "workers"),
    ("penstock.engine", "scaling"),
    ("penstock.engine", "submissions"),
    ("penstock.engine", "callbacks"),
    ("penstock.engine", "system"),
    ("penstock.services", "bell"),
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
