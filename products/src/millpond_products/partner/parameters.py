"""The query parameters, by route."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from millpond.product import WAIT_MAX, Limit, Query, Tenant
from millpond_products.partner.identifiers import UUID_PATTERN
from millpond_products.partner.orders import Name  # noqa: TC001 - msgspec reads it
from millpond_products.partner.wire import (  # noqa: TC001 - msgspec reads them
    LeaseStatus,
    Status,
)

_NEXT = "The `nextCursor` of the page before."
_JOB = {"pattern": "^job_[0-7]([0-9A-HJKMNP-TV-Z]{25}|[0-9a-hjkmnp-tv-z]{25})$"}


def _cursor(pattern: dict[str, Any]) -> Meta:
    """A pattern that is only documented: the routes check it, with better messages."""
    return Meta(max_length=200, description=_NEXT, extra_json_schema=pattern)


def _of(prefix: str) -> Meta:
    return _cursor({"pattern": f"^{prefix}_{UUID_PATTERN}$"})


class ReadJob(Query):
    """How to read a job."""

    wait: Annotated[
        float,
        Meta(ge=0, le=WAIT_MAX, description="Seconds to wait for the end of the job before the response is sent."),
    ] = 0


class ListJobs(Query):
    """Which jobs."""

    kind: Name | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    cursor: Annotated[str, _cursor(_JOB)] | None = None
    limit: Limit = 50


class ListProjects(Query):
    """Which projects."""

    cursor: Annotated[str, _of("prj")] | None = None
    limit: Limit = 50


class ListContainers(Query):
    """Which containers."""

    cursor: Annotated[str, _of("cnt")] | None = None
    limit: Limit = 50


class ListInfluencers(Query):
    """Which influencers."""

    cursor: Annotated[str, _of("inf")] | None = None
    limit: Limit = 50


class ListLeases(Query):
    """Which lease requests."""

    cursor: Annotated[str, _of("lse")] | None = None
    limit: Limit = 50


class ListAccounts(Query):
    """Which accounts."""

    cursor: Annotated[str, _of("sac")] | None = None
    limit: Limit = 50


class OfTenant(Query):
    """The tenant, which a key for all tenants must name."""

    tenant: Tenant | None = None


class ListAllLeases(OfTenant):
    """Which lease requests of a tenant."""

    status: LeaseStatus = "pending"
    cursor: Annotated[str, _of("lse")] | None = None
    limit: Limit = 50
