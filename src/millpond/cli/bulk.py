"""``millpond bulk``: operations on many jobs, which run in the background."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

import typer

from millpond.cli.command import command, group
from millpond.cli.options import (
    Account,
    Cursor,
    ErrorCode,
    EvenIfSucceeded,
    Fingerprint,
    JobOutcome,
    JobPhase,
    Kind,
    Limit,
    Since,
    Stage,
    State,
    Tagged,
    Tenant,
    Until,
    Yes,
    optional,
    tag_filter,
)
from millpond.wire.bulk import BulkOperationState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Retry, cancel, refund, export or prioritize many jobs.")

OperationId = Annotated[
    str, typer.Argument(metavar="OPERATION", help="The ID of the bulk operation: bulk_…", show_default=False)
]
_ENDED: Final = ("done", "aborted", "failed")
_CODES: Final = {"done": 0, "failed": 10, "aborted": 11}
_POLL_SECONDS: Final = 1.0
_POLLS_BEFORE_HINT: Final = 10


def status(followed: Any) -> int:
    """The exit code of an operation, as for a job: 10 if it failed, 11 if it was aborted; 0 while it runs."""
    return _CODES.get(getattr(followed, "state", ""), 0)


# Operations


@command(app, "list")
async def list_(
    api: ApiConnection,
    state: Annotated[BulkOperationState | None, optional("--state", text="Only bulk operations in this state.")] = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.BulkOperations:
    """List bulk operations, newest first."""
    from millpond import wire

    return await api.get("/bulk", wire.BulkOperations, state=state, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, operation: OperationId) -> wire.BulkOperation:
    """Show the progress and the result of a bulk operation."""
    return await read(api, operation)


@command(app, "watch", status=status)
async def watch(api: ApiConnection, operation: OperationId) -> AsyncGenerator[wire.BulkOperation]:
    """Follow a bulk operation until it ends.

    The exit status is 0 if it is done, 10 if it failed, and 11 if it was aborted.
    """
    async for seen in follow(api, await read(api, operation)):
        yield seen


@command(app, "abort")
async def abort(api: ApiConnection, operation: OperationId, yes: Yes = False) -> wire.BulkOperation:
    """Stop a bulk operation before its next job.

    Jobs that it has already changed stay changed.
    """
    from millpond import wire
    from millpond.cli.output import confirm
    from millpond.client.requests import segment

    confirm(f"Abort {operation}?", yes=yes)
    return await api.send("POST", f"/bulk/{segment(operation)}/abort", wire.BulkOperation)


async def read(api: ApiConnection, operation_id: str) -> wire.BulkOperation:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/bulk/{segment(operation_id)}", wire.BulkOperation)


async def follow(api: ApiConnection, operation: wire.BulkOperation) -> AsyncGenerator[wire.BulkOperation]:
    """The operation once it has ended; its progress is reported until then."""
    from millpond.cli.output import report

    reported: Any = None
    polls = 0
    while operation.state not in _ENDED:
        polls += 1
        if polls == _POLLS_BEFORE_HINT and operation.state == "waiting":
            report("The operation has not started. Is a server with the role services running?")
        seen = operation.state, operation.matched, operation.done, operation.refused
        if seen != reported:
            of = "" if operation.estimate is None else f" of about {operation.estimate:,}"
            report(f"{operation.state}: {operation.done:,} done, {operation.refused:,} refused{of}")
            reported = seen
        await asyncio.sleep(_POLL_SECONDS)
        operation = await read(api, operation.id)
    yield operation


# Actions

FILTERS: Final[dict[str, Any]] = {
    "kind": Kind,
    "state": State,
    "phase": JobPhase,
    "outcome": JobOutcome,
    "error": ErrorCode,
    "fingerprint": Fingerprint,
    "stage": Stage,
    "tag": Tagged,
    "since": Since,
    "until": Until,
    "tenant": Tenant,
    "account": Account,
}
"""The filters of jobs, the same as those of `millpond jobs list`."""
_FLAGS: Final[dict[str, Any]] = {
    "all": Annotated[bool, typer.Option("--all", help="Select every job. Required if there is no filter.")],
    "dry_run": Annotated[bool, typer.Option("--dry-run", help="Show the selected jobs, and change nothing.")],
    "watch": Annotated[bool, typer.Option("--watch", help="Follow the operation until it ends.")],
    "yes": Yes,
}
_JOBS: Final[Any] = Annotated[list[str] | None, optional("--job", metavar="JOB", text="Only this job. Repeatable.")]
_REASON: Final[Any] = Annotated[str | None, optional("--reason", text="The reason, recorded in the audit log.")]


def _declare(action: str, description: str, **own: Any) -> None:
    """Declare the command of an action, with the options of all actions and its own."""
    options = {**FILTERS, "job": _JOBS, **own, "reason": _REASON, **_FLAGS}

    async def run(api: ApiConnection, **given: Any) -> AsyncGenerator[Any]:
        async for seen in _order(api, action, given, list(own)):
            yield seen

    run.__doc__ = description
    run.__annotations__ = options
    keyword = inspect.Parameter.KEYWORD_ONLY
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter("api", inspect.Parameter.POSITIONAL_ONLY),
            *(
                inspect.Parameter(name, keyword, default=False if get_args(hint)[0] is bool else None, annotation=hint)
                for name, hint in options.items()
            ),
        ]
    )
    command(app, action, status=status)(run)


_declare(
    "retry",
    "Retry ended jobs.\n\nJobs that succeeded are refused unless --even-if-succeeded is given.",
    even_if_succeeded=EvenIfSucceeded,
)
_declare(
    "cancel", "Cancel jobs.\n\nA job that has not started ends immediately; a running job ends at its next checkpoint."
)
_declare("refund", "Refund ended jobs.\n\nRequires --reason, and a key of scope admin.")
_declare(
    "priority",
    "Change the priority of jobs that wait to start.",
    priority=Annotated[
        int | None, optional("--priority", text="The new priority. Higher starts first.", min=-100, max=100)
    ],
)
_declare(
    "export",
    "Export jobs to a file.\n\nThe file is kept for seven days.",
    format=Annotated[
        Literal["ndjson", "csv"] | None,
        optional("--format", text="The file format. ndjson holds whole jobs.", default="ndjson"),
    ],
)


async def _order(api: ApiConnection, action: str, given: dict[str, Any], own: list[str]) -> AsyncGenerator[Any]:
    """Preview the selected jobs, ask for confirmation, start the operation, and follow it if that is wanted."""
    import uuid

    from millpond import wire
    from millpond.cli.output import confirm, report

    given |= {"tag": tag_filter(given["tag"])}
    wanted = {name: given[name] for name in FILTERS if given[name] is not None}
    if given["job"]:
        wanted["ids"] = given["job"]
    seen: wire.BulkOperationPreview = await api.send(
        "POST", "/bulk/preview", wire.BulkOperationPreview, {"filter": wanted}
    )
    if given["dry_run"]:
        yield seen
        return
    selected = f"{seen.matched:,}{' or more' if seen.is_capped or seen.searched_to else ''} jobs"
    if action != "export":
        confirm(f"{action.capitalize()} {selected}?", yes=given["yes"])
    body = {"action": action, "filter": wanted, "all": given["all"], "reason": given["reason"]}
    body |= {name: given[name] for name in own}
    order = {name: value for name, value in body.items() if value is not None and value is not False}
    key = f"cli-{uuid.uuid4().hex}"  # one command starts one operation, even if the request is repeated
    operation: wire.BulkOperation = await api.send("POST", "/bulk", wire.BulkOperation, order, idempotency_key=key)
    if not given["watch"]:
        yield operation
        return
    report(f"{operation.id}: {selected}")
    async for last in follow(api, operation):
        yield last
