"""The output of commands: results on standard output, diagnostics on standard error, one format of errors."""

from __future__ import annotations

import contextlib
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
_OURS: Final = 500  # from here on the server's log has more details than its response

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
"""The exit codes of commands that wait for a job."""


class UsageError(MillpondError):
    """The command line is not valid."""

    code = "usage"
    status = 400


def print_json(data: Any) -> None:
    sys.stdout.write(_json_line(data))
    sys.stdout.flush()


def announce(data: Any) -> None:
    """Print JSON about a command that continues. It does not wait, and if that fails, the command continues."""
    from millpond.log_sink import write_soon

    write_soon(sys.stdout, _json_line(data))


def _json_line(data: Any) -> str:
    import msgspec

    return msgspec.json.encode(data, enc_hook=str).decode() + "\n"


def report(text: str) -> None:
    """Write a diagnostic: progress, a prompt, or an error. If that fails, the command continues."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")


def verdict_line(name: str, detail: str, *, is_well: bool) -> str:
    """The result of one check as a line of text."""
    return f"{'ok  ' if is_well else 'FAIL'} {name}: {detail}"


def fail(error: MillpondError, *, as_json: bool = False) -> NoReturn:
    """Report an error, and exit with the code of its class."""
    if as_json:
        print_json(problem(error))
    request = f" (request {error.request_id})" if error.request_id and error.status >= _OURS else ""
    report(f"millpond: {error}{request}")
    sys.exit(exit_code(error))


def exit_code(error: MillpondError) -> int:
    if isinstance(error, UsageError):
        return USAGE
    return next((code for known, code in EXIT_CODES if isinstance(error, known)), 1)


def problem(error: MillpondError) -> dict[str, Any]:
    """An error in the format of the API."""
    details = {name: value for name, value in error.as_dict().items() if name != "message"}
    title = (type(error).__doc__ or error.code).strip().splitlines()[0].rstrip(".")
    about = {"type": f"/docs/problems/{error.code}", "title": title, "status": error.status, "detail": error.message}
    request = {"request_id": error.request_id} if error.request_id else {}
    return about | details | {"retryable": error.retryable} | request


def confirm(question: str, *, yes: bool) -> None:
    """Ask before an action that cannot be undone; without a terminal, ``--yes`` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("This cannot be undone, and there is no terminal to ask for confirmation.", hint="Use --yes.")
    import typer

    typer.confirm(question, abort=True, err=True)
