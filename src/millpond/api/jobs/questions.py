"""The questions of jobs: who may see and answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond import wire
from millpond.api.calls import copied
from millpond.api.scopes import OPERATORS, READERS
from millpond.errors import AnswerUnavailableError, ForbiddenError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.api.calls import Call
    from millpond.engine.composition.steps import Question
    from millpond.engine.reads.views import JobView


def may_see(call: Call, question: Question) -> bool:
    return call.principal.scope in READERS or question.who in {"client", call.principal.actor}


def to_wire(question: Question) -> wire.Question:
    return copied(wire.Question, question)


async def is_asked(call: Call, job: JobView) -> bool:
    """Whether the request answers a question, and not the job itself. Other tasks of its code may go on meanwhile."""
    if call.body.question is not None or job.waits_for is not None:
        return True
    if job.phase == "parked" or job.outcome is not None or job.depth is None:
        return False
    return any(question.is_open for question in await call.engine.questions(job.tenant, job.job_id))


async def answer(call: Call, job: JobView) -> tuple[str, str]:
    """Answer the question that the request names, or the only open one that the caller may answer.

    Returns the name of the question and the state of the job.
    """
    question = _pick(call, await call.engine.questions(job.tenant, job.job_id), job.state)
    state = await call.engine.answer_question(
        job.tenant, job.job_id, question.name, call.body.answer, actor=call.principal.actor
    )
    return question.name, state


def _pick(call: Call, found: Sequence[Question], state: str) -> Question:
    name = call.body.question
    if name is None:
        return _only_open([question for question in found if question.is_open], call, state)
    question = next((question for question in found if question.name == name), None)
    if question is None:
        raise NotFoundError(f"The job asks no question {name[:80]!r}.", field="question")
    if not _may_answer(call, question):
        raise _refusal(call, question)
    return question


def _only_open(asked: Sequence[Question], call: Call, state: str) -> Question:
    """The open question; if there are several, the one that the caller may answer."""
    if not asked:
        raise AnswerUnavailableError("No question of the job is open.", state=state)
    answerable = [question for question in asked if _may_answer(call, question)]
    if len(answerable) == 1:
        return answerable[0]
    if not answerable:
        raise _refusal(call, asked[0])
    names = ", ".join(question.name for question in answerable[:_NAMED_MAX])
    raise InvalidError("The question must be named.", field="question", hint=f"Open questions: {names}.")


def _may_answer(call: Call, question: Question) -> bool:
    if question.who == "operator":
        return call.principal.scope in OPERATORS
    return question.who in {"client", call.principal.actor}


def _refusal(call: Call, question: Question) -> ForbiddenError:
    who = _NAMES.get(question.who, f"the key {question.who}")
    return ForbiddenError(
        f"The question {question.name!r} is answered by {who}.", scope=call.principal.scope, needed=question.who
    )


_NAMES: Final = {"client": "clients", "operator": "operators"}
_NAMED_MAX: Final = 10
"""How many open questions an error names."""
