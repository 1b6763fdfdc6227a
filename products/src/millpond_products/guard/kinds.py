"""The guard job: its lifecycle as defined by the contract, its input, and its webhook bodies."""

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

    from millpond.webhooks import WebhookData

TEXT_MAX: Final = 1024 * 1024
"""The limit of a message, in bytes of UTF-8."""
FILTERED_MAX: Final = 2 * TEXT_MAX
"""The limit after redaction: labels may be longer than the text they replace."""
_ESCAPED: Final = 6  # bytes of JSON that one byte of text can become
_ROOM: Final = 512 * 1024
"""The limit of JSON beside the messages, in bytes."""
EXPIRES_IN: Final = timedelta(hours=1)
EXPIRES_IN_MAX: Final = timedelta(days=7)
ATTEMPTS_MAX: Final = 3
"""How often a failed check is retried before the message is blocked."""

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
    """The results of the rules for each direction: from a job's input, memo, output and error.

    Each has its outcome, the filtered text (none if blocked), and the verdicts.
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
        results = {name: error[name] for name in ("verdicts", "more") if name in error}
        found[error["direction"]] = {"outcome": "blocked", "text": None, **results}
    return found


_EVENTS: Final = MappingProxyType(
    {
        "parked": "job.inbound_completed",
        "delivering": "job.completed",
        "blocked": "job.blocked",
        "expired": "job.expired",
    }
)


def _body(event: WebhookData) -> dict[str, Any]:
    """The webhook body of the contract. Once ``job.completed`` is delivered, the job is completed."""
    job = event.job
    data = findings(job)
    if job["input"].get("metadata") is not None:
        data["metadata"] = job["input"]["metadata"]
    return {
        "job_id": ids.text("job", event.job_id),
        "event": _EVENTS[event.event],
        "status": "completed" if event.event == "delivering" else job["state"],
        "created_at": job["created_at"],
        "data": data,
    }


SCHEDULE: Final = tuple(timedelta(seconds=pause) for pause in (5, 15, 30, 60, 120, 240, 480, 900))
"""Nine attempts in a little over half an hour: the last one comes before the default expiry."""

KIND: Final = Kind(
    name="guard",
    lifecycle=GUARD,
    is_open=False,
    answered_by="operator",  # clients answer by the product's own route, which checks the response
    input_type=Given,
    takes_whole_input=True,
    size_max=2 * TEXT_MAX * _ESCAPED + _ROOM,
    expires_in=EXPIRES_IN,
    attempts_max=ATTEMPTS_MAX,
    interruptions_max=CAP_MAX,  # the loss of a worker says nothing about a message; its deadline ends it
    lapses_max=CAP_MAX,
    webhook=Webhook(names=_EVENTS, body=_body, schedule=SCHEDULE),
    is_delivered=True,
    summary="A message and its response, checked against the rules of a tenant.",
)
