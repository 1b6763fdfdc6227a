"""Identifiers as the contract writes them: ``job_`` and 26 upper-case characters, others with a UUID."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from millpond import ids
from millpond.errors import IdempotencyKeyError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from millpond.product import Call

Prefix = Literal["prj", "cnt", "inf", "lse", "sac"]

WORDS: Final[dict[Prefix, str]] = {
    "prj": "project",
    "cnt": "container",
    "inf": "influencer",
    "lse": "lease request",
    "sac": "social account",
}
UUID_PATTERN: Final = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LAST: Final = UUID(int=2**128 - 1)
_UUID: Final = re.compile(UUID_PATTERN)
_KEY: Final = re.compile(UUID_PATTERN, re.ASCII | re.IGNORECASE)  # clients generate keys, some in upper case


def job_text(job_id: UUID) -> str:
    prefix, _, letters = ids.text("job", job_id).partition("_")
    return f"{prefix}_{letters.upper()}"


def parse_job(given: str, *, field: str = "jobId") -> UUID:
    """Read the id of a job in upper case, as in the contract, or in lower case, as in the webhooks of the native API.

    An invalid one is reported as not found.
    """
    prefix, _, letters = given.partition("_")
    if letters.isascii() and letters in (letters.upper(), letters.lower()):
        with contextlib.suppress(NotFoundError):
            return ids.parse("job", f"{prefix}_{letters.lower()}")
    raise NotFoundError(f"There is no job {given[:60]!r}.", field=field)


def text(prefix: Prefix, value: UUID) -> str:
    return f"{prefix}_{value}"


def parse(prefix: Prefix, given: str, *, field: str) -> UUID:
    """Read an id; an invalid one is reported as not found."""
    start, _, rest = given.partition("_")
    if start != prefix or not _UUID.fullmatch(rest):
        raise absent(prefix, given, field=field)
    return UUID(rest)


def absent(prefix: Prefix, given: str | UUID, *, field: str) -> NotFoundError:
    name = given[:60] if isinstance(given, str) else text(prefix, given)
    return NotFoundError(f"There is no {WORDS[prefix]} {name!r}.", field=field)


def cursor(prefix: Prefix, given: str | None) -> UUID:
    """The id below which a page begins: the last one of the previous page."""
    if given is None:
        return _LAST
    try:
        return parse(prefix, given, field="cursor")
    except NotFoundError:
        raise InvalidError("The value is not a cursor of this list.", field="cursor") from None


def job_cursor(given: str | None) -> UUID | None:
    """The job after which a page begins."""
    if given is None:
        return None
    try:
        return parse_job(given)
    except NotFoundError:
        raise InvalidError("The value is not a cursor of this list.", field="cursor") from None


def key(call: Call) -> UUID | None:
    """The idempotency key of a request: a UUID, in upper or lower case."""
    given = call.header(b"idempotency-key")
    if given is None:
        return None
    if not _KEY.fullmatch(given):
        raise IdempotencyKeyError(
            "The key must be a UUID.",
            field="Idempotency-Key",
            hint="Generate a new UUID for each request, and send the same one to repeat it.",
        )
    return UUID(given)
