"""What a guard job may do, in the words of its contract."""

from __future__ import annotations

from penstock.lifecycle import lifecycle

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
