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
from millpond.engine.fleet.registrations import Registration
from millpond.engine.fleet.workers import WORKER_TOPIC
from millpond.engine.queue.dispatches import BACK_TOPIC, CANCEL_TOPIC, Lanes
from millpond.errors import InputError, MillpondError, NotFoundError, UnavailableError
from millpond.work import Artifact
from millpond.worker.source import default_name

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence

    from millpond.app import Millpond
    from millpond.engine.engine import Engine
    from millpond.engine.jobs.artifacts import ArtifactRecord
    from millpond.work import (
        BatchResults,
        Chunk,
        End,
        HeartbeatAnswer,
        Lease,
        Note,
        Return,
        SpawnRequest,
        Step,
        StepRequest,
    )
    from millpond.worker.source import SourceListener

LEASE: Final = timedelta(seconds=60)
HEARTBEAT: Final = timedelta(seconds=5)
_CHUNK: Final = 1024 * 1024


@dataclass(slots=True)
class EngineSource:
    """Claims jobs from the engine's database. Its notifier, if it has one, shortens the wait."""

    engine: Engine
    name: str = ""
    lease: timedelta = LEASE
    heartbeat: timedelta = HEARTBEAT
    with_fleet: bool = False
    """Whether it also serves the queues of kinds that the fleet runs, so that their handlers can be tried without a
    fleet.
    """
    is_patient: bool = field(default=False, init=False)
    outage: str = field(default="db.unavailable", init=False)
    _lanes: Lanes = field(default_factory=lambda: Lanes(()), init=False)
    _ears: SourceListener | None = field(default=None, init=False)
    _registration: Registration | None = field(default=None, init=False)
    _renewing: asyncio.Task[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.name = self.name or default_name()

    @property
    def queues(self) -> Sequence[str]:
        return self._lanes.queues

    async def open(self, app: Millpond, slots: int, ears: SourceListener) -> None:
        ours = ("handler", "provider", "fleet") if self.with_fleet else ("handler", "provider")
        self._lanes = Lanes(sorted({kind.queue for kind in app.kinds.values() if kind.handlers and kind.runs in ours}))
        if self._ears is None:
            self.engine.notifier.listen(self._notified)
        self._ears = ears
        self._registration = Registration(self.engine.db, self.name, slots, self._lanes.queues, self.lease)
        with contextlib.suppress(UnavailableError):  # the first claim registers it
            await self._registration.beat()

    async def claim(self, want: int, *, is_waiting: bool) -> list[Lease]:
        registration = self._registration
        if registration is None:
            raise RuntimeError("The source is not open.")
        if not registration.is_registered:  # otherwise its leases would be taken for those of a worker that has left
            await registration.beat()
        registration.has_polled = True
        if registration.is_draining:
            return []
        if not is_waiting:  # no later claim would find jobs behind the place where this one begins
            self._lanes.look_at = 0.0
            if self.engine.app.limits:
                await self.engine.limits.look_again()
        self._lanes.resting = self.engine.providers.resting()
        claimed: list[Lease] = []
        while not claimed:
            claimed = await self.engine.claim(self._lanes, want, worker=registration.id, duration=self.lease)
            if not self._lanes.is_full:
                break
        if self._lanes.is_full and self._ears is not None:  # limits have held back some of what it looked at
            self._ears.wake()
        return claimed

    def stop_polling(self) -> None: ...

    async def extend(self, leases: Sequence[Lease]) -> HeartbeatAnswer:
        return await self.engine.extend(leases, self.lease)

    async def beat(self) -> None:
        registration = self._registration
        if registration is None:
            return
        was_draining = registration.is_draining
        await registration.beat()
        if was_draining and not registration.is_draining and self._ears is not None:
            self._ears.wake()

    def report_loaded(self, resources: Sequence[str]) -> None:
        if self._registration is not None:
            self._registration.resources = resources
            self._renewing = asyncio.create_task(self._renew())

    async def note(self, *notes: Note) -> bool:
        return await self.engine.note(*notes)

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        return await self.engine.emit(*groups)

    async def keep_traceback(self, lease: Lease, text: str) -> None:
        await self.engine.keep_traceback(lease, text)

    async def finish(self, end: End) -> None:
        await self.engine.finish(end)

    async def give_back(self, item: Return) -> None:
        await self.engine.give_back(item)

    async def park(self, lease: Lease, memo: Any) -> None:
        await self.engine.park(lease, memo)

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:
        return await self.engine.proceed(lease, answer, memo)

    async def recall(self, lease: Lease, after: str) -> list[Step]:
        return await self.engine.recall(lease, after)

    async def record(self, item: StepRequest) -> Step:
        return await self.engine.record(item)

    async def spawn(self, request: SpawnRequest) -> Step:
        return await self.engine.spawn(request)

    async def results(self, lease: Lease, batch_id: UUID, after: UUID | None) -> BatchResults:
        return await self.engine.results(lease, batch_id, after)

    async def suspend(self, lease: Lease, name: str) -> None:
        await self.engine.suspend(lease, name)

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        if tokens := set(tokens):
            await self.engine.close_leases(tokens)

    async def close(self) -> None:
        registration, self._registration = self._registration, None
        if registration is not None:
            with contextlib.suppress(MillpondError):  # it is shown as lost, and removed later
                await registration.leave()

    def _notified(self, topics: frozenset[str]) -> None:
        ears, registration = self._ears, self._registration
        if ears is None or registration is None:
            return
        if f"{WORKER_TOPIC}{registration.id}" in topics:  # an operator has changed it
            self._renewing = asyncio.create_task(self._renew())
        for topic in topics:
            if topic.startswith(CANCEL_TOPIC):
                with contextlib.suppress(ValueError):  # a payload with very many topics may be cut off
                    ears.cancel(UUID(topic[len(CANCEL_TOPIC) :]))
        ours = topics.intersection(self._lanes.queues)
        back = any(f"{BACK_TOPIC}{queue}" in topics for queue in self._lanes.queues)
        if back:
            self._lanes.rescan()
        elif ours:
            self._lanes.notified(ours)
        if ours or back:
            ears.wake()

    async def _renew(self) -> None:
        with contextlib.suppress(MillpondError):  # the next heartbeat tries again
            await self.beat()

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
        return _artifact(record)

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


def _artifact(record: ArtifactRecord) -> Artifact:
    return Artifact(record.id, record.name, record.content_type, record.size or 0, record.sha256)
