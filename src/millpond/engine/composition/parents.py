"""Parents of jobs that have just ended: workers are notified of those that this made ready."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from millpond.engine.composition import batches
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.store.db import Row

_PAUSE: Final = 0.003
"""Between two looks for parents that became ready; the children of one often end in quick succession."""


class ParentNotifier:
    """Looks in the background for parents that became ready. Without it, workers find them by polling."""

    def __init__(self, engine: Engine, start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._engine = engine
        self._start = start
        self._parents: defaultdict[str, set[UUID]] = defaultdict(set)
        """Parents of jobs that have ended, by tenant."""
        self._ended: defaultdict[str, set[UUID]] = defaultdict(set)
        """Jobs that have ended and may have parents, by tenant."""
        self._looking: asyncio.Task[None] | None = None

    def child_ended(self, tenant: str, parent_id: UUID) -> None:
        """A child of this parent has ended."""
        self._parents[tenant].add(parent_id)
        self._look_soon()

    def jobs_ended(self, rows: Sequence[Row]) -> None:
        """Jobs have ended otherwise than by their workers: were canceled, expired, or failed with their lease."""
        for row in rows:
            self.job_ended(row["tenant"], row["job_id"])

    def job_ended(self, tenant: str, job_id: UUID) -> None:
        self._ended[tenant].add(job_id)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = self._start(self._look())

    async def _look(self) -> None:
        while tenants := self._parents.keys() | self._ended.keys():
            for tenant in tenants:
                with contextlib.suppress(MillpondError):
                    await self._notify(tenant, self._parents.pop(tenant, set()), self._ended.pop(tenant, set()))
            await asyncio.sleep(_PAUSE)

    async def _notify(self, tenant: str, parents: set[UUID], ended: Iterable[UUID]) -> None:
        if ended:
            parents |= await batches.parents_of(self._engine.database(tenant), tenant, list(ended))
        if parents and (queues := await self._engine.tenant_databases.grown_by(tenant, list(parents))):
            self._engine.notify_requeued(queues)
            self._engine.audience.touch(parents)
