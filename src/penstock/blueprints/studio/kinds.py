"""What a studio job may do, in the words of its contract."""

from __future__ import annotations

from penstock.lifecycle import lifecycle

STUDIO = lifecycle(
    "studio",
    """
    *          -> pending     submitted
    pending    -> queued      queued
    pending    -> processing  started
    pending    -> failed      failed expired
    pending    -> canceled    canceled
    queued     -> processing  started
    queued     -> failed      failed expired
    queued     -> canceled    canceled
    processing -> completed   succeeded
    processing -> failed      failed blocked
    processing -> canceled    canceled
    processing -> expired     expired
    failed     -> pending     retried
    expired    -> pending     retried
    """,
    ends="completed=succeeded failed=failed canceled=canceled expired=expired",
)
