"""The engine as the source of a worker in the same process."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids
from millpond.engine.dispatches import BACK_TOPIC, CANCEL_TOPIC, Lanes
from millpond.errors import InputError, NotFoundError
from millpond.work import Artifact
from millpond.worker.source import default_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from millpond.app import Millpond
    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.engine import Engine
    from millpond.work import End, Lease, Note, Pulse, Return
    from millpond.worker.source import Ears

_CHUNK: Final = 1024 * 1024


@dataclass(slots=True)
class EngineSource:
    """Jobs from an engine's own database; its bell, where there is one, makes waiting short."""

    engine: Engine
    name: str = ""
    lease: timedelta = timedelta(seconds=60)
    heartbeat: timedelta = timedelta(seconds=5)
    with_fleet: bool = False
    """Whether it also serves the queues of kinds that the fleet runs, so that their code can be tried without one."""
    is_patient: bool = field(default=False, init=False)
    outage: str = field(default="db.unavailable", init=False)
    _lanes: Lanes = field(default_factory=lambda: Lanes(()), init=False)
    _ears: Ears | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.name = self.name or default_name()

    @property
    def queues(self) -> Sequence[str]:
        return self._lanes.queues

    async def open(self, app: Millpond, slots: int, ears: Ears) -> None:  # noqa: ARG002 - slots matter to others
        ours = ("handler", "provider", "fleet") if self.with_fleet else ("handler", "provider")
        self._lanes = Lanes(sorted({kind.queue for kind in app.kinds.values() if kind.handlers and kind.runs in ours}))
        if self._ears is None:
            self.engine.bell.listen(self._heard)
        self._ears = ears

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]:
        if not is_waiting:  # then nobody comes back for what stands behind the place we came to
            self._lanes.look_at = 0.0
        self._lanes.resting = self.engine.providers.resting()
        return await self.engine.claim(self._lanes, want, worker=self.name, duration=self.lease)

    def hush(self) -> None: ...

    async def extend(self, leases: Sequence[Lease]) -> Pulse:
        return await self.engine.extend(leases, self.lease)

    async def note(self, *notes: Note) -> bool:
        return await self.engine.note(*notes)

    async def finish(self, end: End) -> None:
        await self.engine.finish(end)

    async def give_back(self, item: Return) -> None:
        await self.engine.give_back(item)

    async def park(self, lease: Lease, memo: Any) -> None:
        await self.engine.park(lease, memo)

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:
        return await self.engine.proceed(lease, answer, memo)

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        if tokens := set(tokens):
            await self.engine.close_leases(tokens)

    async def close(self) -> None: ...

    def _heard(self, topics: frozenset[str]) -> None:
        ears = self._ears
        if ears is None:
            return
        for topic in topics:
            if topic.startswith(CANCEL_TOPIC):
                with contextlib.suppress(ValueError):  # what rings for very much at once may be cut off
                    ears.cancel(UUID(topic[len(CANCEL_TOPIC) :]))
        ours = topics.intersection(self._lanes.queues)
        back = any(f"{BACK_TOPIC}{queue}" in topics for queue in self._lanes.queues)
        if back:
            self._lanes.rung_back()
        elif ours:
            self._lanes.rung(ours)
        if ours or back:
            ears.wake()

    # Files

    async def save(self, lease: Lease, name: str, content_type: str, data: bytes | Path) -> Artifact:
        record = await self.engine.artifacts.save(
            lease.tenant,
            lease.account,
            name=name,
            content_type=content_type,
            data=_chunks(data) if isinstance(data, Path) else data,
            job_id=lease.job_id,
            epoch=lease.epoch,
        )
        return _told(record)

    async def read(self, lease: Lease, name: str) -> AsyncGenerator[bytes]:
        if name.startswith("art_"):
            async for chunk in self.engine.artifacts.stream(await self._record(lease, name)):
                yield chunk
        else:
            async for chunk in self.engine.artifacts.store.stream(self._path(lease, name)):
                yield chunk

    async def _record(self, lease: Lease, name: str) -> ArtifactRecord:
        wanted = [ids.parse("art", name)]
        found = await self.engine.artifacts.find(lease.tenant, wanted, lease.account, lease.job_id)
        if not found:
            raise NotFoundError(f"The job has no artifact {name[:60]!r}.", field="name")
        return found[0]

    def _path(self, lease: Lease, name: str) -> str:
        kind = self.engine.app.kinds.get(lease.kind)
        paths = {} if kind is None or kind.files is None else dict(kind.files(msgspec.json.decode(lease.input)))
        if name not in paths:
            known = ", ".join(sorted(paths)) or "none"
            raise InputError(f"The job has no file {name[:80]!r}.", field="name", hint=f"Its files: {known}.")
        return paths[name]


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    with await asyncio.to_thread(path.open, "rb") as file:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            yield chunk


def _told(record: ArtifactRecord) -> Artifact:
    return Artifact(record.id, record.name, record.content_type, record.size or 0, record.sha256)
