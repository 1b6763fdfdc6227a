"""The effects product: the routes of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.product import FLEET, JOB_HEADERS, OPERATORS, READERS, WORKERS, Product, Route, playground
from millpond_products.effects import (
    admin,
    ai_jobs,
    effects,
    files,
    parameters,
    tokens,
    videos,
    wire,
    worker,
    workflows,
)
from millpond_products.effects.kinds import EFFECTS, KIND
from millpond_products.effects.seed import seed

if TYPE_CHECKING:
    from collections.abc import Mapping

USERS: Final = frozenset({"client"})
REPORT_MAX: Final = 16 * 1024 * 1024
"""The limit of a worker's error report, in bytes. Long reports below it are truncated, not refused."""

_ABSENT: Final = (errors.NotFoundError,)
_UPLOADED: Final = (errors.ArtifactMissingError, errors.ArtifactMismatchError)
_LET_IN: Final = (errors.WorkerRevokedError, errors.WorkerUnapprovedError)
_HELD: Final = (*_LET_IN, errors.NotFoundError, errors.LeaseLostError)
_CHANGED: Final = (errors.NotFoundError, errors.ConflictError, errors.InputError)

_USERS_ROUTES: Final = (
    Route(
        method="POST",
        path="/api/videos/uploads",
        group="videos",
        handle=files.make_upload,
        summary="Announce a file and get its upload request.",
        description="PUT the bytes to upload_url with upload_headers. They are sent directly to storage.",
        who=USERS,
        body=wire.MakeUpload,
        answers={201: wire.Uploading},
        errors=(errors.TooLargeError, errors.StorageUnavailableError),
    ),
    Route(
        method="POST",
        path="/api/videos",
        group="videos",
        handle=videos.make,
        summary="Create a video from an uploaded file.",
        who=USERS,
        body=wire.MakeVideo,
        answers={201: wire.Video},
        errors=(*_ABSENT, *_UPLOADED),
    ),
    Route(
        method="GET",
        path="/api/videos",
        group="videos",
        handle=videos.list_videos,
        summary="List your videos, newest first.",
        who=USERS,
        query=parameters.ListVideos,
        answers={200: wire.Videos},
    ),
    Route(
        method="GET",
        path="/api/videos/{video_id}",
        group="videos",
        handle=videos.read,
        summary="Get a video and its result.",
        description="Poll every two seconds until status is completed, failed, canceled or expired.",
        who=USERS,
        answers={200: wire.Video},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/files/{file_id}",
        group="videos",
        handle=files.read,
        summary="Get the record of a file with its download URL.",
        who=USERS,
        answers={200: wire.File},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/effects",
        group="effects",
        handle=effects.list_effects,
        summary="List the available effects.",
        who=USERS,
        answers={200: wire.EffectSummaries},
    ),
    Route(
        method="GET",
        path="/api/effects/{effect}",
        group="effects",
        handle=effects.read,
        summary="Get an effect.",
        who=USERS,
        answers={200: wire.EffectSummary},
        errors=_ABSENT,
    ),
    Route(
        method="POST",
        path="/api/ai-jobs",
        group="ai-jobs",
        handle=ai_jobs.make,
        summary="Apply an effect to a video.",
        description="Checked in this order: the effect and its workflow, video and file, the key (the same key "
        "returns 200 with the existing job), the number of your active jobs, the input, your "
        "balance. 202 means that a job was created and its tokens are reserved.",
        who=USERS,
        gives=JOB_HEADERS,
        body=wire.MakeJob,
        answers={202: wire.Job, 200: wire.Job},
        errors=(
            *_ABSENT,
            errors.IdempotencyKeyError,
            errors.IdempotencyConflictError,
            errors.TooManyActiveJobsError,
            errors.InputError,
            errors.InsufficientCreditsError,
        ),
    ),
    Route(
        method="GET",
        path="/api/ai-jobs",
        group="ai-jobs",
        handle=ai_jobs.list_jobs,
        summary="List your jobs, newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/ai-jobs/{job_id}",
        group="ai-jobs",
        handle=ai_jobs.read,
        summary="Get a job.",
        who=USERS,
        answers={200: wire.Job},
        errors=_ABSENT,
    ),
    Route(
        method="POST",
        path="/api/ai-jobs/{job_id}/cancel",
        group="ai-jobs",
        handle=ai_jobs.cancel,
        summary="Cancel a job.",
        description="A waiting job ends immediately. A running job has cancel_requested, and ends when its "
        "worker reacts. Its tokens are refunded.",
        who=USERS,
        answers={200: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="GET",
        path="/api/wallet",
        group="wallet",
        handle=tokens.wallet,
        summary="Get your balance.",
        who=USERS,
        answers={200: wire.Wallet},
    ),
    Route(
        method="GET",
        path="/api/wallet/transactions",
        group="wallet",
        handle=tokens.list_transactions,
        summary="List your transactions, newest first.",
        description="The amounts of all transactions add up to the balance.",
        who=USERS,
        query=parameters.ListTransactions,
        answers={200: wire.Transactions},
    ),
)

_WORKERS_ROUTES: Final = (
    Route(
        method="POST",
        path="/api/worker/register",
        group="worker",
        handle=worker.register,
        summary="Register a worker.",
        description="Requires the fleet's secret in X-Fleet-Secret. All workflows must exist; active ones are used.",
        who=WORKERS,
        body=wire.Register,
        answers={201: wire.Registered},
        errors=(errors.WorkerRevokedError, errors.WorkerAliveError, errors.FleetFullError),
    ),
    Route(
        method="POST",
        path="/api/worker/poll",
        group="worker",
        handle=worker.poll,
        summary="Poll for a job.",
        who=FLEET,
        body=wire.Poll,
        answers={200: wire.Polled},
        errors=_LET_IN,
    ),
    Route(
        method="POST",
        path="/api/worker/heartbeat",
        group="worker",
        handle=worker.heartbeat,
        summary="Send a heartbeat for a job.",
        who=FLEET,
        body=wire.Beat,
        answers={200: wire.Beaten},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/api/worker/complete",
        group="worker",
        handle=worker.complete,
        summary="Complete a job.",
        description="The output must be in storage with the stated size; otherwise nothing changes and the "
        "lease is kept. Repeating the request is safe.",
        who=FLEET,
        body=wire.Complete,
        answers={200: wire.Reported},
        errors=(*_HELD, *_UPLOADED, errors.InputError),
    ),
    Route(
        method="POST",
        path="/api/worker/fail",
        group="worker",
        handle=worker.fail,
        summary="Fail a job.",
        who=FLEET,
        body=wire.Fail,
        body_max=REPORT_MAX,
        answers={200: wire.Reported},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/api/worker/requeue",
        group="worker",
        handle=worker.requeue,
        summary="Return a job to the queue; the attempt is not counted.",
        who=FLEET,
        body=wire.Requeue,
        answers={200: wire.Reported},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/api/worker/deregister",
        group="worker",
        handle=worker.deregister,
        summary="Deregister a worker; its jobs return to the queue.",
        who=FLEET,
        answers={204: None},
        errors=_LET_IN,
    ),
)


def _operator(method: str, path: str, handle: Any, summary: str, answers: Mapping[int, Any], **more: Any) -> Route:
    return Route(
        method=method,
        path=f"/api/admin/{path}",
        group="admin",
        handle=handle,
        summary=summary,
        who=READERS if method == "GET" else OPERATORS,
        answers=answers,
        **more,
    )


_OPERATORS_ROUTES: Final = (
    _operator("GET", "workflows", workflows.list_workflows, "List workflows.", {200: wire.Workflows}),
    _operator(
        "POST",
        "workflows",
        workflows.make_workflow,
        "Create a workflow.",
        {201: wire.Workflow},
        body=wire.MakeWorkflow,
        errors=(errors.ConflictError, errors.InputError),
    ),
    _operator("GET", "workflows/{workflow}", workflows.read, "Get a workflow.", {200: wire.Workflow}, errors=_ABSENT),
    _operator(
        "PATCH",
        "workflows/{workflow}",
        workflows.update,
        "Update a workflow.",
        {200: wire.Workflow},
        body=wire.UpdateWorkflow,
        errors=_CHANGED,
    ),
    _operator(
        "GET",
        "workflows/{workflow}/workflow",
        workflows.read_graph,
        "Get the graph of a workflow.",
        {200: dict[str, Any]},
        errors=_ABSENT,
    ),
    _operator(
        "PUT",
        "workflows/{workflow}/workflow",
        workflows.upload_graph,
        "Upload the graph of a workflow.",
        {200: wire.Workflow},
        body=wire.UploadGraph,
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/activate",
        workflows.activate_workflow,
        "Activate a workflow.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/deactivate",
        workflows.deactivate,
        "Deactivate a workflow; existing jobs continue.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/assets",
        workflows.make_asset,
        "Announce an asset of a workflow and get its upload request.",
        {201: wire.NewAsset},
        body=wire.MakeAsset,
        errors=_CHANGED,
    ),
    _operator(
        "DELETE",
        "workflows/{workflow}/assets/{asset}",
        workflows.remove_asset,
        "Remove an asset from a workflow.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator("GET", "effects", effects.list_all, "List all effects.", {200: wire.Effects}),
    _operator(
        "POST",
        "effects",
        effects.make_effect,
        "Create an effect.",
        {201: wire.Effect},
        body=wire.MakeEffect,
        errors=_CHANGED,
    ),
    _operator("GET", "effects/{effect}", effects.read_one, "Get an effect.", {200: wire.Effect}, errors=_ABSENT),
    _operator(
        "PATCH",
        "effects/{effect}",
        effects.update,
        "Update an effect.",
        {200: wire.Effect},
        body=wire.UpdateEffect,
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "effects/{effect}/activate",
        effects.activate,
        "Publish an effect.",
        {200: wire.Effect},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "effects/{effect}/deactivate",
        effects.deactivate,
        "Unpublish an effect.",
        {200: wire.Effect},
        errors=_CHANGED,
    ),
    _operator("GET", "workers", admin.list_workers, "List the workers that serve workflows.", {200: wire.Workers}),
    _operator("GET", "workers/{worker}", admin.read_worker, "Get a worker.", {200: wire.Worker}, errors=_ABSENT),
    _operator(
        "POST", "workers/{worker}/approve", admin.approve, "Approve a worker.", {200: wire.Worker}, errors=_ABSENT
    ),
    _operator(
        "POST",
        "workers/{worker}/revoke",
        admin.revoke,
        "Revoke a worker immediately.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/drain",
        admin.drain,
        "Drain a worker: it finishes its jobs and receives no new ones.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/resume",
        admin.resume,
        "Resume a draining worker.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/rotate-token",
        admin.rotate_token,
        "Rotate the token of a worker. The new token is shown only once.",
        {200: wire.NewToken},
        errors=_ABSENT,
    ),
    _operator(
        "PUT",
        "workers/{worker}/workflows",
        admin.assign_workflows,
        "Assign workflows to a worker.",
        {200: wire.Worker},
        body=wire.AssignWorkflows,
        errors=_ABSENT,
    ),
    _operator(
        "GET",
        "dispatches",
        admin.list_dispatches,
        "List the dispatches, newest first.",
        {200: wire.Dispatches},
        query=parameters.ListDispatches,
    ),
    _operator(
        "GET",
        "ai-jobs",
        admin.list_jobs,
        "List the jobs of all users, newest first.",
        {200: wire.AdminJobs},
        query=parameters.ListAllJobs,
    ),
    _operator("GET", "ai-jobs/{job_id}", admin.read_job, "Get a job.", {200: wire.AdminJob}, errors=_ABSENT),
    _operator(
        "POST",
        "ai-jobs/{job_id}/cancel",
        admin.cancel_job,
        "Cancel a user's job.",
        {200: wire.AdminJob},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    _operator(
        "POST",
        "tokens",
        tokens.grant,
        "Grant tokens to a user.",
        {200: wire.Wallet},
        body=wire.GrantTokens,
        errors=(errors.AmountError, errors.ConflictError),
    ),
    _operator(
        "GET",
        "audit-logs",
        admin.audit,
        "List the audit log of workers and operators, newest first.",
        {200: wire.Audit},
        query=parameters.ListAudit,
    ),
)

_PAGE_ROUTES: Final = playground("millpond_products.effects", with_storage=True)

_ABOUT: Final = """\
Upload a video or an image, apply an effect to it, and download the result. Jobs are paid with tokens.

Users send a client key as `Authorization: Bearer KEY`: each account is a user. Workers register with `X-Fleet-Secret`
and send the returned token; operators send an admin key. Requests for objects of other users return 404.
Times are RFC 3339 in UTC. Lists are paginated: send `next_cursor` as `cursor` to get the next page.
Errors are `application/problem+json` with a stable `code`; `message` repeats the detail.
"""


def refuse(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:
    """Add `message` to a problem. This product calls credits tokens."""
    body = {**problem, "message": problem["detail"]}
    if isinstance(error, errors.InsufficientCreditsError):
        message = "Insufficient token balance."
        body |= {"status": 422, "detail": message, "message": message}
        body["required_tokens"] = body.pop("required", 0)
    return body["status"], body


_SLUG_OR_ID: Final = {"type": "string", "pattern": "^[a-z0-9_-]{1,60}$"}


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$"}


PRODUCT: Final = Product(
    lifecycle=EFFECTS,
    kinds=(KIND,),
    title="Effects",
    about=_ABOUT,
    routes=(*_USERS_ROUTES, *_WORKERS_ROUTES, *_OPERATORS_ROUTES, *_PAGE_ROUTES),
    groups={
        "videos": "Upload files and read videos.",
        "effects": "The available effects.",
        "ai-jobs": "Apply effects to videos.",
        "wallet": "Balance and transactions.",
        "worker": "Endpoints called by fleet workers.",
        "admin": "Operator endpoints.",
        "page": "The playground page.",
        "server": "The documentation of this API.",
    },
    parameters={
        "video_id": (_id("video"), "The id of a video."),
        "file_id": (_id("art"), "The id of a file."),
        "job_id": (_id("job"), "The id of a job."),
        "effect": (_SLUG_OR_ID, "The id of an effect, or its slug."),
        "workflow": (_SLUG_OR_ID, "The id of a workflow, or its slug."),
        "asset": ({"type": "string", "pattern": "^[a-z][a-z0-9_]{0,39}$"}, "The name of an asset."),
        "worker": ({"type": "string", "minLength": 1}, "The id of a worker, or its name."),
        "part": ({"type": "string", "enum": ["page.css", "page.js", "icon.svg"]}, "The name of the asset."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=refuse,
    refusal=wire.ErrorBody,
    migrations="millpond_products.effects",
    seed=seed,
)
