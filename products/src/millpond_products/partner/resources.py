"""Resources: what jobs make for a project, containers of content and influencers. They outlive their jobs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from uuid import UUID  # noqa: TC003 - kept for readers of the record

import msgspec

from millpond import ids, values
from millpond.errors import LeaseLostError, NotFoundError
from millpond.product import queries, reply
from millpond_products.partner import envelopes, identifiers, projects, wire

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.kinds import Handler
    from millpond.product import Call, Engine, JobView, Reply
    from millpond_products.partner.envelopes import Pointers
    from millpond_products.partner.projects import Project

    Kind = Literal["container", "influencer"]

SQL: Final = queries("millpond_products.partner", "resources")

_PREFIXES: Final[dict[Kind, identifiers.Prefix]] = {"container": "cnt", "influencer": "inf"}
_SHAPES: Final[dict[Kind, tuple[Any, str]]] = {
    "container": (wire.Container, "container_id"),
    "influencer": (wire.Influencer, "influencer_id"),
}
_MADE_BY: Final[dict[str, Kind]] = {"content_generate": "container", "influencer_create": "influencer"}


@dataclass(frozen=True, slots=True)
class Resource:
    """What a job makes, or has made."""

    resource_id: UUID
    tenant: str
    account: str
    project_id: UUID
    job_id: UUID
    kind: Kind
    made: str | None
    created_at: datetime
    status: wire.Status | None
    """The state in which its job ended. None: not yet; the status is the current state of the job."""


def made_by(name: str, pointers: Pointers) -> tuple[Kind, UUID] | None:
    """The resource that a job of the kind with this name makes; most kinds make none."""
    kind = _MADE_BY.get(name)
    made = pointers.container_id if kind == "container" else pointers.influencer_id
    return None if kind is None or made is None else (kind, made)


async def link(engine: Engine, view: JobView) -> None:
    """Make a job's resource visible. Each answer to the submission does this, so a replay repairs a lost write."""
    pointers = msgspec.json.decode(view.input, type=envelopes.Pointers)
    made = made_by(envelopes.name_in(view.kind), pointers)
    if made is not None:
        kind, resource_id = made
        await engine.database(view.tenant).run(
            SQL["link"], resource_id, view.tenant, view.account, pointers.project_id, view.job_id, kind
        )


def kept(engine: Engine, name: str, handler: Handler) -> Handler:
    """Wrap a handler: its output is stored before the job ends, if it is a resource.

    A cancel that was requested by then takes effect, and an output with which the job could not end is not stored.
    """
    if name not in _MADE_BY:
        return handler

    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        output: dict[str, Any] = await handler(job, given)
        await job.checkpoint()
        values.encode(output, field="output")
        pointers = msgspec.convert(given, envelopes.Pointers)
        kind, resource_id = cast("tuple[Kind, UUID]", made_by(name, pointers))
        held = await engine.database(job.tenant).run(
            SQL["keep"],
            ids.parse("job", job.id),
            job.tenant,
            job.epoch,
            resource_id,
            pointers.project_id,
            kind,
            values.encode(
                {"order": _stored_order(given), "output": output}, field="output", limit=2 * values.BYTES_MAX
            ),
        )
        if held is None:
            raise LeaseLostError
        return output

    return run


async def find(engine: Engine, project: Project, kind: Kind, given: str, *, field: str) -> Resource:
    """What was made for a project, or is being made."""
    prefix = _PREFIXES[kind]
    resource_id = identifiers.parse(prefix, given, field=field)
    row = await engine.database(project.tenant).read(
        SQL["read"], project.tenant, project.account, project.project_id, resource_id, kind
    )
    if row is None:
        raise identifiers.absent(prefix, given, field=field)
    return await _as_it_stands(engine, Resource(*row))


def result(resource: Resource) -> dict[str, Any] | None:
    """The result, as its job returns it, once the job is completed."""
    if resource.status != "completed" or resource.made is None:
        return None
    found: dict[str, Any] = msgspec.json.decode(resource.made)
    return envelopes.result(found["order"]["base"], found["output"])


def order(resource: Resource) -> dict[str, Any]:
    """The order it was made from, without the context of its project."""
    return msgspec.json.decode(resource.made)["order"] if resource.made else {}


def _stored_order(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in ("context", "plan")}


async def _as_it_stands(engine: Engine, resource: Resource) -> Resource:
    if resource.status is not None:
        return resource
    try:
        view = await engine.views.job(resource.tenant, resource.account, resource.job_id)
    except NotFoundError:  # the job is gone, and its end was not recorded: nothing was made
        return replace(resource, status="failed")
    return replace(resource, status=cast("wire.Status", view.state))


# Over HTTP


async def read_container(call: Call) -> Reply:
    found = await find(
        call.engine, await projects.named(call), "container", call.params["containerId"], field="containerId"
    )
    return reply(_to_wire(found))


async def list_containers(call: Call) -> Reply:
    return reply(wire.Containers(**await _page(call, "container")))


async def read_influencer(call: Call) -> Reply:
    found = await find(
        call.engine, await projects.named(call), "influencer", call.params["influencerId"], field="influencerId"
    )
    return reply(_to_wire(found))


async def list_influencers(call: Call) -> Reply:
    return reply(wire.Influencers(**await _page(call, "influencer")))


async def _page(call: Call, kind: Kind) -> dict[str, Any]:
    project, prefix = await projects.named(call), _PREFIXES[kind]
    before, limit = identifiers.cursor(prefix, call.query.cursor), call.query.limit
    rows = await call.engine.database(project.tenant).read(
        SQL["list"], project.tenant, project.account, project.project_id, kind, before, limit + 1
    )
    found = await asyncio.gather(*(_as_it_stands(call.engine, Resource(*row)) for row in rows[:limit]))
    following = identifiers.text(prefix, found[-1].resource_id) if len(rows) > limit else None
    return {"data": [_to_wire(resource) for resource in found], "next_cursor": following}


def _to_wire(resource: Resource) -> Any:
    shape, label = _SHAPES[resource.kind]
    made = result(resource)
    members: dict[str, Any] = {
        label: identifiers.text(_PREFIXES[resource.kind], resource.resource_id),
        **({} if made is None else {"result": made}),
    }
    return shape(
        **members,
        project_id=identifiers.text("prj", resource.project_id),
        job_id=identifiers.job_text(resource.job_id),
        status=cast("wire.Status", resource.status),
        created_at=envelopes.timestamp(resource.created_at),
    )
