"""Children and questions of jobs over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from millpond import errors, ids, wire
from millpond.api import parameters
from millpond.api.calls import Reply, cursor, reply
from millpond.api.jobs import jobs, questions
from millpond.api.routes import Route
from millpond.api.scopes import CLIENTS, READERS

if TYPE_CHECKING:
    from millpond.api.calls import Call


async def children(call: Call) -> Reply:
    job, query = await jobs.view(call), call.query
    engine = call.engine
    after = cursor("job", query.cursor)
    found, counts, budget = await asyncio.gather(
        engine.children(job.tenant, job.job_id, after=after, limit=query.limit),
        engine.child_counts(job.tenant, job.job_id),
        engine.budget(job.tenant, job.job_id, job.run),
    )
    views = await asyncio.gather(*(engine.views.job(job.tenant, job.account, child) for child in found))
    estimates = await engine.estimates.of([view for view in views if view.outcome is None])
    body = wire.Children(
        data=[jobs.listed(call, view, estimates.get(view.job_id)) for view in views],
        counts=wire.ChildCounts(**{name: getattr(counts, name) for name in wire.ChildCounts.__struct_fields__}),
        budget=None
        if budget is None
        else wire.Budget(amount=budget.amount, spent=budget.spent, reserved=budget.reserved),
        next_cursor=ids.text("job", found[-1]) if len(found) == query.limit else None,
    )
    return reply(body)


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
