"""What a effects job may do, in the words of its contract."""

from __future__ import annotations

from penstock.lifecycle import lifecycle

EFFECTS = lifecycle(
    "effects",
    """
    *          -> queued      submitted
    queued     -> processing  started
    queued     -> failed      failed
    queued     -> canceled    canceled
    queued     -> expired     expired
    processing -> queued      requeued
    processing -> completed   succeeded
    processing -> failed      failed blocked
    processing -> canceled    canceled
    processing -> expired     expired
    """,
    ends="completed=succeeded failed=failed canceled=canceled expired=expired",
)
