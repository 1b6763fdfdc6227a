"""Routes: the whole API as one table. From it come the dispatch, the checks and the OpenAPI document."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote

import msgspec

from millpond import errors, wire
from millpond.api import (
    artifacts,
    callbacks,
    deliveries,
    endpoints,
    fleet,
    health,
    jobs,
    kinds,
    metrics,
    operators,
    pages,
    parameters,
    wallets,
    workers,
)
from millpond.api.calls import BODY_MAX, EVENT_STREAM, JSON
from millpond.api.principals import OPERATORS, READERS
from millpond.errors import MethodNotAllowedError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from starlette.types import Scope

    from millpond.api.calls import Call, Reply
    from millpond.errors import MillpondError

    Handler = Callable[[Call], Awaitable[Reply]]

BULK_BODY_MAX: Final = 16 * 1024 * 1024
TEXT: Final = b"text/plain"
HTML: Final = b"text/html"

CLIENTS: Final = frozenset({"client", "operator", "admin"})
"""Those who have jobs done; what they read, readers do too."""
ADMINS: Final = frozenset({"admin"})
"""Those who say who may come in, and what anybody has."""
ANY_KEY: Final = frozenset({"client", "worker"}) | READERS
WORKERS: Final = frozenset({"worker"})
"""The fleet's secret, with which a worker registers; it may stand in X-Fleet-Secret too."""
FLEET: Final = frozenset({"fleet"})
"""A worker that has registered, by its own token; the call then has its record."""
ANYBODY: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method of one path: who may call it, what it takes, what it gives."""

    method: str
    path: str
    handle: Handler
    summary: str
    answers: Mapping[int, Any]
    """What each good status answers with; none where there is no body, or none of JSON."""
    who: frozenset[str] = CLIENTS
    """The scopes of key that may; none at all means that no key is needed."""
    token: Literal["read", "cancel"] | None = None
    """What a browser's token must allow; none means that no token reaches this."""
    is_local: bool = False
    """Whether a caller on this machine needs no key."""
    limit: str | None = None
    """The setting that says how many times a second a key may call it; none: only the limit of all requests counts."""
    heeds: tuple[str, ...] = ()
    """The headers of a request that mean something to it alone."""
    gives: tuple[str, ...] = ()
    """The headers of its good answers, beside those of every answer."""
    query: type[parameters.Query] | None = parameters.Query
    """None: whatever stands there is no business of the server's."""
    body: type[wire.Request] | None = None
    body_max: int = BODY_MAX
    offers: tuple[bytes, ...] = (JSON,)
    errors: tuple[type[MillpondError], ...] = ()
    """The errors that are its own; those of its checks are known by what it takes."""
    told: str = ""
    """More about it than the summary."""
    group: str = ""
    """Where it stands in its document, if the path does not say it."""

    @property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        return _decoder(self.body or Any)

    @property
    def tag(self) -> str:
        """The group it stands in: the one it is given, or else the first word of its path."""
        if self.group:
            return self.group
        parts = self.path.split("/")
        return parts[2] if parts[1] == "v1" else "server"


@cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    """Made when a body of this type first comes: of all the routes that a process knows, it serves few."""
    return msgspec.json.Decoder(type)


_LET_IN: Final = (errors.WorkerRevokedError, errors.WorkerUnapprovedError)
_HELD: Final = (*_LET_IN, NotFoundError, errors.LeaseLostError)
_WEBHOOK: Final = (errors.OutboundRefusedError, errors.VaultError)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/jobs",
        handle=jobs.submit,
        summary="Submit a job.",
        told="Its key, credits, row and place in line are written together, or nothing is. Send the same"
        " Idempotency-Key again and the first answer comes back, byte for byte, with Idempotency-Replayed: true."
        " With webhook, its URL is told of the job; webhook_secret is what that is signed with, if you gave none.",
        query=parameters.OfTenant,
        body=wire.Submit,
        answers={202: wire.Accepted},
        errors=(
            errors.UnknownKindError,
            errors.InputError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.InsufficientCreditsError,
            errors.TooManyActiveJobsError,
            *_WEBHOOK,
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/bulk",
        handle=jobs.submit_many,
        summary="Submit up to a thousand jobs.",
        told="Each is accepted or refused by itself; a refusal is told as the problem it would have been alone.",
        query=parameters.OfTenant,
        body=wire.SubmitMany,
        body_max=BULK_BODY_MAX,
        answers={200: wire.Results},
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        handle=jobs.list_jobs,
        summary="List jobs, the newest first.",
        who=CLIENTS | READERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        handle=jobs.read,
        summary="Read a job.",
        told="With ?wait=SECONDS (or Prefer: wait=SECONDS) the answer comes when the job has ended, or when the time"
        " is up. The ETag names what was told: send it as If-None-Match and get 304 while nothing has changed.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.ReadJob,
        answers={200: wire.Job, 304: None},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        handle=jobs.cancel,
        summary="Cancel a job.",
        told="200 tells that it has ended, now or before; 202 that its worker has been asked to stop.",
        token="cancel",  # noqa: S106 - what it must allow
        query=parameters.OfTenant,
        answers={200: wire.Canceled, 202: wire.Canceled},
        errors=(NotFoundError, errors.CancelUnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/retry",
        handle=jobs.retry,
        summary="Run an ended job once more.",
        told="In place where its lifecycle says so, otherwise as a new job that names the old one; then the same"
        " Idempotency-Key brings the first answer again, as with a submit. In place a key is refused.",
        query=parameters.OfTenant,
        answers={202: wire.Accepted},
        errors=(
            NotFoundError,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.RetryUnavailableError,
            errors.InsufficientCreditsError,
            errors.TooManyActiveJobsError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/answer",
        handle=jobs.answer,
        summary="Give a parked job what it waits for.",
        query=parameters.OfTenant,
        body=wire.GiveAnswer,
        answers={200: wire.State},
        errors=(NotFoundError, errors.AnswerUnavailableError, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/move",
        handle=jobs.move,
        summary="Move a job along an arrow of its lifecycle.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.Move,
        answers={200: wire.State},
        errors=(NotFoundError, errors.MoveDeniedError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/events",
        handle=jobs.events,
        summary="Read what happened to a job.",
        told="As a page of JSON, or with Accept: text/event-stream as a stream that goes on until the job has ended.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.ReadEvents,
        offers=(JSON, EVENT_STREAM),
        answers={200: wire.Events},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/stream",
        handle=jobs.stream,
        summary="Watch a job as server-sent events.",
        told="Each event has the number of the job's event as its id: a reader that was cut off sends the last one it"
        " saw as Last-Event-ID (or ?last_event_id=) and misses nothing. After the end of the job the stream ends.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.ReadEvents,
        offers=(EVENT_STREAM,),
        answers={200: None},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/logs",
        handle=jobs.logs,
        summary="Read a job's log.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.ReadLogs,
        answers={200: wire.Logs},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/artifacts",
        handle=artifacts.of_job,
        summary="List a job's files.",
        told="What it was given and what its last attempt has made, each with a signed URL to get it from.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - what it must allow
        query=parameters.OfTenant,
        answers={200: wire.Artifacts},
        errors=(NotFoundError, errors.StorageUnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/artifacts",
        handle=artifacts.make,
        summary="Announce a file, and learn where to put it.",
        told="Send the bytes to `upload` as it says, straight to storage. Then the id may stand in the input of a job.",
        query=parameters.OfTenant,
        body=wire.MakeArtifact,
        answers={201: wire.NewArtifact},
        errors=(errors.StorageUnavailableError,),
    ),
    Route(
        method="GET",
        path="/v1/artifacts/{id}",
        handle=artifacts.read,
        summary="Read a file's record, with a signed URL to get it from.",
        told="One that was not seen in storage before is looked for now; while it is not there, `download` is null.",
        who=CLIENTS | READERS,
        query=parameters.OfTenant,
        answers={200: wire.Artifact},
        errors=(NotFoundError, errors.StorageUnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/tokens",
        handle=jobs.make_token,
        summary="Make a token with which a browser may follow one job.",
        query=parameters.OfTenant,
        body=wire.MakeToken,
        answers={201: wire.Token},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/quotes",
        handle=wallets.quote,
        summary="Ask what a job would cost.",
        query=parameters.OfTenant,
        body=wire.AskPrice,
        answers={200: wire.Quote},
        errors=(errors.UnknownKindError, errors.InputError),
    ),
    Route(
        method="GET",
        path="/v1/wallet",
        handle=wallets.wallet,
        summary="Read what an account has.",
        who=CLIENTS | READERS,
        query=parameters.OfAccount,
        answers={200: wire.Wallet},
    ),
    Route(
        method="GET",
        path="/v1/wallet/entries",
        handle=wallets.entries,
        summary="Read an account's ledger, the newest entries first.",
        who=CLIENTS | READERS,
        query=parameters.ListEntries,
        answers={200: wire.Entries},
    ),
    Route(
        method="GET",
        path="/v1/kinds",
        handle=kinds.list_kinds,
        summary="List the kinds of jobs, with what they take and cost.",
        who=ANY_KEY,
        query=parameters.ListKinds,
        answers={200: wire.Kinds},
    ),
    Route(
        method="GET",
        path="/v1/kinds/{kind}",
        handle=kinds.read,
        summary="Read a kind.",
        who=ANY_KEY,
        answers={200: wire.KindInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/kinds/{kind}/diagram",
        handle=kinds.diagram,
        summary="Draw a kind's lifecycle, as Mermaid text.",
        who=ANY_KEY,
        offers=(TEXT,),
        answers={200: None},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/queues",
        handle=operators.list_queues,
        summary="List the queues, with how they are doing.",
        who=READERS,
        answers={200: wire.Queues},
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/pause",
        handle=operators.pause,
        summary="Hand out no more of a queue's jobs; what runs goes on.",
        who=OPERATORS,
        answers={200: wire.QueueInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/queues/{queue}/resume",
        handle=operators.resume,
        summary="Let a paused queue move again.",
        who=OPERATORS,
        answers={200: wire.QueueInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/workers",
        handle=workers.list_workers,
        summary="List the fleet, and the other workers that hold leases.",
        who=READERS,
        answers={200: wire.Workers},
    ),
    Route(
        method="GET",
        path="/v1/workers/{id}",
        handle=workers.read,
        summary="Read a worker of the fleet.",
        who=READERS,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/approve",
        handle=workers.approve,
        summary="Let a worker in that waits, or one that was revoked.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/revoke",
        handle=workers.revoke,
        summary="Throw a worker out, at once; what it holds goes back.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/drain",
        handle=workers.drain,
        summary="Give a worker no more jobs; it finishes what it has.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/resume",
        handle=workers.resume,
        summary="Give a worker that drains jobs again.",
        who=OPERATORS,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/workers/{id}/rotate",
        handle=workers.rotate,
        summary="Make a new token for a worker. It is told this once.",
        told="The old one is refused from now on, or when the overlap is over.",
        who=OPERATORS,
        body=wire.RotateWorker,
        answers={201: wire.NewWorkerToken},
        errors=(NotFoundError,),
    ),
    Route(
        method="PUT",
        path="/v1/workers/{id}/routes",
        handle=workers.assign,
        summary="Bind a worker to other routes; what it holds it finishes.",
        who=OPERATORS,
        body=wire.AssignRoutes,
        answers={200: wire.WorkerInfo},
        errors=(NotFoundError, errors.UnknownRouteError),
    ),
    Route(
        method="GET",
        path="/v1/routes",
        handle=workers.list_routes,
        summary="List the routes, with their load and their workers.",
        who=READERS,
        answers={200: wire.Routes},
    ),
    Route(
        method="GET",
        path="/v1/scaling",
        handle=workers.scale_all,
        summary="Ask how many workers each route should have now.",
        who=READERS,
        query=parameters.Scale,
        answers={200: wire.Scalings},
    ),
    Route(
        method="GET",
        path="/v1/scaling/{route}",
        handle=workers.scale,
        summary="Ask how many workers a route should have now.",
        told="For an autoscaler: KEDA's metrics-api reads desired_workers. Running jobs count, so that following it"
        " never ends a worker that is busy.",
        who=READERS,
        query=parameters.Scale,
        answers={200: wire.Scaling},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/callbacks/{provider}/{token}",
        handle=callbacks.hear,
        summary="Hear what a provider calls.",
        told="The URL is given to the provider with what it is asked to do. The call must be signed as by Standard"
        " Webhooks and no older than five minutes. It is a hint: the provider is then asked what is true.",
        who=ANYBODY,
        answers={200: wire.CallbackHeard},
        errors=(NotFoundError, errors.UnauthorizedError, errors.TooLargeError, errors.UnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/worker/register",
        handle=fleet.register,
        summary="Join the fleet.",
        told="With the fleet's secret: a key of scope worker, as a bearer key or as X-Fleet-Secret. The answer has the"
        " token with which the worker does all else. A name is one worker's: while that one lives another is refused,"
        " once it is silent it is replaced, and what it held goes back.",
        who=WORKERS,
        body=wire.RegisterWorker,
        answers={201: wire.Registered},
        errors=(
            errors.UnknownRouteError,
            errors.WorkerRevokedError,
            errors.WorkerAliveError,
            errors.FleetFullError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/worker/poll",
        handle=fleet.poll,
        summary="Ask for jobs.",
        told="With wait, the answer comes as soon as there is a job, or when the time is up. A worker never gets more"
        " than it has slots for; one that drains gets none.",
        who=FLEET,
        body=wire.Poll,
        answers={200: wire.Assignments},
        errors=_LET_IN,
    ),
    Route(
        method="POST",
        path="/v1/worker/heartbeat",
        handle=fleet.heartbeat,
        summary="Say what the worker is at, and keep it.",
        told="The answer tells which jobs must stop and which are lost, whether to take no more, and gives fresh"
        " requests to storage for the names in renew.",
        who=FLEET,
        body=wire.Heartbeat,
        answers={200: wire.Beats},
        errors=(*_LET_IN, NotFoundError),
    ),
    Route(
        method="POST",
        path="/v1/worker/note",
        handle=fleet.note,
        summary="Write progress, stages and lines of log.",
        who=FLEET,
        body=wire.WriteNotes,
        answers={200: wire.Noted},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/upload",
        handle=fleet.upload,
        summary="Announce a file that the job makes.",
        who=FLEET,
        body=wire.MakeUpload,
        answers={201: wire.Upload},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/download",
        handle=fleet.download,
        summary="Ask for a file that the job may read.",
        who=FLEET,
        body=wire.MakeDownload,
        answers={200: wire.Signed},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/complete",
        handle=fleet.complete,
        summary="End a job that is done.",
        told="Its files are looked at in storage first: if one is missing or different nothing has changed, and the"
        " lease stays. To repeat it is harmless.",
        who=FLEET,
        body=wire.CompleteJob,
        answers={200: wire.Completed},
        errors=(*_HELD, errors.ArtifactMissingError, errors.ArtifactMismatchError, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/worker/fail",
        handle=fleet.fail,
        summary="End a job that did not succeed, or ask for another attempt.",
        who=FLEET,
        body=wire.FailJob,
        answers={200: wire.Fate},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/requeue",
        handle=fleet.requeue,
        summary="Give a job back that the worker cannot go on with.",
        told="It costs the job none of its attempts.",
        who=FLEET,
        body=wire.RequeueJob,
        answers={200: wire.Fate},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/park",
        handle=fleet.park,
        summary="Put a job aside until its answer comes.",
        who=FLEET,
        body=wire.ParkJob,
        answers={200: wire.Completed},
        errors=(*_HELD, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/worker/deregister",
        handle=fleet.deregister,
        summary="Leave the fleet; what the worker holds goes back.",
        who=FLEET,
        answers={204: None},
        errors=_LET_IN,
    ),
    Route(
        method="GET",
        path="/v1/tenants",
        handle=operators.list_tenants,
        summary="List tenants, by name.",
        who=READERS,
        query=parameters.Page,
        answers={200: wire.Tenants},
    ),
    Route(
        method="POST",
        path="/v1/tenants",
        handle=operators.make_tenant,
        summary="Make a tenant; one that is there already stays as it is.",
        who=ADMINS,
        body=wire.MakeTenant,
        answers={201: wire.TenantInfo},
    ),
    Route(
        method="GET",
        path="/v1/tenants/{tenant}/accounts",
        handle=operators.list_accounts,
        summary="List a tenant's accounts, by name.",
        who=READERS,
        query=parameters.Page,
        answers={200: wire.Wallets},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/tenants/{tenant}/accounts",
        handle=operators.make_account,
        summary="Make an account; one that is there already stays as it is.",
        who=ADMINS,
        body=wire.MakeAccount,
        answers={201: wire.Wallet},
        errors=(NotFoundError,),
    ),
    Route(
        method="PUT",
        path="/v1/tenants/{tenant}/accounts/{account}/cap",
        handle=operators.set_cap,
        summary="Limit how many jobs of an account may be active at once.",
        who=ADMINS,
        body=wire.SetCap,
        answers={200: wire.Wallet},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/grants",
        handle=wallets.grant,
        summary="Grant credits to an account.",
        told="The same reference grants once, however often it is sent.",
        who=ADMINS,
        body=wire.Post,
        answers={200: wire.Wallet},
        errors=(errors.AmountError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/adjustments",
        handle=wallets.adjust,
        summary="Put an account right, up or down, with the reason why.",
        who=ADMINS,
        body=wire.Adjust,
        answers={200: wire.Wallet},
        errors=(errors.AmountError, errors.ConflictError, errors.InsufficientCreditsError),
    ),
    Route(
        method="GET",
        path="/v1/keys",
        handle=operators.list_keys,
        summary="List keys, the newest first, without their secrets.",
        who=READERS,
        query=parameters.ListKeys,
        answers={200: wire.Keys},
    ),
    Route(
        method="POST",
        path="/v1/keys",
        handle=operators.make_key,
        summary="Make a key. Its secret is told this once.",
        who=ADMINS,
        body=wire.MakeKey,
        answers={201: wire.NewKey},
    ),
    Route(
        method="POST",
        path="/v1/keys/{id}/rotate",
        handle=operators.rotate_key,
        summary="Make a new key in the place of an old one, which stays good for a while.",
        who=ADMINS,
        body=wire.RotateKey,
        answers={201: wire.NewKey},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="DELETE",
        path="/v1/keys/{id}",
        handle=operators.revoke_key,
        summary="Revoke a key, at once and for good.",
        who=ADMINS,
        answers={200: wire.KeyInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints",
        handle=endpoints.make,
        summary="Make an endpoint: a URL that is told of the tenant's jobs.",
        told="What is sent is signed as Standard Webhooks says, with the secret that is told this once. Without a URL"
        " nothing is sent, and what is due waits to be pulled.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.MakeEndpoint,
        answers={201: wire.NewEndpoint},
        errors=(errors.ConflictError, *_WEBHOOK),
    ),
    Route(
        method="GET",
        path="/v1/endpoints",
        handle=endpoints.list_endpoints,
        summary="List endpoints, the oldest first, without their secrets.",
        told="Those of a tenant; to a key for every tenant that names none, those of all.",
        who=READERS,
        query=parameters.ListEndpoints,
        answers={200: wire.Endpoints},
    ),
    Route(
        method="GET",
        path="/v1/endpoints/{id}",
        handle=endpoints.read,
        summary="Read an endpoint.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.EndpointInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="PATCH",
        path="/v1/endpoints/{id}",
        handle=endpoints.change,
        summary="Change an endpoint; what is left out stays as it is.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ChangeEndpoint,
        answers={200: wire.EndpointInfo},
        errors=(NotFoundError, errors.ConflictError, *_WEBHOOK),
    ),
    Route(
        method="DELETE",
        path="/v1/endpoints/{id}",
        handle=endpoints.delete,
        summary="Delete an endpoint; what was not sent yet is not sent any more.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={204: None},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/rotate",
        handle=endpoints.rotate,
        summary="Give an endpoint a new secret. It is told this once.",
        told="While the overlap lasts, what is sent is signed with both.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.RotateEndpoint,
        answers={201: wire.NewEndpoint},
        errors=(NotFoundError, errors.VaultError),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/disable",
        handle=endpoints.disable,
        summary="Send nothing to an endpoint until it is enabled again.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.DisableEndpoint,
        answers={200: wire.EndpointInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/enable",
        handle=endpoints.enable,
        summary="Send to an endpoint that was disabled.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={200: wire.EndpointInfo},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/test",
        handle=endpoints.trigger,
        summary="Send an endpoint a test: an event of a job that never was.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.TriggerEvent,
        answers={202: wire.Delivery},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/resend",
        handle=endpoints.resend,
        summary="Send an endpoint once more what failed since a time, or everything.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ResendSince,
        answers={202: wire.Resent},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/endpoints/{id}/stats",
        handle=endpoints.stats,
        summary="See how an endpoint fared.",
        who=READERS,
        query=parameters.EndpointSince,
        answers={200: wire.EndpointStats},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/endpoints/{id}/pull",
        handle=endpoints.pull,
        summary="Take what is due from an endpoint without a URL, to deliver it oneself.",
        told="Make each request as it is told, and report what came of it; what is not reported is given out again."
        " An endpoint from which nobody pulls for an hour is removed.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.PullDeliveries,
        answers={200: wire.Parcels},
        errors=(NotFoundError, errors.ConflictError, errors.VaultError),
    ),
    Route(
        method="GET",
        path="/v1/deliveries",
        handle=deliveries.list_deliveries,
        summary="List what was told to whom, the newest first.",
        told="Of a tenant; to a key for every tenant that names none, of all. A page may be short and have a next one.",
        who=READERS,
        query=parameters.ListDeliveries,
        answers={200: wire.Deliveries},
        errors=(NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/deliveries/{id}",
        handle=deliveries.read,
        summary="Read a delivery, with every try: what was sent, what was answered, how long it took.",
        who=READERS,
        query=parameters.OfTenant,
        answers={200: wire.DeliveryLog},
        errors=(NotFoundError,),
    ),
    Route(
        method="POST",
        path="/v1/deliveries/{id}/resend",
        handle=deliveries.resend,
        summary="Send a delivery once more: the same id and body, signed anew.",
        who=OPERATORS,
        query=parameters.OfTenant,
        answers={202: wire.Delivery},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="POST",
        path="/v1/deliveries/{id}/report",
        handle=deliveries.report,
        summary="Tell what came of a delivery that was pulled.",
        who=OPERATORS,
        query=parameters.OfTenant,
        body=wire.ReportDelivery,
        answers={204: None},
        errors=(NotFoundError, errors.ConflictError),
    ),
    Route(
        method="GET",
        path="/v1/audit",
        handle=operators.audit,
        summary="Read what operators did, the newest first.",
        told="By who did it, how the action begins, what it was done to, and since when.",
        who=READERS,
        query=parameters.ListAudit,
        answers={200: wire.Audit},
    ),
    Route(
        method="GET",
        path="/v1/verify",
        handle=operators.verification,
        summary="Check every invariant of the database.",
        told="One at a time in each process: it takes long, and the database is busy with it.",
        who=OPERATORS,
        query=parameters.Verify,
        answers={200: wire.Verification},
    ),
    Route(
        method="GET",
        path="/healthz",
        handle=health.live,
        summary="Whether this process lives.",
        who=ANYBODY,
        answers={200: wire.Health},
    ),
    Route(
        method="GET",
        path="/readyz",
        handle=health.ready,
        summary="Whether this process can serve.",
        who=ANYBODY,
        answers={200: wire.Health, 503: wire.Health},
    ),
    Route(
        method="GET",
        path="/metrics",
        handle=metrics.show,
        summary="Metrics in Prometheus's text format.",
        told="For a key of scope viewer, operator or admin, or for a caller on the same machine.",
        who=READERS,
        is_local=True,
        offers=(TEXT,),
        answers={200: None},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        handle=pages.document,
        summary="This document.",
        who=ANYBODY,
        answers={200: dict[str, Any]},
    ),
    Route(
        method="GET",
        path="/docs",
        handle=pages.docs,
        summary="This document as a page to read.",
        who=ANYBODY,
        offers=(HTML,),
        answers={200: None},
    ),
    Route(
        method="GET",
        path="/docs/problems/{code}",
        handle=pages.problem,
        summary="What a problem means and what to do about it.",
        who=ANYBODY,
        offers=(HTML,),
        answers={200: None},
        errors=(NotFoundError,),
    ),
)

PAGES: Final = tuple(route for route in ROUTES if route.path in ("/openapi.json", "/docs", "/docs/problems/{code}"))
"""The routes that tell about routes; every blueprint has them too, for its own."""


class Node:
    """A place in the tree of paths: what may come next, and what can be done here."""

    __slots__ = ("below", "methods", "parameter", "variable")

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.variable: Node | None = None
        self.parameter = ""
        self.methods: dict[str, Route] = {}

    def add(self, route: Route) -> None:
        node = self
        for part in route.path.split("/")[1:]:
            if part.startswith("{"):
                node.variable = node.variable or Node()
                node.parameter = part[1:-1]
                node = node.variable
            else:
                node = node.below.setdefault(part, Node())
        node.methods[route.method] = route

    def find(self, call: Call, parts: Sequence[str]) -> Node:
        """The place that the parts of a path lead to; the variable ones become the call's parameters."""
        node = self
        for part in parts:
            below = node.below.get(part)
            if below is None:
                below = node.variable
                if below is None or not part:
                    raise NotFoundError("There is nothing at this path.")
                call.params[node.parameter] = part
            node = below
        if not node.methods:
            raise NotFoundError("There is nothing at this path.")
        return node

    def route(self, method: str) -> Route:
        found = self.methods.get(method)
        if found is None:
            allowed = ", ".join(sorted(self.methods))
            raise MethodNotAllowedError(f"{method[:20]} is not possible here; {allowed} is.", allow=allowed)
        return found


def tree(routes: Iterable[Route]) -> Node:
    root = Node()
    for route in routes:
        root.add(route)
    return root


def parts_of(scope: Scope) -> list[str]:
    """The parts of the path below where we are mounted; an escaped slash stays inside its part."""
    above = scope.get("root_path", "").count("/")
    raw: bytes = scope.get("raw_path") or b""
    if b"%" in raw:
        return [unquote(part) for part in raw.decode("ascii", "replace").partition("?")[0].split("/")[1 + above :]]
    return scope["path"].split("/")[1 + above :]
