"""``millpond webhooks``: who is told of jobs, what came of it, and what a developer needs to see it work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from millpond.cli.command import command, group
from millpond.cli.options import AsJson, Cursor, Limit, Tenant, Yes
from millpond.cli.output import UsageError, confirm, print_json, problem, say

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from millpond import wire
    from millpond.cli.forward import Forwarded
    from millpond.cli.reach import Api

app = group("Who is told of jobs, and what came of it; tools to try it.")
endpoints = group("The URLs that are told of a tenant's jobs.")
deliveries = group("What was told to whom, and what came of each try.")
app.add_typer(endpoints, name="endpoints")
app.add_typer(deliveries, name="deliveries")

SECRET_VARIABLE: Final = "WEBHOOK_SECRET"  # noqa: S105 - where one may stand

EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The endpoint's id: ep_…", show_default=False)]
DeliveryId = Annotated[str, typer.Argument(metavar="DELIVERY", help="The delivery's id: msg_…", show_default=False)]
Events = Annotated[
    list[str] | None,
    typer.Option("--event", "-e", help="Only this event, e.g. job.failed; may be repeated. * is all."),
]
Kinds = Annotated[list[str] | None, typer.Option("--kind", help="Only jobs of this kind; may be repeated.")]
OneEndpoint = Annotated[str | None, typer.Option("--endpoint", help="Only this endpoint.", show_default=False)]
RequestLimit = Annotated[
    int | None,
    typer.Option("--at-once", help="How many requests it may have to answer at once.", min=1, max=100),
]


# Endpoints


@command(endpoints, "list")
async def list_endpoints(api: Api, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 100) -> wire.Endpoints:
    """List the endpoints of a tenant, the oldest first."""
    from millpond import wire

    return await api.get("/endpoints", wire.Endpoints, tenant=tenant or api.tenant, cursor=cursor, limit=limit)


@command(endpoints, "get")
async def get_endpoint(api: Api, endpoint: EndpointId, tenant: Tenant = None) -> wire.EndpointInfo:
    """Show an endpoint."""
    return await api.client.endpoint(endpoint, tenant=tenant or api.tenant)


@command(endpoints, "create")
async def create(
    api: Api,
    receiver: Annotated[str, typer.Argument(metavar="URL", help="Where to send to.", show_default=False)],
    event: Events = None,
    kind: Kinds = None,
    description: Annotated[str, typer.Option(help="To recognise it by.", show_default=False)] = "",
    at_once: RequestLimit = None,
    tenant: Tenant = None,
) -> wire.NewEndpoint:
    """Have a URL told of a tenant's jobs. Its secret is told this once."""
    made = await api.client.make_endpoint(
        receiver, events=event, kinds=kind or (), description=description, limit=at_once, tenant=tenant or api.tenant
    )
    say("Keep the secret: it is told this once.")
    return made


@command(endpoints, "change")
async def change(
    api: Api,
    endpoint: EndpointId,
    send_to: Annotated[str | None, typer.Option(help="The URL to send to.", show_default=False)] = None,
    event: Events = None,
    kind: Kinds = None,
    description: Annotated[str | None, typer.Option(help="To recognise it by.", show_default=False)] = None,
    at_once: RequestLimit = None,
    tenant: Tenant = None,
) -> wire.EndpointInfo:
    """Change an endpoint; what is not named stays as it is."""
    named = {"url": send_to, "events": event, "kinds": kind, "description": description, "limit": at_once}
    changes = {name: value for name, value in named.items() if value is not None}
    if not changes:
        raise UsageError(
            "Nothing is to be changed.", hint="Name what: --send-to, --event, --kind, --description, --at-once."
        )
    return await api.client.change_endpoint(endpoint, tenant=tenant or api.tenant, **changes)


@command(endpoints, "disable")
async def disable(
    api: Api,
    endpoint: EndpointId,
    reason: Annotated[str, typer.Option(help="Why.")] = "by an operator",
    tenant: Tenant = None,
) -> wire.EndpointInfo:
    """Send nothing to an endpoint until it is enabled again."""
    return await api.client.disable_endpoint(endpoint, reason, tenant=tenant or api.tenant)


@command(endpoints, "enable")
async def enable(api: Api, endpoint: EndpointId, tenant: Tenant = None) -> wire.EndpointInfo:
    """Send to an endpoint that was disabled."""
    return await api.client.enable_endpoint(endpoint, tenant=tenant or api.tenant)


@command(endpoints, "delete")
async def delete(api: Api, endpoint: EndpointId, tenant: Tenant = None, yes: Yes = False) -> dict[str, str]:
    """Remove an endpoint; what was not sent yet is not sent any more."""
    confirm(f"Delete {endpoint}?", yes=yes)
    await api.client.delete_endpoint(endpoint, tenant=tenant or api.tenant)
    return {"deleted": endpoint}


@command(endpoints, "stats")
async def stats(
    api: Api,
    endpoint: EndpointId,
    since: Annotated[str, typer.Option(help="How far back, e.g. 24h.")] = "24h",
    tenant: Tenant = None,
) -> wire.EndpointStats:
    """Tell how an endpoint fared."""
    return await api.client.endpoint_stats(endpoint, since=since, tenant=tenant or api.tenant)


# Deliveries


@command(deliveries, "list")
async def list_deliveries(
    api: Api,
    endpoint: OneEndpoint = None,
    job: Annotated[str | None, typer.Option("--job", help="Only of this job.", show_default=False)] = None,
    state: Annotated[
        str | None, typer.Option(help="Only pending, delivered, failed or withdrawn ones.", show_default=False)
    ] = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Deliveries:
    """List what was told to whom, the newest first."""
    from millpond import wire

    filters = {"endpoint": endpoint, "job": job, "state": state, "tenant": tenant or api.tenant}
    return await api.get("/deliveries", wire.Deliveries, **filters, cursor=cursor, limit=limit)


@command(deliveries, "get")
async def get_delivery(api: Api, delivery: DeliveryId, tenant: Tenant = None) -> wire.DeliveryLog:
    """Show a delivery with all its tries."""
    return await api.client.delivery(delivery, tenant=tenant or api.tenant)


# Tools


@command(app, "listen")
async def listen(
    api: Api,
    forward_to: Annotated[str, typer.Option(help="The local URL to send to.", show_default=False)],
    event: Events = None,
    kind: Kinds = None,
    secret: Annotated[
        str | None,
        typer.Option(help=f"Sign with this one rather than a new one. [env: {SECRET_VARIABLE}]", show_default=False),
    ] = None,
    tenant: Tenant = None,
) -> AsyncGenerator[Forwarded]:
    """Send what happens to jobs to a URL on this machine, signed as it would be, until Ctrl-C.

    It needs no address that the server could reach. The endpoint that it makes is removed at the end.
    """
    import os

    from millpond import webhooks
    from millpond.cli.forward import Forwarder

    forwarder = Forwarder(
        api.client,
        forward_to,
        events=event,
        kinds=kind or (),
        secret=secret or os.environ.get(SECRET_VARIABLE) or webhooks.new_secret(),
        tenant=tenant or api.tenant,
    )
    async for forwarded in forwarder.run():
        yield forwarded


@command(app, "trigger")
async def trigger(
    api: Api,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="E.g. job.succeeded.", show_default=False)],
    endpoint: OneEndpoint = None,
    tenant: Tenant = None,
) -> wire.Deliveries:
    """Send a test to an endpoint, or to all of the tenant's: an event of a job that never was."""
    from millpond import wire
    from millpond.errors import NotFoundError

    owner = tenant or api.tenant
    if endpoint is not None:
        chosen = [endpoint]
    else:
        chosen = [found.id for found in await api.client.endpoints(tenant=owner) if found.disabled_at is None]
    if not chosen:
        raise NotFoundError("No endpoint is there to be told.", hint="Make one: millpond webhooks endpoints create.")
    sent = [await api.client.test_endpoint(each, event, tenant=owner) for each in chosen]
    return wire.Deliveries(data=sent, next_cursor=None)


@command(app, "resend")
async def resend(
    api: Api,
    delivery: Annotated[
        str | None, typer.Argument(metavar="[DELIVERY]", help="The delivery's id: msg_…", show_default=False)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="All since then: a time, or how far back, e.g. 2h.", show_default=False)
    ] = None,
    endpoint: OneEndpoint = None,
    everything: Annotated[bool, typer.Option("--all", help="With --since: also what was delivered.")] = False,
    tenant: Tenant = None,
) -> wire.Delivery | wire.Resent:
    """Send a delivery once more, or with --since what failed at an endpoint: the same id and body, signed anew."""
    from millpond import wire

    owner = tenant or api.tenant
    if (delivery is None) == (since is None):
        raise UsageError("A delivery's id is needed, or --since with --endpoint.", hint="Give one of the two.")
    if delivery is not None:
        return await api.client.resend(delivery, tenant=owner)
    if endpoint is None:
        raise UsageError("--since needs the endpoint that is meant.", field="--endpoint")
    count = await api.client.resend_since(endpoint, _time(since or ""), only_failed=not everything, tenant=owner)
    return wire.Resent(count=count)


@command(app, "rotate")
async def rotate(
    api: Api,
    endpoint: EndpointId,
    overlap: Annotated[str, typer.Option(help="How long the old secret signs too.")] = "24h",
    tenant: Tenant = None,
) -> wire.NewEndpoint:
    """Give an endpoint a new secret, which is told this once; the old one signs too for a while."""
    made = await api.client.rotate_endpoint(endpoint, overlap=overlap, tenant=tenant or api.tenant)
    say("Keep the secret: it is told this once.")
    return made


@app.command("verify")
def verify(
    body: Annotated[str, typer.Argument(metavar="[FILE]", help="The body; - for standard input.")] = "-",
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="A header of the request: 'name: value'; repeat it.")
    ] = None,
    secret: Annotated[
        str | None, typer.Option("--secret", help=f"whsec_…  [env: {SECRET_VARIABLE}]", show_default=False)
    ] = None,
    tolerance: Annotated[str, typer.Option(help="How old it may be.")] = "5m",
    as_json: AsJson = False,
) -> None:
    """Check the signature of a webhook that came. Exits with 1 where it is not good, and says what is wrong."""
    import sys

    from millpond import values, webhooks
    from millpond.cli.show import Document, show
    from millpond.errors import MillpondError

    chosen = webhooks.check_secret(_secret(secret), field="secret")
    age = values.duration(tolerance, field="tolerance")
    content, headers = _content(body), dict(map(_header, header or ()))
    try:
        told = webhooks.verify(content, headers, chosen, tolerance=age)
    except MillpondError as error:
        if as_json:
            print_json(problem(error))
        say(f"millpond: {error}")
        sys.exit(1)
    say("The signature is good.")
    show(Document(told), as_json=as_json)


def _secret(given: str | None) -> str:
    import os

    found = given or os.environ.get(SECRET_VARIABLE)
    if not found:
        raise UsageError("There is no secret to check with.", field="--secret", hint=f"Or set {SECRET_VARIABLE}.")
    return found


def _content(name: str) -> bytes:
    """A body, byte for byte."""
    import sys
    from pathlib import Path

    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.", field="FILE") from error


def _header(text: str) -> tuple[str, str]:
    name, sign, value = text.partition(":")
    if not sign or not name.strip():
        raise UsageError(f"{text[:80]!r} is not 'name: value'.", field="--header")
    return name.strip(), value.strip()


def _time(text: str) -> datetime:
    """A time, or one so far back from now."""
    from datetime import UTC, datetime

    from millpond import values
    from millpond.errors import InvalidError

    try:
        return datetime.now(UTC) - values.duration(text, field="since")
    except InvalidError:
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidError(
            f"{text[:60]!r} is neither a time nor a length of time.", field="since", hint="E.g. 2h, 2026-01-31T12:00Z."
        ) from None
    return found if found.tzinfo is not None else found.astimezone()
