"""Principals: authentication, permissions, and the tenant and account of a request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millpond import ids, values
from millpond.engine.access.access import Principal
from millpond.engine.fleet.workers import UNKNOWN
from millpond.errors import ForbiddenError, InvalidError, NotFoundError, StoreError, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.api.routes import Route

T = TypeVar("T")

TOKEN_PREFIX: Final = "mpt_"  # noqa: S105 - what a token begins with
RECHECK_SECONDS: Final = 1.5
"""How often the caller of an open stream or long poll is authenticated again. With the time for which a key is cached,
access that was lost is noticed within 5 seconds, also by a process that was not notified."""
_SLOT: Final = 0.1
"""Checks that are due within this time run together, so that their lookups share one statement."""
_ADDRESS_MAX: Final = 200
_HINT: Final = "Send the key as: Authorization: Bearer KEY."


def secret(call: Call, route: Route) -> str:
    """The key or token that came with a request."""
    given = call.headers.get(b"authorization")
    if given is None and "worker" in route.who and (fleet := call.header(b"x-fleet-secret")) is not None:
        return fleet.strip()
    if given is not None:
        scheme, _, rest = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not rest.strip():
            raise UnauthorizedError("The Authorization header must have the form: Bearer KEY.", field="Authorization")
        return rest.strip()
    if call.token is None or route.token is None:
        raise UnauthorizedError(hint=_HINT)
    if not call.token.startswith(TOKEN_PREFIX):
        raise UnauthorizedError("Only a browser token may be sent in the query.", field="token", hint=_HINT)
    return call.token


async def while_authorized(call: Call, wait: Coroutine[Any, Any, T]) -> T:
    """The result of a wait; raises as soon as the caller has lost access."""
    waiting, losing = asyncio.ensure_future(wait), asyncio.ensure_future(access_lost(call))
    try:
        await asyncio.wait((waiting, losing), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise losing.result()
        return await waiting
    finally:
        waiting.cancel()
        losing.cancel()


async def access_lost(call: Call) -> Exception:
    """Wait until the caller has lost access, and return the error that says why.

    While the database cannot be reached, the check is repeated. Any other failure counts as lost access.
    """
    while True:
        await _until_recheck()
        try:
            present = await call.again()
        except StoreError:
            continue
        except Exception as error:  # noqa: BLE001 - the host's own authentication may raise anything
            return error
        if _reach(present) != _reach(call.principal):
            return UnauthorizedError("The key no longer has the access with which this request began.")


async def _until_recheck() -> None:
    due = asyncio.get_running_loop().time() + RECHECK_SECONDS
    await asyncio.sleep(RECHECK_SECONDS + (_SLOT - due % _SLOT if RECHECK_SECONDS else 0))


def _reach(principal: Principal) -> tuple[object, ...]:
    return principal.scope, principal.tenant, principal.account


async def worker(call: Call, route: Route) -> Principal:
    """The fleet worker that calls, authenticated by its token."""
    call.worker = await call.engine.workers.authenticate(secret(call, route), address(call))
    return Principal("fleet", None, None, call.worker.id)


def address(call: Call) -> str:
    """The address of the caller, followed by the unverified X-Forwarded-For header."""
    client: Any = call.scope.get("client")
    peer: str = client[0] if client else UNKNOWN
    forwarded = call.headers.get(b"x-forwarded-for")
    if forwarded is None:
        return peer
    return values.printable(f"{peer} (for {forwarded.decode('latin-1')})", _ADDRESS_MAX)


def check(principal: Principal, route: Route, call: Call) -> None:
    """Refuse a principal whose scope does not permit the route."""
    if principal.scope == "job":
        _check_token(principal, route, call)
    elif principal.scope not in route.who:
        needed = " or ".join(sorted(route.who))
        raise ForbiddenError(
            f"This operation requires a key of scope {needed}; this key has scope {principal.scope}.",
            scope=principal.scope,
            needed=needed,
        )


def _check_token(principal: Principal, route: Route, call: Call) -> None:
    if route.token is None:
        raise ForbiddenError("A browser token does not permit this operation; use a key.", scope="job")
    if route.token not in principal.may:
        raise ForbiddenError(f"The token does not have the permission to {route.token}.", needed=route.token)
    if ids.parse("job", call.params["id"]) != principal.job_id:
        raise NotFoundError(f"There is no job {call.params['id'][:60]!r}.", field="id")


def tenant(call: Call, given: str | None, *, field: str = "tenant") -> str | None:
    """The tenant of the request; None means all tenants, for a key without tenant. Errors name ``field``."""
    own = call.principal.tenant
    if given is None:
        return own
    if own is not None and given != own:
        raise ForbiddenError("The key belongs to another tenant.", field=field)
    return values.check_name(given, field=field)


def one_tenant(call: Call, given: str | None, *, field: str = "tenant") -> str:
    """The tenant of the request; raises if there is none."""
    found = tenant(call, given, field=field)
    if found is None:
        raise InvalidError(
            "The tenant is required, because the key is valid for all tenants.", field=field, hint=f"Set {field}."
        )
    return found


def tenant_for_all_accounts(call: Call, given: str | None, *, field: str = "tenant") -> str | None:
    """The tenant of the request, or None for all, if the operation covers every account: account keys are refused."""
    if call.principal.account is not None:
        raise ForbiddenError(
            "The key is limited to one account; this operation covers the whole tenant.", scope=call.principal.scope
        )
    return tenant(call, given, field=field)


def account(call: Call, given: str | None) -> str | None:
    """The account of the request; None means any account of the tenant."""
    own = call.principal.account
    if given is None:
        return own
    if own is not None and given != own:
        raise ForbiddenError("The key belongs to another account.", field="account")
    return values.check_name(given, field="account")


def one_account(call: Call, given: str | None) -> str:
    """The account of the request; raises if there is none."""
    found = account(call, given)
    if found is None:
        raise InvalidError(
            "The account is required, because the key is valid for all accounts of the tenant.", field="account"
        )
    return found


def owner(call: Call) -> tuple[str, str]:
    """The tenant and account of the key, for products in which each account is a user."""
    principal = call.principal
    if principal.tenant is None or principal.account is None:
        raise NotFoundError("The key does not belong to a user.")
    return principal.tenant, principal.account


def job_id(call: Call) -> UUID:
    return ids.parse("job", call.params["id"])


def check_all_tenants(call: Call) -> None:
    if call.principal.tenant is not None:
        raise ForbiddenError(
            "The key is limited to one tenant; this operation covers all tenants.", scope=call.principal.scope
        )
