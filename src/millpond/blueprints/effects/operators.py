"""What every act of an operator has in common: it is about all tenants, and it is audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond.api.principals import address
from millpond.errors import ForbiddenError

if TYPE_CHECKING:
    from millpond.api.calls import Call


def check_all_tenants(call: Call) -> None:
    if call.principal.tenant is not None:
        raise ForbiddenError("The key is for one tenant; this is about all of them.", scope=call.principal.scope)


async def note(call: Call, action: str, subject: str, *, tenant: str | None = None, **data: Any) -> None:
    """Write down who did what, and from where."""
    told = {"address": address(call), **data}
    await call.engine.access.audit(call.principal.actor, action, tenant=tenant, subject=subject, data=told)


def given_of(body: msgspec.Struct) -> dict[str, Any]:
    """What of a change was said at all."""
    found = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}
