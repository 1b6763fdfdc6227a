"""The types of the partner contract."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from millpond import wire as native
from millpond_products.partner.identifiers import UUID_PATTERN
from millpond_products.partner.orders import (  # noqa: TC001 - msgspec reads them
    AspectRatio,
    Name,
    Style,
)

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
"""The error codes of the contract."""
Code = Literal[JobCode, "UNAUTHENTICATED", "FORBIDDEN"]
"""Further codes of rejected requests: the contract's set has none for a missing key."""


def _id(prefix: str, description: str) -> Meta:
    return Meta(
        description=description,
        max_length=60,
        examples=[f"{prefix}_254a4ce1-f4ca-42b1-9e36-17ca45ef3d39"],
        extra_json_schema={"pattern": f"^{prefix}_{UUID_PATTERN}$"},
    )


JobId = Annotated[str, Meta(examples=["job_01HX9Y6K7EJ4T2ABCDEF012345"])]
Instant = Annotated[str, Meta(examples=["2026-04-18T12:04:11.000Z"], description="UTC, to the millisecond.")]
_STORABLE: Final = r"^[^\x00]*$"  # NUL is the only character that PostgreSQL cannot store
_VISIBLE: Final = r"^[^\x00]*[^\s\x00][^\x00]*$"
Brief = Annotated[str, Meta(max_length=1_000, pattern=_STORABLE, description="A description of the topic.")]
Seed = Annotated[
    int, Meta(ge=0, le=2**32 - 1, description="The same seed produces the same result; if omitted, it is random.")
]
Images = Annotated[int, Meta(ge=1, le=4, description="The number of images.")]
Title = Annotated[str, Meta(min_length=1, max_length=120, pattern=_VISIBLE)]


class Request(native.Request, rename="camel"):
    """An input type."""


class Answer(native.Answer, rename="camel"):
    """An output type."""


# Errors


class JobError(Answer):
    """The error of a failed job. Use `code`, and `details` for platforms; the message is for people."""

    code: JobCode
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="For `PLATFORM_ERROR`: `platform`, `platformCode`, `platformMessage` and `retryAfterMs`."),
    ] = field(default_factory=dict[str, Any])


class Trouble(Answer):
    """The error of a rejected request."""

    code: Code
    message: str
    details: Annotated[
        dict[str, Any],
        Meta(description="`subcode` refines the code; `field` names the invalid field."),
    ]
    request_id: str


class ErrorBody(Answer):
    """A rejected request."""

    error: Trouble


# Projects


class MakeProject(Request, kw_only=True):
    """A project to create."""

    name: Title
    description: Annotated[str, Meta(max_length=2_000, pattern=_STORABLE)] | None = None


class Summary(Answer):
    """A summary; the App Store takes precedence over the website, and the website over the repository."""

    name: str
    description: str | None
    category: str | None
    keywords: list[str]


class Context(Answer, omit_defaults=True, kw_only=True):
    """The results of ingests, by source."""

    github: dict[str, Any] | UnsetType = UNSET
    website: dict[str, Any] | UnsetType = UNSET
    appstore: dict[str, Any] | UnsetType = UNSET
    summary: Summary


class Project(Answer):
    """A project and its context."""

    project_id: str
    name: str
    description: str | None
    context: Context
    created_at: Instant
    updated_at: Instant


class Projects(Answer):
    """A page of projects, newest first. Only the summary of each context is included."""

    data: list[Project]
    next_cursor: str | None


# What starts jobs


class IngestGithub(Request, kw_only=True):
    """A repository."""

    repo_url: Annotated[
        str,
        Meta(
            max_length=2_000,
            description="The URL for git, such as https://github.com/OWNER/NAME.",
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
                description="Defaults to the default branch.",
            ),
        ]
        | None
    ) = None


class IngestWebsite(Request, kw_only=True):
    """A website."""

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
            description="An App Store id, a bundle id, or the URL of the App Store page.",
            examples=["310633997", "https://apps.apple.com/us/app/example/id310633997"],
            extra_json_schema={"pattern": f"^({_APP_NUMBER}|{_APP_BUNDLE}|{_APP_PAGE})$"},
        ),
    ]
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$", description="The country of the store.")] = "us"


class MakeContent(Request):
    """Images and a short video to create."""

    brief: Brief = ""
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "9:16"
    images: Images = 2
    seed: Seed | None = None
    influencer_id: Annotated[str, _id("inf", "The influencer to show.")] | None = None


class CloneContent(Request, kw_only=True):
    """Content modelled on an existing container; omitted fields are taken from it."""

    source_container_id: Annotated[str, _id("cnt", "The container to clone.")]
    brief: Brief | None = None
    style: Style | None = None
    aspect_ratio: AspectRatio | None = None
    images: Images | None = None
    seed: Seed | None = None
    influencer_id: Annotated[str, _id("inf", "The influencer to show.")] | None = None


class MakeInfluencer(Request):
    """A persona to create."""

    name: Annotated[str, Meta(min_length=1, max_length=60, pattern=_VISIBLE)] | None = None
    brief: Brief = ""
    style: Style = "lifestyle"
    references: Annotated[int, Meta(ge=1, le=4, description="The number of images.")] = 2
    seed: Seed | None = None


# Jobs


class Accepted(Answer, omit_defaults=True, kw_only=True):
    """An accepted job."""

    job_id: JobId
    kind: Name
    status: Literal["running"]
    stage: Literal["queued"]
    project_id: str
    container_id: str | UnsetType = UNSET
    influencer_id: str | UnsetType = UNSET
    location_url: Annotated[str, Meta(description="The URL to poll.")]
    started_at: Instant


class Job(Answer, omit_defaults=True, kw_only=True):
    """The current state of a job. An ended job never changes."""

    job_id: JobId
    kind: Name
    status: Status
    progress: Annotated[float, Meta(ge=0, le=1, description="Set while the job runs.")] | UnsetType = UNSET
    stage: (
        Annotated[str, Meta(description="Set while the job runs: queued, then the stages of its kind.")] | UnsetType
    ) = UNSET
    project_id: str
    container_id: str | UnsetType = UNSET
    influencer_id: str | UnsetType = UNSET
    started_at: Instant
    finished_at: Annotated[Instant, Meta(description="Set once the job has ended.")] | UnsetType = UNSET
    result: (
        Annotated[dict[str, Any], Meta(description="Set if the job is completed. Each of its `assets` has a `url`.")]
        | UnsetType
    ) = UNSET
    error: JobError | UnsetType = UNSET


class Jobs(Answer):
    """A page of jobs, newest first."""

    data: list[Job]
    next_cursor: str | None


class Canceled(Answer, omit_defaults=True, kw_only=True):
    """The result of a cancellation."""

    job_id: JobId
    accepted: bool
    reason: Literal["ALREADY_COMPLETED", "ALREADY_FAILED", "ALREADY_CANCELED"] | UnsetType = UNSET
    stage: Annotated[str, Meta(description="The last stage of the job.")] | UnsetType = UNSET


# What jobs make


class Resource(Answer, omit_defaults=True, kw_only=True):
    """The common fields of created objects."""

    project_id: str
    job_id: JobId
    status: Status
    created_at: Instant
    result: Annotated[dict[str, Any], Meta(description="The result, as reported by its job.")] | UnsetType = UNSET


class Container(Resource, kw_only=True):
    """A container of content."""

    container_id: str


class Containers(Answer):
    """A page of containers, newest first."""

    data: list[Container]
    next_cursor: str | None


class Influencer(Resource, kw_only=True):
    """A persona."""

    influencer_id: str


class Influencers(Answer):
    """A page of influencers, newest first."""

    data: list[Influencer]
    next_cursor: str | None


# TikTok leases


class MakeLease(Request):
    """A TikTok account to request."""

    handle: Annotated[str, Meta(pattern=r"^@?[A-Za-z0-9._]{2,24}$", description="The preferred handle.")] | None = None
    country: Annotated[str, Meta(pattern="^[A-Za-z]{2}$")] | None = None
    note: Annotated[str, Meta(max_length=1_000, pattern=_STORABLE, description="A note for the operator.")] = ""


class LeaseRequest(Answer, omit_defaults=True, kw_only=True):
    """A request for a TikTok account."""

    lease_id: str
    project_id: str
    status: LeaseStatus
    location_url: Annotated[str, Meta(description="The URL to poll.")]
    handle: str | UnsetType = UNSET
    country: str | UnsetType = UNSET
    note: str | UnsetType = UNSET
    requested_at: Instant
    settled_at: Instant | UnsetType = UNSET
    reason: Annotated[str, Meta(description="The reason, if the request was rejected.")] | UnsetType = UNSET
    social_account_id: Annotated[str, Meta(description="The account, if the request was fulfilled.")] | UnsetType = (
        UNSET
    )


class Leases(Answer):
    """A page of lease requests, newest first."""

    data: list[LeaseRequest]
    next_cursor: str | None


class FulfilLease(Request, kw_only=True):
    """The account for a project."""

    handle: Annotated[str, Meta(pattern=r"^@?[A-Za-z0-9._]{2,24}$")]
    display_name: Annotated[str, Meta(min_length=1, max_length=60, pattern=_STORABLE)] | None = None


class RejectLease(Request, kw_only=True):
    """The reason of the rejection."""

    reason: Annotated[str, Meta(min_length=1, max_length=500, pattern=_STORABLE)]


class SocialAccount(Answer):
    """A social account of a project."""

    social_account_id: str
    project_id: str
    platform: Literal["tiktok"]
    handle: str
    display_name: str | None
    lease_id: str
    assigned_at: Instant


class SocialAccounts(Answer):
    """The social accounts of a project, newest first."""

    data: list[SocialAccount]
    next_cursor: str | None


# Webhook endpoints

Events = Annotated[list[EventName], Meta(min_length=1, max_length=3, description="If omitted, all three.")]


class MakeEndpoint(Request, kw_only=True):
    """A URL that receives the ends of your jobs."""

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
    created_at: Instant
    rotated_until: Annotated[
        Instant | None, Meta(description="The time until which requests are also signed with the previous secret.")
    ]


class NewEndpoint(Endpoint):
    """A webhook endpoint with its secret, which is returned only once."""

    secret: str


class Endpoints(Answer):
    """All your webhook endpoints."""

    data: list[Endpoint]


class RotateSecret(Request):
    """How long requests are also signed with the old secret."""

    overlap: native.OverlapDuration = "24h"


class TestEndpoint(Request):
    """The event of the test."""

    event: EventName = "job.completed"


class Tested(Answer):
    """A queued test event."""

    delivery_id: Annotated[str, Meta(description="The `webhook-id` of the test.")]
    event: EventName
