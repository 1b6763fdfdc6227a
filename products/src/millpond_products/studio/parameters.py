"""The query parameters, by route."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from millpond.product import EntryCursor, JobCursor, Limit, Query
from millpond_products.studio.kinds import Type  # noqa: TC001 - msgspec reads it
from millpond_products.studio.wire import Status  # noqa: TC001 - msgspec reads it


class ListJobs(Query):
    """Which jobs."""

    type: Type | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ReadCredits(Query):
    """Which entries."""

    cursor: EntryCursor | None = None
    limit: Limit = 50
