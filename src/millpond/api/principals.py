"""Principals: who calls, what they may do, and whose things they mean."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, values
from millpond.engine.access import Principal
from millpond.engine.workers import UNKNOWN
from millpond.errors import ForbiddenError, InvalidError, NotFoundError, RateLimitedError, StoreError, UnauthorizedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.api.routes import Route

TOKEN_PREFIX: Final = "mpt_"  # noqa: S105 - what a token begins with
READERS: Final = frozenset({"viewer", "operator", "admin"})
"""The scopes of those who run the place: they see whatever is there, but for secrets."""
OPERATORS: Final = frozenset({"operator", "admin"})
"""Those who act on jobs, queues, workers and webhooks, whoever's they are."""
LOOK_AGAIN: Final = 5.0
"""After how many seconds who watches is looked at again, before the next is told; a sign of life comes after 15."""
_TURNED_AWAY: Final = (UnauthorizedError, ForbiddenError, RateLimitedError)
_ADDRESS_MAX: Final = 200
_HINT: Final = "Send it as: Authorization: Bearer KEY."


def secret(call: Call, route: Route) -> str:
    """The key or token that came with a request."""
    given = call.headers.get(b"authorization")
    if given is None and "worker" in route.who and (fleet := call.header(b"x-fleet-secret")) is not None:
        return fleet.strip()
    if given is not None:
        scheme, _, rest = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer" or not rest.strip():
            raise UnauthorizedError("The Authorization header must be: Bearer KEY.", field="Authorization")
        return rest.strip()
    if call.token is None or route.token is None:
        raise UnauthorizedError(hint=_HINT)
    if not call.token.startswith(TOKEN_PREFIX):
        raise UnauthorizedError("Only a browser token may stand in a URL.", field="token", hint=_HINT)
    return call.token


async def while_known(call: Call, frames: Any, every: float = LOOK_AGAIN) -> AsyncGenerator[bytes]:
    """What is watched for hours is asked now and then whether it may still be; what cannot be asked now, later."""
    look_at = time.monotonic() + every
    try:
        async for frame in frames:
            if time.monotonic() >= look_at:
                with contextlib.suppress(StoreError):
                    if _reach(await call.again()) != _reach(call.principal):
                        return
                    look_at = time.monotonic() + every
            yield frame
    except _TURNED_AWAY:
        return
    finally:
        await frames.aclose()


def _reach(principal: Principal) -> tuple[object, ...]:
    return principal.scope, principal.tenant, principal.account


async def worker(call: Call, route: Route) -> Principal:
    """The worker of the fleet that calls, by its token."""
    call.worker = await call.engine.workers.authenticate(secret(call, route), address(call))
    return Principal("fleet", None, None, call.worker.id)


def address(call: Call) -> str:
    """From where a request comes; what a proxy says of it stands beside it, for what it is worth."""
    client: Any = call.scope.get("client")
    peer: str = client[0] if client else UNKNOWN
    forwarded = call.headers.get(b"x-forwarded-for")
    if forwarded is None:
        return peer
    return values.printable(f"{peer} (for {forwarded.decode('latin-1')})", _ADDRESS_MAX)


def check(principal: Principal, route: Route, call: Call) -> None:
    """Refuse a principal whose scope does not reach this far."""
    if principal.scope == "job":
        _check_token(principal, route, call)
    elif principal.scope not in route.who:
        needed = " or ".join(sorted(route.who))
        raise ForbiddenError(
            f"This needs a key of scope {needed}; yours is {principal.scope}.", scope=principal.scope, needed=needed
        )


def _check_token(principal: Principal, route: Route, call: Call) -> None:
    if route.token is None:
        raise ForbiddenError("A browser token does not reach this; a key is needed.", scope="job")
    if route.token not in principal.may:
        raise ForbiddenError(f"The token does not allow to {route.token}.", needed=route.token)
    if ids.parse("job", call.params["id"]) != principal.job_id:
        raise NotFoundError(f"There is no job {call.params['id'][:60]!r}.", field="id")


def tenant(call: Call, given: str | None, *, field: str = "tenant") -> str | None:
    """The tenant that is meant; none means all of them, for an operator of all. ``field`` is where it is named."""
    own = call.principal.tenant
    if given is None:
        return own
    if own is not None and given != own:
        raise ForbiddenError("The key is for another tenant.", field=field)
    return values.check_name(given, field=field)


def one_tenant(call: Call, given: str | None, *, field: str = "tenant") -> str:
    """The tenant that is meant, where there must be one."""
    found = tenant(call, given, field=field)
    if found is None:
        raise InvalidError("It is required: the key is for every tenant.", field=field, hint=f"Name one as {field}.")
    return found


def whole_tenant(call: Call, given: str | None, *, field: str = "tenant") -> str | None:
    """The tenant that is meant, or all of them, where what is told is about every account of it."""
    if call.principal.account is not None:
        raise ForbiddenError("The key is for one account; this is about all of its tenant.", scope=call.principal.scope)
    return tenant(call, given, field=field)


def account(call: Call, given: str | None) -> str | None:
    """The account that is meant; none means any of the tenant's."""
    own = call.principal.account
    if given is None:
        return own
    if own is not None and given != own:
        raise ForbiddenError("The key is for another account.", field="account")
    return values.check_name(given, field="account")


def one_account(call: Call, given: str | None) -> str:
    """The account that is meant, where there must be one."""
    found = account(call, given)
    if found is None:
        raise InvalidError("It is required: the key is for every account of the tenant.", field="account")
    return found


def owner(call: Call) -> tuple[str, str]:
    """Whose things are meant, where each account is a user: a client's key is for one."""
    principal = call.principal
    if principal.tenant is None or principal.account is None:
        raise NotFoundError("The key is no user's.")
    return principal.tenant, principal.account


def job_id(call: Call) -> UUID:
    return ids.parse("job", call.params["id"])
