"""The fleet over HTTP: what a worker does, from its registration to its leave. Every write names a lease."""

from __future__ import annotations

import asyncio
import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids, logs, wire
from millpond.api.calls import DisconnectedError, Reply, reply
from millpond.api.principals import address
from millpond.engine.artifacts import folder, named_in
from millpond.errors import ForbiddenError, MillpondError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from uuid import UUID

    from starlette.types import Receive

    from millpond.api.calls import Call
    from millpond.engine.artifacts import ArtifactRecord
    from millpond.work import Lease

_FILES_MAX: Final = 200


# Coming and going


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
    rules = workers.rules
    told = wire.Registered(
        id=record.id,
        worker=record.worker,
        token=token,
        routes=list(record.routes),
        is_approved=record.is_approved,
        lease_seconds=rules.lease.total_seconds(),
        heartbeat_seconds=rules.heartbeat.total_seconds(),
        poll_seconds_max=wire.POLL_SECONDS_MAX,
    )
    return reply(told, 201)


async def proof(call: Call, worker: str, identity: Any, *, field: str = "worker") -> dict[str, Any] | None:
    """What is proven of the worker's machine, where the settings ask for that; raises if it is not."""
    settings = call.desk.settings
    if not worker.lower().startswith("i-"):
        return None
    proven: dict[str, Any] | None = None
    if settings.ec2_certificates is not None:
        if identity is None:
            raise ForbiddenError(
                "A worker named after an EC2 instance must prove that it runs there.",
                field="identity",
                hint="Send its instance identity document and the signature of that.",
            )
        said = _verifier(str(settings.ec2_certificates)).verify(identity.document, identity.signature, worker)
        proven = {name: said[name] for name in ("instanceId", "accountId", "region", "imageId") if name in said}
    if settings.fleet_check_asg:
        belongs = await _instances().belongs(worker)
        if belongs is False:
            raise ForbiddenError(f"The instance {worker} is in no Auto Scaling Group that may join.", field=field)
        proven = {**(proven or {}), "is_in_group": belongs}
    return proven


@lru_cache(4)
def _verifier(certificates: str) -> Any:
    from millpond.aws.identity import Verifier  # noqa: PLC0415 - an extra, which most do without

    return Verifier(certificates)


@lru_cache(1)
def _instances() -> Any:
    from millpond.aws.groups import InstanceCheck  # noqa: PLC0415 - as above

    return InstanceCheck()


async def deregister(call: Call) -> Reply:
    await call.engine.workers.deregister(call.worker, address=address(call))
    return Reply(204)


# Jobs


async def poll(call: Call) -> Reply:
    if call.body.held is not None:
        await call.engine.workers.drop_others(call.worker, call.body.held)
    return await take(call, call.body.want, call.body.wait, _assigned)


async def take(call: Call, want: int, wait: float, tell: Callable[[Call, list[Lease]], Awaitable[Reply]]) -> Reply:
    """Jobs, as soon as there are some, in the words of whoever tells them.

    Whoever hangs up meanwhile is given none, or they go back at once, as they do where they cannot be told.
    """
    workers, worker = call.engine.workers, call.worker
    if not wait:
        return await _tell(call, await workers.poll(worker, want, 0, address=address(call)), tell)
    async with _hanging_up(call.receive) as gone:
        polling = asyncio.ensure_future(workers.poll(worker, want, wait, address=address(call)))
        try:
            await asyncio.wait((polling, gone), return_when=asyncio.FIRST_COMPLETED)
            if not polling.done():
                raise DisconnectedError
            leases = await polling
        finally:
            polling.cancel()
        answer = await _tell(call, leases, tell)
        if gone.done():
            await workers.abandon(leases)
            raise DisconnectedError
        return answer


@contextlib.asynccontextmanager
async def _hanging_up(receive: Receive) -> AsyncGenerator[asyncio.Future[None]]:
    """Something that is done when the caller has gone."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watching = asyncio.ensure_future(watch())
    try:
        yield watching
    finally:
        watching.cancel()


async def _tell(call: Call, leases: list[Lease], tell: Callable[[Call, list[Lease]], Awaitable[Reply]]) -> Reply:
    try:
        return await tell(call, leases)
    except BaseException:  # They are nobody's who cannot be told of them.
        await call.engine.workers.abandon(leases)
        raise


async def _assigned(call: Call, leases: list[Lease]) -> Reply:
    jobs = [_assignment(call, lease, await _downloads_now(call, lease)) for lease in leases]
    return reply(wire.Assignments(jobs=jobs, is_draining=call.worker.is_draining))


async def _downloads_now(call: Call, lease: Lease) -> dict[str, wire.Signed]:
    """What can be signed now. The worker asks for the rest by itself; to give jobs back would count against them."""
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
        lease_seconds=call.engine.workers.rules.lease.total_seconds(),
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
        downloads=downloads,
    )


async def heartbeat(call: Call) -> Reply:
    body: wire.Heartbeat = call.body
    workers, worker = call.engine.workers, call.worker
    keys = [(_job_id(job.job_id), job.lease_token) for job in body.jobs]
    held = await workers.beat(worker, keys)
    seconds = workers.rules.lease.total_seconds()
    beats: list[wire.Beat] = []
    for key, job in zip(keys, body.jobs, strict=True):
        is_held = key in held
        downloads, uploads = await _renewed(call, key, job.renew) if is_held and job.renew else ({}, {})
        beats.append(
            wire.Beat(
                job_id=job.job_id,
                lease_token=job.lease_token,
                is_held=is_held,
                cancel_requested=held.get(key, False),
                lease_seconds=seconds if is_held else 0.0,
                downloads=downloads,
                uploads=uploads,
            )
        )
    return reply(wire.Beats(jobs=beats, is_draining=worker.is_draining))


async def note(call: Call) -> Reply:
    body: wire.WriteNotes = call.body
    must_stop = await call.engine.workers.note(call.worker, _job_id(body.job_id), body.lease_token, body.notes)
    return reply(wire.Noted(cancel_requested=must_stop))


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


def _job_id(given: str) -> UUID:
    try:
        return ids.parse("job", given)
    except NotFoundError as error:
        error.field = "job_id"
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
        lifetime=call.engine.workers.rules.lease,
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
    """What a worker may read for a job: the artifacts that its input names, and what its kind says."""
    named = named_in(lease.input)[:_FILES_MAX]
    signed = {name: _get(call, record) for name, record in (await _artifacts(call, lease, named)).items()}
    return signed | _shared(call, lease)


def _shared(call: Call, lease: Lease) -> dict[str, wire.Signed]:
    kind = call.engine.app.kinds.get(lease.kind)
    if kind is None or kind.files is None:
        return {}
    lifetime, store = call.engine.workers.rules.lease, call.engine.artifacts.store
    try:
        paths = dict(kind.files(msgspec.json.decode(lease.input)))
        return {name: store.sign_get(path, lifetime=lifetime) for name, path in paths.items()}
    except MillpondError as error:  # The worker tells that a file is missing; to fail here would hold up all others.
        logs.emit("request.failed", request_id=call.request_id, path=call.scope["path"], error=repr(error))
        return {}


async def _renewed(
    call: Call, key: tuple[UUID, UUID], names: list[str]
) -> tuple[dict[str, wire.Signed], dict[str, wire.Signed]]:
    """Fresh requests for the names that a worker asks for: what it reads, and what it is about to write."""
    lease = await call.engine.workers.lease(call.worker, *key)
    downloads = {name: signed for name, signed in (await downloads_of(call, lease)).items() if name in names}
    rest = [name for name in names if name not in downloads]
    uploads: dict[str, wire.Signed] = {}
    for name, record in (await _artifacts(call, lease, rest)).items():
        if record.stored_at is None and record.job_id == lease.job_id and record.epoch == lease.epoch:
            uploads[name] = call.engine.artifacts.sign_put(record, call.engine.workers.rules.lease)
        else:
            downloads[name] = _get(call, record)
    return downloads, uploads


async def _artifacts(call: Call, lease: Lease, names: Iterable[str]) -> dict[str, ArtifactRecord]:
    """Those of these artifacts that the job's own account, or the job itself, has."""
    found: dict[UUID, str] = {}
    for name in names:
        with contextlib.suppress(NotFoundError):
            found[ids.parse("art", name)] = name
    if not found:
        return {}
    records = await call.engine.artifacts.find(lease.tenant, list(found), lease.account, lease.job_id)
    return {found[record.artifact_id]: record for record in records}


def _get(call: Call, record: ArtifactRecord) -> wire.Signed:
    return call.engine.artifacts.sign_get(record, call.engine.workers.rules.lease)
