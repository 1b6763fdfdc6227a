"""The partner product: the routes of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.product import IDEMPOTENCY_HEADERS, JOB_HEADERS, JSON, OPERATORS, READERS, Product, Route
from millpond_products.partner import (
    assets,
    content_making,
    failures,
    influencer_making,
    ingest_appstore,
    ingest_github,
    ingest_website,
    lease_requests,
    parameters,
    partner_jobs,
    projects,
    resources,
    social_accounts,
    starting,
    webhook_endpoints,
    wire,
)
from millpond_products.partner.identifiers import UUID_PATTERN
from millpond_products.partner.kinds import KINDS, PARTNER
from millpond_products.renderer.companion import RENDERER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millpond.kinds import Handler
    from millpond.product import Code, Engine
    from millpond_products.partner.orders import Name
    from millpond_products.settings import ProductSettings

CLIENTS: Final = frozenset({"client"})

_ABSENT: Final = (errors.NotFoundError,)
_KEYED: Final = (errors.IdempotencyKeyError, errors.IdempotencyConflictError)
_STARTED: Final = (
    *_ABSENT,
    *_KEYED,
    errors.InputError,
    errors.InsufficientCreditsError,
    errors.TooManyActiveJobsError,
)
_URL: Final = (errors.OutboundRefusedError,)
_PROVIDED: Final = (errors.ProviderMissingError,)


def _start(path: str, handle: Any, body: Any, summary: str, *more: type[errors.MillpondError]) -> Route:
    return Route(
        method="POST",
        path=f"/v1/projects/{{projectId}}/{path}",
        group="start",
        handle=handle,
        summary=summary,
        description="The idempotency key, the credit hold, the job and its dispatch are written in one "
        "transaction. Poll `locationUrl`. A request with the same Idempotency-Key and body returns "
        "the first response byte for byte, with `Idempotency-Replayed: true`.",
        who=CLIENTS,
        body=body,
        answers={202: wire.Accepted},
        request_headers=IDEMPOTENCY_HEADERS,
        gives=JOB_HEADERS,
        errors=(*_STARTED, *more),
    )


_START_ROUTES: Final = (
    _start("ingest/github", starting.start_github, wire.IngestGithub, "Ingest a repository.", *_URL),
    _start("ingest/website", starting.start_website, wire.IngestWebsite, "Ingest a website.", *_URL),
    _start("ingest/appstore", starting.start_appstore, wire.IngestAppstore, "Ingest an App Store entry."),
    _start(
        "content",
        starting.start_content,
        wire.MakeContent,
        "Create images and a short video.",
        errors.ConflictError,
        *_PROVIDED,
    ),
    _start(
        "content/clone",
        starting.start_clone,
        wire.CloneContent,
        "Create content modelled on an existing container.",
        errors.ConflictError,
        *_PROVIDED,
    ),
    _start("influencers", starting.start_influencer, wire.MakeInfluencer, "Create a persona.", *_PROVIDED),
)


def _of_client(what: str, handle: Any, summary: str, answers: Mapping[int, Any], **more: Any) -> Route:
    """A route for clients: its method, and its path below the version."""
    method, _, path = what.partition(" ")
    return Route(
        method=method,
        path=f"/v1/{path}",
        handle=handle,
        summary=summary,
        who=CLIENTS,
        answers=answers,
        **more,
    )


_PROJECT_ROUTES: Final = (
    _of_client(
        "POST projects",
        projects.make,
        "Create a project.",
        {201: wire.Project},
        group="projects",
        body=wire.MakeProject,
        request_headers=("Idempotency-Key",),
        gives=("Idempotency-Replayed",),
        errors=_KEYED,
    ),
    _of_client(
        "GET projects",
        projects.list_projects,
        "List your projects with summaries, newest first.",
        {200: wire.Projects},
        group="projects",
        query=parameters.ListProjects,
    ),
    _of_client(
        "GET projects/{projectId}",
        projects.read,
        "Get a project with its merged context.",
        {200: wire.Project},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/containers",
        resources.list_containers,
        "List the containers of a project, newest first.",
        {200: wire.Containers},
        group="projects",
        query=parameters.ListContainers,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/containers/{containerId}",
        resources.read_container,
        "Get a container.",
        {200: wire.Container},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/influencers",
        resources.list_influencers,
        "List the influencers of a project, newest first.",
        {200: wire.Influencers},
        group="projects",
        query=parameters.ListInfluencers,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/influencers/{influencerId}",
        resources.read_influencer,
        "Get an influencer.",
        {200: wire.Influencer},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET assets/{assetId}",
        assets.read,
        "Download a file.",
        {302: None},
        group="projects",
        description="Redirects to a temporary URL.",
        gives=("Location",),
        errors=_ABSENT,
    ),
)

_JOB_ROUTES: Final = (
    _of_client(
        "GET jobs/{jobId}",
        partner_jobs.read,
        "Get a job.",
        {200: wire.Job, 304: None},
        group="jobs",
        description="While the job runs, `Retry-After` states when to poll again; with ?wait=SECONDS, the "
        "response is sent when the job has ended. The response for an ended job never changes and "
        "can be cached forever. Polling has its own rate limit, which does not affect the job.",
        query=parameters.ReadJob,
        limit="poll_limit",
        request_headers=("Prefer", "If-None-Match"),
        gives=("ETag", "Retry-After", "Preference-Applied"),
        errors=_ABSENT,
    ),
    _of_client(
        "GET jobs",
        partner_jobs.list_jobs,
        "List your jobs, newest first.",
        {200: wire.Jobs},
        group="jobs",
        query=parameters.ListJobs,
        limit="poll_limit",
    ),
    _of_client(
        "POST jobs/{jobId}/cancel",
        partner_jobs.cancel,
        "Cancel a job; its credits are released.",
        {202: wire.Canceled, 200: wire.Canceled},
        group="jobs",
        description="202: the job stops at its next checkpoint; finished stages are not rolled back. 200: it "
        "had already ended. 409: its stage cannot be interrupted; try again in the next one.",
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
)

_LEASE_ROUTES: Final = (
    _of_client(
        "POST projects/{projectId}/tiktok-leases",
        lease_requests.make,
        "Request a TikTok account.",
        {202: wire.LeaseRequest},
        group="social",
        description="This is not a job: an operator fulfils or rejects the request. Poll `locationUrl`.",
        body=wire.MakeLease,
        request_headers=("Idempotency-Key",),
        gives=("Location", "Idempotency-Replayed"),
        errors=(*_ABSENT, *_KEYED),
    ),
    _of_client(
        "GET projects/{projectId}/tiktok-leases",
        lease_requests.list_requests,
        "List the lease requests of a project, newest first.",
        {200: wire.Leases},
        group="social",
        query=parameters.ListLeases,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/tiktok-leases/{leaseId}",
        lease_requests.read,
        "Get a lease request.",
        {200: wire.LeaseRequest},
        group="social",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/social-accounts",
        social_accounts.list_accounts,
        "List the social accounts of a project.",
        {200: wire.SocialAccounts},
        group="social",
        query=parameters.ListAccounts,
        errors=_ABSENT,
    ),
)


def _endpoint(method: str, path: str, handle: Any, summary: str, answers: Mapping[int, Any], **more: Any) -> Route:
    refused = more.pop("errors", ())
    absent = _ABSENT if path else ()
    return _of_client(
        f"{method} webhook-endpoints{path}",
        handle,
        summary,
        answers,
        group="webhooks",
        errors=(*absent, *refused),
        **more,
    )


_ENDPOINT_ROUTES: Final = (
    _endpoint(
        "POST",
        "",
        webhook_endpoints.make,
        "Register a webhook endpoint for the ends of your jobs.",
        {201: wire.NewEndpoint},
        description="The body is the object returned for the job. Requests are signed according to Standard "
        "Webhooks with the secret in the response, which is shown only once.",
        body=wire.MakeEndpoint,
        errors=(errors.OutboundRefusedError, errors.ConflictError, errors.VaultError),
    ),
    _endpoint("GET", "", webhook_endpoints.list_endpoints, "List your webhook endpoints.", {200: wire.Endpoints}),
    _endpoint("GET", "/{endpointId}", webhook_endpoints.read, "Get a webhook endpoint.", {200: wire.Endpoint}),
    _endpoint(
        "POST",
        "/{endpointId}/rotate-secret",
        webhook_endpoints.rotate,
        "Rotate the secret of a webhook endpoint. Both secrets sign during the overlap.",
        {201: wire.NewEndpoint},
        body=wire.RotateSecret,
        errors=(errors.VaultError,),
    ),
    _endpoint(
        "POST",
        "/{endpointId}/disable",
        webhook_endpoints.disable,
        "Disable a webhook endpoint.",
        {200: wire.Endpoint},
        description="Events that occur while it is disabled are not sent.",
    ),
    _endpoint(
        "POST", "/{endpointId}/enable", webhook_endpoints.enable, "Enable a webhook endpoint.", {200: wire.Endpoint}
    ),
    _endpoint(
        "POST",
        "/{endpointId}/test",
        webhook_endpoints.test,
        "Send a test event of a fictitious job.",
        {202: wire.Tested},
        body=wire.TestEndpoint,
        errors=(errors.ConflictError,),
    ),
    _endpoint("DELETE", "/{endpointId}", webhook_endpoints.delete, "Delete a webhook endpoint.", {204: None}),
)


def _operator(method: str, path: str, handle: Any, summary: str, answers: Mapping[int, Any], **more: Any) -> Route:
    return Route(
        method=method,
        path=f"/v1/admin/{path}",
        group="admin",
        handle=handle,
        summary=summary,
        who=READERS if method == "GET" else OPERATORS,
        answers=answers,
        **more,
    )


_OPERATORS_ROUTES: Final = (
    _operator(
        "GET",
        "tiktok-leases",
        lease_requests.list_all,
        "List the lease requests of a tenant, newest first.",
        {200: wire.Leases},
        query=parameters.ListAllLeases,
    ),
    _operator(
        "POST",
        "tiktok-leases/{leaseId}/fulfil",
        lease_requests.fulfil,
        "Fulfil a lease request with an account.",
        {200: wire.LeaseRequest},
        query=parameters.OfTenant,
        body=wire.FulfilLease,
        errors=(*_ABSENT, errors.ConflictError),
    ),
    _operator(
        "POST",
        "tiktok-leases/{leaseId}/reject",
        lease_requests.reject,
        "Reject a lease request.",
        {200: wire.LeaseRequest},
        query=parameters.OfTenant,
        body=wire.RejectLease,
        errors=(*_ABSENT, errors.ConflictError),
    ),
)

_ABOUT: Final = """\
Create a project, ingest its repository, website and app, and create content and influencers for it.

Requests that take time return 202 with a job: poll its `locationUrl` until `status` is `completed`, `failed` or
`canceled`, which are final, or register a webhook endpoint. Send a client key as `Authorization: Bearer KEY`; requests
for objects of other accounts return 404. Send an `Idempotency-Key`, a UUID, with every request that starts a job. Times
are UTC with milliseconds. Lists are paginated: send `nextCursor` as `cursor` to get the next page.

Errors are `{"error": {"code", "message", "details", "requestId"}}`. The codes, which are also those of failed jobs:

| code | meaning |
|---|---|
| `VALIDATION` | The request is invalid; `details.field` names the field. |
| `NOT_FOUND` | The object does not exist, or belongs to another account. |
| `CONFLICT` | Conflict with the current state; `details.subcode` states why, such as `JOB_CANCEL_UNAVAILABLE`. |
| `IDEMPOTENCY_CONFLICT` | The idempotency key was used with a different request. |
| `RATE_LIMITED` | Too many requests or active jobs; try again after `Retry-After`. |
| `INSUFFICIENT_CREDITS` | The account does not have enough credits. |
| `PLATFORM_ERROR` | A platform failed; `details` contains its `platform`, `platformCode` and `platformMessage`. |
| `TIMEOUT` | The job exceeded its time limit. |
| `CANCELED` | The job was canceled. |
| `INTERNAL` | The server failed. |
| `UNAUTHENTICATED` | For requests only: the key is missing or invalid. |
| `FORBIDDEN` | For requests only: the key does not permit the operation. |
"""

_MAKERS: Final[Mapping[Name, Callable[[Engine, ProductSettings], Handler]]] = {
    "project_ingest_github": ingest_github.handler,
    "project_ingest_website": ingest_website.handler,
    "appstore_ingest": ingest_appstore.handler,
    "content_generate": content_making.handler,
    "influencer_create": influencer_making.handler,
}


def handlers(engine: Engine, settings: ProductSettings) -> Code:
    return bound(engine, {name: maker(engine, settings) for name, maker in _MAKERS.items()})


def bound(engine: Engine, code: Mapping[Name, Handler]) -> Code:
    """The code of the kinds as run by the engine: its resources are kept after the job."""
    return {
        KINDS[name].name: {None: resources.kept(engine, name, failures.timed(handler))}
        for name, handler in code.items()
    }


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_{UUID_PATTERN}$"}


def _letters(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{25}}$"}


PRODUCT: Final = Product(
    lifecycle=PARTNER,
    kinds=tuple(KINDS.values()),
    title="Partner",
    about=_ABOUT,
    routes=(
        *_PROJECT_ROUTES,
        *_START_ROUTES,
        *_JOB_ROUTES,
        *_LEASE_ROUTES,
        *_ENDPOINT_ROUTES,
        *_OPERATORS_ROUTES,
    ),
    groups={
        "projects": "Projects and their content.",
        "start": "Start jobs.",
        "jobs": "Read and cancel jobs.",
        "social": "TikTok accounts.",
        "webhooks": "Webhook endpoints.",
        "admin": "Operator endpoints.",
        "server": "The documentation of this API.",
    },
    parameters={
        "projectId": (_id("prj"), "The id of a project."),
        "containerId": (_id("cnt"), "The id of a container."),
        "influencerId": (_id("inf"), "The id of an influencer."),
        "leaseId": (_id("lse"), "The id of a lease request."),
        "jobId": (_letters("job"), "The id of a job."),
        "assetId": (_letters("art"), "The id of an asset."),
        "endpointId": (_letters("ep"), "The id of a webhook endpoint."),
        "Idempotency-Key": (
            {"type": "string", "format": "uuid"},
            "A UUID. Repeated requests with the same key are executed once.",
        ),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=failures.refuse,
    refusal=wire.ErrorBody,
    refusal_form=JSON,
    migrations="millpond_products.partner",
    handlers=handlers,
    companions=(RENDERER,),
)
