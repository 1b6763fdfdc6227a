"""Lifecycles of the tests' own: one for each way in which a product's can differ from the standard one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millpond.lifecycle import lifecycle

if TYPE_CHECKING:
    from millpond.lifecycle import Lifecycle

RESTARTABLE: Final = lifecycle(
    "restartable",
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
"""The same job runs again after a retry. Two states are before its start, and it may be born in either."""
REQUEUED: Final = lifecycle(
    "requeued",
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
"""A job that a worker gives back is seen to wait again."""
REVIEWED: Final = lifecycle(
    "reviewed",
    """
    *          -> reading     submitted
    reading    -> refused     blocked failed
    reading    -> asking      parked
    reading    -> writing     answered
    reading    -> expired     expired
    asking     -> writing     answered
    asking     -> expired     expired
    writing    -> withheld    blocked failed
    writing    -> delivering  delivering
    writing    -> expired     expired
    delivering -> completed   succeeded
    delivering -> failed      failed
    delivering -> expired     expired
    """,
    ends="refused=blocked withheld=blocked completed=succeeded failed=failed expired=expired",
)
"""Work in two parts, with an answer between them and a delivery after; it is blocked in two ways, and not canceled."""
IMMEDIATE: Final = lifecycle(
    "immediate",
    """
    *       -> running    submitted
    running -> completed  succeeded
    running -> failed     failed expired blocked
    running -> canceled   canceled
    """,
    ends="completed=succeeded failed=failed canceled=canceled",
)
"""A job waits and runs in one state; to expire is to fail."""
REWORDED: Final = lifecycle(
    "reworded",
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
"""Its ends have other words than the engine's outcomes; to expire is to be canceled, or to fail."""

LIFECYCLES: Final[tuple[Lifecycle, ...]] = (RESTARTABLE, REQUEUED, REVIEWED, IMMEDIATE, REWORDED)
