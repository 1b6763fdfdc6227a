"""Social accounts: those that a project may use. They come of lease requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.api.calls import reply
from millpond.blueprints.partner import envelopes, identifiers, projects, wire
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply

SQL: Final = queries("millpond.blueprints.partner", "social_accounts")


async def list_accounts(call: Call) -> Reply:
    project = await projects.named(call)
    before, limit = identifiers.cursor("sac", call.query.cursor), call.query.limit
    rows = await call.engine.home(project.tenant).read(
        SQL["list"], project.tenant, project.project_id, before, limit + 1
    )
    following = identifiers.text("sac", rows[limit - 1]["id"]) if len(rows) > limit else None
    return reply(wire.SocialAccounts(data=[_told(row) for row in rows[:limit]], next_cursor=following))


def _told(row: Any) -> wire.SocialAccount:
    return wire.SocialAccount(
        social_account_id=identifiers.text("sac", row["id"]),
        project_id=identifiers.text("prj", row["project_id"]),
        platform="tiktok",
        handle=row["handle"],
        display_name=row["display_name"],
        lease_id=identifiers.text("lse", row["lease_id"]),
        assigned_at=envelopes.moment(row["created_at"]),
    )
