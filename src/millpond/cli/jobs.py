"""``millpond jobs``: show, follow, cancel and retry jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group
from millpond.cli.options import (
    Account,
    Cursor,
    ErrorCode,
    EvenIfSucceeded,
    Fingerprint,
    JobId,
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
from millpond.cli.run import Timeout, patience, status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond import wire
    from millpond.cli.reach import ApiConnection
    from millpond.cli.tree import TreeLine

app = group("Show, follow, cancel and retry jobs.")

After = Annotated[int, typer.Option(help="Only events after this sequence number.", min=0)]
PageLimit = Annotated[int, typer.Option("--limit", help="The maximum number of results.", min=1, max=1_000)]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Continue until the job ends.")]


@command(app, "list")
async def list_(
    api: ApiConnection,
    kind: Kind = None,
    state: State = None,
    phase: JobPhase = None,
    outcome: JobOutcome = None,
    error: ErrorCode = None,
    fingerprint: Fingerprint = None,
    stage: Stage = None,
    tag: Tagged = None,
    since: Since = None,
    until: Until = None,
    tenant: Tenant = None,
    account: Account = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Jobs:
    """List jobs, newest first."""
    from millpond import wire

    filters = {"kind": kind, "state": state, "phase": phase, "outcome": outcome, "error": error}
    filters |= {"fingerprint": fingerprint, "stage": stage, "tag": tag_filter(tag), "since": since, "until": until}
    return await api.get("/jobs", wire.Jobs, **filters, tenant=tenant, account=account, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, job: JobId) -> Any:
    """Show a job. Operators also see the traceback of its error."""
    from millpond import wire
    from millpond.cli import follow

    found: wire.Job = await api.get(follow.path(job), wire.Job)
    traceback = None if found.error is None else await _traceback(api, job)
    return found if traceback is None else follow.FailedJob(found, traceback)


async def _traceback(api: ApiConnection, job: str) -> str | None:
    """Where the last attempt that raised an error did so, if the key may know that."""
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.errors import ForbiddenError

    try:
        detail: wire.JobDetail = await api.get(f"/board{path(job)}", wire.JobDetail)
    except ForbiddenError:
        return None
    return next((each.traceback for each in reversed(detail.attempts) if each.traceback is not None), None)


@command(app, "watch", status=status)
async def watch(api: ApiConnection, job: JobId, after: After = 0) -> AsyncGenerator[wire.Event]:
    """Print the events of a job as they happen, until it ends.

    The exit status depends on the outcome of the job.
    """
    async for event in api.client.events(job, after=after):
        yield event


@command(app, "wait", status=status)
async def wait(api: ApiConnection, job: JobId, timeout: Timeout = None) -> Any:
    """Wait until a job ends, and print its output.

    The exit status depends on the outcome of the job.
    """
    from millpond.cli import follow

    return follow.conclude(await follow.wait(api, job, patience(timeout)))


@command(app, "events")
async def events(
    api: ApiConnection, job: JobId, after: After = 0, limit: PageLimit = 500
) -> AsyncGenerator[wire.Event]:
    """List the events of a job, oldest first."""
    from millpond import wire
    from millpond.cli.follow import path

    page: wire.Events = await api.get(path(job, "events"), wire.Events, after=after, limit=limit)
    for event in page.data:
        yield event


@command(app, "logs")
async def logs(
    api: ApiConnection, job: JobId, after: After = 0, limit: PageLimit = 500, follow: Follow = False
) -> AsyncGenerator[wire.LogLine]:
    """List the log lines of a job, oldest first."""
    from millpond import wire
    from millpond.cli.follow import path

    page: wire.Logs = await api.get(path(job, "logs"), wire.Logs, after=after, limit=limit)
    for line in page.data:
        after = line.seq
        yield line
    if follow:
        async for event in api.client.events(job, after=after):
            if event.type == "log":
                yield wire.LogLine(seq=event.seq, at=event.at, text=event.data["text"], level=event.data.get("level"))


@command(app, "text", status=status)
async def text(api: ApiConnection, job: JobId, timeout: Timeout = None) -> AsyncGenerator[Any]:
    """Print the text that a running job emits, as it comes, until the job ends.

    The exit status depends on the outcome of the job.
    """
    import contextlib
    import sys

    from millpond import wire
    from millpond.cli import follow
    from millpond.cli.output import report
    from millpond.client import WaitTimeoutError

    has_text = False
    with contextlib.suppress(WaitTimeoutError):
        async for chunk in api.client.chunks(job, timeout=patience(timeout)):
            if chunk.number == 1 and has_text:
                report(f"\n{follow.RESTARTED}")
            has_text = True
            yield chunk
    if has_text and not api.as_json and sys.stdout.isatty():
        yield ""  # ends the line
    ended: wire.Job = await api.get(follow.path(job), wire.Job)
    yield follow.EndedText(follow.conclude(ended).job)


@command(app, "cancel")
async def cancel(api: ApiConnection, job: JobId, yes: Yes = False) -> wire.Canceled:
    """Cancel a job.

    A job that has not started ends immediately; a running job ends at its next checkpoint.
    """
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.output import confirm

    confirm(f"Cancel {job}?", yes=yes)
    return await api.send("POST", path(job, "cancel"), wire.Canceled)


@command(app, "retry")
async def retry(api: ApiConnection, job: JobId, even_if_succeeded: EvenIfSucceeded = False) -> wire.Accepted:
    """Retry an ended job."""
    from millpond import wire
    from millpond.cli.follow import path

    body = wire.RetryJob(even_if_succeeded=True) if even_if_succeeded else None
    return await api.send("POST", path(job, "retry"), wire.Accepted, body)


@command(app, "refund")
async def refund(
    api: ApiConnection,
    job: JobId,
    reason: Annotated[str, typer.Option(help="The reason, recorded in the ledger.", show_default=False)],
    amount: Annotated[
        int | None,
        optional("--amount", text="The number of credits.", default="all that are not yet refunded", min=1),
    ] = None,
    yes: Yes = False,
) -> wire.Refund:
    """Refund the credits of an ended job.

    Repeating the command does not refund them again.
    """
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.output import confirm

    confirm(f"Refund {'all remaining credits' if amount is None else f'{amount} credits'} of {job}?", yes=yes)
    body = {"reason": reason} | ({} if amount is None else {"amount": amount})
    return await api.send("POST", path(job, "refund"), wire.Refund, body)


@command(app, "priority")
async def priority(
    api: ApiConnection,
    job: JobId,
    given: Annotated[
        int,
        typer.Option(
            "--priority",
            metavar="PRIORITY",
            help="The new priority. Higher starts first.",
            min=-100,
            max=100,
            show_default=False,
        ),
    ],
) -> wire.State:
    """Change the priority of a job that waits to start."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.send("PUT", path(job, "priority"), wire.State, {"priority": given})


@command(app, "children")
async def children(api: ApiConnection, job: JobId, cursor: Cursor = None, limit: Limit = 50) -> wire.Children:
    """List the children of a job, oldest first."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.get(path(job, "children"), wire.Children, cursor=cursor, limit=limit)


@command(app, "tree")
async def tree(api: ApiConnection, job: JobId) -> AsyncGenerator[TreeLine]:
    """Show a job with its children, their children, and so on."""
    from millpond.cli.tree import walk

    async for line in walk(api, job):
        yield line


@command(app, "questions")
async def questions(api: ApiConnection, job: JobId) -> wire.Questions:
    """List the questions that a job asks."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.get(path(job, "questions"), wire.Questions)


@command(app, "answer")
async def answer(
    api: ApiConnection,
    job: JobId,
    given: Annotated[str, typer.Argument(metavar="ANSWER", help="The answer: JSON, or plain text.")],
    question: Annotated[
        str | None, optional("--question", text="The name of the question.", default="the only open one")
    ] = None,
) -> wire.State:
    """Give a parked job the answer that it waits for."""
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.run import read_value

    body = {"answer": read_value(given)} | ({} if question is None else {"question": question})
    return await api.send("POST", path(job, "answer"), wire.State, body)
