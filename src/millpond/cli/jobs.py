"""``millpond jobs``: look at jobs, follow them, stop them, run them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli import bulk
from millpond.cli.command import command, group
from millpond.cli.options import Account, Cursor, JobId, Limit, Tenant, Yes
from millpond.cli.run import patience, status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from millpond import wire
    from millpond.cli.reach import Api

app = group("Look at jobs, follow them, stop them, run them again.")
app.add_typer(bulk.app, name="bulk")

After = Annotated[int, typer.Option(help="Begin after this event.", min=0)]
PageLimit = Annotated[int, typer.Option("--limit", help="How many at most.", min=1, max=1_000)]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")]
Timeout = Annotated[str | None, typer.Option(help="Wait no longer than this, e.g. 90s.", show_default=False)]


@command(app, "list")
async def list_(
    api: Api,
    kind: Annotated[str | None, typer.Option(help="Only this kind.", show_default=False)] = None,
    state: Annotated[str | None, typer.Option(help="Only in this state.", show_default=False)] = None,
    phase: Annotated[str | None, typer.Option(help="Only in this phase.", show_default=False)] = None,
    tenant: Tenant = None,
    account: Account = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Jobs:
    """List jobs, the newest first."""
    from millpond import wire

    filters = {"kind": kind, "state": state, "phase": phase, "tenant": tenant, "account": account}
    return await api.get("/jobs", wire.Jobs, **filters, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: Api, job: JobId) -> wire.Job:
    """Show a job."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.get(path(job), wire.Job)


@command(app, "watch", status=status)
async def watch(api: Api, job: JobId, after: After = 0) -> AsyncGenerator[wire.Event]:
    """Print a job's events as they come, until it ends. The exit status tells how."""
    async for event in api.client.events(job, after=after):
        yield event


@command(app, "wait", status=status)
async def wait(api: Api, job: JobId, timeout: Timeout = None) -> Any:
    """Wait until a job has ended and print its output. The exit status tells how it ended."""
    from millpond.cli import follow

    return follow.conclude(await follow.wait(api, job, patience(timeout)))


@command(app, "events")
async def events(api: Api, job: JobId, after: After = 0, limit: PageLimit = 500) -> AsyncGenerator[wire.Event]:
    """Print what has happened to a job."""
    from millpond import wire
    from millpond.cli.follow import path

    page: wire.Events = await api.get(path(job, "events"), wire.Events, after=after, limit=limit)
    for event in page.data:
        yield event


@command(app, "logs")
async def logs(
    api: Api, job: JobId, after: After = 0, limit: PageLimit = 500, follow: Follow = False
) -> AsyncGenerator[wire.LogLine]:
    """Print what a job's code has logged."""
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


@command(app, "cancel")
async def cancel(api: Api, job: JobId, yes: Yes = False) -> wire.Canceled:
    """Cancel a job: at once if it has not started, else at its next checkpoint."""
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.output import confirm

    confirm(f"Cancel {job}?", yes=yes)
    return await api.send("POST", path(job, "cancel"), wire.Canceled)


@command(app, "retry")
async def retry(api: Api, job: JobId) -> wire.Accepted:
    """Run an ended job once more."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.send("POST", path(job, "retry"), wire.Accepted)


@command(app, "refund")
async def refund(
    api: Api,
    job: JobId,
    reason: Annotated[str, typer.Option(help="Why; it stands in the ledger.", show_default=False)],
    amount: Annotated[int | None, typer.Option(help="So many credits; all that are left, if left out.", min=1)] = None,
    yes: Yes = False,
) -> wire.Refund:
    """Give back what an ended job has cost: once, however often it is said."""
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.output import confirm

    confirm(f"Give back {'what is left' if amount is None else amount} of {job}?", yes=yes)
    body = {"reason": reason} | ({} if amount is None else {"amount": amount})
    return await api.send("POST", path(job, "refund"), wire.Refund, body)


@command(app, "priority")
async def priority(
    api: Api,
    job: JobId,
    given: Annotated[
        int, typer.Option("--priority", help="The highest goes first.", min=-100, max=100, show_default=False)
    ],
) -> wire.State:
    """Give a job that waits for its turn another priority."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.send("PUT", path(job, "priority"), wire.State, {"priority": given})


@command(app, "answer")
async def answer(
    api: Api,
    job: JobId,
    given: Annotated[str, typer.Argument(metavar="ANSWER", help="JSON, or plain text.", show_default=False)],
) -> wire.State:
    """Give a parked job what it waits for."""
    from millpond import wire
    from millpond.cli.follow import path
    from millpond.cli.run import read_value

    return await api.send("POST", path(job, "answer"), wire.State, {"answer": read_value(given)})
