"""Common parts of operator requests: they concern all tenants, and they are audited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond.errors import ForbiddenError
from millpond.product import address

if TYPE_CHECKING:
    from millpond.product import Call


def check_all_tenants(call: Call) -> None:
    if call.principal.tenant is not None:
        raise ForbiddenError(
            "The key is limited to one tenant; the request concerns all tenants.", scope=call.principal.scope
        )


async def note(call: Call, action: str, subject: str, *, tenant: str | None = None, **data: Any) -> None:
    """Add an entry to the audit, with the address of the caller."""
    details = {"address": address(call), **data}
    await call.engine.access.audit(call.principal.actor, action, tenant=tenant, subject=subject, data=details)


def given_of(body: msgspec.Struct) -> dict[str, Any]:
    """The fields that the request contains."""
    found = {name: getattr(body, name) for name in body.__struct_fields__}
    return {name: value for name, value in found.items() if value is not msgspec.UNSET}
