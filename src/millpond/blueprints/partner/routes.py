"""The partner blueprint as it is served: the contract's paths, with what each takes, gives and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.api.blueprint import Blueprint
from millpond.api.calls import JSON
from millpond.api.routes import OPERATORS, PAGES, READERS, Route
from millpond.blueprints.partner import (
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
from millpond.blueprints.partner.identifiers import UUID_PATTERN
from millpond.blueprints.partner.kinds import KINDS, PARTNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millpond.api.blueprint import Code
    from millpond.blueprints.partner.orders import Name
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.settings import Settings

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
        told="Its key, credits, row and place in line are written together, or nothing is. Poll `locationUrl`. The same"
        " Idempotency-Key with the same body is answered with the first answer again, byte for byte, and"
        " `Idempotency-Replayed: true`.",
        who=CLIENTS,
        body=body,
        answers={202: wire.Accepted},
        heeds=("Idempotency-Key",),
        gives=("Location", "Retry-After", "Idempotency-Replayed"),
        errors=(*_STARTED, *more),
    )


_START_ROUTES: Final = (
    _start("ingest/github", starting.start_github, wire.IngestGithub, "Read a repository.", *_URL),
    _start("ingest/website", starting.start_website, wire.IngestWebsite, "Read a page.", *_URL),
    _start("ingest/appstore", starting.start_appstore, wire.IngestAppstore, "Look an app up in the App Store."),
    _start(
        "content",
        starting.start_content,
        wire.MakeContent,
        "Make pictures and a short film.",
        errors.ConflictError,
        *_PROVIDED,
    ),
    _start(
        "content/clone",
        starting.start_clone,
        wire.CloneContent,
        "Make content like that of a container that did well.",
        errors.ConflictError,
        *_PROVIDED,
    ),
    _start("influencers", starting.start_influencer, wire.MakeInfluencer, "Make up a persona.", *_PROVIDED),
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
        "Make a project.",
        {201: wire.Project},
        group="projects",
        body=wire.MakeProject,
        heeds=("Idempotency-Key",),
        gives=("Idempotency-Replayed",),
        errors=_KEYED,
    ),
    _of_client(
        "GET projects",
        projects.list_projects,
        "List your projects, the newest first; what is known of each in short.",
        {200: wire.Projects},
        group="projects",
        query=parameters.ListProjects,
    ),
    _of_client(
        "GET projects/{projectId}",
        projects.read,
        "Read a project, with what ingests have merged.",
        {200: wire.Project},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/containers",
        resources.list_containers,
        "List the containers of a project, the newest first.",
        {200: wire.Containers},
        group="projects",
        query=parameters.ListContainers,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/containers/{containerId}",
        resources.read_container,
        "Read a container.",
        {200: wire.Container},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/influencers",
        resources.list_influencers,
        "List the influencers of a project, the newest first.",
        {200: wire.Influencers},
        group="projects",
        query=parameters.ListInfluencers,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/influencers/{influencerId}",
        resources.read_influencer,
        "Read an influencer.",
        {200: wire.Influencer},
        group="projects",
        errors=_ABSENT,
    ),
    _of_client(
        "GET assets/{assetId}",
        assets.read,
        "Get a file.",
        {302: None},
        group="projects",
        told="The answer leads to a URL that is good for a while.",
        gives=("Location",),
        errors=_ABSENT,
    ),
)

_JOB_ROUTES: Final = (
    _of_client(
        "GET jobs/{jobId}",
        partner_jobs.read,
        "Read a job.",
        {200: wire.Job, 304: None},
        group="jobs",
        told="While it runs, `Retry-After` says when to ask again, and ?wait=SECONDS lets the answer come when it has"
        " ended. Once it has, the answer never changes and may be kept for ever. Asking has a limit of its own; one"
        " that is refused for it says nothing of the job.",
        query=parameters.ReadJob,
        limit="poll_limit",
        heeds=("Prefer", "If-None-Match"),
        gives=("ETag", "Retry-After", "Preference-Applied"),
        errors=_ABSENT,
    ),
    _of_client(
        "GET jobs",
        partner_jobs.list_jobs,
        "List your jobs, the newest first.",
        {200: wire.Jobs},
        group="jobs",
        query=parameters.ListJobs,
        limit="poll_limit",
    ),
    _of_client(
        "POST jobs/{jobId}/cancel",
        partner_jobs.cancel,
        "Cancel a job; its credits come back.",
        {202: wire.Canceled, 200: wire.Canceled},
        group="jobs",
        told="202: it leaves at its next checkpoint, and what it has finished is not undone. 200: it had ended before."
        " 409: its stage cannot be interrupted; try again in the next one.",
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
)

_LEASE_ROUTES: Final = (
    _of_client(
        "POST projects/{projectId}/tiktok-leases",
        lease_requests.make,
        "Ask for a TikTok account.",
        {202: wire.Lease},
        group="social",
        told="It is not a job: an operator fulfils it or rejects it. Poll `locationUrl`.",
        body=wire.MakeLease,
        heeds=("Idempotency-Key",),
        gives=("Location", "Idempotency-Replayed"),
        errors=(*_ABSENT, *_KEYED),
    ),
    _of_client(
        "GET projects/{projectId}/tiktok-leases",
        lease_requests.list_requests,
        "List the lease requests of a project, the newest first.",
        {200: wire.Leases},
        group="social",
        query=parameters.ListLeases,
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/tiktok-leases/{leaseId}",
        lease_requests.read,
        "See what became of a lease request.",
        {200: wire.Lease},
        group="social",
        errors=_ABSENT,
    ),
    _of_client(
        "GET projects/{projectId}/social-accounts",
        social_accounts.list_accounts,
        "List the accounts that a project may use.",
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
        "Register a URL that is told how your jobs end.",
        {201: wire.NewEndpoint},
        told="What is sent is the very object that reading the job answers with, signed as Standard Webhooks says with"
        " the secret that is told this once.",
        body=wire.MakeEndpoint,
        errors=(errors.OutboundRefusedError, errors.ConflictError, errors.VaultError),
    ),
    _endpoint("GET", "", webhook_endpoints.list_endpoints, "List your webhook endpoints.", {200: wire.Endpoints}),
    _endpoint("GET", "/{endpointId}", webhook_endpoints.read, "Read a webhook endpoint.", {200: wire.Endpoint}),
    _endpoint(
        "POST",
        "/{endpointId}/rotate-secret",
        webhook_endpoints.rotate,
        "Sign with a new secret, and with the present one too for a while.",
        {201: wire.NewEndpoint},
        body=wire.RotateSecret,
        errors=(errors.VaultError,),
    ),
    _endpoint(
        "POST",
        "/{endpointId}/disable",
        webhook_endpoints.disable,
        "Send nothing more.",
        {200: wire.Endpoint},
        told="What happens until it is enabled is not told.",
    ),
    _endpoint(
        "POST", "/{endpointId}/enable", webhook_endpoints.enable, "Send what happens from now on.", {200: wire.Endpoint}
    ),
    _endpoint(
        "POST",
        "/{endpointId}/test",
        webhook_endpoints.test,
        "Have it told of a job that does not exist.",
        {202: wire.Tested},
        body=wire.TestEndpoint,
        errors=(errors.ConflictError,),
    ),
    _endpoint("DELETE", "/{endpointId}", webhook_endpoints.delete, "Forget a webhook endpoint.", {204: None}),
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
        "List the lease requests of a tenant, the newest first.",
        {200: wire.Leases},
        query=parameters.ListAllLeases,
    ),
    _operator(
        "POST",
        "tiktok-leases/{leaseId}/fulfil",
        lease_requests.fulfil,
        "Give a project the account it asked for.",
        {200: wire.Lease},
        query=parameters.OfTenant,
        body=wire.FulfilLease,
        errors=(*_ABSENT, errors.ConflictError),
    ),
    _operator(
        "POST",
        "tiktok-leases/{leaseId}/reject",
        lease_requests.reject,
        "Tell a project that it gets none.",
        {200: wire.Lease},
        query=parameters.OfTenant,
        body=wire.RejectLease,
        errors=(*_ABSENT, errors.ConflictError),
    ),
)

_ABOUT: Final = """\
Make a project, have its repository, website and app read, and have content and influencers made for it.

Whatever takes time answers 202 with a job: poll its `locationUrl` until `status` is `completed`, `failed` or
`canceled`, which it then stays for ever; or register a webhook endpoint. Send a client key as
`Authorization: Bearer KEY`; what is another account's answers 404. Send an `Idempotency-Key`, a UUID, with whatever
starts a job. Times are UTC with milliseconds. Lists come in pages: send `nextCursor` as `cursor` for the next one.

Errors are `{"error": {"code", "message", "details", "requestId"}}`. The codes, which are also those of failed jobs:

| code | what it means |
|---|---|
| `VALIDATION` | The request, or what it named, is wrong; `details.field` says where. |
| `NOT_FOUND` | It does not exist, or is not yours. |
| `CONFLICT` | Not now; `details.subcode` says why, such as `JOB_CANCEL_UNAVAILABLE`. |
| `IDEMPOTENCY_CONFLICT` | The key was used with another request. |
| `RATE_LIMITED` | Too many requests, or active jobs; come again after `Retry-After`. |
| `INSUFFICIENT_CREDITS` | The account cannot pay for it. |
| `PLATFORM_ERROR` | An outside platform failed; `details` has its `platform`, `platformCode` and `platformMessage`. |
| `TIMEOUT` | It took longer than it may. |
| `CANCELED` | It was canceled. |
| `INTERNAL` | It is our fault. |
| `UNAUTHENTICATED` | For requests alone: a key is missing, or not good. |
| `FORBIDDEN` | For requests alone: the key is for something else. |
"""

_MAKERS: Final[Mapping[Name, Callable[[Engine, Settings], Handler]]] = {
    "project_ingest_github": ingest_github.handler,
    "project_ingest_website": ingest_website.handler,
    "appstore_ingest": ingest_appstore.handler,
    "content_generate": content_making.handler,
    "influencer_create": influencer_making.handler,
}


def handlers(engine: Engine, settings: Settings) -> Code:
    return bound(engine, {name: maker(engine, settings) for name, maker in _MAKERS.items()})


def bound(engine: Engine, code: Mapping[Name, Handler]) -> Code:
    """The code of the kinds as the engine runs it: what it makes outlives its job."""
    return {
        KINDS[name].name: {None: resources.kept(engine, name, failures.timed(handler))}
        for name, handler in code.items()
    }


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_{UUID_PATTERN}$"}


def _letters(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{{25}}$"}


BLUEPRINT: Final = Blueprint(
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
        *PAGES,
    ),
    groups={
        "projects": "What things are made for, and what was made.",
        "start": "Have something done.",
        "jobs": "See what became of it.",
        "social": "TikTok accounts.",
        "webhooks": "Be told instead of asking.",
        "admin": "What operators do.",
        "server": "This document.",
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
            "A UUID. The same request with the same one is done once.",
        ),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=failures.refuse,
    refusal=wire.Refusal,
    refusal_form=JSON,
    migrations="millpond.blueprints.partner",
    handlers=handlers,
)
