"""The jobs of the contract: an effect on a video. Each is an engine job; this module builds its input and its JSON."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import ids
from millpond.errors import (
    InputError,
    InvalidError,
    MillpondError,
    NotFoundError,
    TooManyActiveJobsError,
)
from millpond.product import Reply, accept, cursor, owner, queries, reply
from millpond_products.effects import effects, files, outcomes, payload, videos, wire, workflows
from millpond_products.effects.kinds import KIND, route

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from millpond.product import ArtifactRecord, Call, Engine, JobView, Submitted
    from millpond_products.effects.effects import Effect
    from millpond_products.effects.payload import SourceFile
    from millpond_products.effects.videos import Video
    from millpond_products.effects.workflows import Workflow

SQL: Final = queries("millpond_products.effects", "ai_jobs")

ACTIVE_MAX: Final = 5
"""The limit of unfinished jobs per user."""
_SERVER_ERROR: Final = 500  # with these statuses, the job may have been created all the same
_SEEN_MAX: Final = 100_000
_seen: set[tuple[str, str, str]] = set()
"""Users whose cap has been set, with their database."""


@dataclass(frozen=True, slots=True)
class EffectOrder:
    """A user's request, with the objects that it names."""

    effect: Effect
    workflow: Workflow
    video: Video
    original: ArtifactRecord
    user_input: dict[str, Any]


# Submitting


async def make(call: Call) -> Reply:
    """Create a job: first the checks that need no write, in the contract's order, then one transaction."""
    tenant, account = owner(call)
    body: wire.MakeJob = call.body
    effect, workflow = await _usable(call.engine, body.effect_id)
    video = await videos.find(call.engine, tenant, account, body.video_id)
    original = await files.own(
        call.engine, tenant, account, ids.text("art", video.original_file_id), field="original_file_id"
    )
    making = _Making(call, EffectOrder(effect, workflow, video, original, body.input))
    try:
        return await accept(
            call,
            KIND.name,
            build=making.build,
            shape=making.shape,
            location="/api/ai-jobs/{id}",
            replay_status=200,
            owner=(tenant, account),
            key=body.idempotency_key,
            request=making.request,
            priority=effect.priority,
            route=route(workflow.slug, effect.provider),
            job_id=making.job_id,
        )
    except MillpondError as refusal:
        if refusal.status < _SERVER_ERROR:
            await making.unlink()
        raise


@dataclass(slots=True)
class _Making:
    """A job that is being created. Its video is linked to it first, so that nothing has to follow its transaction."""

    call: Call
    order: EffectOrder
    job_id: UUID = field(default_factory=ids.new)
    is_linked: bool = False

    @property
    def request(self) -> dict[str, Any]:
        """What a repeated request with the same key must contain."""
        return {"effect_id": self.order.effect.id, "video_id": self.order.video.id, "input": self.order.user_input}

    async def build(self) -> dict[str, Any]:
        video = self.order.video
        await _check_cap(self.call.engine, video.tenant, video.account)
        given = await _payload(self.call.engine, self.order)
        await videos.link(self.call.engine, video, self.job_id)
        self.is_linked = True
        return given

    async def shape(self, made: Submitted) -> wire.Job:
        video = self.order.video
        view = await self.call.engine.views.job(video.tenant, video.account, made.job_id)
        if not made.is_replay:
            self.is_linked = False  # the link stays, whatever happens now
        elif self.is_linked:
            await self.unlink()
        elif view.outcome is None:
            await self.call.engine.restore_dispatch(view.tenant, view.job_id)
        return await to_wire(self.call, view)

    async def unlink(self) -> None:
        if self.is_linked:
            await videos.unlink(self.call.engine, self.order.video, self.job_id)
            self.is_linked = False


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


async def _check_cap(engine: Engine, tenant: str, account: str) -> None:
    """Refuse early what the engine would refuse. Only the engine can enforce the cap for concurrent requests."""
    database = engine.database(tenant)
    user = (database.dsn, tenant, account)
    if user not in _seen:
        await database.run(SQL["cap"], tenant, account, ACTIVE_MAX)
        if len(_seen) >= _SEEN_MAX:
            _seen.clear()
        _seen.add(user)
    wallet = await engine.views.wallet(tenant, account)
    if wallet.active_max is not None and wallet.active >= wallet.active_max:
        raise TooManyActiveJobsError(
            f"You have {wallet.active} unfinished jobs, which is the limit.",
            active=wallet.active,
            limit=wallet.active_max,
        )


async def _payload(engine: Engine, order: EffectOrder) -> dict[str, Any]:
    effect, workflow, original = order.effect, order.workflow, order.original
    _check_type(original, workflow.input_type, "video_id")
    made, chosen = payload.resolve(workflow.properties, effect.property_overrides, order.user_input)
    sources = {payload.PRIMARY: _source(original)}
    sources |= await _sources(engine, workflow, original, made, chosen)
    texts = {name: value for name, value in made.items() if name not in sources}
    graph = await workflows.graph_of(engine, workflow)
    given = payload.build(
        graph,
        output_node_id=workflow.output_node_id or "",
        extension=workflow.output_extension,
        made=texts,
        sources={name: source for name, source in sources.items() if payload.is_used(graph, name)},
    )
    part = outcomes.InputFields(
        id=effect.id,
        slug=effect.slug,
        workflow_id=workflow.id,
        workflow=workflow.slug,
        content_hash=workflow.content_hash or "",
        provider=effect.provider,
        price=effect.credits_cost,
        video_id=order.video.id,
        input_file_id=original.id,
        input=order.user_input,
    )
    return given | {"effect": msgspec.to_builtins(part)}


async def _sources(
    engine: Engine, workflow: Workflow, original: ArtifactRecord, made: Mapping[str, Any], chosen: Mapping[str, Any]
) -> dict[str, SourceFile]:
    """The files of a job besides the video: the user's by id, the workflow's by name."""
    shared = {asset.name: _shared(asset) for asset in workflow.assets}
    found = dict(shared)
    for declared in workflow.properties:
        if declared.type not in payload.FILE_TYPES:
            continue
        field = f"input.{declared.name}"
        if declared.name not in chosen:
            found[declared.name] = shared[made[declared.name]]
            continue
        record = await files.own(engine, original.tenant, original.account, made[declared.name], field=field)
        _check_type(record, declared.type, field)
        found[declared.name] = _source(await engine.artifacts.confirm(record.tenant, record.artifact_id))
    return found


def _check_type(record: ArtifactRecord, wanted: str, field: str) -> None:
    if wanted != "any" and not record.content_type.lower().startswith(f"{wanted}/"):
        raise InputError(f"The file must be of type {wanted}, but it is {record.content_type}.", field=field)


def _source(record: ArtifactRecord) -> SourceFile:
    filename = payload.file_name(record.id, record.name, record.content_type)
    return payload.SourceFile(record.id, filename, record.sha256)


def _shared(asset: wire.Asset) -> SourceFile:
    return payload.SourceFile(f"asset:{asset.name}", asset.filename, asset.content_hash, asset.s3_path)


# Reading


async def read(call: Call) -> Reply:
    return reply(await to_wire(call, await _view(call)))


async def list_jobs(call: Call) -> Reply:
    tenant, account = owner(call)
    page = await call.engine.views.jobs(
        tenant,
        account,
        kind=KIND.name,
        state=call.query.status or None,
        before=cursor("job", call.query.cursor),
        limit=call.query.limit,
    )
    data = await asyncio.gather(*(to_wire(call, view) for view in page.data))
    return reply(wire.Jobs(data=list(data), next_cursor=None if page.before is None else ids.text("job", page.before)))


async def cancel(call: Call) -> Reply:
    view = await _view(call)
    await call.engine.cancel(view.tenant, view.job_id, grace=call.state.settings.grace)
    return reply(await to_wire(call, await _view(call)))


async def _view(call: Call) -> JobView:
    tenant, account = owner(call)
    return await find(call.engine, tenant, account, call.params["job_id"])


async def find(engine: Engine, tenant: str | None, account: str | None, job_id: str | UUID) -> JobView:
    """Return a job of this product, if it belongs to the tenant and the account."""
    view = await engine.views.job(tenant, account, job_id)
    if view.kind != KIND.name:
        raise NotFoundError(f"There is no job {view.id!r}.", field="job_id")
    return view


async def to_wire(call: Call, view: JobView) -> wire.Job:
    return wire.Job(**await members(call, view))


async def members(call: Call, view: JobView) -> dict[str, Any]:
    """The fields of a job, as the contract names them."""
    part = outcomes.part_of(view)
    output = await outcomes.output_of(call.engine, view)
    attempts = await outcomes.attempts(call.engine, view.tenant, view.job_id)
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
        "output_url": None if output is None else files.url(call.engine, output, call.state.settings.download_lifetime),
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
