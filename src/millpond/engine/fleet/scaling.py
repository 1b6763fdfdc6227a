"""Scaling: the load of each route, its workers, and how many it should have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond.engine.reads.estimates import Memory
from millpond.errors import NotFoundError
from millpond.scaling import Load, desired_workers
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from millpond.engine.engine import Engine
    from millpond.engine.reads.estimates import Durations
    from millpond.scaling import Policy

SQL: Final = queries("millpond.engine.fleet", "scaling")

_FRESH: Final = 1.0
"""For how many seconds the state of all routes is cached."""


@dataclass(frozen=True, slots=True)
class RouteLoad:
    """A route at one moment. Workers that are lost, unready, not approved or revoked do not count."""

    route: str
    ready: int
    leased: int
    oldest_wait_seconds: float | None
    idle: int
    busy: int
    draining: int
    slots: int
    expected_seconds: float | None
    paused_at: datetime | None

    def desired(self, policy: Policy) -> int:
        """How many workers the route should have; while it is paused, only those that are busy."""
        ready = 0 if self.paused_at is not None else self.ready
        return desired_workers(Load(ready, self.leased, self.busy, self.expected_seconds), policy)


class RouteLoads:
    """The routes of one database. Their state is cached for a moment, which all callers share."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen = Memory(self._look, _FRESH)

    async def routes(self) -> list[RouteLoad]:
        """All routes, by name."""
        return await self._seen.recall()

    async def route(self, name: str) -> RouteLoad:
        for load in await self.routes():
            if load.route == name:
                return load
        raise NotFoundError(f"There is no route {name[:80]!r}.", field="route", hint="GET /v1/routes lists them.")

    async def _look(self) -> list[RouteLoad]:
        rows = await self._engine.db.run(SQL["routes"], self._engine.workers.settings.silence)
        if not rows:
            return []
        queues = {queue.queue: queue for queue in await self._engine.queue_health()}
        durations = await self._engine.estimates.durations()
        return [
            RouteLoad(
                row["route"],
                queues[row["route"]].ready,
                queues[row["route"]].leased,
                queues[row["route"]].oldest_wait_seconds,
                row["idle"],
                row["busy"],
                row["draining"],
                row["slots"],
                self._expected(row["route"], durations),
                queues[row["route"]].paused_at,
            )
            for row in rows
            if row["route"] in queues  # a route that was opened between the two queries is added by the next ones
        ]

    def _expected(self, route: str, durations: Mapping[str, Durations]) -> float | None:
        """The average run time of a route's jobs: the longest average of the kinds that may be in it."""
        kinds = [kind for kind in self._engine.app.kinds.values() if kind.runs == "fleet" and kind.has_route(route)]
        known = [durations[kind.name].mean for kind in kinds if kind.name in durations]
        return round(max(known), 3) if known else None
