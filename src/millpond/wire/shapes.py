"""Building blocks of the wire types: names, times, durations, limits, and the base classes for input and output."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

from millpond.values import TAG_KEY_LENGTH_MAX, TAG_VALUE_LENGTH_MAX, TAGS_MAX
from millpond.webhooks import LIFECYCLE_EVENTS

Phase = Literal["waiting", "ready", "leased", "parked", "delivering", "ended"]
Outcome = Literal["succeeded", "failed", "canceled", "expired", "blocked"]
Scope = Literal["client", "worker", "viewer", "operator", "admin"]
TokenScope = Literal["read", "cancel"]
Verdict = Literal["ok", "busy", "stuck", "paused", "unserved"]
WorkerStatus = Literal["unapproved", "idle", "busy", "draining", "unready", "lost", "revoked"]
DeliveryState = Literal["pending", "delivered", "failed", "withdrawn"]
Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:@+/-]+$")]
Key = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[!-~]+$")]
Time = Annotated[datetime, Meta(tz=True)]
Duration = Annotated[
    # The bounds are for readers of the schema; violations have messages of their own.
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}(\.[0-9]{1,3})?(s|m|h)$|^[1-9][0-9]{0,2}d$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 0.001, "maximum": 10 * 365 * 86_400})],
    Meta(description="Seconds, or text such as 90s, 15m, 1h or 7d.", examples=["15m"]),
]
TokenDuration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}s$|^[1-9][0-9]{0,2}m$|^(1?[1-9]|10|2[0-4])h$"})]
    | Annotated[float, Meta(extra_json_schema={"minimum": 1, "maximum": 86_400})],
    Meta(description="Seconds, or text such as 90s, 15m or 1h; from 1s to 24h.", examples=["15m"]),
]
OverlapDuration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": r"^[1-9][0-9]{0,3}(s|m)$|^[1-9][0-9]?h$|^([12]?[1-9]|[123]0)d$"})]
    | Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 30 * 86_400})],
    Meta(description="Seconds, or text such as 15m, 24h or 7d; at most 30d.", examples=["24h"]),
]
Priority = Annotated[int, Meta(ge=-100, le=100, description="Jobs with a higher priority start first.")]
Tags = Annotated[
    # The bounds are for readers of the schema; violations have messages of their own.
    dict[str, Any],
    Meta(
        description="Up to 16 keys of letters, digits and . _ / - with a line of text each, by which jobs are found.",
        examples=[{"team": "ads"}],
        extra_json_schema={
            "maxProperties": TAGS_MAX,
            "propertyNames": {"pattern": rf"^[A-Za-z0-9_./-]{{1,{TAG_KEY_LENGTH_MAX}}}$"},
            "additionalProperties": {"type": "string", "pattern": rf"^[ -~]{{0,{TAG_VALUE_LENGTH_MAX}}}$"},
        },
    ),
]
TagFilter = Annotated[
    list[
        Annotated[
            str,
            Meta(
                extra_json_schema={
                    "pattern": rf"^[A-Za-z0-9_./-]{{1,{TAG_KEY_LENGTH_MAX}}}:[ -~]{{0,{TAG_VALUE_LENGTH_MAX}}}$"
                }
            ),
        ]
    ],
    Meta(
        min_length=1,
        max_length=TAGS_MAX,
        description="Only jobs with this tag: team:ads. May be given again; a job must have all of them.",
    ),
]
Credits = Annotated[int, Meta(ge=0, description="A whole number of credits.")]
BULK_MAX: Final = 1_000
ROUTES_MAX: Final = 100
SLOTS_MAX: Final = 1_000
POLL_MAX: Final = 100
POLL_SECONDS_MAX: Final = 30
RENEW_MAX: Final = 100
RESOURCES_MAX: Final = 100
NOTES_MAX: Final = 500
CHILDREN_MAX: Final = 500
CHUNKS_MAX: Final = 100
ARTIFACTS_MAX: Final = 200
PULL_MAX: Final = 100
JOB_EVENTS: Final = tuple(f"job.{event}" for event in LIFECYCLE_EVENTS)
"""The public names of the lifecycle events of a job."""
ENDPOINT_EVENTS: Final = (*JOB_EVENTS, "batch.completed", "endpoint.disabled", "*")
"""The events of an endpoint; the star stands for all events."""
# The bounds are for readers of the schema; violations have messages of their own.
WebhookUrl = Annotated[str, Meta(extra_json_schema={"format": "uri", "maxLength": 2_048})]
WebhookSecret = Annotated[
    str,
    Meta(
        description="whsec_ followed by 24 to 64 bytes in base64; generated if omitted.",
        extra_json_schema={"pattern": "^whsec_([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"},
    ),
]
JobEventName = Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(JOB_EVENTS)})]
EventName = Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(ENDPOINT_EVENTS)})]


class Request(Struct, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """An input type: unknown fields are rejected."""

    either: ClassVar[tuple[str, ...]] = ()
    """Fields of which exactly one must be given. Used for the OpenAPI document only, as Python types cannot express
    it.
    """


class Answer(Struct, kw_only=True):
    """An output type: clients ignore unknown fields."""
