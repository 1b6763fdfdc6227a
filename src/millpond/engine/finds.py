"""Finds: one box to paste anything into. An id, the beginning of one, a provider's name for something, a key, a name.

Nothing is searched for by looking at all there is: each look is by an index and stops soon. So who has the whole id
always finds, and who has its beginning finds the newest that begin so.
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
    from millpond.store.queries import Query

SQL: Final = queries("millpond.engine", "finds")

FOUND_MAX: Final = 20
EACH_MAX: Final = 5
"""How many of a sort are told."""
QUERY_MAX: Final = 255
_WALK: Final = 1_000
"""How many things are looked at for those of one tenant."""
_TENANTS_MAX: Final = 1_000
_LETTERS: Final = 26
_BEGINNING: Final = re.compile(r"([a-z]{1,20})_((?:[0-7][0-9a-hjkmnp-tv-z]{0,25})?)")
_BARE: Final = re.compile(r"[0-7][0-9a-hjkmnp-tv-z]{25}")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:@+/-]{1,128}")
_KEY: Final = re.compile(r"[!-~]{1,255}")

By = Literal["id", "name", "prediction_id", "idempotency_key"]


@dataclass(frozen=True, slots=True)
class Found:
    """Something that was found, and by what of it."""

    type: str
    id: str
    tenant: str | None
    title: str
    by: By


@dataclass(frozen=True, slots=True)
class _Sort:
    """A sort of thing that has ids: how they begin, and where they are looked for."""

    type: str
    prefix: str
    """As it is told; an id that was found by another word of somebody's is told so."""
    query: Query
    is_central: bool = False


_SORTS: Final = {
    "job": _Sort("job", "job", SQL["jobs"]),
    "ep": _Sort("endpoint", "ep", SQL["endpoints"]),
    "msg": _Sort("delivery", "msg", SQL["deliveries"]),
    "art": _Sort("artifact", "art", SQL["artifacts"]),
    "sub": _Sort("job", "job", SQL["submissions"]),
    "key": _Sort("key", "key", SQL["keys"], is_central=True),
    "errand": _Sort("errand", "errand", SQL["errands"], is_central=True),
    "audit": _Sort("audit", "audit", SQL["audit"], is_central=True),
}
_WORDS: Final = {"dispatch": "job"}
"""What products call things of ours."""


async def find(engine: Engine, tenant: str | None, given: str) -> list[Found]:
    """What may be meant, the nearest first. With a tenant, nothing of another."""
    values.check(given, field="q")
    asked = given.strip()
    if not asked or len(asked) > QUERY_MAX:
        raise InvalidError(f"It must have 1 to {QUERY_MAX} characters.", field="q")
    found = [
        *await _by_id(engine, tenant, asked),
        *await _by_words_of_others(engine, tenant, asked),
        *await _by_name(engine, tenant, asked),
    ]
    return list({(one.type, one.tenant, one.id): one for one in reversed(found)}.values())[::-1][:FOUND_MAX]


async def _by_id(engine: Engine, tenant: str | None, asked: str) -> list[Found]:
    low, high, sorts = _range(asked.lower())
    found: list[Found] = []
    for sort in sorts:
        arguments = (low, high, tenant, _WALK, EACH_MAX)
        rows = await (engine.db.run if sort.is_central else engine.homes.gather)(sort.query, *arguments)
        found += [_found(sort, row, "id") for row in _newest(rows)]
    return found


def _range(asked: str) -> tuple[UUID | None, UUID | None, Sequence[_Sort]]:
    """The first and the last id that is meant, and of which sorts. A bare one may be of any."""
    try:
        if len(asked) >= 32:  # noqa: PLR2004 - the digits of a UUID
            return UUID(asked), UUID(asked), list(_SORTS.values())
    except ValueError:
        pass
    if _BARE.fullmatch(asked):
        return *_bounds(asked), list(_SORTS.values())
    begun = _BEGINNING.fullmatch(asked)
    if begun is None:
        return None, None, ()
    sort = _SORTS.get(_WORDS.get(begun[1], begun[1]))
    if sort is not None:
        return *_bounds(begun[2]), (sort,)
    return (*_bounds(begun[2]), list(_SORTS.values())) if len(begun[2]) == _LETTERS else (None, None, ())


def _bounds(letters: str) -> tuple[UUID, UUID]:
    first, last = letters.ljust(_LETTERS, "0"), letters.ljust(_LETTERS, "z") if letters else "7" + "z" * 25
    return ids.parse("id", f"id_{first}"), ids.parse("id", f"id_{last}")


async def _by_words_of_others(engine: Engine, tenant: str | None, asked: str) -> list[Found]:
    """Jobs, by what a provider or a client calls them."""
    if not _KEY.fullmatch(asked):
        return []
    found: list[Found] = []
    looks: tuple[tuple[Query, By], ...] = ((SQL["predictions"], "prediction_id"), (SQL["keyed"], "idempotency_key"))
    for query, by in looks:
        rows = await engine.homes.gather(query, asked, tenant, _WALK, EACH_MAX)
        found += [_found(_SORTS["job"], row, by) for row in _newest(rows)]
    return found


async def _by_name(engine: Engine, tenant: str | None, asked: str) -> list[Found]:
    """Kinds, queues, tenants, accounts and workers whose names begin so. Queues and workers are nobody's own."""
    if not _NAME.fullmatch(asked):
        return []
    kinds = (kind for name, kind in sorted(engine.app.kinds.items()) if name.startswith(asked))
    found = [Found("kind", kind.name, None, kind.summary, "name") for kind in kinds if tenant is None or kind.is_open]
    found = found[:EACH_MAX]
    found += [Found("tenant", name, name, name, "name") for name in await _tenants(engine, tenant, asked)]
    accounts = await engine.homes.gather(SQL["accounts"], asked, tenant, _TENANTS_MAX, EACH_MAX)
    found += [Found("account", row["id"], row["tenant"], row["id"], "name") for row in accounts[:EACH_MAX]]
    if tenant is None:
        queues = await engine.db.run(SQL["queues"], asked, EACH_MAX)
        found += [Found("queue", row["id"], None, row["id"], "name") for row in queues]
        name = asked.lower() if asked.lower().startswith("worker_") else asked
        workers = await engine.db.run(SQL["workers"], name, EACH_MAX)
        found += [_found_worker(row, name) for row in workers[:EACH_MAX]]
    return found


async def _tenants(engine: Engine, tenant: str | None, asked: str) -> list[str]:
    if tenant is not None:
        return [tenant] if tenant.startswith(asked) else []
    return [row["id"] for row in await engine.db.run(SQL["tenants"], asked, EACH_MAX)]


def _found(sort: _Sort, row: Row, by: By) -> Found:
    title: str = row["title"]
    if sort.type == "endpoint":  # its URL may hold a secret
        title = webhooks.shown_url(title) if title else "pulled by a listener"
    return Found(sort.type, ids.text(sort.prefix, row["id"]), row["tenant"], title, by)


def _found_worker(row: Row, asked: str) -> Found:
    return Found("worker", row["id"], None, row["title"], "id" if row["id"].startswith(asked) else "name")


def _newest(rows: Iterable[Any]) -> list[Any]:
    """Of several databases' rows the newest."""
    return sorted(rows, key=lambda row: row["id"], reverse=True)[:EACH_MAX]
