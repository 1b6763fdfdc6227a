"""Decisions: the handlers of a guard job. A message passes only if the rules could be applied to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs
from millpond.errors import BlockedError, UnavailableError
from millpond_products.guard.kinds import ATTEMPTS_MAX, FILTERED_MAX, KIND
from millpond_products.guard.sets import to_wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond import Job
    from millpond.product import Code
    from millpond_products.guard.kinds import Given
    from millpond_products.guard.sets import Sets
    from millpond_products.rules import Decision

_MESSAGES: Final[Mapping[str, str]] = {
    "inbound": "The message was blocked by the rules.",
    "outbound": "The response was blocked by the rules.",
}


def handlers(sets: Sets) -> Code:
    """The handlers of the kind, by state."""

    async def inbound(job: Job, given: Given) -> Any:
        """Check the message. Then park the job until the model's response is submitted, unless the job has one."""
        decision = await _decide(sets, job, "inbound", given.message_input)
        text = None if decision.text == given.message_input else decision.text
        memo = {"inbound": {"text": text, **to_wire(decision)}}
        if given.message_output is None:
            return job.park(memo)
        await job.proceed({}, memo)
        return await outbound(job, given)

    async def outbound(job: Job, given: Given) -> Any:
        """Check the response. The returned value is sent to the customer's URL."""
        decision = await _decide(sets, job, "outbound", _answer(job, given))
        return {"text": decision.text, **to_wire(decision)}

    return {KIND.name: {"processing_inbound": inbound, "processing_outbound": outbound}}


def _answer(job: Job, given: Given) -> str:
    match job.answer:
        case {"message_output": str(text)}:
            return text
        case {} if given.message_output is not None:
            return given.message_output
        case _:  # the native API accepts any answer of an operator
            raise BlockedError("The response is not a valid message.", direction="outbound", verdicts=[])


async def _decide(sets: Sets, job: Job, direction: Any, text: str) -> Decision:
    """Apply the rules. If they are unavailable, the attempt is repeated; after the last one, the message is blocked."""
    try:
        decision = await sets.decide(job.tenant, direction, text)
    except UnavailableError:
        if job.attempt < ATTEMPTS_MAX:
            raise
        raise _rules_failed(direction) from None
    except Exception as error:
        # Only the type of the error is logged: its text may contain a part of the message.
        logs.emit("guard.failed", job_id=ids.parse("job", job.id), direction=direction, error=type(error).__name__)
        raise _rules_failed(direction) from error
    if decision.outcome == "blocked":
        raise BlockedError(_MESSAGES[direction], direction=direction, **to_wire(decision))
    if len(decision.text.encode()) > FILTERED_MAX:
        raise BlockedError("The redacted text exceeds the size limit.", direction=direction, **to_wire(decision))
    return decision


def _rules_failed(direction: str) -> BlockedError:
    return BlockedError(
        "The rules could not be applied, so the message was blocked.",
        direction=direction,
        verdicts=[],
        reason="rules_failed",
    )
