"""``millpond keys``: who may do what."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Cursor, Limit, Yes
from millpond.cli.output import confirm, say

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("Make keys, renew them, take them away.")

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id: key_…", show_default=False)]
Tenant = Annotated[str | None, typer.Option(help="The tenant; it is made if missing.", show_default=False)]


class Scope(StrEnum):
    """What a key is for."""

    client = "client"
    worker = "worker"
    viewer = "viewer"
    operator = "operator"
    admin = "admin"


@command(app, "list")
async def list_(
    api: Api,
    tenant: Annotated[str | None, typer.Option(help="Only of this tenant.", show_default=False)] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> wire.Keys:
    """List the keys, the newest first, without their secrets."""
    from millpond import wire

    return await api.get("/keys", wire.Keys, tenant=tenant, cursor=cursor, limit=limit)


@command(app, "create")
async def create(
    api: Api,
    scope: Annotated[Scope, typer.Option(help="What it is for.")],
    tenant: Tenant = None,
    account: Annotated[str | None, typer.Option(help="The account; it is made if missing.", show_default=False)] = None,
    name: Annotated[str | None, typer.Option(help="To recognise it by.", show_default=False)] = None,
    expires_in: Annotated[str | None, typer.Option(help="How long it is good, e.g. 90d.", show_default=False)] = None,
    rate_limit: Annotated[
        int | None, typer.Option(help="Requests a second.", min=1, max=1_000_000, show_default=False)
    ] = None,
) -> wire.NewKey:
    """Make a key. Its secret is told this once."""
    from millpond import wire

    body = wire.MakeKey(
        scope=scope.value, tenant=tenant, account=account, name=name, expires_in=expires_in, rate_limit=rate_limit
    )
    made: wire.NewKey = await api.send("POST", "/keys", wire.NewKey, body)
    say("Keep the key: it is told this once.")
    return made


@command(app, "rotate")
async def rotate(
    api: Api,
    key_id: KeyId,
    overlap: Annotated[str, typer.Option(help="How long the old one stays good.")] = "24h",
) -> wire.NewKey:
    """Make a new key in place of an old one, which stays good for a while."""
    from millpond import wire
    from millpond.client.requests import segment

    made: wire.NewKey = await api.send(
        "POST", f"/keys/{segment(key_id)}/rotate", wire.NewKey, wire.RotateKey(overlap=overlap)
    )
    say("Keep the key: it is told this once.")
    return made


@command(app, "revoke")
async def revoke(api: Api, key_id: KeyId, yes: Yes = False) -> wire.KeyInfo:
    """Take a key away, at once and for good."""
    from millpond import wire
    from millpond.client.requests import segment

    confirm(f"Revoke {key_id}?", yes=yes)
    return await api.send("DELETE", f"/keys/{segment(key_id)}", wire.KeyInfo)
