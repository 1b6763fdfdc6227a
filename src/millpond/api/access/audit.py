"""The audit log over HTTP: operator actions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from millpond import ids, wire
from millpond.api import parameters, principals
from millpond.api.calls import copied, cursor, reply
from millpond.api.routes import Route
from millpond.api.scopes import READERS
from millpond.engine.reads import summaries

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply


async def audit(call: Call) -> Reply:
    query = call.query
    page = await call.engine.access.search_audit(
        tenant=principals.tenant(call, query.tenant),
        actor=query.actor,
        action=query.action,
        subject=query.subject,
        since=None if query.since is None else summaries.point_in_time(query.since, datetime.now(UTC), field="since"),
        before=cursor("audit", query.cursor),
        limit=query.limit,
    )
    return reply(
        wire.Audit(
            data=[copied(wire.AuditEntry, entry) for entry in page.data],
            next_cursor=None if page.before is None else ids.text("audit", page.before),
            searched_to=page.searched_to,
        )
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/audit",
        handle=audit,
        summary="List operator actions, newest first.",
        description="Filter by actor, prefix of the action, subject and time.",
        who=READERS,
        query=parameters.ListAudit,
        answers={200: wire.Audit},
    ),
)
