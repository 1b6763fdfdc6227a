"""The query parameters of the routes."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from millpond.product import After, EventNumber, JobCursor, Limit, Query
from millpond.wire import Name  # noqa: TC001 - msgspec reads it
from millpond_products.actions.wire import State  # noqa: TC001 - msgspec reads it


class ListJobs(Query):
    """The filters and the page of a list of jobs."""

    action: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ReadLogs(Query):
    """The page of a log."""

    after: After = 0
    limit: Annotated[int, Meta(ge=1, le=1_000, description="The limit of items.")] = 100


class ReadStream(Query, rename="camel"):
    """The event after which a stream resumes."""

    last_event_id: EventNumber | None = None
