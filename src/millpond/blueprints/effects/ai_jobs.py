"""The jobs of the contract: an effect on a video. The job is the engine's; here it gets its payload and its words."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import ids, values
from millpond.api.calls import Reply, cursor, reply
from millpond.blueprints.effects import effects, files, outcomes, payload, videos, wire, workflows
from millpond.blueprints.effects.kinds import KIND, route
from millpond.errors import (
    IdempotencyConflictError,
    InputError,
    InvalidError,
    MillpondError,
    NotFoundError,
    TooManyActiveJobsError,
)
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.blueprints.effects.effects import Effect
    from millpond.blueprints.effects.payload import Source
    from millpond.blueprints.effects.videos import Video
    from millpond.blueprints.effects.workflows import Workflow
    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.engine import Engine
    from millpond.engine.views import JobView

SQL: Final = queries("millpond.blueprints.effects", "ai_jobs")

ACTIVE_MAX: Final = 5
"""How many jobs a user may have that have not ended."""
_OURS: Final = 500  # from here on what was asked for may have been done all the same
_SEEN_MAX: Final = 100_000
_seen: set[tuple[str, str, str]] = set()
"""Users who have their cap, with their database."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a user has chosen."""

    effect: Effect
    workflow: Workflow
    video: Video
    original: ArtifactRecord
    wishes: dict[str, Any]


# Submitting


async def make(call: Call) -> Reply:
    """Take a job in: first all that can be told without writing, in the contract's order; then all of it at once."""
    tenant, account = files.owner(call)
    body: wire.MakeJob = call.body
    effect, workflow = await _usable(call.engine, body.effect_id)
    video = await videos.find(call.engine, tenant, account, body.video_id)
    original = await files.own(
        call.engine, tenant, account, ids.text("art", video.original_file_id), field="original_file_id"
    )
    request = {"effect_id": effect.id, "video_id": video.id, "input": body.input}
    known = await _known(call.engine, tenant, account, body.idempotency_key, request)
    if known is not None:
        return reply(await told(call, known))
    await _check_cap(call.engine, tenant, account)
    order = Order(effect, workflow, video, original, body.input)
    view, is_new = await _submit(call, order, await _payload(call.engine, order), request)
    return reply(await told(call, view), 202 if is_new else 200)


async def _usable(engine: Engine, effect_id: str) -> tuple[Effect, Workflow]:
    effect = await effects.find(engine, effect_id)
    if not effect.is_active:
        raise NotFoundError(f"There is no effect {effect_id[:60]!r}.", field="effect_id")
    try:
        workflow = await workflows.find(engine, effect.workflow_id)
    except NotFoundError:
        raise InvalidError("The effect has no workflow.", field="effect_id") from None
    if not workflow.is_active:
        raise InvalidError("The workflow of the effect is not active.", field="effect_id")
    return effect, workflow


async def _known(engine: Engine, tenant: str, account: str, key: str, request: Any) -> JobView | None:
    """The job that this key has made, with its place in line made sure of."""
    row = await engine.home(tenant).run(SQL["keyed"], tenant, account, values.check_key(key))
    if row is None:
        return None
    before = None if row["request"] is None else msgspec.json.decode(row["request"])
    if before != request:
        raise IdempotencyConflictError(field="idempotency_key", job_id=ids.text("job", row["job_id"]))
    view = await engine.views.job(tenant, account, row["job_id"])
    if view.outcome is None:  # the engine answers with the same job, and makes sure that it stands in line
        await engine.submit(
            KIND.name,
            msgspec.json.decode(view.input),
            tenant=tenant,
            account=account,
            idempotency_key=key,
            request=request,
            route=view.queue,
        )
    return view


async def _check_cap(engine: Engine, tenant: str, account: str) -> None:
    """Tell early what the engine would refuse; only it can hold the cap against others that come at the same time."""
    home = engine.home(tenant)
    user = (home.dsn, tenant, account)
    if user not in _seen:
        await home.run(SQL["cap"], tenant, account, ACTIVE_MAX)
        if len(_seen) >= _SEEN_MAX:
            _seen.clear()
        _seen.add(user)
    wallet = await engine.views.wallet(tenant, account)
    if wallet.active_max is not None and wallet.active >= wallet.active_max:
        raise TooManyActiveJobsError(
            f"You have {wallet.active} jobs that have not ended, which is the limit.",
            active=wallet.active,
            limit=wallet.active_max,
        )


async def _payload(engine: Engine, order: Order) -> dict[str, Any]:
    effect, workflow, original = order.effect, order.workflow, order.original
    _check_type(original, workflow.input_type, "video_id")
    made, wished = payload.resolve(workflow.properties, effect.property_overrides, order.wishes)
    sources = {payload.PRIMARY: _source(original)}
    sources |= await _sources(engine, workflow, original, made, wished)
    texts = {name: value for name, value in made.items() if name not in sources}
    graph = await workflows.graph_of(engine, workflow)
    given = payload.build(
        graph,
        output_node_id=workflow.output_node_id or "",
        extension=workflow.output_extension,
        made=texts,
        sources={name: source for name, source in sources.items() if payload.is_used(graph, name)},
    )
    part = outcomes.Part(
        id=effect.id,
        slug=effect.slug,
        workflow_id=workflow.id,
        workflow=workflow.slug,
        content_hash=workflow.content_hash or "",
        provider=effect.provider,
        price=effect.credits_cost,
        video_id=order.video.id,
        input_file_id=original.id,
        input=order.wishes,
    )
    return given | {"effect": msgspec.to_builtins(part)}


async def _sources(
    engine: Engine, workflow: Workflow, original: ArtifactRecord, made: Mapping[str, Any], wished: Mapping[str, Any]
) -> dict[str, Source]:
    """The files of a job beside the video: the user's own by their ids, the workflow's by their names."""
    shared = {asset.name: _shared(asset) for asset in workflow.assets}
    found = dict(shared)
    for declared in workflow.properties:
        if declared.type not in payload.FILE_TYPES:
            continue
        field = f"input.{declared.name}"
        if declared.name not in wished:
            found[declared.name] = shared[made[declared.name]]
            continue
        record = await files.own(engine, original.tenant, original.account, made[declared.name], field=field)
        _check_type(record, declared.type, field)
        found[declared.name] = _source(await engine.artifacts.confirm(record.tenant, record.artifact_id))
    return found


def _check_type(record: ArtifactRecord, wanted: str, field: str) -> None:
    if wanted != "any" and not record.content_type.lower().startswith(f"{wanted}/"):
        raise InputError(f"It must be a file of type {wanted}, and it is {record.content_type}.", field=field)


def _source(record: ArtifactRecord) -> Source:
    filename = payload.file_name(record.id, record.name, record.content_type)
    return payload.Source(record.id, filename, record.sha256)


def _shared(asset: wire.Asset) -> Source:
    return payload.Source(f"asset:{asset.name}", asset.filename, asset.content_hash, asset.s3_path)


async def _submit(call: Call, order: Order, given: dict[str, Any], request: dict[str, Any]) -> tuple[JobView, bool]:
    """One transaction: the job, its hold, its key, its place in line. The video knows of it before."""
    job_id, video = ids.new(), order.video
    await videos.link(call.engine, video, job_id)
    try:
        submitted = await call.engine.submit(
            KIND.name,
            given,
            tenant=video.tenant,
            account=video.account,
            idempotency_key=call.body.idempotency_key,
            request=request,
            priority=order.effect.priority,
            route=route(order.workflow.slug, order.effect.provider),
            job_id=job_id,
        )
    except MillpondError as refusal:
        if refusal.status < _OURS:
            await videos.unlink(call.engine, video, job_id)
        raise
    if submitted.is_replay:
        await videos.unlink(call.engine, video, job_id)
    else:
        call.desk.metrics.submitted[KIND.name] += 1
    return await call.engine.views.job(video.tenant, video.account, submitted.job_id), not submitted.is_replay


# Reading


async def read(call: Call) -> Reply:
    return reply(await told(call, await _view(call)))


async def list_jobs(call: Call) -> Reply:
    tenant, account = files.owner(call)
    page = await call.engine.views.jobs(
        tenant,
        account,
        kind=KIND.name,
        state=call.query.status or None,
        before=cursor("job", call.query.cursor),
        limit=call.query.limit,
    )
    data = await asyncio.gather(*(told(call, view) for view in page.data))
    return reply(wire.Jobs(data=list(data), next_cursor=None if page.before is None else ids.text("job", page.before)))


async def cancel(call: Call) -> Reply:
    view = await _view(call)
    await call.engine.cancel(view.tenant, view.job_id, grace=call.desk.settings.grace)
    return reply(await told(call, await _view(call)))


async def _view(call: Call) -> JobView:
    tenant, account = files.owner(call)
    return await find(call.engine, tenant, account, call.params["job_id"])


async def find(engine: Engine, tenant: str | None, account: str | None, job_id: str | UUID) -> JobView:
    """A job of ours, if it is theirs."""
    view = await engine.views.job(tenant, account, job_id)
    if view.kind != KIND.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


async def told(call: Call, view: JobView) -> wire.Job:
    return wire.Job(**await members(call, view))


async def members(call: Call, view: JobView) -> dict[str, Any]:
    """A job in the contract's words."""
    part = outcomes.part_of(view)
    output = await outcomes.output_of(call.engine, view)
    attempts = (await outcomes.leased(call.engine, view.tenant, [view.job_id])).get(view.job_id, (None, 0))[1]
    if output is not None:
        effects.learn_from(call.engine, view, part.id)
    return {
        "id": view.id,
        "status": cast("wire.JobStatus", view.state),
        "effect_id": part.id,
        "effect": part.slug,
        "video_id": part.video_id,
        "provider": part.provider,
        "input": part.input,
        "input_file_id": part.input_file_id,
        "output_file_id": None if output is None else output.id,
        "output_url": None if output is None else files.url(call.engine, output, call.desk.settings.download_lifetime),
        "error_message": outcomes.error_of(view),
        "progress": view.progress,
        "reserved_tokens": view.price,
        "consumed_tokens": view.captured,
        "attempts": attempts,
        "cancel_requested": view.cancel_requested_at is not None,
        "provider_job_id": outcomes.provider_job_id_of(view),
        "estimated_seconds": await outcomes.estimate(call.engine, part.id),
        "created_at": view.created_at,
        "started_at": view.started_at,
        "completed_at": view.finished_at,
    }
