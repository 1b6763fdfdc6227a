"""The effects blueprint as it is served: the contract's paths, with what each takes, gives and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import errors
from millpond.api.blueprint import Blueprint
from millpond.api.playground import playground
from millpond.api.routes import FLEET, OPERATORS, PAGES, READERS, WORKERS, Route
from millpond.blueprints.effects import (
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
from millpond.blueprints.effects.kinds import EFFECTS, KIND
from millpond.blueprints.effects.seed import seed

if TYPE_CHECKING:
    from collections.abc import Mapping

USERS: Final = frozenset({"client"})
REPORT_MAX: Final = 16 * 1024 * 1024
"""Bytes of what a worker may say when a job fails; what is long is shortened, and not refused."""

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
        summary="Announce a file, and learn where its bytes go.",
        told="PUT them to upload_url with upload_headers. They go straight to storage, and never through here.",
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
        summary="Make a video of a file that was uploaded.",
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
        summary="List your videos, the newest first.",
        who=USERS,
        query=parameters.ListVideos,
        answers={200: wire.Videos},
    ),
    Route(
        method="GET",
        path="/api/videos/{video_id}",
        group="videos",
        handle=videos.read,
        summary="See what became of a video.",
        told="Ask again every two seconds until status is completed, failed, canceled or expired.",
        who=USERS,
        answers={200: wire.Video},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/files/{file_id}",
        group="videos",
        handle=files.read,
        summary="Read about a file, and where to get it.",
        who=USERS,
        answers={200: wire.File},
        errors=_ABSENT,
    ),
    Route(
        method="GET",
        path="/api/effects",
        group="effects",
        handle=effects.list_effects,
        summary="List the effects that can be used.",
        who=USERS,
        answers={200: wire.EffectSummaries},
    ),
    Route(
        method="GET",
        path="/api/effects/{effect}",
        group="effects",
        handle=effects.read,
        summary="Read an effect.",
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
        told="Checked in this order: the effect and its workflow, video and file, the key (the same one answers 200"
        " with the job that it made), the number of your active jobs, the input, your balance. 202 tells that a job was"
        " made and its tokens are reserved.",
        who=USERS,
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
        summary="List your jobs, the newest first.",
        who=USERS,
        query=parameters.ListJobs,
        answers={200: wire.Jobs},
    ),
    Route(
        method="GET",
        path="/api/ai-jobs/{job_id}",
        group="ai-jobs",
        handle=ai_jobs.read,
        summary="Read a job.",
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
        told="One that waits ends at once. One that runs has cancel_requested, and ends when its worker heeds that. Its"
        " tokens come back.",
        who=USERS,
        answers={200: wire.Job},
        errors=(*_ABSENT, errors.CancelUnavailableError),
    ),
    Route(
        method="GET",
        path="/api/wallet",
        group="wallet",
        handle=tokens.wallet,
        summary="Read what you have.",
        who=USERS,
        answers={200: wire.Wallet},
    ),
    Route(
        method="GET",
        path="/api/wallet/transactions",
        group="wallet",
        handle=tokens.list_transactions,
        summary="Read what changed your wallet, the newest first.",
        told="The amounts of all transactions add up to the balance.",
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
        summary="Join the fleet.",
        told="With the fleet's secret, as X-Fleet-Secret. All workflows must exist; the active ones are assigned.",
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
        summary="Ask for a job.",
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
        summary="Keep a job, and learn whether to stop.",
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
        summary="Tell that a job is done.",
        told="Its output must be in storage with this size: otherwise nothing changes, and the lease stays. Sent again,"
        " it is answered again.",
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
        summary="Tell that a job did not work out.",
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
        summary="Give a job back, because the worker must go; it is no attempt.",
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
        summary="Leave the fleet; what the worker holds goes back.",
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
        "Make a workflow.",
        {201: wire.Workflow},
        body=wire.MakeWorkflow,
        errors=(errors.ConflictError, errors.InputError),
    ),
    _operator("GET", "workflows/{workflow}", workflows.read, "Read a workflow.", {200: wire.Workflow}, errors=_ABSENT),
    _operator(
        "PATCH",
        "workflows/{workflow}",
        workflows.update,
        "Change a workflow.",
        {200: wire.Workflow},
        body=wire.UpdateWorkflow,
        errors=_CHANGED,
    ),
    _operator(
        "GET",
        "workflows/{workflow}/workflow",
        workflows.read_graph,
        "Read a workflow's graph.",
        {200: dict[str, Any]},
        errors=_ABSENT,
    ),
    _operator(
        "PUT",
        "workflows/{workflow}/workflow",
        workflows.upload_graph,
        "Upload a workflow's graph.",
        {200: wire.Workflow},
        body=wire.UploadGraph,
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/activate",
        workflows.activate_workflow,
        "Let jobs use a workflow.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/deactivate",
        workflows.deactivate,
        "Let no more jobs use a workflow; those that are there go on.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "workflows/{workflow}/assets",
        workflows.make_asset,
        "Announce a file that all jobs of a workflow share, and learn where its bytes go.",
        {201: wire.NewAsset},
        body=wire.MakeAsset,
        errors=_CHANGED,
    ),
    _operator(
        "DELETE",
        "workflows/{workflow}/assets/{asset}",
        workflows.remove_asset,
        "Let a workflow do without one of its files.",
        {200: wire.Workflow},
        errors=_CHANGED,
    ),
    _operator("GET", "effects", effects.list_all, "List all effects.", {200: wire.Effects}),
    _operator(
        "POST",
        "effects",
        effects.make_effect,
        "Make an effect.",
        {201: wire.Effect},
        body=wire.MakeEffect,
        errors=_CHANGED,
    ),
    _operator("GET", "effects/{effect}", effects.read_one, "Read an effect.", {200: wire.Effect}, errors=_ABSENT),
    _operator(
        "PATCH",
        "effects/{effect}",
        effects.update,
        "Change an effect.",
        {200: wire.Effect},
        body=wire.UpdateEffect,
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "effects/{effect}/activate",
        effects.activate,
        "Show an effect to users.",
        {200: wire.Effect},
        errors=_CHANGED,
    ),
    _operator(
        "POST",
        "effects/{effect}/deactivate",
        effects.deactivate,
        "Hide an effect from users.",
        {200: wire.Effect},
        errors=_CHANGED,
    ),
    _operator("GET", "workers", admin.list_workers, "List the workers of workflows.", {200: wire.Workers}),
    _operator("GET", "workers/{worker}", admin.read_worker, "Read a worker.", {200: wire.Worker}, errors=_ABSENT),
    _operator(
        "POST", "workers/{worker}/approve", admin.approve, "Let a worker in.", {200: wire.Worker}, errors=_ABSENT
    ),
    _operator(
        "POST",
        "workers/{worker}/revoke",
        admin.revoke,
        "Throw a worker out, at once.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/drain",
        admin.drain,
        "Give a worker no more jobs; it finishes what it has.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/resume",
        admin.resume,
        "Give a worker that drains jobs again.",
        {200: wire.Worker},
        errors=_ABSENT,
    ),
    _operator(
        "POST",
        "workers/{worker}/rotate-token",
        admin.rotate_token,
        "Make a new token for a worker. It is told this once.",
        {200: wire.NewToken},
        errors=_ABSENT,
    ),
    _operator(
        "PUT",
        "workers/{worker}/workflows",
        admin.assign_workflows,
        "Give a worker other workflows.",
        {200: wire.Worker},
        body=wire.AssignWorkflows,
        errors=_ABSENT,
    ),
    _operator(
        "GET",
        "dispatches",
        admin.list_dispatches,
        "List the jobs as the queue has them, the newest first.",
        {200: wire.Dispatches},
        query=parameters.ListDispatches,
    ),
    _operator(
        "GET",
        "ai-jobs",
        admin.list_jobs,
        "List the jobs of all users, the newest first.",
        {200: wire.AdminJobs},
        query=parameters.ListAllJobs,
    ),
    _operator("GET", "ai-jobs/{job_id}", admin.read_job, "Read a job.", {200: wire.AdminJob}, errors=_ABSENT),
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
        "Give tokens to a user.",
        {200: wire.Wallet},
        body=wire.GrantTokens,
        errors=(errors.AmountError, errors.ConflictError),
    ),
    _operator(
        "GET",
        "audit-logs",
        admin.audit,
        "Read what workers and operators did, the newest first.",
        {200: wire.Audit},
        query=parameters.ListAudit,
    ),
)

_PAGE_ROUTES: Final = playground("millpond.blueprints.effects", with_storage=True)

_ABOUT: Final = """\
Upload a video or an image, choose an effect, get it back changed; pay with tokens, once.

Users send a client key as `Authorization: Bearer KEY`: each account is a user. Workers register with `X-Fleet-Secret`
and send the token that they get; operators send an admin key. What is another user's answers 404.
Times are RFC 3339 in UTC. Lists come in pages: send `next_cursor` as `cursor` for the next one.
Errors are `application/problem+json` with a stable `code`; `message` says it in words.
"""


def refuse(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:
    """A problem with its message; tokens are what this product calls credits."""
    told = {**problem, "message": problem["detail"]}
    if isinstance(error, errors.InsufficientCreditsError):
        message = "Insufficient token balance."
        told |= {"status": 422, "detail": message, "message": message}
        told["required_tokens"] = told.pop("required", 0)
    return told["status"], told


_SLUG_OR_ID: Final = {"type": "string", "pattern": "^[a-z0-9_-]{1,60}$"}


def _id(prefix: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$"}


BLUEPRINT: Final = Blueprint(
    lifecycle=EFFECTS,
    kinds=(KIND,),
    title="Effects",
    about=_ABOUT,
    routes=(*_USERS_ROUTES, *_WORKERS_ROUTES, *_OPERATORS_ROUTES, *_PAGE_ROUTES, *PAGES),
    groups={
        "videos": "Upload, and see what became of it.",
        "effects": "What can be done.",
        "ai-jobs": "Have it done.",
        "wallet": "What it costs.",
        "worker": "What the fleet's workers do.",
        "admin": "What operators do.",
        "page": "For browsers.",
        "server": "This document.",
    },
    parameters={
        "video_id": (_id("video"), "The id of a video."),
        "file_id": (_id("art"), "The id of a file."),
        "job_id": (_id("job"), "The id of a job."),
        "effect": (_SLUG_OR_ID, "The id of an effect, or its slug."),
        "workflow": (_SLUG_OR_ID, "The id of a workflow, or its slug."),
        "asset": ({"type": "string", "pattern": "^[a-z][a-z0-9_]{0,39}$"}, "The name of an asset."),
        "worker": ({"type": "string", "minLength": 1}, "The id of a worker, or what it calls itself."),
        "part": ({"type": "string", "enum": ["page.css", "page.js", "icon.svg"]}, "Which."),
        "code": ({"type": "string", "pattern": "^[a-z_]{1,40}$"}, "The code of a problem."),
    },
    refuse=refuse,
    refusal=wire.Refusal,
    migrations="millpond.blueprints.effects",
    seed=seed,
)
