"""What a guard job is: its lifecycle in the words of its contract, what it is given, and what its URL is told."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids
from millpond.kinds import CAP_MAX, Kind
from millpond.lifecycle import lifecycle
from millpond.webhooks import Webhook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.webhooks import Told

TEXT_MAX: Final = 1024 * 1024
"""Bytes of UTF-8 of one message."""
FILTERED_MAX: Final = 2 * TEXT_MAX
"""And as the rules have made it: labels may be longer than what they stand for."""
_ESCAPED: Final = 6  # bytes of JSON that one byte of text can become
_ROOM: Final = 512 * 1024
"""Bytes of JSON for all that stands beside the messages."""
EXPIRES_IN: Final = timedelta(hours=1)
EXPIRES_IN_MAX: Final = timedelta(days=7)
ATTEMPTS_MAX: Final = 3
"""How often a decision is tried that could not be made, before nothing passes."""

GUARD = lifecycle(
    "guard",
    """
    *                   -> processing_inbound   submitted
    processing_inbound  -> inbound_blocked      blocked failed
    processing_inbound  -> awaiting_response    parked
    processing_inbound  -> processing_outbound  answered
    processing_inbound  -> expired              expired
    awaiting_response   -> processing_outbound  answered
    awaiting_response   -> expired              expired
    processing_outbound -> outbound_blocked     blocked failed
    processing_outbound -> delivering           delivering
    processing_outbound -> expired              expired
    delivering          -> completed            succeeded
    delivering          -> failed               failed
    delivering          -> expired              expired
    """,
    ends="inbound_blocked=blocked outbound_blocked=blocked completed=succeeded failed=failed expired=expired",
)


class Given(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The input of a job."""

    message_input: str
    message_output: str | None = None
    metadata: dict[str, Any] | None = None


def findings(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the rules have found in each direction so far: from a job's input, memo, output and error.

    Each is its outcome, the text as it may go on (none where it may not), and the verdicts.
    """
    memo: dict[str, Any] = job.get("memo") or {}
    error: dict[str, Any] = job.get("error") or {}
    output: dict[str, Any] | None = job.get("output")
    found: dict[str, Any] = {}
    if "inbound" in memo:
        left = memo["inbound"]
        text = job["input"]["message_input"] if left["text"] is None else left["text"]
        found["inbound"] = {"outcome": "passed", **left, "text": text}
    if output is not None:
        found["outbound"] = {"outcome": "passed", **output}
    if "direction" in error:
        said = {name: error[name] for name in ("verdicts", "more") if name in error}
        found[error["direction"]] = {"outcome": "blocked", "text": None, **said}
    return found


_EVENTS: Final = MappingProxyType(
    {
        "parked": "job.inbound_completed",
        "delivering": "job.completed",
        "blocked": "job.blocked",
        "expired": "job.expired",
    }
)


def _body(told: Told) -> dict[str, Any]:
    """The body in the contract's words. Once its receiver has taken ``job.completed``, the job is what that says."""
    job = told.job
    data = findings(job)
    if job["input"].get("metadata") is not None:
        data["metadata"] = job["input"]["metadata"]
    return {
        "job_id": ids.text("job", told.job_id),
        "event": _EVENTS[told.moment],
        "status": "completed" if told.moment == "delivering" else job["state"],
        "created_at": job["created_at"],
        "data": data,
    }


SCHEDULE: Final = tuple(timedelta(seconds=pause) for pause in (5, 15, 30, 60, 120, 240, 480, 900))
"""Nine tries in half an hour and a bit: the last comes before a job expires that nobody gave longer."""

KIND: Final = Kind(
    name="guard",
    lifecycle=GUARD,
    is_open=False,
    input_type=Given,
    takes_whole_input=True,
    size_max=2 * TEXT_MAX * _ESCAPED + _ROOM,
    expires_in=EXPIRES_IN,
    attempts_max=ATTEMPTS_MAX,
    interruptions_max=CAP_MAX,  # that workers go says nothing about a message: its deadline ends it
    lapses_max=CAP_MAX,
    webhook=Webhook(names=_EVENTS, body=_body, schedule=SCHEDULE),
    is_delivered=True,
    summary="A message and its answer, held against the rules of a tenant.",
)
