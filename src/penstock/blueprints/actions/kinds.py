"""What a actions job may do, in the words of its contract."""

from __future__ import annotations

from penstock.lifecycle import lifecycle

ACTIONS = lifecycle(
    "actions",
    """
    *       -> pending    submitted
    pending -> running    started
    pending -> cancelled  canceled expired
    running -> success    succeeded
    running -> failed     failed expired blocked
    running -> cancelled  canceled
    """,
    ends="success=succeeded failed=failed cancelled=canceled",
)
