"""What a partner job may do, in the words of its contract."""

from __future__ import annotations

from penstock.lifecycle import lifecycle

PARTNER = lifecycle(
    "partner",
    """
    *       -> running    submitted
    running -> completed  succeeded
    running -> failed     failed expired blocked
    running -> canceled   canceled
    """,
    ends="completed=succeeded failed=failed canceled=canceled",
)
