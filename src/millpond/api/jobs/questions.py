"""The questions of jobs: who may see and answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import wire
from millpond.api.scopes import OPERATORS, READERS
from millpond.errors import ForbiddenError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.api.calls import Call
    from millpond.engine.composition.steps import Question
    from millpond.engine.reads.views import JobView


def may_see(call: Call, question: Question) -> bool:
    return call.principal.scope in READERS or question.who in {"client", call.principal.actor}


def to_wire(question: Question) -> wire.Question:
    fields: dict[str, Any] = {name: getattr(question, name) for name in wire.Question.__struct_fields__}
    return wire.Question(**fields)


async def has_open(call: Call, job: JobView) -> bool:
    """Whether the job asks something. It may not be parked yet."""
    if job.depth is None or job.outcome is not None:
        return False
    return any(question.is_open for question in await call.engine.questions(job.tenant, job.job_id))


async def answer(call: Call, job: JobView) -> str:
    """Answer the question of a job that the request names, or the only open one; return the job's state."""
    found = await call.engine.questions(job.tenant, job.job_id)
    question = _pick(found, call.body.question)
    if not _may_answer(call, question):
        raise ForbiddenError(
            f"The question {question.name!r} is answered by {_NAMES.get(question.who, question.who)}.",
            scope=call.principal.scope,
            needed=question.who,
        )
    return await call.engine.answer_question(
        job.tenant, job.job_id, question.name, call.body.answer, actor=call.principal.actor
    )


_NAMES: Final = {"client": "clients", "operator": "operators"}


def _pick(found: Sequence[Question], name: str | None) -> Question:
    if name is not None:
        for question in found:
            if question.name == name:
                return question
        raise NotFoundError(f"The job asks no question {name[:80]!r}.", field="question")
    open_ones = [question for question in found if question.is_open]
    if len(open_ones) == 1:
        return open_ones[0]
    names = ", ".join(question.name for question in open_ones) or "none"
    raise InvalidError("The question must be named.", field="question", hint=f"Open questions: {names}.")


def _may_answer(call: Call, question: Question) -> bool:
    if question.who == "operator":
        return call.principal.scope in OPERATORS
    return question.who in {"client", call.principal.actor}
