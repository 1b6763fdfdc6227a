"""Starting: what a partner asks for becomes a job, paid for in the same transaction, and answered with 202."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids
from millpond.api import principals
from millpond.api.calls import REPLAYED, reply
from millpond.blueprints.partner import cloning, envelopes, identifiers, ingest_appstore, orders, projects, resources
from millpond.blueprints.partner.kinds import KINDS
from millpond.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from millpond.api.calls import Call, Reply
    from millpond.blueprints.partner.projects import Project

    Build = Callable[[Call, Project], Awaitable[orders.Order]]

_SEED_MAX: Final = 2**32
_SOON: Final = (b"retry-after", b"1")


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
    """Take a job in. A key that has made one is answered as it was then, whatever has become of the project since.

    What makes two requests the same is what the partner sent: the path, and the body as a value. What is added here,
    such as the context of the project, is no part of it.
    """
    tenant, account = principals.owner(call)
    key = identifiers.key(call)
    project_id = identifiers.parse("prj", call.params["projectId"], field="projectId")
    route: Any = call.route
    request = {"path": route.path, "project": str(project_id), "body": msgspec.to_builtins(call.body)}
    options: dict[str, Any] = {"tenant": tenant, "account": account}
    if key is not None:
        options |= {"idempotency_key": str(key), "request": request}
    kind = KINDS[name].name
    made = None if key is None else await call.engine.replay(kind, **options)
    if made is None:
        order = await build(call, await projects.find(call.engine, tenant, account, project_id))
        made = await call.engine.submit(kind, msgspec.to_builtins(order), **options)
        if not made.is_replay:
            call.desk.metrics.submitted[kind] += 1
    return await _accepted(call, made.job_id, is_replay=made.is_replay)


async def _accepted(call: Call, job_id: UUID, *, is_replay: bool) -> Reply:
    """The answer is made from the job, the first time too: so it is the same the second time, byte for byte."""
    tenant, account = principals.owner(call)
    view = await call.engine.views.job(tenant, account, job_id)
    await resources.link(call.engine, view)
    told = envelopes.accepted(view)
    headers = [(b"location", told.location_url.encode("latin-1")), _SOON]
    return reply(told, 202, *headers, *([REPLAYED] if is_replay else []))


# The inputs of jobs


async def _github(call: Call, project: Project) -> orders.Order:
    cloning.check(call.engine.outbound, call.body.repo_url)
    if call.body.branch is not None:
        cloning.check_branch(call.body.branch)
    await call.engine.outbound.admit(call.body.repo_url, field="repoUrl")
    return orders.GithubOrder(
        base=call.root, project_id=project.project_id, repo_url=call.body.repo_url, branch=call.body.branch
    )


async def _website(call: Call, project: Project) -> orders.Order:
    await call.engine.outbound.admit(call.body.url, field="url")
    return orders.WebsiteOrder(base=call.root, project_id=project.project_id, url=call.body.url)


async def _appstore(call: Call, project: Project) -> orders.Order:
    app_id, country = ingest_appstore.check(call.body.app_id, call.body.country)
    return orders.AppstoreOrder(base=call.root, project_id=project.project_id, app_id=app_id, country=country)


async def _content(call: Call, project: Project) -> orders.Order:
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


async def _clone(call: Call, project: Project) -> orders.Order:
    """What is not said is as it was in the container that is cloned, but for the seed: that would make the same."""
    body = call.body
    source = await resources.find(
        call.engine, project, "container", body.source_container_id, field="sourceContainerId"
    )
    made = resources.result(source)
    if made is None:
        raise ConflictError(
            "The container has not been made.",
            field="sourceContainerId",
            state=source.status,
            hint="Clone one that is completed.",
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


async def _influencer(call: Call, project: Project) -> orders.Order:
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
    """The influencer that is to be seen, who must be there to be seen."""
    if call.body.influencer_id is None:
        return None
    found = await resources.find(call.engine, project, "influencer", call.body.influencer_id, field="influencerId")
    if resources.result(found) is None:
        raise ConflictError("The influencer has not been made.", field="influencerId", state=found.status)
    return found.resource_id


def _seed(given: int | None) -> int:
    return secrets.randbelow(_SEED_MAX) if given is None else given
