"""What may stand behind the question mark, by route."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from millpond.api.parameters import AuditCursor, EntryCursor, JobCursor, Limit, Query
from millpond.blueprints.effects.wire import DispatchStatus, JobStatus  # noqa: TC001 - msgspec reads them
from millpond.wire import Name

_ID = "[0-7][0-9a-hjkmnp-tv-z]{25}$"
VideoCursor = Annotated[
    str, Meta(description="The `next_cursor` of the page before.", extra_json_schema={"pattern": f"^video_{_ID}"})
]
Tenant = Annotated[Name, Meta(description="Whose; an admin key without a tenant of its own may name one.")]
User = Annotated[Name, Meta(description="Which user of the tenant.")]


class ListVideos(Query):
    """Which videos."""

    cursor: VideoCursor | None = None
    limit: Limit = 50


class ListJobs(Query):
    """Which jobs."""

    status: JobStatus | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListTransactions(Query):
    """Which transactions."""

    cursor: EntryCursor | None = None
    limit: Limit = 50


class ListAllJobs(ListJobs):
    """Which jobs of whom."""

    tenant_id: Tenant | None = None
    user_id: User | None = None


class ListDispatches(Query):
    """Which dispatches."""

    status: DispatchStatus | UnsetType = UNSET
    tenant_id: Tenant | None = None
    user_id: User | None = None
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListAudit(Query):
    """Which entries of the audit log."""

    tenant_id: Tenant | None = None
    cursor: AuditCursor | None = None
    limit: Limit = 50
