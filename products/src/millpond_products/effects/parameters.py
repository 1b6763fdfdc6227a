"""The query parameters of the routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from millpond.product import AuditCursor, EntryCursor, JobCursor, Limit, Query
from millpond.wire import Name
from millpond_products.effects.wire import (  # noqa: TC001 - msgspec reads them
    DispatchStatus,
    JobStatus,
)

_ID = "[0-7][0-9a-hjkmnp-tv-z]{25}$"
VideoCursor = Annotated[
    str, Meta(description="The `next_cursor` of the previous page.", extra_json_schema={"pattern": f"^video_{_ID}"})
]
Tenant = Annotated[Name, Meta(description="The tenant, for an admin key that is not limited to one.")]
User = Annotated[Name, Meta(description="The user of the tenant.")]


class ListVideos(Query):
    """The page of a list of videos."""

    cursor: VideoCursor | None = None
    limit: Limit = 50


class ListJobs(Query):
    """The filters and the page of a list of jobs."""

    status: JobStatus | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListTransactions(Query):
    """The page of a list of transactions."""

    cursor: EntryCursor | None = None
    limit: Limit = 50


class ListAllJobs(ListJobs):
    """The filters and the page of a list of all users' jobs."""

    tenant_id: Tenant | None = None
    user_id: User | None = None


class ListDispatches(Query):
    """The filters and the page of a list of dispatches."""

    status: DispatchStatus | UnsetType = UNSET
    tenant_id: Tenant | None = None
    user_id: User | None = None
    cursor: JobCursor | None = None
    limit: Limit = 50


class ListAudit(Query):
    """The filter and the page of the audit log."""

    tenant_id: Tenant | None = None
    cursor: AuditCursor | None = None
    limit: Limit = 50
