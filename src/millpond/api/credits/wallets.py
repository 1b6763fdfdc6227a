"""Credits over HTTP: prices, wallets, ledger entries, grants and adjustments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors, kinds, values, wire
from millpond.api import parameters, principals
from millpond.api.calls import copied, job_text, reply
from millpond.api.routes import Route
from millpond.api.scopes import ADMINS, CLIENTS, READERS
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.credits.ledger import Balance


async def quote(call: Call) -> Reply:
    kind = kinds.find(call.engine.app.kinds, call.body.kind)
    values.check(call.body.input, field="input")
    price = kind.cost(kind.read(call.body.input))
    tenant = principals.one_tenant(call, call.query.tenant)
    wallet = await call.engine.views.wallet(tenant, principals.one_account(call, call.body.account))
    return reply(wire.Quote(kind=kind.name, price=price, available=wallet.available, can_pay=price <= wallet.available))


async def wallet(call: Call) -> Reply:
    return reply(to_wire(await call.engine.views.wallet(*_owner(call))))


async def entries(call: Call) -> Reply:
    query = call.query
    page = await call.engine.views.entries(*_owner(call), before=place(query.cursor), limit=query.limit)
    data = [copied(wire.Entry, entry, job_id=job_text(entry.job_id)) for entry in page.data]
    return reply(wire.Entries(data=data, next_cursor=None if page.before is None else str(page.before)))


async def grant(call: Call) -> Reply:
    return await _post(call, "granted")


async def adjust(call: Call) -> Reply:
    return await _post(call, "adjusted")


async def _post(call: Call, word: str) -> Reply:
    body: wire.Post | wire.Adjust = call.body
    tenant = principals.one_tenant(call, body.tenant)
    post: Any = {"granted": call.engine.grant, "adjusted": call.engine.adjust}[word]
    await post(tenant, body.account, body.amount, reference=body.reference, reason=body.reason)
    await call.engine.access.audit(
        call.principal.actor,
        f"credits.{word}",
        tenant=tenant,
        subject=body.account,
        data={"amount": body.amount, "reference": body.reference, "reason": body.reason},
    )
    return reply(to_wire(await call.engine.balance(tenant, body.account)))


def to_wire(balance: Balance) -> wire.Wallet:
    return copied(wire.Wallet, balance)


def _owner(call: Call) -> tuple[str, str]:
    return principals.one_tenant(call, call.query.tenant), principals.one_account(call, call.query.account)


def place(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:  # noqa: PLR2004 - digits of a bigint
        raise InvalidError("The value is not a cursor of this list.", field="cursor")
    return int(cursor)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/quotes",
        handle=quote,
        summary="Get the price of a job without submitting it.",
        query=parameters.OfTenant,
        body=wire.AskPrice,
        answers={200: wire.Quote},
        errors=(errors.UnknownKindError, errors.InputError),
    ),
    Route(
        method="GET",
        path="/v1/wallet",
        handle=wallet,
        summary="Get the balances of an account.",
        who=CLIENTS | READERS,
        query=parameters.OfAccount,
        answers={200: wire.Wallet},
    ),
    Route(
        method="GET",
        path="/v1/wallet/entries",
        handle=entries,
        summary="List the ledger entries of an account, newest first.",
        who=CLIENTS | READERS,
        query=parameters.ListEntries,
        answers={200: wire.Entries},
    ),
    Route(
        method="POST",
        path="/v1/grants",
        handle=grant,
        summary="Grant credits to an account.",
        description="Repeated requests with the same reference grant the credits once.",
        who=ADMINS,
        body=wire.Post,
        answers={200: wire.Wallet},
        errors=(errors.AmountError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/adjustments",
        handle=adjust,
        summary="Adjust the credits of an account up or down, with a reason.",
        who=ADMINS,
        body=wire.Adjust,
        answers={200: wire.Wallet},
        errors=(errors.AmountError, errors.ConflictError, errors.InsufficientCreditsError),
    ),
)
