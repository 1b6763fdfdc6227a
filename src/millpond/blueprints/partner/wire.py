"""The shapes of the partner contract, in its own words: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from millpond import wire as native
from millpond.blueprints.partner.identifiers import UUID_PATTERN
from millpond.blueprints.partner.orders import AspectRatio, Name, Style  # noqa: TC001 - msgspec reads them

Status = Literal["running", "completed", "failed", "canceled"]
LeaseStatus = Literal["pending", "fulfilled", "rejected"]
EventName = Literal["job.completed", "job.failed", "job.canceled"]
Source = Literal["github", "website", "appstore"]
JobCode = Literal[
    "VALIDATION",
    "NOT_FOUND",
    "CONFLICT",
    "IDEMPOTENCY_CONFLICT",
    "RATE_LIMITED",
    "INSUFFICIENT_CREDITS",
    "PLATFORM_ERROR",
    "TIMEOUT",
    "CANCELED",
    "INTERNAL",
]
"""The contract's set."""
Code = Literal[JobCode, "UNAUTHENTICATED", "FORBIDDEN"]
"""What a request can be refused with beside: that a key is missing is nothing that the set has a word for."""


def _id(prefix: str, told: str) -> Meta:
    return Meta(
        description=told,
        max_length=60,
        examples=[f"{prefix}_254a4ce1-f4ca-42b1-9e36-17ca45ef3d39"],
        extra_json_schema={"pattern": f"^{prefix}_{UUID_PATTERN}$"},
    )


JobId = Annotated[str, Meta(examples=["job_01HX9Y6K7EJ4T2ABCDEF012345"])]
Moment = Annotated[str, Meta(examples=["2026-04-18T12:04:11.000Z"], description="UTC, to the millisecond.")]
_STORABLE: Final = r"^[^\x00]*$"  # of all characters this one alone cannot be kept
_VISIBLE: Final = r"^[^\x00]*[^\s\x00][^\x00]*$"
Brief = Annotated[str, Meta(max_length=1_000, pattern=_STORABLE, description="What it is to be about, in words.")]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="The same seed makes the same thing; none: any.")]
Images = Annotated[int, Meta(ge=1, le=4, description="How many pictures.")]
Title = Annotated[str, Meta(min_length=1, max_length=120, pattern=_VISIBLE)]


class Request(native.Request, rename="camel"):
    """What comes in."""


class Answer(native.Answer, rename="camel"):
    """What goes out."""


# Errors


class Failure(Answer):
    """Why a job has failed. Decide by `code`, and for platforms by `details`; the message is for people."""

    code: JobCode
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="For `PLATFORM_ERROR`: `platform`, `platformCode`, `platformMessage` and `retryAfterMs`."),
    ] = field(default_factory=dict[str, Any])


class Trouble(Answer):
    """Why a request was refused."""

    code: Code
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="`subcode` says it more exactly; `field` names what of the request is wrong."),
    ]
    request_id: str


class Refusal(Answer):
    """A request that was refused."""

    error: Trouble


# Projects


class MakeProject(Request, kw_only=True):
    """A project to be."""

    name: Title
    description: Annotated[str, Meta(max_length=2_000, pattern=_STORABLE)] | None = None


class Summary(Answer):
    """What is known in short: the App Store is believed before the website, and that before the repository."""

    name: str
    description: str | None
    category: str | None
    keywords: list[str]


class Context(Answer, omit_defaults=True, kw_only=True):
    """What ingests have merged, by their source."""

    github: dict[str, Any] | UnsetType = UNSET
    website: dict[str, Any] | UnsetType = UNSET
    appstore: dict[str, Any] | UnsetType = UNSET
    summary: Summary


class Project(Answer):
    """A project, and what is known of it."""

    project_id: str
    name: str
    description: str | None
    context: Context
    created_at: Moment
    updated_at: Moment


class Projects(Answer):
    """A page of projects, the newest first. The context of each is its summary alone."""

    data: list[Project]
    next_cursor: str | None


# What starts jobs


class IngestGithub(Request, kw_only=True):
    """A repository."""

    repo_url: Annotated[
        str,
        Meta(
            max_length=2_000,
            description="Where git clones it from, such as https://github.com/OWNER/NAME.",
            examples=["https://github.com/octocat/hello-world"],
            extra_json_schema={"format": "uri"},
        ),
    ]
    branch: (
        Annotated[
            str,
            Meta(
                max_length=200,
                pattern=r"^[A-Za-z0-9_][A-Za-z0-9_+@-]*([./][A-Za-z0-9_+@-]+)*$",
                description="Without one: the repository's own.",
            ),
        ]
        | None
    ) = None


class IngestWebsite(Request, kw_only=True):
    """A page."""

    url: Annotated[str, Meta(max_length=2_000, examples=["https://example.com/"], extra_json_schema={"format": "uri"})]


_APP_NUMBER: Final = "[0-9]{1,20}"
_APP_BUNDLE: Final = r"[A-Za-z0-9-]{1,60}(\.[A-Za-z0-9-]{1,60}){1,5}"
_APP_PAGE: Final = r"https://apps\.apple\.com/([A-Za-z]{2}/)?app/([A-Za-z0-9-]{1,100}/)?id[0-9]{1,20}"


class IngestAppstore(Request, kw_only=True):
    """An app."""

    app_id: Annotated[
        str,
        Meta(
            max_length=500,
            description="Its number in the App Store, its bundle id, or its page there.",
            examples=["310633997", "https://apps.apple.com/us/app/example/id310633997"],
            extra_json_schema={"pattern": f"^({_APP_NUMBER}|{_APP_BUNDLE}|{_APP_PAGE})$"},
        ),
    ]
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$", description="The store, by its country.")] = "us"


class MakeContent(Request):
    """Pictures and a short film."""

    brief: Brief = ""
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "9:16"
    images: Images = 2
    seed: Seed | None = None
    influencer_id: Annotated[str, _id("inf", "Who is to be seen.")] | None = None


class CloneContent(Request, kw_only=True):
    """Content like that of a container that did well; what is not said is as it was there."""

    source_container_id: Annotated[str, _id("cnt", "The container that is cloned.")]
    brief: Brief | None = None
    style: Style | None = None
    aspect_ratio: AspectRatio | None = None
    images: Images | None = None
    seed: Seed | None = None
    influencer_id: Annotated[str, _id("inf", "Who is to be seen.")] | None = None


class MakeInfluencer(Request):
    """A persona."""

    name: Annotated[str, Meta(min_length=1, max_length=60, pattern=_VISIBLE)] | None = None
    brief: Brief = ""
    style: Style = "lifestyle"
    references: Annotated[int, Meta(ge=1, le=4, description="How many pictures of it.")] = 2
    seed: Seed | None = None


# Jobs


class Accepted(Answer, omit_defaults=True, kw_only=True):
    """A job that was taken in."""

    job_id: JobId
    kind: Name
    status: Literal["running"]
    stage: Literal["queued"]
    project_id: str
    container_id: str | UnsetType = UNSET
    influencer_id: str | UnsetType = UNSET
    location_url: Annotated[str, Meta(description="Where to poll.")]
    started_at: Moment


class Job(Answer, omit_defaults=True, kw_only=True):
    """A job as it stands. One that has ended stays as it is."""

    job_id: JobId
    kind: Name
    status: Status
    progress: Annotated[float, Meta(ge=0, le=1, description="While it runs.")] | UnsetType = UNSET
    stage: Annotated[str, Meta(description="While it runs: queued, and then one of its kind's.")] | UnsetType = UNSET
    project_id: str
    container_id: str | UnsetType = UNSET
    influencer_id: str | UnsetType = UNSET
    started_at: Moment
    finished_at: Annotated[Moment, Meta(description="Once it has ended.")] | UnsetType = UNSET
    result: (
        Annotated[dict[str, Any], Meta(description="Where it is completed. Each of its `assets` has a `url`.")]
        | UnsetType
    ) = UNSET
    error: Failure | UnsetType = UNSET


class Jobs(Answer):
    """A page of jobs, the newest first."""

    data: list[Job]
    next_cursor: str | None


class Canceled(Answer, omit_defaults=True, kw_only=True):
    """What came of a cancel."""

    job_id: JobId
    accepted: bool
    reason: Literal["ALREADY_COMPLETED", "ALREADY_FAILED", "ALREADY_CANCELED"] | UnsetType = UNSET
    stage: Annotated[str, Meta(description="The last one it came to.")] | UnsetType = UNSET


# What jobs make


class Resource(Answer, omit_defaults=True, kw_only=True):
    """What all that is made has in common."""

    project_id: str
    job_id: JobId
    status: Status
    created_at: Moment
    result: Annotated[dict[str, Any], Meta(description="What was made, as its job tells it.")] | UnsetType = UNSET


class Container(Resource, kw_only=True):
    """A container of content."""

    container_id: str


class Containers(Answer):
    """A page of containers, the newest first."""

    data: list[Container]
    next_cursor: str | None


class Influencer(Resource, kw_only=True):
    """A persona."""

    influencer_id: str


class Influencers(Answer):
    """A page of influencers, the newest first."""

    data: list[Influencer]
    next_cursor: str | None


# TikTok leases


class MakeLease(Request):
    """A TikTok account that is wished for."""

    handle: Annotated[str, Meta(pattern=r"^@?[A-Za-z0-9._]{2,24}$", description="What it might be called.")] | None = (
        None
    )
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$")] | None = None
    note: Annotated[str, Meta(max_length=1_000, pattern=_STORABLE, description="For whoever fulfils it.")] = ""


class Lease(Answer, omit_defaults=True, kw_only=True):
    """A request for a TikTok account."""

    lease_id: str
    project_id: str
    status: LeaseStatus
    location_url: Annotated[str, Meta(description="Where to poll.")]
    handle: str | UnsetType = UNSET
    country: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    requested_at: Moment
    settled_at: Moment | UnsetType = UNSET
    reason: Annotated[str, Meta(description="Where it was rejected: why.")] | UnsetType = UNSET
    social_account_id: Annotated[str, Meta(description="Where it was fulfilled: by what.")] | UnsetType = UNSET


class Leases(Answer):
    """A page of lease requests, the newest first."""

    data: list[Lease]
    next_cursor: str | None


class FulfilLease(Request, kw_only=True):
    """The account that a project is given."""

    handle: Annotated[str, Meta(pattern=r"^@?[A-Za-z0-9._]{2,24}$")]
    display_name: Annotated[str, Meta(min_length=1, max_length=60, pattern=_STORABLE)] | None = None


class RejectLease(Request, kw_only=True):
    """Why there is none."""

    reason: Annotated[str, Meta(min_length=1, max_length=500, pattern=_STORABLE)]


class SocialAccount(Answer):
    """An account that a project may use."""

    social_account_id: str
    project_id: str
    platform: Literal["tiktok"]
    handle: str
    display_name: str | None
    lease_id: str
    assigned_at: Moment


class SocialAccounts(Answer):
    """The accounts of a project, the newest first."""

    data: list[SocialAccount]
    next_cursor: str | None


# Webhook endpoints

Events = Annotated[list[EventName], Meta(min_length=1, max_length=3, description="Without them: all three.")]


class MakeEndpoint(Request, kw_only=True):
    """A URL that is told how your jobs end."""

    url: native.WebhookUrl
    events: Events | None = None
    description: Annotated[str, Meta(max_length=200)] = ""
    secret: native.WebhookSecret | None = None


class Endpoint(Answer):
    """A webhook endpoint, without its secret."""

    endpoint_id: str
    url: str
    events: list[EventName]
    description: str
    status: Literal["enabled", "disabled"]
    disabled_reason: str | None
    created_at: Moment
    rotated_until: Annotated[Moment | None, Meta(description="Until when the secret before this one signs too.")]


class NewEndpoint(Endpoint):
    """A webhook endpoint with its secret, which is told this once."""

    secret: str


class Endpoints(Answer):
    """All your webhook endpoints."""

    data: list[Endpoint]


class RotateSecret(Request):
    """How long what is sent is signed with the old secret too."""

    overlap: native.OverlapDuration = "24h"


class TestEndpoint(Request):
    """What the test pretends to tell of."""

    event: EventName = "job.completed"


class Tested(Answer):
    """A test that is on its way."""

    delivery_id: Annotated[str, Meta(description="The `webhook-id` that it comes with.")]
    event: EventName
