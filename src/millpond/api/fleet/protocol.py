"""The fleet over HTTP: the calls of workers, from registration to deregistration. Every write names a lease."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import errors, ids, logs, values, wire
from millpond.api.calls import DisconnectedError, Reply, reply
from millpond.api.principals import access_lost, address
from millpond.api.routes import Route
from millpond.api.scopes import FLEET, WORKERS
from millpond.engine.jobs.artifacts import folder, named_in
from millpond.errors import ForbiddenError, MillpondError, NotFoundError
from millpond.work import ChildRequest, SpawnRequest, StepRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from uuid import UUID

    from starlette.types import Receive

    from millpond.api.calls import Call
    from millpond.engine.jobs.artifacts import ArtifactRecord
    from millpond.work import Lease, Step

_FILES_MAX: Final = 200


# Registration


async def register(call: Call) -> Reply:
    body: wire.RegisterWorker = call.body
    workers = call.engine.workers
    record, token = await workers.register(
        worker=body.worker,
        routes=body.routes,
        slots=body.slots,
        capabilities=body.capabilities,
        fleet=call.principal,
        address=address(call),
        identity=await proof(call, body.worker, body.identity),
    )
    rules = workers.settings
    registered = wire.Registered(
        id=record.id,
        worker=record.worker,
        token=token,
        routes=list(record.routes),
        is_approved=record.is_approved,
        lease_seconds=rules.lease.total_seconds(),
        heartbeat_seconds=rules.heartbeat.total_seconds(),
        poll_seconds_max=wire.POLL_SECONDS_MAX,
    )
    return reply(registered, 201)


async def proof(call: Call, worker: str, identity: Any, *, field: str = "worker") -> dict[str, Any] | None:
    """Verify the identity of the worker's machine if the settings require it; raise if that fails."""
    settings = call.state.settings
    if not worker.lower().startswith("i-"):
        return None
    proven: dict[str, Any] | None = None
    if settings.ec2_certificates is not None:
        if identity is None:
            raise ForbiddenError(
                "The worker name is an EC2 instance id, which requires proof of identity.",
                field="identity",
                hint="Send the instance identity document and its signature.",
            )
        document = _verifier(str(settings.ec2_certificates)).verify(identity.document, identity.signature, worker)
        proven = {name: document[name] for name in ("instanceId", "accountId", "region", "imageId") if name in document}
    if settings.fleet_check_asg:
        belongs = await _instances().belongs(worker)
        if belongs is False:
            raise ForbiddenError(
                f"The instance {worker} does not belong to an allowed Auto Scaling Group.", field=field
            )
        proven = {**(proven or {}), "is_in_group": belongs}
    return proven


@lru_cache(4)
def _verifier(certificates: str) -> Any:
    from millpond.integrations.aws.identity import Verifier  # noqa: PLC0415 - an optional dependency

    return Verifier(certificates)


@lru_cache(1)
def _instances() -> Any:
    from millpond.integrations.aws.groups import InstanceCheck  # noqa: PLC0415 - as above

    return InstanceCheck()


async def deregister(call: Call) -> Reply:
    await call.engine.workers.deregister(call.worker, address=address(call))
    return Reply(204)


# Jobs


async def poll(call: Call) -> Reply:
    if call.body.held is not None:
        await call.engine.workers.drop_others(call.worker, call.body.held)
    return await take(call, call.body.want, call.body.wait, _assigned)


async def take(call: Call, want: int, wait: float, to_reply: Callable[[Call, list[Lease]], Awaitable[Reply]]) -> Reply:
    """Wait for jobs and return them in the format of the caller's API; a server that stops does not wait.

    If the caller disconnects or loses access, no job is leased, or its jobs return to the queue immediately.
    """
    workers, worker = call.engine.workers, call.worker
    if not wait or not call.state.hub.is_open:
        return await _hand_out(call, await workers.poll(worker, want, 0, address=address(call)), to_reply)
    async with _disconnection(call.receive) as gone:
        polling = asyncio.ensure_future(workers.poll(worker, want, wait, address=address(call)))
        losing = asyncio.ensure_future(access_lost(call))
        try:
            await asyncio.wait((polling, gone, losing), return_when=asyncio.FIRST_COMPLETED)
            if not polling.done():
                raise losing.result() if losing.done() else DisconnectedError
            leases = await polling
        finally:
            polling.cancel()
            losing.cancel()
        answer = await _hand_out(call, leases, to_reply)
        if gone.done():
            await workers.abandon(leases)
            raise DisconnectedError
        return answer


@contextlib.asynccontextmanager
async def _disconnection(receive: Receive) -> AsyncGenerator[asyncio.Future[None]]:
    """A future that is done when the caller disconnects."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watching = asyncio.ensure_future(watch())
    try:
        yield watching
    finally:
        watching.cancel()


async def _hand_out(
    call: Call, leases: list[Lease], to_reply: Callable[[Call, list[Lease]], Awaitable[Reply]]
) -> Reply:
    try:
        return await to_reply(call, leases)
    except BaseException:  # The worker never learns of these leases.
        await call.engine.workers.abandon(leases)
        raise


async def _assigned(call: Call, leases: list[Lease]) -> Reply:
    jobs = [_assignment(call, lease, await _downloads_now(call, lease)) for lease in leases]
    return reply(wire.Assignments(jobs=jobs, is_draining=call.worker.is_draining))


async def _downloads_now(call: Call, lease: Lease) -> dict[str, wire.Signed]:
    """The signed requests that are available now.

    The worker requests the others again; giving the jobs back instead would count as an interruption of each.
    """
    try:
        return await downloads_of(call, lease)
    except MillpondError as error:
        logs.emit("request.failed", request_id=call.request_id, path=call.scope["path"], error=repr(error))
        return {}


def _assignment(call: Call, lease: Lease, downloads: dict[str, wire.Signed]) -> wire.Assignment:
    kind = call.engine.app.kinds.get(lease.kind)
    limit = None if kind is None else kind.time_limit
    return wire.Assignment(
        job_id=ids.text("job", lease.job_id),
        lease_token=str(lease.token),
        lease_seconds=call.engine.workers.settings.lease.total_seconds(),
        kind=lease.kind,
        route=lease.queue,
        tenant=lease.tenant,
        account=lease.account,
        state=lease.state,
        epoch=lease.epoch,
        attempts=lease.attempts,
        run=lease.run,
        price=lease.price,
        progress=lease.progress,
        stage=lease.stage,
        stages=[] if kind is None else list(kind.stages),
        time_limit_seconds=None if limit is None else limit.total_seconds(),
        input=msgspec.Raw(lease.input),
        memo=None if lease.memo is None else msgspec.Raw(lease.memo),
        answer=None if lease.answer is None else msgspec.Raw(lease.answer),
        created_at=lease.created_at,
        expires_at=lease.expires_at,
        has_steps=lease.has_steps,
        downloads=downloads,
    )


async def heartbeat(call: Call) -> Reply:
    body: wire.Heartbeat = call.body
    workers, worker = call.engine.workers, call.worker
    keys = [(_job_id(job.job_id), job.lease_token) for job in body.jobs]
    held = await workers.beat(worker, keys)
    seconds = workers.settings.lease.total_seconds()
    beats: list[wire.JobHeartbeat] = []
    for key, job in zip(keys, body.jobs, strict=True):
        is_held = key in held
        downloads, uploads = await _renewed(call, key, job.renew) if is_held and job.renew else ({}, {})
        beats.append(
            wire.JobHeartbeat(
                job_id=job.job_id,
                lease_token=job.lease_token,
                is_held=is_held,
                cancel_requested=held.get(key, False),
                lease_seconds=seconds if is_held else 0.0,
                downloads=downloads,
                uploads=uploads,
            )
        )
    return reply(wire.HeartbeatResult(jobs=beats, is_draining=worker.is_draining))


async def report_readiness(call: Call) -> Reply:
    await call.engine.workers.report_readiness(call.worker, call.body.unready_reason)
    if call.body.resources is not None:
        await call.engine.workers.report_resources(call.worker, call.body.resources)
    return Reply(204)


async def note(call: Call) -> Reply:
    body: wire.WriteNotes = call.body
    must_stop = await call.engine.workers.note(call.worker, _job_id(body.job_id), body.lease_token, body.notes)
    return reply(wire.Noted(cancel_requested=must_stop))


async def emit(call: Call) -> Reply:
    body: wire.EmitText = call.body
    texts = [(_job_id(job.job_id, f"jobs[{n}].job_id"), job.lease_token, job.chunks) for n, job in enumerate(body.jobs)]
    results = await call.engine.workers.emit(call.worker, texts)
    return reply(wire.Emitted(jobs=[_emitted(job, result) for job, result in zip(body.jobs, results, strict=True)]))


def _emitted(job: wire.EmittedText, result: bool | MillpondError) -> wire.EmittedResult:  # noqa: FBT001 - a result
    is_lost = isinstance(result, errors.LeaseLostError)
    return wire.EmittedResult(
        job_id=job.job_id,
        lease_token=job.lease_token,
        is_held=not is_lost,
        cancel_requested=result is True,
        error=result.as_dict() if isinstance(result, MillpondError) and not is_lost else None,
    )


async def complete(call: Call) -> Reply:
    body: wire.CompleteJob = call.body
    state = await call.engine.workers.complete(
        call.worker,
        _job_id(body.job_id),
        body.lease_token,
        body.output,
        artifacts=body.artifacts,
        captured=body.captured,
        address=address(call),
    )
    return reply(wire.Completed(job_id=body.job_id, state=state))


async def keep_traceback(call: Call) -> Reply:
    body: wire.KeepTraceback = call.body
    await call.engine.keep_traceback(await _held(call, body), body.text)
    return Reply(204)


async def fail(call: Call) -> Reply:
    body: wire.FailJob = call.body
    fate = await call.engine.workers.fail(
        call.worker,
        _job_id(body.job_id),
        body.lease_token,
        body.error,
        outcome=body.outcome,
        retry=body.retry,
        retry_after=body.retry_after,
        address=address(call),
    )
    return reply(wire.Fate(job_id=body.job_id, fate=fate))


async def requeue(call: Call) -> Reply:
    body: wire.RequeueJob = call.body
    fate = await call.engine.workers.requeue(
        call.worker, _job_id(body.job_id), body.lease_token, body.reason, address=address(call)
    )
    return reply(wire.Fate(job_id=body.job_id, fate=fate))


async def park(call: Call) -> Reply:
    body: wire.ParkJob = call.body
    state = await call.engine.workers.park(call.worker, _job_id(body.job_id), body.lease_token, body.memo)
    return reply(wire.Completed(job_id=body.job_id, state=state))


# Steps and children


async def recall(call: Call) -> Reply:
    body: wire.RecallSteps = call.body
    found = await call.engine.recall(await _held(call, body), body.after)
    return reply(wire.RecalledSteps(steps=[_step(step) for step in found]))


async def record(call: Call) -> Reply:
    body: wire.RecordStep = call.body
    lease = await _held(call, body)
    kind = call.engine.app.kinds.get(lease.kind)
    limit = values.BYTES_MAX if kind is None else kind.size_max
    item = StepRequest(
        lease,
        body.name,
        body.position,
        body.type,
        values.encode(body.result, field="result", limit=limit) if body.type == "call" else None,
        None if body.seconds is None else timedelta(seconds=body.seconds),
        None if body.question is None else values.encode(body.question, field="question", limit=limit),
    )
    return reply(_step(await call.engine.record(item)))


async def spawn(call: Call) -> Reply:
    body: wire.SpawnChildren = call.body
    lease = await _held(call, body)
    _check_kinds(call, lease, body.children)
    children = [
        ChildRequest(child.kind, child.input, child.tags, child.priority, child.run_at, child.expires_in, child.route)
        for child in body.children
    ]
    request = SpawnRequest(
        lease,
        body.name,
        body.position,
        children,
        total=body.total,
        first=body.first,
        is_detached=body.is_detached,
        fails_fast=body.fails_fast,
    )
    return reply(_step(await call.engine.spawn(request)))


def _check_kinds(call: Call, lease: Lease, children: list[wire.NewChild]) -> None:
    """Refuse children of closed kinds, whose input is trusted, unless they belong to the product of the job."""
    kinds = call.engine.app.kinds
    own = kinds.get(lease.kind)
    for number, child in enumerate(children):
        kind = kinds.get(child.kind)
        if kind is not None and not kind.is_open and (own is None or own.lifecycle.name != kind.lifecycle.name):
            raise ForbiddenError(
                f"Jobs of kind {child.kind!r} can be submitted only through their product.",
                field=f"children[{number}].kind",
            )


async def results(call: Call) -> Reply:
    body: wire.ReadResults = call.body
    after = None if body.after is None else _parse("job", body.after, "after")
    found = await call.engine.results(await _held(call, body), _parse("batch", body.batch_id, "batch_id"), after)
    outcomes = [
        wire.ChildOutcome(id=child.id, kind=child.kind, outcome=child.outcome, output=child.output, error=child.error)  # pyright: ignore[reportArgumentType] - of the database
        for child in found.children
    ]
    return reply(wire.ChildOutcomes(is_over=found.is_over, total=found.total, children=outcomes))


async def suspend(call: Call) -> Reply:
    body: wire.SuspendJob = call.body
    state = await call.engine.suspend(await _held(call, body), body.name)
    return reply(wire.Completed(job_id=body.job_id, state=state))


def _step(step: Step) -> wire.RecordedStep:
    return wire.RecordedStep(
        name=step.name,
        position=step.position,
        type=step.type,
        batch_id=None if step.batch_id is None else ids.text("batch", step.batch_id),
        due_at=step.due_at,
        is_done=step.is_done,
        is_due=step.is_due,
        result=None if step.result is None else msgspec.Raw(step.result.encode()),
        submitted=step.submitted,
    )


def _job_id(given: str, field: str = "job_id") -> UUID:
    return _parse("job", given, field)


def _parse(prefix: str, given: str, field: str) -> UUID:
    try:
        return ids.parse(prefix, given)
    except NotFoundError as error:
        error.field = field
        raise


# Files


async def upload(call: Call) -> Reply:
    body: wire.MakeUpload = call.body
    lease = await _held(call, body)
    kind = call.engine.app.kinds.get(lease.kind)
    place = None if kind is None else kind.output_path
    record, signed = await call.engine.artifacts.upload(
        lease.tenant,
        lease.account,
        name=body.name,
        content_type=body.content_type,
        size=body.size,
        sha256=body.sha256,
        job_id=lease.job_id,
        epoch=lease.epoch,
        path=None if place is None else place(folder(lease.tenant), ids.text("job", lease.job_id), body.name),
        lifetime=call.engine.workers.settings.lease,
    )
    return reply(wire.Upload(artifact_id=record.id, upload=signed), 201)


async def download(call: Call) -> Reply:
    body: wire.MakeDownload = call.body
    lease = await _held(call, body)
    found = await _artifacts(call, lease, [body.artifact_id])
    if body.artifact_id not in found:
        raise NotFoundError(f"The job has no artifact {body.artifact_id[:60]!r}.", field="artifact_id")
    return reply(_get(call, found[body.artifact_id]))


async def _held(call: Call, body: wire.OfLease) -> Lease:
    return await call.engine.workers.lease(call.worker, _job_id(body.job_id), body.lease_token)


async def downloads_of(call: Call, lease: Lease) -> dict[str, wire.Signed]:
    """The files that a worker may read for a job: the artifacts named in its input, and those declared by its kind."""
    named = named_in(lease.input)[:_FILES_MAX]
    signed = {name: _get(call, record) for name, record in (await _artifacts(call, lease, named)).items()}
    return signed | _shared(call, lease)


def _shared(call: Call, lease: Lease) -> dict[str, wire.Signed]:
    kind = call.engine.app.kinds.get(lease.kind)
    if kind is None or kind.files is None:
        return {}
    lifetime, store = call.engine.workers.settings.lease, call.engine.artifacts.store
    try:
        paths = dict(kind.files(msgspec.json.decode(lease.input)))
        return {name: store.sign_get(path, lifetime=lifetime) for name, path in paths.items()}
    except MillpondError as error:  # The worker reports the missing file; an error here would affect its other jobs.
        logs.emit("request.failed", request_id=call.request_id, path=call.scope["path"], error=repr(error))
        return {}


async def _renewed(
    call: Call, key: tuple[UUID, UUID], names: list[str]
) -> tuple[dict[str, wire.Signed], dict[str, wire.Signed]]:
    """New signed requests for the names given by a worker: files to read and announced files to write."""
    lease = await call.engine.workers.lease(call.worker, *key)
    downloads = {name: signed for name, signed in (await downloads_of(call, lease)).items() if name in names}
    rest = [name for name in names if name not in downloads]
    uploads: dict[str, wire.Signed] = {}
    for name, record in (await _artifacts(call, lease, rest)).items():
        if record.stored_at is None and record.job_id == lease.job_id and record.epoch == lease.epoch:
            uploads[name] = call.engine.artifacts.sign_put(record, call.engine.workers.settings.lease)
        else:
            downloads[name] = _get(call, record)
    return downloads, uploads


async def _artifacts(call: Call, lease: Lease, names: Iterable[str]) -> dict[str, ArtifactRecord]:
    """The given artifacts that belong to the job's account or to the job itself."""
    found: dict[UUID, str] = {}
    for name in names:
        with contextlib.suppress(NotFoundError):
            found[ids.parse("art", name)] = name
    if not found:
        return {}
    records = await call.engine.artifacts.find(lease.tenant, list(found), lease.account, lease.job_id)
    return {found[record.artifact_id]: record for record in records}


def _get(call: Call, record: ArtifactRecord) -> wire.Signed:
    return call.engine.artifacts.sign_get(record, call.engine.workers.settings.lease)


_LET_IN: Final = (errors.WorkerRevokedError, errors.WorkerUnapprovedError)
_HELD: Final = (*_LET_IN, errors.NotFoundError, errors.LeaseLostError)

ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/worker/register",
        handle=register,
        summary="Register a worker.",
        description="Requires a key of scope worker, as a bearer key or in X-Fleet-Secret. The response "
        "contains the token for all other calls. A name belongs to one worker: while that worker is "
        "alive, another registration is rejected; once it is silent, it is replaced and its jobs "
        "return to the queue.",
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
        handle=poll,
        summary="Poll for jobs.",
        description="With `wait`, the response is sent when a job is available or the time has passed. A worker "
        "never receives more jobs than it has free slots; a draining worker receives none. A response ends at 4 MiB; "
        "the other jobs stay in the queue.",
        who=FLEET,
        body=wire.Poll,
        answers={200: wire.Assignments},
        errors=_LET_IN,
    ),
    Route(
        method="POST",
        path="/v1/worker/heartbeat",
        handle=heartbeat,
        summary="Send a heartbeat, which extends the leases of the worker.",
        description="The response lists the jobs to stop and the jobs whose lease is lost, states whether the "
        "worker is draining, and contains new signed storage requests for the names in `renew`.",
        who=FLEET,
        body=wire.Heartbeat,
        answers={200: wire.HeartbeatResult},
        errors=(*_LET_IN, errors.NotFoundError),
    ),
    Route(
        method="POST",
        path="/v1/worker/readiness",
        handle=report_readiness,
        summary="Report whether the worker takes jobs at present, and what it has loaded.",
        description="For a worker that cannot run jobs for a while, for example because a program that it needs does "
        "not respond. It does not poll meanwhile, and repeats the report as often as a heartbeat. Operators see it "
        "as `unready`, with the reason; it does not count as capacity of its routes. A worker also reports the "
        "`resources` that it has loaded, such as models, whenever they change.",
        who=FLEET,
        body=wire.ReportReadiness,
        answers={204: None},
        errors=_LET_IN,
    ),
    Route(
        method="POST",
        path="/v1/worker/note",
        handle=note,
        summary="Report progress, stages and log lines.",
        who=FLEET,
        body=wire.WriteNotes,
        answers={200: wire.Noted},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/emit",
        handle=emit,
        summary="Emit text of jobs.",
        description="Readers of a job's stream receive the text at once. Send the text of all jobs of the worker in "
        "one request, at most twenty times a second, and before a job is completed. The chunks of a job are written "
        "all or none; repeating a request is safe. A lease may emit 1 MiB of text. Jobs of a kind with a gate cannot "
        "emit text.",
        who=FLEET,
        body=wire.EmitText,
        answers={200: wire.Emitted},
        errors=(*_LET_IN, errors.NotFoundError),
    ),
    Route(
        method="POST",
        path="/v1/worker/upload",
        handle=upload,
        summary="Announce an output file of the job.",
        who=FLEET,
        body=wire.MakeUpload,
        answers={201: wire.Upload},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/download",
        handle=download,
        summary="Get a download request for a file that the job may read.",
        who=FLEET,
        body=wire.MakeDownload,
        answers={200: wire.Signed},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/traceback",
        handle=keep_traceback,
        summary="Store the traceback of a failed attempt.",
        description="Send it before the failure is reported. Only operators can read it.",
        who=FLEET,
        body=wire.KeepTraceback,
        answers={204: None},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/complete",
        handle=complete,
        summary="Complete a job.",
        description="The output files are checked in storage first. If one is missing or different, the request "
        "fails, nothing changes and the lease is kept. Repeating the request is safe.",
        who=FLEET,
        body=wire.CompleteJob,
        answers={200: wire.Completed},
        errors=(*_HELD, errors.ArtifactMissingError, errors.ArtifactMismatchError, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/worker/fail",
        handle=fail,
        summary="Fail a job, or request another attempt.",
        who=FLEET,
        body=wire.FailJob,
        answers={200: wire.Fate},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/requeue",
        handle=requeue,
        summary="Return a job to the queue.",
        description="The interrupted attempt is not counted.",
        who=FLEET,
        body=wire.RequeueJob,
        answers={200: wire.Fate},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/park",
        handle=park,
        summary="Park a job until it is answered.",
        who=FLEET,
        body=wire.ParkJob,
        answers={200: wire.Completed},
        errors=(*_HELD, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/worker/recall",
        handle=recall,
        summary="List the recorded steps of a job.",
        description="By name, after a name; a response ends at 4 MiB, and after the last step it is empty.",
        who=FLEET,
        body=wire.RecallSteps,
        answers={200: wire.RecalledSteps},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/record",
        handle=record,
        summary="Record a step of a job.",
        description="A step is recorded once: the response is the step as it is recorded, perhaps by an earlier "
        "attempt. Repeating the request is safe.",
        who=FLEET,
        body=wire.RecordStep,
        answers={200: wire.RecordedStep},
        errors=(*_HELD, errors.InputError),
    ),
    Route(
        method="POST",
        path="/v1/worker/spawn",
        handle=spawn,
        summary="Submit children of a job.",
        description="All children of the request are submitted, or none. Repeating the request submits nothing.",
        who=FLEET,
        body=wire.SpawnChildren,
        answers={200: wire.RecordedStep},
        errors=(
            *_HELD,
            errors.UnknownKindError,
            errors.InputError,
            errors.TreeTooLargeError,
            errors.ChildCycleError,
            errors.InsufficientCreditsError,
        ),
    ),
    Route(
        method="POST",
        path="/v1/worker/results",
        handle=results,
        summary="Get the results of the children of a step.",
        description="In order, after a job; a response ends at 4 MiB. While the job must wait for them, `is_over` is "
        "false and there are none.",
        who=FLEET,
        body=wire.ReadResults,
        answers={200: wire.ChildOutcomes},
        errors=_HELD,
    ),
    Route(
        method="POST",
        path="/v1/worker/suspend",
        handle=suspend,
        summary="Park a job until what a step waits for has come.",
        description="Until its children have ended, a time has come, or a question is answered. The job is ready "
        "again at once if that is already so.",
        who=FLEET,
        body=wire.SuspendJob,
        answers={200: wire.Completed},
        errors=(*_HELD, errors.InvalidError),
    ),
    Route(
        method="POST",
        path="/v1/worker/deregister",
        handle=deregister,
        summary="Deregister a worker; its jobs return to the queue.",
        who=FLEET,
        answers={204: None},
        errors=_LET_IN,
    ),
)
