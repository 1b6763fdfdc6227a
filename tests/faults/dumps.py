"""The database as text that two runs of one story share, and a way back to its beginning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millpond.engine.reads.counters import SQL
from tests.checks import Snapshot, snapshot

if TYPE_CHECKING:
    from millpond.store.db import Database

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_TYPEID = re.compile(r"\b(?:batch|job|sched)_[0-7][0-9a-hjkmnp-tv-z]{25}")
_TIME = re.compile(r"\"*\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(?:\+00(:00)?|Z)\"*")
_SEALED = re.compile(r"\\+x01[0-9a-f]{60,}")
_AUDIT_ID = re.compile(r"^\([^,]+,")
_STARTS = re.compile(r'"\{[\d,]+\}",\d+')
_WALLET_NUMBER = re.compile(r"^\(\d+,")
_ID_VERSION = "7"

# What a story writes; the rest is declared when the product is registered.
_WRITTEN = (
    "accounts",
    "audit",
    "chunks",
    "deliveries",
    "delivery_tries",
    "dispatches",
    "endpoints",
    "entries",
    "events",
    "fires",
    "hooks",
    "idempotency",
    "jobs",
    "leases",
    "limit_holders",
    "limit_keys",
    "limit_releases",
    "limit_waits",
    "ready",
    "schedules",
    "shares",
    "subscriptions",
    "counter_changes",
    "counts",
    "flows",
    "failures",
    "failure_flows",
    "steps",
    "batch_cancels",
    "batch_hooks",
    "batch_keys",
    "batch_pages",
    "batches",
    "trees",
    "budgets",
    "reservations",
    "orphans",
)

_WIPE = ";".join(
    (
        "set local session_replication_role = replica",
        *(f"delete from millpond.{table}" for table in _WRITTEN),
        "update millpond.queues set paused_at = null where paused_at is not null",
        "update millpond.limits set at_once = 1, starts = 1000, per = '1m', changed_at = null, changed_by = null",
    )
)


async def story(db: Database, *, in_order: bool = True) -> Snapshot:
    """The snapshot with ids by their order of birth, lease tokens alike, and times by whether there is one."""
    tables = await snapshot(db)
    # Ids of the audit are made by the database: in which order with those made here, the millisecond decides.
    tables["audit"] = [_AUDIT_ID.sub("(", row) for row in tables.get("audit", [])]
    tables.pop("counter_changes", None)  # how they are grouped is how the work was batched; what they come to is not
    tables["counts"] = [str(tuple(row)) for row in await db.run(SQL["counts"], None)]
    found = {match[0] for rows in tables.values() for row in rows for match in _UUID.finditer(row)}
    ids = sorted(filter(_is_id, found))
    names = {uuid: f"job{number}" if in_order else "job" for number, uuid in enumerate(ids, 1)}

    def normalized(row: str) -> str:
        named = _TYPEID.sub("job", _UUID.sub(lambda match: names.get(match[0], "token"), row))
        return _STARTS.sub("starts", _SEALED.sub("sealed", _TIME.sub("time", named)))

    tables["accounts"] = [_WALLET_NUMBER.sub("(", row) for row in tables.get("accounts", [])]
    return {name: sorted(map(normalized, rows)) for name, rows in tables.items()}


async def wipe(db: Database) -> None:
    """Back to the beginning: nothing but the registered product."""
    async with db.transaction() as tx:
        await tx.execute(_WIPE)


def _is_id(uuid: str) -> bool:
    return uuid[14] == _ID_VERSION
