"""Starting: submits a job for each request, holds its credits in the same transaction, and answers 202."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids
from millpond.errors import ConflictError
from millpond.product import accept, principals
from millpond_products.partner import cloning, envelopes, identifiers, ingest_appstore, orders, projects, resources
from millpond_products.partner.kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from millpond.product import Call, Reply, Submitted
    from millpond_products.partner import wire
    from millpond_products.partner.projects import Project

    Build = Callable[[Call, Project], Awaitable[orders.PartnerOrder]]

_SEED_MAX: Final = 2**32


async def start_github(call: Call) -> Reply:
    return await _start(call, "project_ingest_github", _github)


async def start_website(call: Call) -> Reply:
    return await _start(call, "project_ingest_website", _website)


async def start_appstore(call: Call) -> Reply:
    return await _start(call, "appstore_ingest", _appstore)


async def start_content(call: Call) -> Reply:
    return await _start(call, "content_generate", _content)


async def start_clone(call: Call) -> Reply:
    return await _start(call, "content_generate", _clone)


async def start_influencer(call: Call) -> Reply:
    return await _start(call, "influencer_create", _influencer)


async def _start(call: Call, name: orders.Name, build: Build) -> Reply:
    """Submit a job. If its key has a job already, repeat the first answer, however the project has changed since.

    Two requests are the same if the partner sent the same: the path, and the body as a value. What is added here, such
    as the context of the project, is not compared.
    """
    tenant, account = principals.owner(call)
    key = identifiers.key(call)
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    route: Any = call.route

    async def made() -> Any:
        return msgspec.to_builtins(await build(call, await projects.find(call.engine, tenant, account, project_id)))

    return await accept(
        call,
        KINDS[name].name,
        build=made,
        shape=partial(_accepted, call),
        location=lambda submitted: f"/v1/jobs/{identifiers.job_text(submitted.job_id)}",
        owner=(tenant, account),
        key=None if key is None else str(key),
        request={"path": route.path, "project": str(project_id), "body": msgspec.to_builtins(call.body)},
    )


async def _accepted(call: Call, submitted: Submitted) -> wire.Accepted:
    """The answer is made from the stored job, also the first time: so a replay is the same, byte for byte."""
    tenant, account = principals.owner(call)
    view = await call.engine.views.job(tenant, account, submitted.job_id)
    await resources.link(call.engine, view)
    return envelopes.accepted(view)


# The inputs of jobs


async def _github(call: Call, project: Project) -> orders.PartnerOrder:
    cloning.check(call.engine.outbound, call.body.repo_url)
    if call.body.branch is not None:
        cloning.check_branch(call.body.branch)
    await call.engine.outbound.admit(call.body.repo_url, field="repoUrl")
    return orders.GithubOrder(
        base=call.root, project_id=project.project_id, repo_url=call.body.repo_url, branch=call.body.branch
    )


async def _website(call: Call, project: Project) -> orders.PartnerOrder:
    await call.engine.outbound.admit(call.body.url, field="url")
    return orders.WebsiteOrder(base=call.root, project_id=project.project_id, url=call.body.url)


async def _appstore(call: Call, project: Project) -> orders.PartnerOrder:
    app_id, country = ingest_appstore.check(call.body.app_id, call.body.country)
    return orders.AppstoreOrder(base=call.root, project_id=project.project_id, app_id=app_id, country=country)


async def _content(call: Call, project: Project) -> orders.PartnerOrder:
    body = call.body
    return orders.ContentOrder(
        base=call.root,
        project_id=project.project_id,
        container_id=ids.new(),
        brief=body.brief,
        style=body.style,
        aspect_ratio=body.aspect_ratio,
        images=body.images,
        seed=_seed(body.seed),
        influencer_id=await _who(call, project),
        context=project.in_short,
    )


async def _clone(call: Call, project: Project) -> orders.PartnerOrder:
    """Omitted fields are those of the cloned container, except for the seed, which would make the same content."""
    body = call.body
    source = await resources.find(
        call.engine, project, "container", body.source_container_id, field="sourceContainerId"
    )
    made = resources.result(source)
    if made is None:
        raise ConflictError(
            "The container is not completed.",
            field="sourceContainerId",
            state=source.status,
            hint="Clone a completed container.",
        )
    before = msgspec.convert(resources.order(source) | {"context": {}}, orders.ContentOrder)
    return orders.ContentOrder(
        base=call.root,
        project_id=project.project_id,
        container_id=ids.new(),
        brief=before.brief if body.brief is None else body.brief,
        style=body.style or before.style,
        aspect_ratio=body.aspect_ratio or before.aspect_ratio,
        images=body.images or before.images,
        seed=_seed(body.seed),
        influencer_id=await _who(call, project) or before.influencer_id,
        cloned_from=source.resource_id,
        context=project.in_short,
        plan=made.get("plan"),
    )


async def _influencer(call: Call, project: Project) -> orders.PartnerOrder:
    body = call.body
    return orders.InfluencerOrder(
        base=call.root,
        project_id=project.project_id,
        influencer_id=ids.new(),
        name=body.name,
        brief=body.brief,
        style=body.style,
        references=body.references,
        seed=_seed(body.seed),
        context=project.in_short,
    )


async def _who(call: Call, project: Project) -> UUID | None:
    """The influencer to show, which must be completed."""
    if call.body.influencer_id is None:
        return None
    found = await resources.find(call.engine, project, "influencer", call.body.influencer_id, field="influencerId")
    if resources.result(found) is None:
        raise ConflictError("The influencer is not completed.", field="influencerId", state=found.status)
    return found.resource_id


def _seed(given: int | None) -> int:
    return secrets.randbelow(_SEED_MAX) if given is None else given
