"""``millpond keys``: API keys, and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit, Tenant, Yes, optional
from millpond.cli.output import confirm, report
from millpond.wire.shapes import Scope

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Create, rotate and revoke API keys.")

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The ID of the key: key_…", show_default=False)]
SHOWN_ONCE = "Store the key now: it is shown only once."


@command(app, "list")
async def list_(api: ApiConnection, tenant: Tenant = None, cursor: Cursor = None, limit: Limit = 50) -> wire.Keys:
    """List API keys without their secrets, newest first."""
    from millpond import wire

    return await api.get("/keys", wire.Keys, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "get")
async def get(api: ApiConnection, key_id: KeyId) -> wire.KeyInfo:
    """Show an API key without its secret."""
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/keys/{segment(key_id)}", wire.KeyInfo)


@command(app, "create")
async def create(
    api: ApiConnection,
    scope: Annotated[Scope, typer.Option(help="What the key may do.")],
    tenant: Annotated[
        str | None, optional("--tenant", text="The tenant of the key. It is created if it does not exist.")
    ] = None,
    account: Annotated[
        str | None, optional("--account", text="The account of the key. It is created if it does not exist.")
    ] = None,
    name: Annotated[str | None, optional("--name", text="A name to recognize the key by.")] = None,
    expires_in: Annotated[
        str | None, optional("--expires-in", text="How long the key is valid, for example 90d.", default="no expiry")
    ] = None,
    rate_limit: Annotated[
        int | None,
        optional("--rate-limit", text="The maximum number of requests per second.", min=1, max=1_000_000),
    ] = None,
) -> wire.NewKey:
    """Create an API key. The key is shown only once."""
    from millpond import wire

    body = wire.MakeKey(
        scope=scope, tenant=tenant, account=account, name=name, expires_in=expires_in, rate_limit=rate_limit
    )
    made: wire.NewKey = await api.send("POST", "/keys", wire.NewKey, body)
    report(SHOWN_ONCE)
    return made


@command(app, "rotate")
async def rotate(
    api: ApiConnection,
    key_id: KeyId,
    overlap: Annotated[str, typer.Option(help="How long the old key stays valid.")] = "24h",
) -> wire.NewKey:
    """Replace an API key. The old key stays valid for the overlap."""
    from millpond import wire
    from millpond.client.requests import segment

    made: wire.NewKey = await api.send(
        "POST", f"/keys/{segment(key_id)}/rotate", wire.NewKey, wire.RotateKey(overlap=overlap)
    )
    report(SHOWN_ONCE)
    return made


@command(app, "revoke")
async def revoke(api: ApiConnection, key_id: KeyId, yes: Yes = False) -> wire.KeyInfo:
    """Revoke an API key immediately and permanently."""
    from millpond import wire
    from millpond.client.requests import segment

    confirm(f"Revoke {key_id}?", yes=yes)
    return await api.send("DELETE", f"/keys/{segment(key_id)}", wire.KeyInfo)
