"""``millpond batches``: many jobs under one handle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group
from millpond.cli.options import (
    Account,
    Cursor,
    JobOutcome,
    JobPhase,
    Limit,
    Tenant,
    optional,
    tag_filter,
    tags,
)
from millpond.cli.output import UsageError
from millpond.cli.run import Timeout, patience
from millpond.wire.batches import BatchState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Submit, show and cancel batches of jobs.")

Which = Annotated[str, typer.Argument(metavar="BATCH", help="The ID of the batch: batch_…", show_default=False)]


@command(app, "list")
async def list_(
    api: ApiConnection,
    state: Annotated[BatchState | None, optional("--state", text="Only batches in this state.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag",
            metavar="KEY=VALUE",
            help="Only batches with this tag. Repeatable; all must match.",
            show_default=False,
        ),
    ] = None,
    tenant: Tenant = None,
    account: Account = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Batches:
    """List batches, newest first."""
    from millpond import wire

    filters = {"state": state, "tag": tag_filter(tag), "tenant": tenant, "account": account}
    return await api.get("/batches", wire.Batches, **filters, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, batch: Which, tenant: Tenant = None) -> wire.Batch:
    """Show a batch: its state, its counts and its cost."""
    from millpond import wire

    return await api.get(_path(batch), wire.Batch, tenant=tenant)


@command(app, "jobs")
async def jobs(
    api: ApiConnection,
    batch: Which,
    phase: JobPhase = None,
    outcome: JobOutcome = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.BatchJobs:
    """List the jobs of a batch, in the order in which they were submitted."""
    from millpond import wire

    filters = {"phase": phase, "outcome": outcome, "tenant": tenant}
    return await api.get(_path(batch, "jobs"), wire.BatchJobs, **filters, cursor=cursor, limit=limit)


@command(app, "create")
async def create(
    api: ApiConnection,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A file with a job per line, as JSON; - for standard input.")
    ],
    kind: Annotated[
        str | None, optional("--kind", text="The kind of all jobs. Each line is then the input of a job.")
    ] = None,
    name: Annotated[str | None, optional("--name", text="The name of the batch.")] = None,
    webhook: Annotated[str | None, optional("--webhook", text="A URL that receives the end of the batch.")] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="KEY=VALUE", help="A tag of the batch and its jobs. Repeatable.", show_default=False
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False,
    timeout: Timeout = None,
    tenant: Tenant = None,
    account: Account = None,
    idempotency_key: Annotated[
        str | None,
        optional(
            "--idempotency-key",
            text="Create one batch with this key. To continue it, repeat the command.",
            default="a new key",
        ),
    ] = None,
) -> wire.Batch | None:
    """Submit the jobs of a file as a batch, a thousand at a time.

    A line is {"kind": "thumbnail", "input": {"url": "…"}}, optionally with priority, run_at, expires_in and tags.
    """
    seconds = patience(timeout)
    requests = list(_requests(file, kind))
    owner = api.owner(tenant, account)
    batch = await api.client.batch(
        requests, name=name, tags=tags(tag), webhook=webhook, **owner, idempotency_key=idempotency_key
    )
    if wait:
        await api.client.wait_for_batch(batch, timeout=seconds)
    return batch.record


@command(app, "cancel")
async def cancel(api: ApiConnection, batch: Which, tenant: Tenant = None) -> wire.Batch:
    """Cancel a batch: it accepts no more jobs, and those that have not ended are canceled."""
    return (await api.client.cancel_batch(batch, tenant=tenant)).batch


def _requests(file: str, kind: str | None) -> Iterator[dict[str, Any]]:
    """The jobs of a file."""
    import msgspec

    for number, line in enumerate(_lines(file), 1):
        if not line.strip():
            continue
        try:
            read = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise UsageError(f"Line {number} of {file} is not a JSON object: {error}.") from None
        yield read if kind is None else {"kind": kind, "input": read}


def _lines(file: str) -> Iterator[bytes]:
    if file == "-":
        yield from sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as lines:
            yield from lines
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None


def _path(batch: str, *verb: str) -> str:
    from millpond.client.requests import segment

    return "/".join(("/batches", segment(batch), *verb))
