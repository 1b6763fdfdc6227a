"""The seven worker endpoints of the contract. A dispatch is the engine's lease of a job."""

from __future__ import annotations

import asyncio
import mimetypes
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID, uuid5

import msgspec

from millpond import ids, logs, values
from millpond import wire as native
from millpond.errors import (
    ArtifactMismatchError,
    ArtifactMissingError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    LeaseLostError,
    NotFoundError,
)
from millpond.product import Reply, address, folder, protocol, reply
from millpond_products.effects import ai_jobs, decoding, effects, failures, outcomes, wire, workflows
from millpond_products.effects.kinds import KIND, route, workflow_of

if TYPE_CHECKING:
    from millpond.product import ArtifactRecord, Call, Signed
    from millpond.work import Lease

_OUTPUTS: Final = UUID("6b1f6f0e-3a0c-5d51-9a5e-0d7a7f5f7c11")
"""The namespace of the UUIDs in output names, which derive from the job and its lease: each attempt has its own."""
_EPOCH: Final = 1_700_000_000
"""The numbers of a lease's notes must increase. Seconds since this time do, and they fit into the integer."""
_KINDS: Final = ("image/", "video/")

_looking: set[asyncio.Task[None]] = set()


# Registering


async def register(call: Call) -> Reply:
    body: wire.Register = call.body
    assigned = await assignable(call, body.workflow_slugs)
    workers = call.engine.workers
    record, token = await workers.register(
        worker=body.worker_id,
        routes=[route(slug, provider) for slug in assigned for provider in body.providers],
        slots=body.max_concurrency,
        capabilities=body.capabilities,
        fleet=call.principal,
        address=address(call),
        identity=await protocol.proof(call, body.worker_id, body.identity, field="worker_id"),
    )
    registered = wire.Registered(
        worker_id=record.worker,
        token=token,
        workflows_assigned=assigned,
        providers=body.providers,
        is_approved=record.is_approved,
        lease_seconds=workers.settings.lease.total_seconds(),
        heartbeat_seconds=workers.settings.heartbeat.total_seconds(),
    )
    return reply(registered, 201)


async def assignable(call: Call, slugs: list[str]) -> list[str]:
    """The given workflows that are active. All of them must exist."""
    known = {workflow.slug: workflow for workflow in await workflows.find_all(call.engine)}
    for place, slug in enumerate(slugs):
        if slug not in known:
            raise InvalidError(f"There is no workflow {slug!r}.", field=f"workflow_slugs[{place}]")
    active = [slug for slug in dict.fromkeys(slugs) if known[slug].is_active]
    if not active:
        raise InvalidError("None of these workflows is active.", field="workflow_slugs")
    return active


async def deregister(call: Call) -> Reply:
    await call.engine.workers.deregister(call.worker, address=address(call))
    return Reply(204)


# Jobs


async def poll(call: Call) -> Reply:
    if any(not name.startswith(f"{KIND.queue}:") for name in call.worker.routes):
        raise ForbiddenError(
            "This worker also serves other routes than workflows.", hint="Poll at /v1/worker/poll instead."
        )
    return await protocol.take(call, 1, call.body.wait, _polled)


async def _polled(call: Call, leases: list[Lease]) -> Reply:
    job = await _dispatched(call, leases[0]) if leases else None
    return reply(wire.Polled(job=job, drain=call.worker.is_draining))


async def _dispatched(call: Call, lease: Lease) -> wire.Dispatched:
    given = msgspec.json.decode(lease.input)
    urls = await _urls(call, lease)
    slug, provider = workflow_of(lease.queue)
    assets = [
        wire.PayloadAsset(**{name: asset[name] for name in _ASSET}, url=urls[asset["name"]])
        for asset in given["assets"]
    ]
    path, upload = _upload(call, lease, given["extension"])
    return wire.Dispatched(
        dispatch_id=ids.text("dispatch", lease.job_id),
        lease_token=str(lease.token),
        lease_expires_at=_lease_end(call),
        job_id=ids.text("job", lease.job_id),
        tenant_id=lease.tenant,
        workflow=slug,
        provider=provider,
        attempts=await outcomes.attempts(call.engine, lease.tenant, lease.job_id),
        input_url=next(asset.url for asset in assets if asset.is_primary_input),
        output_url=upload.url,
        output_headers=upload.headers,
        output_path=path,
        input_payload=wire.InputPayload(
            workflow=given["workflow"],
            output_node_id=given["output_node_id"],
            assets=assets,
            extension=given["extension"],
        ),
    )


_ASSET: Final = ("placeholder", "name", "filename", "content_hash", "is_primary_input")


async def _urls(call: Call, lease: Lease) -> dict[str, str]:
    """The download URLs of a job's files, valid as long as the lease; empty for a file that no longer exists."""
    names = [asset["name"] for asset in msgspec.json.decode(lease.input)["assets"]]
    signed = await protocol.downloads_of(call, lease)
    return {name: signed[name].url if name in signed else "" for name in names}


def _upload(call: Call, lease: Lease, extension: str | None) -> tuple[str, Signed]:
    """The path of the output, unique to this attempt, and its upload URL, valid as long as the lease."""
    path = _output_path(lease, extension)
    return path, call.engine.artifacts.store.sign_put(
        path, lifetime=call.engine.workers.settings.lease, content_type=_type(extension), size=None
    )


def _output_path(lease: Lease, extension: str | None) -> str:
    name = uuid5(_OUTPUTS, f"{lease.job_id}:{lease.token}:{lease.epoch}")
    return f"{folder(lease.tenant)}ai-jobs/{ids.text('job', lease.job_id)}/output-{name}.{extension or 'bin'}"


def _type(extension: str | None) -> str:
    return mimetypes.guess_type(f"output.{extension}")[0] or "application/octet-stream"


def _lease_end(call: Call) -> datetime:
    return datetime.now(UTC) + call.engine.workers.settings.lease


async def heartbeat(call: Call) -> Reply:
    body: wire.Beat = call.body
    key = _dispatch(body), body.lease_token
    held = await call.engine.workers.beat(call.worker, [key])
    if key not in held:
        logs.emit("lease.lost", job_id=key[0])
        raise LeaseLostError
    if body.progress is not None:
        note = native.WorkerNote(number=int(time.time()) - _EPOCH, type="progress", value=body.progress)
        await call.engine.workers.note(call.worker, *key, [note])
    answer = wire.Beaten(lease_expires_at=_lease_end(call), cancel_requested=held[key], drain=call.worker.is_draining)
    if body.renew:
        await _renew(call, answer, *key)
    return reply(answer)


async def _renew(call: Call, answer: wire.Beaten, job_id: UUID, token: UUID) -> None:
    lease = _ours(await call.engine.workers.lease(call.worker, job_id, token))
    given = msgspec.json.decode(lease.input)
    answer.asset_urls = await _urls(call, lease)
    answer.input_url = next(answer.asset_urls[asset["name"]] for asset in given["assets"] if asset["is_primary_input"])
    _, upload = _upload(call, lease, given["extension"])
    answer.output_url, answer.output_headers = upload.url, upload.headers


async def complete(call: Call) -> Reply:
    """Complete a job after checking its output. A repeated request returns the same result."""
    body: wire.Complete = call.body
    workers, job_id = call.engine.workers, _dispatch(body)
    try:
        lease = _ours(await workers.lease(call.worker, job_id, body.lease_token))
    except LeaseLostError:
        return _reported(body, await workers.repeated(call.worker, job_id, body.lease_token, "succeeded"))
    given = msgspec.json.decode(lease.input)
    record = await _output(call, lease, given["extension"])
    output: dict[str, Any] = {
        "file": {"id": record.id, "name": record.name, "content_type": record.content_type, "size": record.size},
        "node": given["output_node_id"],
        "prompt_id": body.provider_job_id,
        "metadata": body.output.metadata,
    }
    saved = native.SavedFile(id=record.id, size=body.output.size)
    state = await workers.complete(
        call.worker, job_id, body.lease_token, output, artifacts=[saved], address=address(call)
    )
    _look_later(call, record)
    view = await call.engine.views.job(lease.tenant, lease.account, job_id)
    effects.learn_from(call.engine, view, outcomes.part_of(view).id)
    return _reported(body, state)


def _ours(lease: Lease) -> Lease:
    if lease.kind != KIND.name:
        raise NotFoundError("The dispatch does not exist.", field="dispatch_id")
    return lease


async def _output(call: Call, lease: Lease, extension: str | None) -> ArtifactRecord:
    """Record the output as an artifact, if it is in storage with the reported size."""
    output: wire.Output = call.body.output
    values.check(output.metadata, field="output.metadata")
    mime_type = output.mime_type or _type(extension)
    if not mime_type.lower().startswith(_KINDS):
        raise InvalidError("The output must be an image or a video.", field="output.mime_type")
    path = _output_path(lease, extension)
    found = await call.engine.artifacts.store.head(path)
    if found is None:
        raise ArtifactMissingError("The output is not in storage.", field="output")
    if found.size != output.size:
        raise ArtifactMismatchError(
            f"The output in storage has {found.size:,} bytes, but {output.size:,} were reported.",
            field="output.size",
            expected=output.size,
            found=found.size,
        )
    return await _record(call, lease, path, mime_type)


async def _record(call: Call, lease: Lease, path: str, mime_type: str) -> ArtifactRecord:
    artifacts = call.engine.artifacts
    try:
        record, _ = await artifacts.upload(
            lease.tenant,
            lease.account,
            name=path.rpartition("/")[2],
            content_type=mime_type,
            size=call.body.output.size,
            job_id=lease.job_id,
            epoch=lease.epoch,
            path=path,
        )
    except ConflictError:  # An earlier request was interrupted after recording it.
        known = await artifacts.at_path(lease.tenant, path)
        if known is None:
            raise
        record = await artifacts.read(lease.tenant, known.artifact_id)
    return record


def _look_later(call: Call, record: ArtifactRecord) -> None:
    """Check in the background whether the output can be decoded; the result is only logged."""
    task = asyncio.create_task(decoding.look(call.engine, record))
    _looking.add(task)
    task.add_done_callback(_looking.discard)


async def fail(call: Call) -> Reply:
    """Fail a job. A job whose cancel was requested ends as canceled instead."""
    body: wire.Fail = call.body
    workers, job_id = call.engine.workers, _dispatch(body)
    error = {"code": "processing_failed", "message": failures.describe(body.error)}
    try:
        holder = await workers.holder(call.worker, job_id, body.lease_token)
        outcome = "canceled" if holder.is_canceling else "failed"
    except LeaseLostError:
        outcome = await _ended(call, job_id)
        return _reported(body, await workers.repeated(call.worker, job_id, body.lease_token, outcome))
    state = await workers.fail(call.worker, job_id, body.lease_token, error, outcome=outcome, address=address(call))
    return _reported(body, state)


async def _ended(call: Call, job_id: UUID) -> Any:
    """How a job that is no longer leased has ended. The engine then checks whether this worker ended it so."""
    try:
        view = await ai_jobs.find(call.engine, None, None, job_id)
    except NotFoundError:
        raise LeaseLostError from None
    return "canceled" if view.outcome == "canceled" else "failed"


async def requeue(call: Call) -> Reply:
    body: wire.Requeue = call.body
    state = await call.engine.workers.requeue(
        call.worker, _dispatch(body), body.lease_token, body.reason, address=address(call)
    )
    return _reported(body, "queued" if state == "requeued" else state)


def _dispatch(body: wire.OfDispatch) -> UUID:
    try:
        return ids.parse("dispatch", body.dispatch_id)
    except NotFoundError as error:
        error.field = "dispatch_id"
        raise


def _reported(body: wire.OfDispatch, state: str) -> Reply:
    status = _STATUS.get(state, "failed")
    job_status = cast("wire.JobStatus", state)
    return reply(wire.Reported(dispatch_id=body.dispatch_id, status=status, job_status=job_status))


_STATUS: Final[dict[str, wire.DispatchStatus]] = {"queued": "queued", "processing": "leased", "completed": "completed"}
