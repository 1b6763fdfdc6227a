"""How commands speak: JSON for programs, lines for people, one way to fail."""

from __future__ import annotations

import sys
from typing import Any, Final, NoReturn

import msgspec

from penstock.errors import (
    ConflictError,
    InsufficientCreditsError,
    InvalidError,
    NotFoundError,
    PenstockError,
    StoreError,
)

EXIT_CODES: Final[tuple[tuple[type[PenstockError], int], ...]] = (
    (NotFoundError, 3),
    (ConflictError, 5),
    (InvalidError, 5),
    (InsufficientCreditsError, 6),
    (StoreError, 8),
)


def print_json(data: Any) -> None:
    sys.stdout.write(msgspec.json.encode(data, enc_hook=str).decode() + "\n")


def say(text: str) -> None:
    """Talk to a person."""
    sys.stderr.write(f"{text}\n")


def fail(error: PenstockError) -> NoReturn:
    """Tell an error and leave with the exit code of its kind."""
    say(f"penstock: {error}")
    sys.exit(next((code for known, code in EXIT_CODES if isinstance(error, known)), 1))
