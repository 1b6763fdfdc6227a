"""The types of the guard contract."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from millpond.wire import Answer, Request, Time
from millpond_products.guard.kinds import EXPIRES_IN, EXPIRES_IN_MAX, TEXT_MAX
from millpond_products.rules import RULES_MAX, Action, Direction, Matcher, Mode, Verdict

Status = Literal[
    "processing_inbound",
    "inbound_blocked",
    "awaiting_response",
    "processing_outbound",
    "outbound_blocked",
    "delivering",
    "completed",
    "failed",
    "expired",
]
Directions = Literal["inbound", "outbound", "both"]
Outcome = Literal["passed", "blocked"]

SECONDS_MAX: Final = int(EXPIRES_IN_MAX.total_seconds())

# The bounds are only documentation: the handlers check the values, with readable errors.
Text = Annotated[
    str,
    Meta(
        description="At least one character, at most 1 MiB of UTF-8, no NUL.",
        extra_json_schema={"minLength": 1, "maxLength": TEXT_MAX},
        examples=["Hello!"],
    ),
]
Url = Annotated[
    str,
    Meta(
        description="The URL for webhooks.",
        examples=["https://example.com/hooks"],
        extra_json_schema={"format": "uri", "minLength": 1, "maxLength": 2_048},
    ),
]
Seconds = Annotated[
    int,
    Meta(
        description=f"After how many seconds the job expires; the default is {int(EXPIRES_IN.total_seconds()):,}.",
        extra_json_schema={"minimum": 1, "maximum": SECONDS_MAX},
    ),
]
RuleName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        examples=["No e-mail addresses"],
        extra_json_schema={"pattern": r"^[^\x00-\x1f\x7f]+$"},
    ),
]
RuleId = Annotated[
    str,
    Meta(
        examples=["rule_01k9w3v6m2f4tb8r0e5s7q1xzc"],
        extra_json_schema={"pattern": "^rule_[0-7][0-9a-hjkmnp-tv-z]{25}$"},
    ),
]


# Jobs


class MakeJob(Request):
    """A message to check, optionally with its response."""

    either: ClassVar = ("message_input", "message")
    webhook_url: Url
    message_input: Annotated[Text | None, Meta(description="Required, unless the legacy name is used.")] = None
    message_output: Text | None = None
    message: Annotated[Text | None, Meta(description="The legacy name of message_input.")] = None
    expires_in_seconds: Seconds | None = None
    metadata: Annotated[
        dict[str, Any] | None, Meta(description="Your own data, returned with the job and in webhooks. At most 16 KiB.")
    ] = None


class MadeJob(Answer):
    """An accepted job. The secret is returned only here."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time
    webhook_secret: Annotated[
        str, Meta(description="The secret that signs the webhooks of this job: Standard Webhooks.")
    ]


class Filtered(Answer, omit_defaults=True):
    """The result of the rules for a message."""

    outcome: Outcome
    text: Annotated[str | None, Meta(description="The filtered text; null if the message was blocked.")]
    verdicts: list[Verdict]
    more: Annotated[int, Meta(description="The number of verdicts that were omitted.")] = 0


class Job(Answer, omit_defaults=True):
    """A job with the results of the rules so far."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time
    inbound: Filtered | UnsetType = UNSET
    outbound: Filtered | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class Respond(Request):
    """The response of the model."""

    message_output: Text


class Responded(Answer):
    """The acceptance of the response; identical for repeated requests."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time


# Rules


class MakeRule(Request):
    """A rule to create at the end of the list."""

    name: RuleName
    matcher: Matcher
    direction: Directions = "both"
    action: Action = "block"
    mode: Annotated[Mode, Meta(description="monitor: verdicts are reported, but the message is not changed.")] = (
        "enforce"
    )


class ChangeRule(Request):
    """Changes of a rule; a matcher is replaced as a whole."""

    name: RuleName | UnsetType = UNSET
    matcher: Matcher | UnsetType = UNSET
    direction: Directions | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET


class Rule(Answer):
    """A rule."""

    id: str
    position: Annotated[int, Meta(description="The position among the rules, starting at 1.")]
    name: str
    direction: Directions
    action: Action
    mode: Mode
    matcher: dict[str, Any]
    created_at: Time
    updated_at: Time


class Rules(Answer):
    """All rules of a tenant, in their order."""

    data: list[Rule]


class Reorder(Request):
    """The new order of the rules: the id of every rule, once."""

    ids: Annotated[list[RuleId], Meta(max_length=RULES_MAX)]


class DryRun(Request):
    """A text to test against the stored rules or the given ones. Nothing is stored."""

    text: Text
    direction: Direction
    rules: Annotated[list[MakeRule], Meta(max_length=RULES_MAX)] | None = None


# Queues


class Queue(Answer):
    """A queue and its status."""

    queue: str
    verdict: Literal["ok", "backlogged", "stalled"]
    reason: Annotated[str, Meta(description="The verdict in words and numbers.")]
    depth: Annotated[int, Meta(description="Jobs that wait for a worker.")]
    oldest_age_seconds: Annotated[float | None, Meta(description="The age of the oldest waiting job.")]
    in_flight: Annotated[int, Meta(description="Jobs held by workers.")]
    rate_in_1m: Annotated[float, Meta(description="Jobs submitted per second, over the last minute.")]
    rate_in_5m: Annotated[float, Meta(description="Jobs submitted per second, over the last five minutes.")]
    rate_out_1m: Annotated[float, Meta(description="Jobs ended per second, over the last minute.")]
    rate_out_5m: Annotated[float, Meta(description="Jobs ended per second, over the last five minutes.")]
    is_sample: Annotated[
        bool, Meta(description="Whether the rates cover only the newest jobs, because there were too many to count.")
    ]


class Queues(Answer):
    """The queues that the key may see."""

    queues: list[Queue]
