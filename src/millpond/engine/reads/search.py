"""Search: finds anything by id, by the beginning of an id, by a provider's id, by idempotency key or by name.

Every lookup uses an index and is bounded. So a whole id is always found, and the beginning of an id finds the newest
that begin with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from uuid import UUID

from millpond import ids, values, webhooks
from millpond.errors import InvalidError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.engine.engine import Engine
    from millpond.store.db import Row
    from millpond.store.queries import NamedQuery

SQL: Final = queries("millpond.engine.reads", "search")

MATCHES_MAX: Final = 20
EACH_MAX: Final = 5
"""The maximum number of matches of one type."""
QUERY_MAX: Final = 255
_WALK: Final = 1_000
"""How many rows a lookup reads to find those of one tenant."""
_TENANTS_MAX: Final = 1_000
_LETTERS: Final = 26
_BEGINNING: Final = re.compile(r"([a-z]{1,20})_((?:[0-7][0-9a-hjkmnp-tv-z]{0,25})?)")
_BARE: Final = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:@+/-]{1,128}")
_KEY: Final = re.compile(r"[!-~]{1,255}")

By = Literal["id", "name", "external_id", "idempotency_key"]


@dataclass(frozen=True, slots=True)
class SearchMatch:
    """Something that was found, and which of its names matched."""

    type: str
    id: str
    tenant: str | None
    title: str
    by: By


@dataclass(frozen=True, slots=True)
class _IdType:
    """A type of thing that has ids: their prefix, and the query that finds them."""

    type: str
    prefix: str
    """The prefix of the ids in results. A prediction's id finds its job, which has the prefix of a job."""
    query: NamedQuery
    is_central: bool = False


_ID_TYPES: Final = {
    "job": _IdType("job", "job", SQL["jobs"]),
    "batch": _IdType("batch", "batch", SQL["batches"]),
    "ep": _IdType("endpoint", "ep", SQL["endpoints"]),
    "msg": _IdType("delivery", "msg", SQL["deliveries"]),
    "art": _IdType("artifact", "art", SQL["artifacts"]),
    "pred": _IdType("job", "job", SQL["predictions"]),
    "key": _IdType("key", "key", SQL["keys"], is_central=True),
    "bulk": _IdType("bulk_operation", "bulk", SQL["bulk_operations"], is_central=True),
    "sched": _IdType("schedule", "sched", SQL["schedules"], is_central=True),
    "audit": _IdType("audit", "audit", SQL["audit"], is_central=True),
}
_PREFIX_ALIASES: Final = {"dispatch": "job"}
"""Prefixes that products use for the engine's types."""


async def search(engine: Engine, tenant: str | None, given: str) -> list[SearchMatch]:
    """Everything that the text may mean, the closest matches first. With a tenant, nothing of other tenants."""
    values.check(given, field="q")
    text = given.strip()
    if not text or len(text) > QUERY_MAX:
        raise InvalidError(f"The query must have 1 to {QUERY_MAX} characters.", field="q")
    found = [
        *await _by_id(engine, tenant, text),
        *await _by_foreign_id(engine, tenant, text),
        *await _by_name(engine, tenant, text),
    ]
    return list({(one.type, one.tenant, one.id): one for one in reversed(found)}.values())[::-1][:MATCHES_MAX]


async def _by_id(engine: Engine, tenant: str | None, text: str) -> list[SearchMatch]:
    low, high, id_types = _range(text.lower())
    found: list[SearchMatch] = []
    for id_type in id_types:
        arguments = (low, high, tenant, _WALK, EACH_MAX)
        rows = await (engine.db.run if id_type.is_central else engine.tenant_databases.gather)(
            id_type.query, *arguments
        )
        found += [_match(id_type, row, "id") for row in _newest(rows)]
    return found


def _range(text: str) -> tuple[UUID | None, UUID | None, Sequence[_IdType]]:
    """The range of ids that the text may mean, and their types. An id without a prefix may be of any type."""
    try:
        if len(text) >= 32:  # noqa: PLR2004 - the digits of a UUID
            return UUID(text), UUID(text), list(_ID_TYPES.values())
    except ValueError:
        pass
    if _BARE.fullmatch(text):
        return *_bounds(text), list(_ID_TYPES.values())
    begun = _BEGINNING.fullmatch(text)
    if begun is None:
        return None, None, ()
    id_type = _ID_TYPES.get(_PREFIX_ALIASES.get(begun[1], begun[1]))
    if id_type is not None:
        return *_bounds(begun[2]), (id_type,)
    return (*_bounds(begun[2]), list(_ID_TYPES.values())) if len(begun[2]) == _LETTERS else (None, None, ())


def _bounds(letters: str) -> tuple[UUID, UUID]:
    first, last = letters.ljust(_LETTERS, "0"), letters.ljust(_LETTERS, "z") if letters else "7" + "z" * 25
    return ids.parse("id", f"id_{first}"), ids.parse("id", f"id_{last}")


async def _by_foreign_id(engine: Engine, tenant: str | None, text: str) -> list[SearchMatch]:
    """Jobs, by a provider's id or a client's idempotency key."""
    if not _KEY.fullmatch(text):
        return []
    found: list[SearchMatch] = []
    looks: tuple[tuple[NamedQuery, By], ...] = (
        (SQL["by_external_id"], "external_id"),
        (SQL["keyed"], "idempotency_key"),
    )
    for query, by in looks:
        rows = await engine.tenant_databases.gather(query, text, tenant, _WALK, EACH_MAX)
        found += [_match(_ID_TYPES["job"], row, by) for row in _newest(rows)]
    return found


async def _by_name(engine: Engine, tenant: str | None, text: str) -> list[SearchMatch]:
    """Kinds, schedules, queues, tenants, accounts and workers whose names begin with the text.

    Queues and workers belong to no tenant, so they are left out for one.
    """
    if not _NAME.fullmatch(text):
        return []
    kinds = (kind for name, kind in sorted(engine.app.kinds.items()) if name.startswith(text))
    found = [
        SearchMatch("kind", kind.name, None, kind.summary, "name") for kind in kinds if tenant is None or kind.is_open
    ]
    found = found[:EACH_MAX]
    found += [SearchMatch("tenant", name, name, name, "name") for name in await _tenants(engine, tenant, text)]
    schedules = await engine.db.run(SQL["named_schedules"], text, tenant, _TENANTS_MAX, EACH_MAX)
    found += [_match(_ID_TYPES["sched"], row, "name") for row in schedules]
    accounts = await engine.tenant_databases.gather(SQL["accounts"], text, tenant, _TENANTS_MAX, EACH_MAX)
    found += [SearchMatch("account", row["id"], row["tenant"], row["id"], "name") for row in accounts[:EACH_MAX]]
    if tenant is None:
        queues = await engine.db.run(SQL["queues"], text, EACH_MAX)
        found += [SearchMatch("queue", row["id"], None, row["id"], "name") for row in queues]
        name = text.lower() if text.lower().startswith("worker_") else text
        workers = await engine.db.run(SQL["workers"], name, EACH_MAX)
        found += [_worker_match(row, name) for row in workers[:EACH_MAX]]
    return found


async def _tenants(engine: Engine, tenant: str | None, text: str) -> list[str]:
    if tenant is not None:
        return [tenant] if tenant.startswith(text) else []
    return [row["id"] for row in await engine.db.run(SQL["tenants"], text, EACH_MAX)]


def _match(id_type: _IdType, row: Row, by: By) -> SearchMatch:
    title: str = row["title"]
    if id_type.type == "endpoint":  # its URL may hold a secret
        title = webhooks.shown_url(title) if title else "pull only"
    return SearchMatch(id_type.type, ids.text(id_type.prefix, row["id"]), row["tenant"], title, by)


def _worker_match(row: Row, text: str) -> SearchMatch:
    return SearchMatch("worker", row["id"], None, row["title"], "id" if row["id"].startswith(text) else "name")


def _newest(rows: Iterable[Any]) -> list[Any]:
    """The newest rows of several databases."""
    return sorted(rows, key=lambda row: row["id"], reverse=True)[:EACH_MAX]
