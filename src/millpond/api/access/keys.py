"""Keys over HTTP: create, list, rotate and revoke."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import errors, values, wire
from millpond.api import parameters, principals
from millpond.api.calls import copied, cursor, reply
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.access.access import KeyRecord


async def list_keys(call: Call) -> Reply:
    query = call.query
    tenant = principals.tenant(call, query.tenant)
    found = await call.engine.access.list_keys(tenant=tenant, before=cursor("key", query.cursor), limit=query.limit)
    data = [_key(key) for key in found]
    return reply(wire.Keys(data=data, next_cursor=data[-1].id if len(data) == query.limit else None))


async def read_key(call: Call) -> Reply:
    return reply(_key(await call.engine.access.read_key(call.params["id"], tenant=principals.tenant(call, None))))


async def make_key(call: Call) -> Reply:
    body: wire.MakeKey = call.body
    made, secret = await call.engine.access.make_key(
        scope=body.scope,
        tenant=principals.tenant(call, body.tenant),
        account=principals.account(call, body.account),
        name=body.name,
        expires_in=None if body.expires_in is None else values.duration(body.expires_in, field="expires_in"),
        rate_limit=body.rate_limit,
        actor=call.principal.actor,
    )
    return reply(_new_key(made, secret), 201)


async def rotate_key(call: Call) -> Reply:
    overlap = values.duration(call.body.overlap, field="overlap")
    who = call.principal
    made, secret = await call.engine.access.rotate_key(
        call.params["id"], overlap=overlap, tenant=who.tenant, account=who.account, actor=who.actor
    )
    return reply(_new_key(made, secret), 201)


async def revoke_key(call: Call) -> Reply:
    who = call.principal
    revoked = await call.engine.access.revoke_key(
        call.params["id"], tenant=who.tenant, account=who.account, actor=who.actor
    )
    return reply(_key(revoked))


def _key(key: KeyRecord) -> wire.KeyInfo:
    return copied(wire.KeyInfo, key)


def _new_key(key: KeyRecord, secret: str) -> wire.NewKey:
    return copied(wire.NewKey, key, key=secret)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/keys",
        handle=list_keys,
        summary="List keys, newest first, without their secrets.",
        who=READERS,
        query=parameters.ListKeys,
        answers={200: wire.Keys},
    ),
    Route(
        method="GET",
        path="/v1/keys/{id}",
        handle=read_key,
        summary="Read a key without its secret.",
        who=READERS,
        answers={200: wire.KeyInfo},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/keys",
        handle=make_key,
        summary="Create a key. The secret is shown only once.",
        who=ADMINS,
        body=wire.MakeKey,
        answers={201: wire.NewKey},
    ),
    Route(
        method="POST",
        path="/v1/keys/{id}/rotate",
        handle=rotate_key,
        summary="Rotate a key. The old key stays valid for the overlap.",
        who=ADMINS,
        body=wire.RotateKey,
        answers={201: wire.NewKey},
        errors=(errors.NotFoundError, errors.ConflictError),
    ),
    Route(
        method="DELETE",
        path="/v1/keys/{id}",
        handle=revoke_key,
        summary="Revoke a key immediately and permanently.",
        who=ADMINS,
        answers={200: wire.KeyInfo},
        errors=(errors.NotFoundError,),
    ),
)
