"""Registry: writes what the app declares to the database, where its guard and functions read it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from millpond.errors import BusyError, InvalidError, LifecycleError
from millpond.lifecycle import STANDARD, Lifecycle
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from millpond.kinds import Kind
    from millpond.limits import Limit
    from millpond.store.db import Connection, Database

SQL: Final = queries("millpond.engine.queue", "registry")

_NO_STATE: Final = "*"
_PATIENCE: Final = 60.0
"""How many seconds a process that starts waits for others that do."""


async def register(db: Database, kinds: Iterable[Kind] = (), lifecycles: Iterable[Lifecycle] = ()) -> None:
    """Register kinds, with their limits, and lifecycles in the database.

    It is safe to repeat, also from several processes at once.
    """
    kinds = list(kinds)
    declared = {made.name: made for made in (STANDARD, *lifecycles, *(kind.lifecycle for kind in kinds))}

    async def write(tx: Connection) -> None:
        changed = [await _write_lifecycle(tx, made) for made in declared.values()]
        if any(changed):
            await fetch(tx, SQL["compile_guard"])
        limits = {limit.name: limit for kind in kinds for limit in kind.limits}
        for _, limit in sorted(limits.items()):
            await _write_limit(tx, limit)
        for kind in kinds:
            await _write_kind(tx, kind)
        await fetch(tx, SQL["mark_limited_queues"])

    await in_turn(db, write)


async def in_turn(db: Database, write: Callable[[Connection], Awaitable[None]]) -> None:
    """Write declarations in a transaction of their own, one process at a time: many may start at once."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            async with db.transaction() as tx:
                await fetch(tx, SQL["lock"])
                return await write(tx)
        except BusyError:
            if time.monotonic() > until:
                raise


async def check_state(db: Database, state: str | None, *, field: str = "state") -> None:
    """Reject a state that no registered lifecycle has, whether or not this process knows the lifecycle's kinds."""
    if state is None:
        return
    known = [row["state"] for row in await db.run(SQL["states"])]
    if state not in known:
        raise InvalidError(f"There is no state {state[:80]!r}.", field=field, hint=f"Valid states: {', '.join(known)}.")


async def _write_lifecycle(tx: Connection, made: Lifecycle) -> bool:
    states = made.states.values()
    row = await fetch(
        tx,
        SQL["register_lifecycle"],
        made.name,
        [state.name for state in states],
        [state.phase for state in states],
        [state.outcome for state in states],
        [state.name in made.entries for state in states],
        [transition.source or _NO_STATE for transition in made.transitions],
        [transition.event for transition in made.transitions],
        [transition.target for transition in made.transitions],
    )
    if row["has_changed"]:
        for stranded in await fetch(tx, SQL["stranded"], made.name):
            raise LifecycleError(
                f"Lifecycle {made.name!r} does not define the state {stranded['state']!r} of "
                f"{stranded['jobs']} existing jobs.",
                hint="Keep the state until these jobs have ended; jobs without a transition cannot be leased.",
            )
    return bool(row["has_changed"])


async def _write_limit(tx: Connection, limit: Limit) -> None:
    declared = msgspec.json.encode(limit.declaration()).decode()
    await fetch(
        tx, SQL["register_limit"], limit.name, limit.at_once, limit.starts, limit.per, list(limit.key), declared
    )


async def _write_kind(tx: Connection, kind: Kind) -> None:
    await fetch(tx, SQL["register_queue"], kind.queue, kind.runs == "fleet")
    await fetch(
        tx,
        SQL["register_kind"],
        kind.name,
        kind.lifecycle.name,
        kind.queue,
        kind.is_fair,
        kind.lifecycle.initial,
        kind.entry_state,
        list(kind.stages),
        list(kind.firm_stages),
        kind.attempts_max,
        kind.interruptions_max,
        kind.lapses_max,
        msgspec.json.encode(kind.declaration(), enc_hook=str).decode(),
        sorted(limit.name for limit in kind.limits),
        bool(kind.needs),
    )
