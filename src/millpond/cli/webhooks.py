"""``millpond webhooks``: endpoints, deliveries, and tools to test a receiver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from millpond.cli.command import command, group
from millpond.cli.options import AsJson, Cursor, Limit, Tenant, Yes, optional
from millpond.cli.output import UsageError, confirm, print_json, problem, report
from millpond.wire.shapes import DeliveryState

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from datetime import datetime

    from millpond import wire
    from millpond.cli.forward import Forwarded
    from millpond.cli.reach import ApiConnection

app = group("Manage webhook endpoints and deliveries; test receivers.")
endpoints = group("Manage the URLs that receive the events of jobs.")
deliveries = group("Show the events that were sent, and each attempt.")
app.add_typer(endpoints, name="endpoints")
app.add_typer(deliveries, name="deliveries")

SHOWN_ONCE: Final = "Store the secret now: it is shown only once."
SECRET_VARIABLE: Final = "WEBHOOK_SECRET"  # noqa: S105 - the name of a variable

EndpointId = Annotated[str, typer.Argument(metavar="ENDPOINT", help="The ID of the endpoint: ep_…", show_default=False)]
DeliveryId = Annotated[
    str, typer.Argument(metavar="DELIVERY", help="The ID of the delivery: msg_…", show_default=False)
]
Events = Annotated[
    list[str] | None,
    optional("--event", "-e", text="Send this event, for example job.failed. Repeatable; * sends every event."),
]
Kinds = Annotated[list[str] | None, optional("--kind", text="Send events of this kind of jobs only. Repeatable.")]
OneEndpoint = Annotated[str | None, optional("--endpoint", text="Only this endpoint.")]
RequestLimit = Annotated[
    int | None,
    optional(
        "--at-once",
        text="The maximum number of concurrent requests.",
        default="the limit of the server",
        min=1,
        max=100,
    ),
]


# Endpoints


@command(endpoints, "list")
async def list_endpoints(
    api: ApiConnection, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 100
) -> wire.Endpoints:
    """List the endpoints of a tenant, oldest first."""
    from millpond import wire

    return await api.get("/endpoints", wire.Endpoints, tenant=tenant or api.tenant, cursor=cursor, limit=limit)


@command(endpoints, "get")
async def get_endpoint(api: ApiConnection, endpoint: EndpointId, tenant: Tenant = None) -> wire.EndpointInfo:
    """Show an endpoint."""
    return await api.client.endpoint(endpoint, tenant=tenant or api.tenant)


@command(endpoints, "create")
async def create(
    api: ApiConnection,
    receiver: Annotated[str, typer.Argument(metavar="URL", help="The URL to send events to.", show_default=False)],
    event: Events = None,
    kind: Kinds = None,
    description: Annotated[str, optional("--description", text="A note to recognize the endpoint by.")] = "",
    at_once: RequestLimit = None,
    tenant: Tenant = None,
) -> wire.NewEndpoint:
    """Create an endpoint. Its signing secret is shown only once."""
    made = await api.client.make_endpoint(
        receiver, events=event, kinds=kind or (), description=description, limit=at_once, tenant=tenant or api.tenant
    )
    report(SHOWN_ONCE)
    return made


@command(endpoints, "change")
async def change(
    api: ApiConnection,
    endpoint: EndpointId,
    send_to: Annotated[str | None, optional("--send-to", text="The URL to send events to.", metavar="URL")] = None,
    event: Events = None,
    kind: Kinds = None,
    description: Annotated[str | None, optional("--description", text="A note to recognize the endpoint by.")] = None,
    at_once: RequestLimit = None,
    tenant: Tenant = None,
) -> wire.EndpointInfo:
    """Change an endpoint. Options that are left out keep their values."""
    named = {"url": send_to, "events": event, "kinds": kind, "description": description, "limit": at_once}
    changes = {name: value for name, value in named.items() if value is not None}
    if not changes:
        raise UsageError("No change was given.", hint="Use --send-to, --event, --kind, --description or --at-once.")
    return await api.client.change_endpoint(endpoint, tenant=tenant or api.tenant, **changes)


@command(endpoints, "disable")
async def disable(
    api: ApiConnection,
    endpoint: EndpointId,
    reason: Annotated[str, typer.Option(help="The reason, shown with the endpoint.")] = "by an operator",
    tenant: Tenant = None,
) -> wire.EndpointInfo:
    """Stop sending events to an endpoint."""
    return await api.client.disable_endpoint(endpoint, reason, tenant=tenant or api.tenant)


@command(endpoints, "enable")
async def enable(api: ApiConnection, endpoint: EndpointId, tenant: Tenant = None) -> wire.EndpointInfo:
    """Start sending events to a disabled endpoint again."""
    return await api.client.enable_endpoint(endpoint, tenant=tenant or api.tenant)


@command(endpoints, "delete")
async def delete(api: ApiConnection, endpoint: EndpointId, tenant: Tenant = None, yes: Yes = False) -> dict[str, str]:
    """Delete an endpoint. Pending deliveries are dropped."""
    confirm(f"Delete {endpoint}?", yes=yes)
    await api.client.delete_endpoint(endpoint, tenant=tenant or api.tenant)
    return {"deleted": endpoint}


@command(endpoints, "stats")
async def stats(
    api: ApiConnection,
    endpoint: EndpointId,
    since: Annotated[str, typer.Option(help="The period to count, back from now.")] = "24h",
    tenant: Tenant = None,
) -> wire.EndpointStats:
    """Show the delivery statistics of an endpoint."""
    return await api.client.endpoint_stats(endpoint, since=since, tenant=tenant or api.tenant)


# Deliveries


@command(deliveries, "list")
async def list_deliveries(
    api: ApiConnection,
    endpoint: OneEndpoint = None,
    job: Annotated[str | None, optional("--job", text="Only deliveries about this job.")] = None,
    state: Annotated[DeliveryState | None, optional("--state", text="Only deliveries in this state.")] = None,
    tenant: Tenant = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Deliveries:
    """List deliveries, newest first."""
    from millpond import wire

    filters = {"endpoint": endpoint, "job": job, "state": state, "tenant": tenant or api.tenant}
    return await api.get("/deliveries", wire.Deliveries, **filters, cursor=cursor, limit=limit)


@command(deliveries, "get")
async def get_delivery(api: ApiConnection, delivery: DeliveryId, tenant: Tenant = None) -> wire.DeliveryLog:
    """Show a delivery with all its attempts."""
    return await api.client.delivery(delivery, tenant=tenant or api.tenant)


# Tools


@command(app, "listen")
async def listen(
    api: ApiConnection,
    forward_to: Annotated[str, typer.Option(help="The local URL to forward events to.", show_default=False)],
    event: Events = None,
    kind: Kinds = None,
    secret: Annotated[
        str | None,
        optional("--secret", text="The signing secret.", env=SECRET_VARIABLE, default="a new secret"),
    ] = None,
    tenant: Tenant = None,
) -> AsyncGenerator[Forwarded]:
    """Forward signed events to a URL on this machine, until Ctrl-C.

    The server need not be able to reach this machine. The command creates a temporary endpoint and deletes it at the
    end.
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
    api: ApiConnection,
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="The event, for example job.succeeded.", show_default=False)
    ],
    endpoint: OneEndpoint = None,
    tenant: Tenant = None,
) -> wire.Deliveries:
    """Send a test event to an endpoint, or to all endpoints of a tenant.

    The event is about a job that does not exist.
    """
    from millpond import wire
    from millpond.errors import NotFoundError

    owner = tenant or api.tenant
    if endpoint is not None:
        chosen = [endpoint]
    else:
        chosen = [found.id for found in await api.client.endpoints(tenant=owner) if found.disabled_at is None]
    if not chosen:
        raise NotFoundError(
            "There is no enabled endpoint.", hint="Create one with `millpond webhooks endpoints create`."
        )
    sent = [await api.client.test_endpoint(each, event, tenant=owner) for each in chosen]
    return wire.Deliveries(data=sent, next_cursor=None)


@command(app, "resend")
async def resend(
    api: ApiConnection,
    delivery: Annotated[
        str | None, typer.Argument(metavar="[DELIVERY]", help="The ID of the delivery: msg_…", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        optional("--since", text="Resend deliveries created since: an ISO 8601 time, or 2h for the last 2 hours."),
    ] = None,
    endpoint: OneEndpoint = None,
    everything: Annotated[bool, typer.Option("--all", help="With --since: also resend delivered events.")] = False,
    tenant: Tenant = None,
) -> wire.Delivery | wire.Resent:
    """Resend a delivery, or with --since the failed deliveries of an endpoint.

    The ID and the body stay the same; the signature is new.
    """
    from millpond import wire

    owner = tenant or api.tenant
    if (delivery is None) == (since is None):
        raise UsageError(
            "Either a delivery or --since is required.", hint="Give the ID of a delivery, or --since with --endpoint."
        )
    if delivery is not None:
        return await api.client.resend(delivery, tenant=owner)
    if endpoint is None:
        raise UsageError("--since requires --endpoint.", field="--endpoint")
    count = await api.client.resend_since(endpoint, _time(since or ""), only_failed=not everything, tenant=owner)
    return wire.Resent(count=count)


@command(app, "rotate")
async def rotate(
    api: ApiConnection,
    endpoint: EndpointId,
    overlap: Annotated[str, typer.Option(help="How long events are signed with the old secret too.")] = "24h",
    tenant: Tenant = None,
) -> wire.NewEndpoint:
    """Replace the signing secret of an endpoint. The secret is shown only once.

    Events are signed with both secrets during the overlap.
    """
    made = await api.client.rotate_endpoint(endpoint, overlap=overlap, tenant=tenant or api.tenant)
    report(SHOWN_ONCE)
    return made


@app.command("verify")
def verify(
    body: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The file with the body of the request; - reads standard input.")
    ] = "-",
    header: Annotated[
        list[str] | None, optional("--header", "-H", text="A header of the request: 'name: value'. Repeatable.")
    ] = None,
    secret: Annotated[str | None, optional("--secret", text="The signing secret: whsec_…", env=SECRET_VARIABLE)] = None,
    tolerance: Annotated[str, typer.Option(help="The maximum age of the signature.")] = "5m",
    as_json: AsJson = False,
) -> None:
    """Check the signature of a received webhook, and print its body.

    The exit status is 1 if the signature is not valid.
    """
    import sys

    from millpond import values, webhooks
    from millpond.cli.show import Document, show
    from millpond.errors import MillpondError

    chosen = webhooks.check_secret(_secret(secret), field="secret")
    age = values.duration(tolerance, field="tolerance")
    content, headers = _content(body), dict(map(_header, header or ()))
    try:
        payload = webhooks.verify(content, headers, chosen, tolerance=age)
    except MillpondError as error:
        if as_json:
            print_json(problem(error))
        report(f"millpond: {error}")
        sys.exit(1)
    report("The signature is valid.")
    show(Document(payload), as_json=as_json)


def _secret(given: str | None) -> str:
    import os

    found = given or os.environ.get(SECRET_VARIABLE)
    if not found:
        raise UsageError(
            "The signing secret is missing.", field="--secret", hint=f"Use --secret, or set {SECRET_VARIABLE}."
        )
    return found


def _content(name: str) -> bytes:
    """The bytes of the body, unchanged."""
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
    """A time, or a duration before now."""
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
            f"{text[:60]!r} is neither a time nor a duration.", field="since", hint="Examples: 2h, 2026-01-31T12:00Z."
        ) from None
    return found if found.tzinfo is not None else found.astimezone()
