"""What may stand behind the question mark, by route."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from millpond.api.parameters import After, EventNumber, JobCursor, Limit, Query
from millpond.blueprints.actions.wire import State  # noqa: TC001 - msgspec reads it
from millpond.wire import Name  # noqa: TC001 - msgspec reads it


class ListJobs(Query):
    """Which jobs."""

    action: Name | UnsetType = UNSET
    state: State | UnsetType = UNSET
    cursor: JobCursor | None = None
    limit: Limit = 50


class ReadLogs(Query):
    """Which lines."""

    after: After = 0
    limit: Annotated[int, Meta(ge=1, le=1_000, description="How many at most.")] = 100


class Stream(Query, rename="camel"):
    """From where on."""

    last_event_id: EventNumber | None = None
