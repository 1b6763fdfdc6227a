"""Identifiers as the contract writes them: ``job_`` and 26 upper-case letters, others with a UUID."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from millpond import ids
from millpond.errors import IdempotencyKeyError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from millpond.api.calls import Call

Prefix = Literal["prj", "cnt", "inf", "lse", "sac"]

WORDS: Final[dict[Prefix, str]] = {
    "prj": "project",
    "cnt": "container",
    "inf": "influencer",
    "lse": "lease request",
    "sac": "social account",
}
UUID_PATTERN: Final = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_LAST: Final = UUID(int=2**128 - 1)
_UUID: Final = re.compile(UUID_PATTERN)


def job_text(job_id: UUID) -> str:
    prefix, _, letters = ids.text("job", job_id).partition("_")
    return f"{prefix}_{letters.upper()}"


def text(prefix: Prefix, value: UUID) -> str:
    return f"{prefix}_{value}"


def parse(prefix: Prefix, given: str, *, field: str) -> UUID:
    """Read an id; one that cannot be ours is simply not found."""
    start, _, rest = given.partition("_")
    if start.lower() != prefix or not _UUID.fullmatch(rest):
        raise absent(prefix, given, field=field)
    return UUID(rest)


def absent(prefix: Prefix, given: str | UUID, *, field: str) -> NotFoundError:
    told = given[:60] if isinstance(given, str) else text(prefix, given)
    return NotFoundError(f"There is no {WORDS[prefix]} {told!r}.", field=field)


def cursor(prefix: Prefix, given: str | None) -> UUID:
    """The place where a page begins, as the page before has told it: below the id that it ended with."""
    if given is None:
        return _LAST
    try:
        return parse(prefix, given, field="cursor")
    except NotFoundError:
        raise InvalidError("It is not a cursor of this list.", field="cursor") from None


def key(call: Call) -> UUID | None:
    """The idempotency key of a request, which is a UUID, in letters of any case."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    if not _UUID.fullmatch(given):
        raise IdempotencyKeyError(
            "It must be a UUID.",
            field="Idempotency-Key",
            hint="Make a new one for each request, and send the same one when you repeat that.",
        )
    return UUID(given)
