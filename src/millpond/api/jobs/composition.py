"""Children and questions of jobs over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from millpond import errors, ids, wire
from millpond.api import parameters
from millpond.api.calls import Reply, copied, cursor, reply
from millpond.api.jobs import jobs, questions
from millpond.api.routes import Route
from millpond.api.scopes import CLIENTS, READERS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from millpond.api.calls import Call
    from millpond.engine.reads.views import JobView


async def children(call: Call) -> Reply:
    job, query = await jobs.view(call), call.query
    engine = call.engine
    after = cursor("job", query.cursor)
    page, counts, budget = await asyncio.gather(
        engine.children(job.tenant, job.job_id, after=after, limit=query.limit),
        engine.child_counts(job.tenant, job.job_id),
        engine.budget(job.tenant, job.job_id, job.run),
    )
    views = await _read(call, job, page.data)
    parents = await engine.parents(job.tenant, page.data)
    estimates = await engine.estimates.of([view for view in views if view.outcome is None])
    body = wire.Children(
        data=[jobs.listed(call, view, estimates.get(view.job_id)) for view in views],
        parents=[view.id for view in views if view.job_id in parents],
        counts=copied(wire.ChildCounts, counts),
        budget=None if budget is None else copied(wire.Budget, budget),
        next_cursor=None if page.after is None else ids.text("job", page.after),
    )
    return reply(body)


async def _read(call: Call, parent: JobView, job_ids: Sequence[UUID]) -> list[JobView]:
    """Those of the children that were not pruned meanwhile."""
    reads = (call.engine.views.job(parent.tenant, parent.account, job_id) for job_id in job_ids)
    return [view for view in await asyncio.gather(*reads, return_exceptions=True) if jobs.is_there(view)]


async def list_questions(call: Call) -> Reply:
    job = await jobs.view(call)
    found = await call.engine.questions(job.tenant, job.job_id)
    return reply(
        wire.Questions(data=[questions.to_wire(question) for question in found if questions.may_see(call, question)])
    )


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/jobs/{id}/children",
        handle=children,
        summary="List the children of a job, oldest first.",
        description="With how many there are in all and how they ended, and what the job's budget has left.",
        who=CLIENTS | READERS,
        query=parameters.ListChildren,
        answers={200: wire.Children},
        errors=(errors.NotFoundError,),
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/questions",
        handle=list_questions,
        summary="List the questions of a job, oldest first.",
        description="Client keys see the questions that they may answer.",
        who=CLIENTS | READERS,
        query=parameters.OfTenant,
        answers={200: wire.Questions},
        errors=(errors.NotFoundError,),
    ),
)
