"""What may stand behind the question mark, by route."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from millpond.api.parameters import EntryCursor, JobCursor, Limit, Query
from millpond.blueprints.studio.kinds import Type  # noqa: TC001 - msgspec reads it
from millpond.blueprints.studio.wire import Status  # noqa: TC001 - msgspec reads it


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
