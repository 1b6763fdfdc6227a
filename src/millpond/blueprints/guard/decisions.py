"""Decisions: the code of a guard job. What passes was held against the rules; whatever could not be is blocked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs
from millpond.blueprints.guard.kinds import ATTEMPTS_MAX, FILTERED_MAX, KIND
from millpond.blueprints.guard.sets import told
from millpond.errors import BlockedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond import Job
    from millpond.api.blueprint import Code
    from millpond.blueprints.guard.kinds import Given
    from millpond.blueprints.guard.sets import Sets
    from millpond.rules import Decision

_MESSAGES: Final[Mapping[str, str]] = {
    "inbound": "The rules do not let the message pass.",
    "outbound": "The rules do not let the answer pass.",
}


def handlers(sets: Sets) -> Code:
    """The code of the kind, by state."""

    async def inbound(job: Job, given: Given) -> Any:
        """The message: parked until the model has answered, unless its answer came with it."""
        decision = await _decide(sets, job, "inbound", given.message_input)
        text = None if decision.text == given.message_input else decision.text
        memo = {"inbound": {"text": text, **told(decision)}}
        if given.message_output is None:
            return job.park(memo)
        await job.proceed({}, memo)
        return await outbound(job, given)

    async def outbound(job: Job, given: Given) -> Any:
        """The answer: what is returned goes to the customer's URL."""
        decision = await _decide(sets, job, "outbound", _answer(job, given))
        return {"text": decision.text, **told(decision)}

    return {KIND.name: {"processing_inbound": inbound, "processing_outbound": outbound}}


def _answer(job: Job, given: Given) -> str:
    match job.answer:
        case {"message_output": str(text)}:
            return text
        case {} if given.message_output is not None:
            return given.message_output
        case _:  # by the native API anything can be said
            raise BlockedError("The answer is not a message.", direction="outbound", verdicts=[])


async def _decide(sets: Sets, job: Job, direction: Any, text: str) -> Decision:
    """What the rules say. That they could not be asked is tried again, and in the end lets nothing pass."""
    try:
        decision = await sets.decide(job.tenant, direction, text)
    except UnavailableError:
        if job.attempt < ATTEMPTS_MAX:
            raise
        raise _closed(direction) from None
    except Exception as error:
        # Only of what kind the error is: what it says may be part of the message.
        logs.emit("guard.failed", job_id=ids.parse("job", job.id), direction=direction, error=type(error).__name__)
        raise _closed(direction) from error
    if decision.outcome == "blocked":
        raise BlockedError(_MESSAGES[direction], direction=direction, **told(decision))
    if len(decision.text.encode()) > FILTERED_MAX:
        raise BlockedError("What was redacted has made the text too long.", direction=direction, **told(decision))
    return decision


def _closed(direction: str) -> BlockedError:
    return BlockedError(
        "The rules could not be applied, and so nothing passes.",
        direction=direction,
        verdicts=[],
        reason="rules_failed",
    )
