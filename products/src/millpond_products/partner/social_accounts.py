"""Social accounts: those that a project may use. They come from lease requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.product import queries, reply
from millpond_products.partner import envelopes, identifiers, projects, wire

if TYPE_CHECKING:
    from millpond.product import Call, Reply

SQL: Final = queries("millpond_products.partner", "social_accounts")


async def list_accounts(call: Call) -> Reply:
    project = await projects.named(call)
    before, limit = identifiers.cursor("sac", call.query.cursor), call.query.limit
    rows = await call.engine.database(project.tenant).read(
        SQL["list"], project.tenant, project.project_id, before, limit + 1
    )
    following = identifiers.text("sac", rows[limit - 1]["id"]) if len(rows) > limit else None
    return reply(wire.SocialAccounts(data=[_to_wire(row) for row in rows[:limit]], next_cursor=following))


def _to_wire(row: Any) -> wire.SocialAccount:
    return wire.SocialAccount(
        social_account_id=identifiers.text("sac", row["id"]),
        project_id=identifiers.text("prj", row["project_id"]),
        platform="tiktok",
        handle=row["handle"],
        display_name=row["display_name"],
        lease_id=identifiers.text("lse", row["lease_id"]),
        assigned_at=envelopes.timestamp(row["created_at"]),
    )
