"""``millpond schedules``: what submits jobs at due times, and what it did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Account, Cursor, Limit, Tenant, Yes, optional, tags
from millpond.cli.output import UsageError, confirm
from millpond.cli.run import Given
from millpond.schedules import CatchUp, FireOutcome, Overlap, ScheduleSource, ScheduleState

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show, create, pause, run and backfill schedules.")

Which = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="The ID of the schedule: sched_…, or its name.", show_default=False)
]
Cron = Annotated[
    str | None,
    optional("--cron", text="Fire at the matches of a cron expression, for example '0 3 * * *', or @daily."),
]
Every = Annotated[str | None, optional("--every", text="Fire at this interval, for example 15m.")]
At = Annotated[str | None, optional("--at", text="Fire once, for example at 2030-01-31T12:00:00Z.")]
Zone = Annotated[
    str | None, optional("--zone", text="The time zone of the cron expression, for example Europe/Berlin.")
]
Jitter = Annotated[str | None, optional("--jitter", text="Delay each fire by a random time up to this one.")]
DueField = Annotated[str | None, optional("--due-field", text="The field of the input that is set to the due time.")]
OverlapPolicy = Annotated[
    Overlap | None, optional("--overlap", text="What to do if the previous job has not ended.", default="queue")
]
CatchUpPolicy = Annotated[
    CatchUp | None, optional("--catch-up", text="Which missed due times to make up for.", default="last")
]
CatchUpMax = Annotated[
    int | None,
    optional("--catch-up-max", text="How many missed due times `all` makes up for.", default="100", min=1, max=1_000),
]
JobPriority = Annotated[
    int | None,
    optional(
        "--priority", text="The priority of the jobs. Higher starts first.", default="of the kind", min=-100, max=100
    ),
]
ExpiresIn = Annotated[
    str | None, optional("--expires-in", text="Expire the jobs after this time.", default="of the kind")
]
JobTags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag", metavar="KEY=VALUE", help="A tag of the jobs, by which they are found. Repeatable.", show_default=False
    ),
]


@command(app, "list")
async def list_(
    api: ApiConnection,
    state: Annotated[ScheduleState | None, optional("--state", text="Only schedules in this state.")] = None,
    source: Annotated[
        ScheduleSource | None, optional("--source", text="Only schedules from the code of an app, or from the API.")
    ] = None,
    tenant: Tenant = None,
    account: Account = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Schedules:
    """List schedules, oldest first."""
    from millpond import wire

    filters = {"state": state, "source": source, "tenant": tenant, "account": account}
    return await api.get("/schedules", wire.Schedules, **filters, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, schedule: Which, tenant: Tenant = None) -> wire.ScheduleDetail:
    """Show a schedule, its next ten due times and its last fires."""
    return await api.client.schedule(await _id(api, schedule, tenant), tenant=tenant)


@command(app, "create")
async def create(
    api: ApiConnection,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, unique in the tenant.", show_default=False)],
    kind: Annotated[str, typer.Argument(metavar="KIND", help="The kind of its jobs.", show_default=False)],
    given: Given = None,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    zone: Zone = None,
    jitter: Jitter = None,
    overlap: OverlapPolicy = None,
    catch_up: CatchUpPolicy = None,
    catch_up_max: CatchUpMax = None,
    due_field: DueField = None,
    priority: JobPriority = None,
    expires_in: ExpiresIn = None,
    tag: JobTags = None,
    tenant: Tenant = None,
    account: Account = None,
) -> wire.ScheduleDetail:
    """Create a schedule, which submits jobs by a cron expression, at intervals, or once.

    Nothing is charged until a job is submitted.
    """
    import uuid

    from millpond import wire
    from millpond.cli.run import read_input

    owner = api.owner(tenant, account)
    body = {"name": name, "kind": kind, "input": read_input(given or []), "account": owner["account"]}
    body |= {"cron": cron, "every": every, "at": at, "zone": zone, "jitter": jitter, "due_field": due_field}
    body |= {"overlap": overlap, "catch_up": catch_up, "catch_up_max": catch_up_max, "priority": priority}
    body |= {"expires_in": expires_in, "tags": tags(tag)}
    named = {name: value for name, value in body.items() if value is not None}
    key = f"cli-{uuid.uuid4().hex}"  # one command creates one schedule, even if the request is repeated
    return await api.send("POST", "/schedules", wire.ScheduleDetail, named, tenant=owner["tenant"], idempotency_key=key)


@command(app, "update")
async def update(
    api: ApiConnection,
    schedule: Which,
    given: Given = None,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    zone: Zone = None,
    jitter: Jitter = None,
    overlap: OverlapPolicy = None,
    catch_up: CatchUpPolicy = None,
    catch_up_max: CatchUpMax = None,
    due_field: DueField = None,
    priority: JobPriority = None,
    expires_in: ExpiresIn = None,
    tag: JobTags = None,
    tenant: Tenant = None,
) -> wire.ScheduleDetail:
    """Change a schedule. Options that are left out keep their values.

    An input replaces the previous one. If the timing changes, the next due time is counted from now.
    """
    from millpond.cli.run import read_input

    options = {"cron": cron, "every": every, "at": at, "zone": zone, "jitter": jitter, "due_field": due_field}
    options |= {"overlap": overlap, "catch_up": catch_up, "catch_up_max": catch_up_max, "priority": priority}
    options |= {"expires_in": expires_in, "tags": tags(tag), "input": read_input(given) if given else None}
    changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise UsageError("No change was given.", hint="Use --cron, --every, --at, --input or another option.")
    return await api.client.update_schedule(await _id(api, schedule, tenant), tenant=tenant, **changes)


@command(app, "pause")
async def pause(api: ApiConnection, schedule: Which, tenant: Tenant = None) -> wire.ScheduleDetail:
    """Pause a schedule. Due times that pass meanwhile are not made up for."""
    return await api.client.pause_schedule(await _id(api, schedule, tenant), tenant=tenant)


@command(app, "resume")
async def resume(api: ApiConnection, schedule: Which, tenant: Tenant = None) -> wire.ScheduleDetail:
    """Resume a paused schedule with its next due time from now on."""
    return await api.client.resume_schedule(await _id(api, schedule, tenant), tenant=tenant)


@command(app, "run")
async def run(api: ApiConnection, schedule: Which, tenant: Tenant = None) -> wire.Fire:
    """Submit a job of a schedule now, whatever its due times and its state are."""
    return await api.client.run_schedule(await _id(api, schedule, tenant), tenant=tenant)


@command(app, "backfill")
async def backfill(
    api: ApiConnection,
    schedule: Which,
    since: Annotated[
        str, typer.Option(help="The beginning of the period: an ISO 8601 time, or 24h for the last 24 hours.")
    ],
    until: Annotated[str | None, optional("--until", text="The end of the period.", default="now")] = None,
    tenant: Tenant = None,
) -> wire.Backfilled:
    """Fire the due times of a past period that have no job.

    They were missed, skipped or refused. A period has at most 1,000 due times.
    """
    return await api.client.backfill_schedule(await _id(api, schedule, tenant), since, until, tenant=tenant)


@command(app, "delete")
async def delete(api: ApiConnection, schedule: Which, tenant: Tenant = None, yes: Yes = False) -> dict[str, str]:
    """Delete a schedule. Its jobs remain."""
    confirm(f"Delete {schedule}?", yes=yes)
    await api.client.delete_schedule(await _id(api, schedule, tenant), tenant=tenant)
    return {"deleted": schedule}


@command(app, "fires")
async def fires(
    api: ApiConnection,
    schedule: Which,
    outcome: Annotated[FireOutcome | None, optional("--outcome", text="Only fires with this outcome.")] = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Fires:
    """List what a schedule did at its due times, the last one first."""
    from millpond import wire
    from millpond.client.requests import segment

    path = f"/schedules/{segment(await _id(api, schedule, tenant))}/fires"
    return await api.get(path, wire.Fires, outcome=outcome, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "preview")
async def preview(
    api: ApiConnection,
    cron: Cron = None,
    every: Every = None,
    at: At = None,
    zone: Zone = None,
    count: Annotated[int, typer.Option("--count", help="How many due times to show.", min=1, max=100)] = 10,
) -> wire.SchedulePreview:
    """Show the next due times of a schedule without creating it."""
    from millpond import wire

    body = {"cron": cron, "every": every, "at": at, "zone": zone, "count": count}
    named = {name: value for name, value in body.items() if value is not None}
    return await api.send("POST", "/schedules/preview", wire.SchedulePreview, named)


async def _id(api: ApiConnection, given: str, tenant: str | None) -> str:
    """The ID of the schedule that is given by its ID or its name."""
    from millpond import wire
    from millpond.errors import NotFoundError

    if given.startswith("sched_"):
        return given
    found: wire.Schedules = await api.get("/schedules", wire.Schedules, name=given, tenant=tenant, limit=2)
    if not found.data:
        raise NotFoundError(f"There is no schedule {given[:60]!r}.", field="name")
    if len(found.data) > 1:
        raise UsageError(f"Several tenants have a schedule {given[:60]!r}.", hint="Use --tenant, or its ID.")
    return found.data[0].id
