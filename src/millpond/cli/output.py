"""How commands speak: data on standard output, talk on standard error, one way to fail."""

from __future__ import annotations

import sys
from typing import Any, Final, NoReturn

from millpond.errors import (
    ConflictError,
    ForbiddenError,
    InsufficientCreditsError,
    InvalidError,
    MillpondError,
    NotFoundError,
    RequestError,
    StoreError,
    TooManyActiveJobsError,
    UnauthorizedError,
)

USAGE: Final = 2
TIMED_OUT: Final = 7
INTERRUPTED: Final = 130
_OURS: Final = 500  # from here on the server's log tells more than its answer

EXIT_CODES: Final[tuple[tuple[type[MillpondError], int], ...]] = (
    (NotFoundError, 3),
    (UnauthorizedError, 4),
    (ForbiddenError, 4),
    (ConflictError, 5),
    (InvalidError, 5),
    (RequestError, 5),
    (TooManyActiveJobsError, 5),
    (InsufficientCreditsError, 6),
    (StoreError, 8),
)
OUTCOME_CODES: Final = {"succeeded": 0, "failed": 10, "blocked": 10, "canceled": 11, "expired": 12}
"""What commands that wait for a job leave with."""


class UsageError(MillpondError):
    """The command line was not understood."""

    code = "usage"
    status = 400


def print_json(data: Any) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.encode(data, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Talk to a person."""
    sys.stderr.write(f"{text}\n")


def fail(error: MillpondError, *, as_json: bool = False) -> NoReturn:
    """Tell an error and leave with the exit code of its kind."""
    if as_json:
        print_json(problem(error))
    request = f" (request {error.request_id})" if error.request_id and error.status >= _OURS else ""
    say(f"millpond: {error}{request}")
    sys.exit(exit_code(error))


def exit_code(error: MillpondError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return next((code for known, code in EXIT_CODES if isinstance(error, known)), 1)


def problem(error: MillpondError) -> dict[str, Any]:
    """An error as the API tells it."""
    told = {name: value for name, value in error.as_dict().items() if name != "message"}
    title = (type(error).__doc__ or error.code).strip().splitlines()[0].rstrip(".")
    about = {"type": f"/docs/problems/{error.code}", "title": title, "status": error.status, "detail": error.message}
    request = {"request_id": error.request_id} if error.request_id else {}
    return about | told | {"retryable": error.retryable} | request


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be undone; where nobody can answer, it must be said beforehand."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("It cannot be undone, and nobody is here to be asked.", hint="Add --yes.")
    import typer

    typer.confirm(question, abort=True, err=True)
