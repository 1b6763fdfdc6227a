"""The shapes of the guard contract, in its own words: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from millpond.blueprints.guard.kinds import EXPIRES_IN, EXPIRES_IN_MAX, TEXT_MAX
from millpond.rules import RULES_MAX, Action, Direction, Matcher, Mode, Verdict
from millpond.wire import Answer, Request, Time

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

# The bounds of these are for readers of the schema; who goes beyond is told so in plain words.
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
        description="Where webhooks go.",
        examples=["https://example.com/hooks"],
        extra_json_schema={"format": "uri", "minLength": 1, "maxLength": 2_048},
    ),
]
Seconds = Annotated[
    int,
    Meta(
        description=f"After how many seconds the job expires; {int(EXPIRES_IN.total_seconds()):,} if it is not said.",
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
    """A message to be held against the rules; with its answer, both at once."""

    either: ClassVar = ("message_input", "message")
    webhook_url: Url
    message_input: Annotated[Text | None, Meta(description="Required, unless it stands under its old name.")] = None
    message_output: Text | None = None
    message: Annotated[Text | None, Meta(description="The same as message_input, as it was called before.")] = None
    expires_in_seconds: Seconds | None = None
    metadata: Annotated[
        dict[str, Any] | None, Meta(description="Yours; it comes back with the job and in webhooks. At most 16 KiB.")
    ] = None


class MadeJob(Answer):
    """A job that was taken in. The secret is told here, and nowhere else."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time
    webhook_secret: Annotated[str, Meta(description="What webhooks of this job are signed with: Standard Webhooks.")]


class Filtered(Answer, omit_defaults=True):
    """What the rules made of a message."""

    outcome: Outcome
    text: Annotated[str | None, Meta(description="As it may go on; null where it may not.")]
    verdicts: list[Verdict]
    more: Annotated[int, Meta(description="Verdicts beyond those that are told.")] = 0


class Job(Answer, omit_defaults=True):
    """A job, with what the rules have found so far."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time
    inbound: Filtered | UnsetType = UNSET
    outbound: Filtered | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET


class Respond(Request):
    """What the model said."""

    message_output: Text


class Responded(Answer):
    """That the answer was taken. The same for the same answer, however often it comes."""

    job_id: str
    status: Status
    created_at: Time
    expires_at: Time


# Rules


class MakeRule(Request):
    """A rule to be put behind the others."""

    name: RuleName
    matcher: Matcher
    direction: Directions = "both"
    action: Action = "block"
    mode: Annotated[Mode, Meta(description="monitor: verdicts are told, and nothing is changed.")] = "enforce"


class ChangeRule(Request):
    """What to change of a rule; a matcher is replaced as a whole."""

    name: RuleName | UnsetType = UNSET
    matcher: Matcher | UnsetType = UNSET
    direction: Directions | UnsetType = UNSET
    action: Action | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET


class Rule(Answer):
    """A rule as it stands."""

    id: str
    position: Annotated[int, Meta(description="Its place among the rules, from 1.")]
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
    """The order in which rules are to stand: each of them, once."""

    ids: Annotated[list[RuleId], Meta(max_length=RULES_MAX)]


class DryRun(Request):
    """A text to be held against rules: the stored ones, or those given here. Nothing is kept of it."""

    text: Text
    direction: Direction
    rules: Annotated[list[MakeRule], Meta(max_length=RULES_MAX)] | None = None


# Queues


class Queue(Answer):
    """A queue and how it is doing."""

    queue: str
    verdict: Literal["ok", "backlogged", "stalled"]
    reason: Annotated[str, Meta(description="The verdict in words and numbers.")]
    depth: Annotated[int, Meta(description="Jobs that wait for a worker.")]
    oldest_age_seconds: Annotated[float | None, Meta(description="How long the first of them has waited.")]
    in_flight: Annotated[int, Meta(description="Jobs that workers hold.")]
    rate_in_1m: Annotated[float, Meta(description="Jobs that came a second, over the last minute.")]
    rate_in_5m: Annotated[float, Meta(description="The same, over the last five.")]
    rate_out_1m: Annotated[float, Meta(description="Jobs that ended a second, over the last minute.")]
    rate_out_5m: Annotated[float, Meta(description="The same, over the last five.")]
    is_sample: Annotated[
        bool, Meta(description="Whether rates are of the newest jobs alone, because there were too many to count all.")
    ]


class Queues(Answer):
    """Every queue that the key may see."""

    queues: list[Queue]
