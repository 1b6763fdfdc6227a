"""Effects, from which users choose: each is a workflow with a price and settings."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids, logs, values
from millpond.errors import ConflictError, MillpondError, NotFoundError
from millpond.product import Reply, queries, reply
from millpond_products.effects import payload, wire, workflows
from millpond_products.effects.operators import check_all_tenants, given_of, note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from millpond.product import Call, Engine, JobView
    from millpond_products.effects.workflows import Workflow

SQL: Final = queries("millpond_products.effects", "effects")

_LEARNT_MAX: Final = 10_000

_learning: set[asyncio.Task[None]] = set()
_learnt: set[UUID] = set()
"""Jobs whose duration has been recorded."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect as stored."""

    effect_id: UUID
    slug: str
    name: str
    description: str | None
    workflow_id: UUID
    provider: wire.Provider
    credits_cost: int
    priority: int
    property_overrides: Mapping[str, Any]
    is_active: bool
    last_processing_time_seconds: float | None
    created_at: datetime
    updated_at: datetime

    @property
    def id(self) -> str:
        return ids.text("effect", self.effect_id)

    @property
    def estimated_seconds(self) -> float | None:
        """The expected duration: that of the last job."""
        seconds = self.last_processing_time_seconds
        return None if seconds is None else round(seconds, 1)


# Reading


async def find_all(engine: Engine) -> list[Effect]:
    return [_record(row) for row in await engine.db.run(SQL["list"])]


async def find(engine: Engine, given: str | UUID, *, field: str = "effect_id") -> Effect:
    """The effect of this id or slug."""
    row = await engine.db.run(SQL["read"], *workflows.id_or_slug("effect", given))
    if row is None:
        raise NotFoundError(f"There is no effect {str(given)[:60]!r}.", field=field)
    return _record(row)


def learn_from(engine: Engine, view: JobView, effect_id: str) -> None:
    """Record the duration of an ended job in the background. A failure is only logged.

    It is called when a completed job is read, so it also covers jobs that workers on the native API have run.
    """
    if view.job_id in _learnt or view.started_at is None or view.finished_at is None:
        return
    if len(_learnt) >= _LEARNT_MAX:
        _learnt.clear()
    _learnt.add(view.job_id)
    seconds = (view.finished_at - view.started_at).total_seconds()
    task = asyncio.create_task(_learn(engine, effect_id, seconds, view.finished_at))
    _learning.add(task)
    task.add_done_callback(_learning.discard)


async def _learn(engine: Engine, effect_id: str, seconds: float, ended_at: datetime) -> None:
    try:
        await engine.db.run(SQL["learn"], ids.parse("effect", effect_id), max(0.0, seconds), ended_at)
    except MillpondError as error:
        logs.emit("service.failed", service="effects", error=str(error))


# Changing


async def make(engine: Engine, body: wire.MakeEffect) -> Effect:
    workflow = await workflows.find(engine, body.workflow_id)
    overrides = payload.check_overrides(workflow.properties, body.property_overrides, workflow.asset_names)
    made = await engine.db.run(
        SQL["make"],
        ids.new(),
        body.slug,
        body.name,
        body.description,
        workflow.workflow_id,
        body.provider,
        body.credits_cost,
        body.priority,
        values.encode(overrides, field="property_overrides"),
        body.is_active,
    )
    if made is None:
        raise ConflictError(f"An effect {body.slug!r} already exists.", field="slug")
    return await find(engine, made["id"])


async def change(engine: Engine, effect: Effect, **changes: Any) -> Effect:
    """Change an effect. Fail if it was changed since it was read."""
    to = dataclasses.replace(effect, **changes)
    workflow = await workflows.find(engine, to.workflow_id)
    overrides = payload.check_overrides(workflow.properties, to.property_overrides, workflow.asset_names)
    made = await engine.db.run(
        SQL["update"],
        effect.effect_id,
        effect.updated_at,
        to.name,
        to.description,
        to.workflow_id,
        to.provider,
        to.credits_cost,
        to.priority,
        values.encode(overrides, field="property_overrides"),
        to.is_active,
    )
    if made is None:
        raise ConflictError("The object was changed by another request.", field="effect")
    return await find(engine, effect.effect_id)


# Over HTTP


async def list_effects(call: Call) -> Reply:
    """List the effects that can be used now."""
    return reply(wire.EffectSummaries(data=[summary(*pair) for pair in await _pairs(call.engine) if is_usable(*pair)]))


async def read(call: Call) -> Reply:
    effect = await find(call.engine, call.params["effect"], field="effect")
    workflow = await workflows.find(call.engine, effect.workflow_id)
    if not is_usable(effect, workflow):
        raise NotFoundError(f"There is no effect {call.params['effect'][:60]!r}.", field="effect")
    return reply(summary(effect, workflow))


async def list_all(call: Call) -> Reply:
    return reply(wire.Effects(data=[to_wire(*pair) for pair in await _pairs(call.engine)]))


async def read_one(call: Call) -> Reply:
    effect = await find(call.engine, call.params["effect"], field="effect")
    return reply(to_wire(effect, await workflows.find(call.engine, effect.workflow_id)))


async def make_effect(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "made", await make(call.engine, call.body), 201)


async def update(call: Call) -> Reply:
    check_all_tenants(call)
    given = given_of(call.body)
    if "workflow_id" in given:
        given["workflow_id"] = (await workflows.find(call.engine, given["workflow_id"])).workflow_id
    return await _changed(call, "updated", await change(call.engine, await _named(call), **given))


async def activate(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "activated", await change(call.engine, await _named(call), is_active=True))


async def deactivate(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "deactivated", await change(call.engine, await _named(call), is_active=False))


async def _named(call: Call) -> Effect:
    return await find(call.engine, call.params["effect"], field="effect")


async def _changed(call: Call, what: str, effect: Effect, status: int = 200) -> Reply:
    await note(call, f"effects.effect.{what}", effect.id, slug=effect.slug)
    return reply(to_wire(effect, await workflows.find(call.engine, effect.workflow_id)), status)


async def _pairs(engine: Engine) -> list[tuple[Effect, Workflow]]:
    known = {workflow.workflow_id: workflow for workflow in await workflows.find_all(engine)}
    return [(effect, known[effect.workflow_id]) for effect in await find_all(engine) if effect.workflow_id in known]


def is_usable(effect: Effect, workflow: Workflow) -> bool:
    return effect.is_active and workflow.is_active


def summary(effect: Effect, workflow: Workflow) -> wire.EffectSummary:
    return wire.EffectSummary(**_summary(effect, workflow))


def to_wire(effect: Effect, workflow: Workflow) -> wire.Effect:
    return wire.Effect(
        **_summary(effect, workflow),
        workflow_id=workflow.id,
        workflow=workflow.slug,
        provider=effect.provider,
        priority=effect.priority,
        property_overrides=dict(effect.property_overrides),
        is_active=effect.is_active,
        created_at=effect.created_at,
        updated_at=effect.updated_at,
    )


def _summary(effect: Effect, workflow: Workflow) -> dict[str, Any]:
    configurable = (declared for declared in workflow.properties if declared.user_configurable)
    return {
        "id": effect.id,
        "slug": effect.slug,
        "name": effect.name,
        "description": effect.description,
        "credits_cost": effect.credits_cost,
        "input_type": workflow.input_type,
        "properties": [
            msgspec.structs.replace(declared, default=effect.property_overrides.get(declared.name, declared.default))
            for declared in configurable
        ],
        "estimated_seconds": effect.estimated_seconds,
        "last_processing_time_seconds": effect.last_processing_time_seconds,
    }


def _record(row: Any) -> Effect:
    fields = dict(row)
    fields["property_overrides"] = msgspec.json.decode(fields["property_overrides"])
    return Effect(effect_id=fields.pop("id"), **fields)
