"""The table: the sentences of the contracts, who checks each, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Check = Callable[[Any], Any]

CONTRACTS: Final = ("effects", "studio", "guard", "partner", "actions")
PAGE: Final = Path(__file__).parents[2] / "docs" / "reference" / "conformance.md"
_FOLDER: Final = Path(__file__).parent / "contracts"
_ROW: Final = re.compile(r"\| ([A-Z]{3}-[0-9]+) \| (.+) \|")
_HEAD: Final = """\
# Conformance

Each of the five products has a contract of numbered sentences. `make conformance` starts `millpond up`, checks every
sentence over HTTP, and writes the results here. It fails if a sentence has no check, or a check no sentence. The checks
are in `products/tests/conformance`.
"""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One requirement, word for word."""

    contract: str
    number: str
    text: str


def read(contract: str) -> tuple[Sentence, ...]:
    text = (_FOLDER / f"{contract}.md").read_text("utf-8")
    return tuple(Sentence(contract, *row) for row in _ROW.findall(text))


SENTENCES: Final = {sentence.number: sentence for contract in CONTRACTS for sentence in read(contract)}
CHECKS: Final[dict[str, Check]] = {}


def checks(number: str) -> Callable[[Check], Check]:
    """Say that a function checks this requirement."""

    def keep(check: Check) -> Check:
        assert number not in CHECKS, f"two checks for {number}"
        CHECKS[number] = check
        return check

    return keep


def page(results: Mapping[str, str]) -> str:
    """The table as a page; nothing in it changes from one run to the next but what came of it."""
    parts = [_HEAD]
    for contract in CONTRACTS:
        rows = [f"| {one.number} | {one.text} | {results[one.number]} |" for one in read(contract)]
        parts.append("\n".join([f"## {contract.capitalize()}\n", "| # | must hold | result |", "|---|---|---|", *rows]))
    return "\n\n".join(part.strip() for part in parts) + "\n"
