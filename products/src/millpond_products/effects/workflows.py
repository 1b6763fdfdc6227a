"""Workflows: each is a ComfyUI graph in storage, with properties that can be set and files that it needs."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import msgspec

from millpond import ids, logs
from millpond.errors import ConflictError, InvalidError, NotFoundError
from millpond.product import Reply, queries, reply
from millpond_products.effects import payload, wire
from millpond_products.effects.kinds import route
from millpond_products.effects.operators import check_all_tenants, given_of, note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.product import Call, Engine

SQL: Final = queries("millpond_products.effects", "workflows")

ASSETS_MAX: Final = 50
_GRAPHS_MAX: Final = 200
_PROVIDERS: Final = ("self_hosted", "cloud")

_graphs: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
"""Cached graphs, by their hash."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow as stored."""

    workflow_id: UUID
    slug: str
    name: str
    description: str | None
    is_active: bool
    input_type: wire.InputType
    properties: Sequence[wire.Property]
    assets: Sequence[wire.Asset]
    output_node_id: str | None
    output_extension: str
    comfyui_workflow_path: str | None
    content_hash: str | None
    created_at: datetime
    updated_at: datetime

    @property
    def id(self) -> str:
        return ids.text("workflow", self.workflow_id)

    @property
    def asset_names(self) -> tuple[str, ...]:
        return tuple(asset.name for asset in self.assets)


# Reading


async def find_all(engine: Engine) -> list[Workflow]:
    return [_record(row) for row in await engine.db.run(SQL["list"])]


async def find(engine: Engine, given: str | UUID, *, field: str = "workflow_id") -> Workflow:
    """The workflow of this id or slug."""
    workflow_id, slug = id_or_slug("workflow", given)
    row = await engine.db.run(SQL["read"], workflow_id, slug)
    if row is None:
        raise NotFoundError(f"There is no workflow {str(given)[:60]!r}.", field=field)
    return _record(row)


def id_or_slug(prefix: str, given: str | UUID) -> tuple[UUID | None, str | None]:
    """Parse an id or a slug. They are never confused: every id has an underscore, and no slug has one."""
    if not isinstance(given, str):
        return given, None
    try:
        return ids.parse(prefix, given), None
    except NotFoundError:
        return None, given.replace("\0", "")[:100]


async def graph_of(engine: Engine, workflow: Workflow) -> Mapping[str, Any]:
    """The graph as it was uploaded: the file in storage must have its hash."""
    if workflow.content_hash is None or workflow.comfyui_workflow_path is None:
        raise InvalidError(f"The workflow {workflow.slug!r} has no graph.", field="effect_id")
    known = _graphs.get(workflow.content_hash)
    if known is None:
        known = await _read_graph(engine, workflow, workflow.comfyui_workflow_path)
        _graphs[workflow.content_hash] = known
        while len(_graphs) > _GRAPHS_MAX:
            _graphs.popitem(last=False)
    return known


async def _read_graph(engine: Engine, workflow: Workflow, path: str) -> Mapping[str, Any]:
    broken = InvalidError(f"The graph of the workflow {workflow.slug!r} is unavailable.", field="effect_id")
    try:
        text = await engine.artifacts.store.read(path)
    except NotFoundError as error:
        logs.emit("storage.broken", path=path, reason="The file is not in storage.")
        raise broken from error
    if hashlib.sha256(text).hexdigest() != workflow.content_hash:
        logs.emit("storage.broken", path=path, reason="The file differs from the uploaded one.")
        raise broken
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        logs.emit("storage.broken", path=path, reason="The file is not valid JSON.")
        raise broken from error


# Changing


async def make(engine: Engine, body: wire.MakeWorkflow) -> Workflow:
    payload.check_properties(body.properties, ())
    made = await engine.db.run(
        SQL["make"],
        ids.new(),
        body.slug,
        body.name,
        body.description,
        body.input_type,
        _text(body.properties),
        body.output_extension,
    )
    if made is None:
        raise ConflictError(f"A workflow {body.slug!r} already exists.", field="slug")
    for provider in _PROVIDERS:
        await engine.workers.open_route(route(body.slug, provider))
    return await find(engine, made["id"])


async def change(engine: Engine, workflow: Workflow, **changes: Any) -> Workflow:
    """Change a workflow. Fail if it was changed since it was read."""
    to = dataclasses.replace(workflow, **changes)
    payload.check_properties(to.properties, to.asset_names)
    await _check_use(engine, to)
    made = await engine.db.run(
        SQL["update"],
        workflow.workflow_id,
        workflow.updated_at,
        to.name,
        to.description,
        to.input_type,
        _text(to.properties),
        to.output_extension,
        to.is_active,
        _text(to.assets),
        to.output_node_id,
        to.comfyui_workflow_path,
        to.content_hash,
    )
    if made is None:
        raise ConflictError("The object was changed by another request.", field="workflow_id")
    return await find(engine, workflow.workflow_id)


async def _check_use(engine: Engine, to: Workflow) -> None:
    """Check that every placeholder of the graph and every property that an effect sets exists."""
    if to.content_hash is not None:
        payload.check_placeholders(
            await graph_of(engine, to), (*(declared.name for declared in to.properties), *to.asset_names)
        )
    for row in await engine.db.run(SQL["overrides"], to.workflow_id):
        try:
            payload.check_overrides(to.properties, msgspec.json.decode(row["property_overrides"]), to.asset_names)
        except InvalidError as error:
            raise ConflictError(
                f"The effect {row['slug']!r} sets properties that would not exist: {error}", field="properties"
            ) from error


async def put_graph(engine: Engine, workflow: Workflow, graph: Any, output_node_id: str) -> Workflow:
    """Store a graph under its hash, and let the workflow use it."""
    payload.check_graph(graph, output_node_id)
    payload.check_placeholders(graph, (*(declared.name for declared in workflow.properties), *workflow.asset_names))
    text = msgspec.json.encode(graph)
    digest = hashlib.sha256(text).hexdigest()
    path = f"effects/workflows/{workflow.id}/{digest}.json"
    await engine.artifacts.store.write(path, text, content_type="application/json")
    _graphs[digest] = cast("Mapping[str, Any]", graph)
    return await change(
        engine, workflow, comfyui_workflow_path=path, content_hash=digest, output_node_id=output_node_id
    )


async def activate(engine: Engine, workflow: Workflow) -> Workflow:
    """Activate a workflow. Its graph and all its assets must be in storage."""
    if workflow.content_hash is None:
        raise ConflictError(
            "The workflow has no graph.",
            field="workflow_id",
            hint="Upload a graph with PUT …/workflow in ComfyUI's API format.",
        )
    for asset in workflow.assets:
        found = await engine.artifacts.store.head(asset.s3_path)
        if found is None or found.size != asset.size:
            seen = "not in storage" if found is None else (f"{found.size:,} bytes in storage instead of {asset.size:,}")
            raise ConflictError(f"The asset {asset.name!r} is {seen}.", field="assets")
    return await change(engine, workflow, is_active=True)


# Over HTTP


async def list_workflows(call: Call) -> Reply:
    return reply(wire.Workflows(data=[to_wire(workflow) for workflow in await find_all(call.engine)]))


async def read(call: Call) -> Reply:
    return reply(to_wire(await _named(call)))


async def read_graph(call: Call) -> Reply:
    workflow = await _named(call)
    if workflow.content_hash is None:
        raise NotFoundError("The workflow has no graph.", field="workflow")
    return reply(await graph_of(call.engine, workflow))


async def make_workflow(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "made", await make(call.engine, call.body), 201)


async def update(call: Call) -> Reply:
    check_all_tenants(call)
    given = given_of(call.body)
    return await _changed(call, "updated", await change(call.engine, await _named(call), **given))


async def upload_graph(call: Call) -> Reply:
    check_all_tenants(call)
    body: wire.UploadGraph = call.body
    return await _changed(
        call, "uploaded", await put_graph(call.engine, await _named(call), body.workflow, body.output_node_id)
    )


async def activate_workflow(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "activated", await activate(call.engine, await _named(call)))


async def deactivate(call: Call) -> Reply:
    check_all_tenants(call)
    return await _changed(call, "deactivated", await change(call.engine, await _named(call), is_active=False))


async def make_asset(call: Call) -> Reply:
    """Announce a file that all jobs share. The client uploads its bytes directly to storage."""
    check_all_tenants(call)
    body: wire.MakeAsset = call.body
    workflow = await _named(call)
    if body.size > call.state.settings.upload_max:
        raise InvalidError(f"The limit is {call.state.settings.upload_max:,} bytes.", field="size")
    if body.name in {payload.PRIMARY, *workflow.asset_names, *(declared.name for declared in workflow.properties)}:
        raise ConflictError(f"An asset named {body.name!r} already exists.", field="name")
    if len(workflow.assets) >= ASSETS_MAX:
        raise InvalidError(f"A workflow may have at most {ASSETS_MAX} assets.", field="name")
    if workflow.is_active:
        raise ConflictError(
            "The workflow is active, and the file is not in storage.", hint="Deactivate the workflow first."
        )
    asset = wire.Asset(
        name=body.name,
        filename=payload.file_name(body.name, body.filename, body.mime_type),
        mime_type=body.mime_type,
        size=body.size,
        content_hash=body.content_hash,
        # Storage keeps the file of a removed asset, and does not replace it: each announcement has a path of its own.
        s3_path=f"effects/workflows/{workflow.id}/assets/{body.content_hash}/{uuid4()}/{body.name}",
    )
    upload = call.engine.artifacts.store.sign_put(
        asset.s3_path,
        lifetime=call.state.settings.upload_lifetime,
        content_type=asset.mime_type,
        size=asset.size,
        sha256=asset.content_hash,
    )
    changed = await change(call.engine, workflow, assets=[*workflow.assets, asset])
    await note(call, "effects.workflow.asset_made", changed.id, asset=asset.name)
    return reply(wire.NewAsset(asset=asset, upload=upload, upload_url=upload.url, upload_headers=upload.headers), 201)


async def remove_asset(call: Call) -> Reply:
    check_all_tenants(call)
    workflow = await _named(call)
    left = [asset for asset in workflow.assets if asset.name != call.params["asset"]]
    if len(left) == len(workflow.assets):
        raise NotFoundError(f"The workflow has no asset {call.params['asset'][:60]!r}.", field="asset")
    return await _changed(call, "asset_removed", await change(call.engine, workflow, assets=left))


async def _named(call: Call) -> Workflow:
    return await find(call.engine, call.params["workflow"], field="workflow")


async def _changed(call: Call, what: str, workflow: Workflow, status: int = 200) -> Reply:
    await note(call, f"effects.workflow.{what}", workflow.id, slug=workflow.slug, content_hash=workflow.content_hash)
    return reply(to_wire(workflow), status)


def to_wire(workflow: Workflow) -> wire.Workflow:
    return wire.Workflow(
        id=workflow.id,
        slug=workflow.slug,
        name=workflow.name,
        description=workflow.description,
        is_active=workflow.is_active,
        input_type=workflow.input_type,
        properties=list(workflow.properties),
        assets=list(workflow.assets),
        output_node_id=workflow.output_node_id,
        output_extension=workflow.output_extension,
        comfyui_workflow_path=workflow.comfyui_workflow_path,
        content_hash=workflow.content_hash,
        routes=[route(workflow.slug, provider) for provider in _PROVIDERS],
        created_at=workflow.created_at,
        updated_at=workflow.updated_at,
    )


def _text(given: Any) -> str:
    return msgspec.json.encode(given).decode()


def _record(row: Any) -> Workflow:
    fields = dict(row)
    fields["properties"] = msgspec.json.decode(fields["properties"], type=list[wire.Property])
    fields["assets"] = msgspec.json.decode(fields["assets"], type=list[wire.Asset])
    return Workflow(workflow_id=fields.pop("id"), **fields)
