"""Problems."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct


class Problem(Struct, kw_only=True, omit_defaults=True):
    """An RFC 9457 problem: what went wrong, where, and what to do. Further members are possible."""

    type: str
    title: str
    status: int
    code: Annotated[str, Meta(description="A stable code, also used in Python, on jobs and in logs.")]
    detail: str
    instance: str | None = None
    field: str | None = None
    hint: str | None = None
    retryable: bool = False
    request_id: str | None = None


def schema_of(*types: type) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """The JSON Schemas of these types and of the types they use, for the OpenAPI document."""
    return msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
