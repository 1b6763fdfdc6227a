"""Webhook endpoints and deliveries."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from millpond.wire.shapes import (
    ENDPOINT_EVENTS,
    PULL_MAX,
    Answer,
    DeliveryState,
    EventName,
    Name,
    OverlapDuration,
    Request,
    Time,
    WebhookSecret,
    WebhookUrl,
)


class MakeEndpoint(Request):
    """A URL that receives events of a tenant's jobs."""

    url: Annotated[WebhookUrl | None, Meta(description="If omitted, nothing is sent and deliveries are pulled.")] = None
    events: (
        Annotated[
            list[EventName], Meta(min_length=1, max_length=50, description="If omitted, the terminal events of jobs.")
        ]
        | None
    ) = None
    kinds: Annotated[
        list[Name], Meta(max_length=100, description="Only events of jobs of these kinds; if empty, of all kinds.")
    ] = []
    description: Annotated[str, Meta(max_length=200)] = ""
    secret: WebhookSecret | None = None
    limit: (
        Annotated[int, Meta(ge=1, le=100, description="The limit of concurrent requests to the endpoint.")] | None
    ) = None


class ChangeEndpoint(Request):
    """Changes of a webhook endpoint; omitted fields are not changed."""

    url: WebhookUrl | UnsetType = UNSET
    events: Annotated[list[EventName], Meta(min_length=1, max_length=50)] | UnsetType = UNSET
    kinds: Annotated[list[Name], Meta(max_length=100)] | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=100)] | UnsetType | None = UNSET


class EndpointInfo(Answer):
    """A webhook endpoint without its secret."""

    id: str
    tenant: str
    account: Annotated[
        str | None, Meta(description="The account whose job events are sent; null for all accounts of the tenant.")
    ]
    url: Annotated[str | None, Meta(description="Null if deliveries are pulled.")]
    events: list[str]
    kinds: Annotated[list[str], Meta(description="Empty for all kinds.")]
    is_native: Annotated[
        bool, Meta(description="Whether events have the format described here; otherwise each kind defines the format.")
    ]
    description: str
    limit: Annotated[int | None, Meta(description="The limit of concurrent requests; null for the server's limit.")]
    created_at: Time
    disabled_at: Annotated[Time | None, Meta(description="Nothing is sent since this time.")]
    disabled_reason: str | None
    failing_since: Annotated[Time | None, Meta(description="No delivery has succeeded since this time.")]
    rotated_until: Annotated[
        Time | None, Meta(description="The time until which requests are also signed with the previous secret.")
    ]
    pulled_at: Annotated[Time | None, Meta(description="The last pull from the endpoint.")]


class NewEndpoint(EndpointInfo):
    """A webhook endpoint with its secret, which is returned only once."""

    secret: str


class Endpoints(Answer):
    """A page of webhook endpoints, oldest first."""

    data: list[EndpointInfo]
    next_cursor: str | None


class RotateEndpoint(Request):
    """How long requests are also signed with the old secret."""

    overlap: OverlapDuration = "24h"


class DisableEndpoint(Request):
    """The reason for disabling the endpoint."""

    reason: Annotated[str, Meta(max_length=200)] = "by an operator"


class TriggerEvent(Request):
    """The event of the test."""

    event: Annotated[str, Meta(examples=["job.succeeded"], extra_json_schema={"enum": list(ENDPOINT_EVENTS[:-1])})] = (
        "job.succeeded"
    )


class ResendSince(Request):
    """Which deliveries to resend: those that failed since a time, or all."""

    since: Time
    only_failed: bool = True


class Resent(Answer):
    """The number of resent deliveries."""

    count: int


class EndpointStats(Answer):
    """Delivery statistics of an endpoint since a time."""

    endpoint_id: str
    since: Time
    pending: int
    delivered: int
    failed: int
    withdrawn: int
    tries: int
    seconds_p50: Annotated[float | None, Meta(description="The median response time.")]
    seconds_p90: float | None


class Delivery(Answer, kw_only=True):
    """A delivery: one event for one receiver."""

    id: Annotated[str, Meta(description="The webhook-id of all its requests.")]
    tenant: str
    endpoint_id: Annotated[str | None, Meta(description="Null for the own webhook of a job or batch.")]
    job_id: str | None
    event: str
    state: DeliveryState
    tries: int
    created_at: Time
    due_at: Annotated[Time | None, Meta(description="The time of the next attempt.")]
    settled_at: Time | None
    batch_id: Annotated[str | None, Meta(description="The batch whose end it reports.")] = None


class DeliveryTry(Answer):
    """An attempt: a request and its result."""

    number: int
    at: Time
    url: Annotated[str | None, Meta(description="The URL of the request.")]
    seconds: float
    status: int | None
    error: Annotated[str | None, Meta(description="The reason why no response was received.")]
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    response_body: Annotated[str, Meta(description="The beginning of the response body.")]


class DeliveryLog(Delivery, kw_only=True):
    """A delivery with its attempts, oldest first."""

    url: Annotated[str | None, Meta(description="The current URL; null if the delivery is pulled.")]
    body: Annotated[
        str | None,
        Meta(description="The body of all its requests; null if this server does not know the kind of the job."),
    ]
    log: list[DeliveryTry]


class Deliveries(Answer):
    """A page of deliveries, newest first."""

    data: list[Delivery]
    next_cursor: str | None


class PullDeliveries(Request):
    """The number of deliveries to pull."""

    limit: Annotated[int, Meta(ge=1, le=PULL_MAX)] = 10


class SignedRequest(Answer):
    """A request that the puller must send with exactly these headers and this body."""

    id: str
    headers: dict[str, str]
    body: str


class SignedRequests(Answer):
    """The pulled deliveries. A delivery without a reported result is returned again after one minute."""

    data: list[SignedRequest]


class ReportDelivery(Request):
    """The result of a pulled delivery."""

    status: Annotated[int, Meta(ge=100, le=599)] | None = None
    error: Annotated[str, Meta(max_length=200, description="If no response was received.")] | None = None
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0
    headers: dict[str, str] = {}
    body: Annotated[str, Meta(description="The beginning of the response body; long bodies are truncated.")] = ""
