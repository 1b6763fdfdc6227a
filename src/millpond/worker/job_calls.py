"""What the code of a job in a pool process asks of its worker: the methods of a source, as calls over the channel."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta  # noqa: TC003 - msgspec reads the annotations
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID  # noqa: TC003 - as above

import msgspec

from millpond import errors, values
from millpond.errors import LeaseLostError, MillpondError
from millpond.work import (
    Artifact,
    BatchResults,
    ChildRequest,
    Chunk,
    HeartbeatAnswer,
    Note,
    SpawnRequest,
    Step,
    StepRequest,
    StepType,
)
from millpond.worker.channel import CallReply, JobCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from millpond.work import Lease
    from millpond.worker.channel import Channel, Verb
    from millpond.worker.source import JobSource


class _NoteBody(msgspec.Struct):
    number: int
    type: str
    data: str
    value: float | None
    stage: str | None


class _ChunkBody(msgspec.Struct):
    number: int
    text: str


class _StepBody(msgspec.Struct):
    name: str
    position: int | None
    type: StepType
    result: str | None
    wait: timedelta | None
    details: str | None


class _SpawnBody(msgspec.Struct):
    name: str
    position: int | None
    children: list[ChildRequest]
    total: int
    first: int
    is_detached: bool
    fails_fast: bool


class _ResultsBody(msgspec.Struct):
    batch_id: UUID
    after: UUID | None


class _SaveBody(msgspec.Struct):
    name: str
    content_type: str
    path: str | None


class _ErrorBody(msgspec.Struct):
    type: str
    message: str
    field: str | None
    hint: str | None
    details: dict[str, Any]


class PendingCalls:
    """The calls of a pool process that its worker has not answered yet."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def next_number(self) -> int:
        return next(self._numbers)

    def send(self, call: JobCall) -> None:
        """Send a call whose reply nobody waits for."""
        self._channel.send(call)

    async def make(self, call: JobCall) -> bytes:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call.number] = future
        self._channel.send(call)
        try:
            return await future
        finally:
            self._waiting.pop(call.number, None)

    def receive(self, reply: CallReply) -> None:
        future = self._waiting.pop(reply.number, None)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.value)
        else:
            future.set_exception(_error(reply.error))


class ChannelSource:
    """The source of one job in a pool process."""

    def __init__(self, pending: PendingCalls, lease: Lease) -> None:
        self._pending = pending
        self._lease = lease

    def _of(self, verb: Verb, body: Any, data: bytes = b"") -> JobCall:
        number = self._pending.next_number()
        return JobCall(number, self._lease.job_id, self._lease.epoch, verb, msgspec.json.encode(body), data)

    async def _call(self, verb: Verb, body: Any, data: bytes = b"") -> bytes:
        return await self._pending.make(self._of(verb, body, data))

    async def extend(self, leases: Sequence[Lease]) -> HeartbeatAnswer:
        is_canceling, is_lost = msgspec.json.decode(await self._call("extend", None), type=tuple[bool, bool])
        ours = frozenset(lease.job_id for lease in leases)
        return HeartbeatAnswer(ours if is_canceling else frozenset(), ours if is_lost else frozenset())

    async def note(self, *notes: Note) -> bool:
        bodies = [_NoteBody(note.number, note.type, note.data, note.value, note.stage) for note in notes]
        return msgspec.json.decode(await self._call("note", bodies), type=bool)

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        bodies = [_ChunkBody(chunk.number, chunk.text) for group in groups for chunk in group]
        return [msgspec.json.decode(await self._call("emit", bodies), type=bool)]

    async def proceed(self, lease: Lease, answer: Any, memo: Any) -> str:  # noqa: ARG002 - the interface of all sources
        texts = values.encode(answer, field="answer"), values.encode(memo, field="memo")
        return msgspec.json.decode(await self._call("proceed", texts), type=str)

    async def recall(self, lease: Lease, after: str) -> list[Step]:  # noqa: ARG002 - as above
        return msgspec.json.decode(await self._call("recall", after), type=list[Step])

    async def record(self, item: StepRequest) -> Step:
        body = _StepBody(item.name, item.position, item.type, item.result, item.wait, item.details)
        return msgspec.json.decode(await self._call("record", body), type=Step)

    async def spawn(self, request: SpawnRequest) -> Step:
        body = _SpawnBody(
            request.name,
            request.position,
            list(request.children),
            request.total,
            request.first,
            request.is_detached,
            request.fails_fast,
        )
        return msgspec.json.decode(await self._call("spawn", body), type=Step)

    async def results(self, lease: Lease, batch_id: UUID, after: UUID | None) -> BatchResults:  # noqa: ARG002 - as above
        found = await self._call("results", _ResultsBody(batch_id, after))
        return msgspec.json.decode(found, type=BatchResults)

    async def save(self, lease: Lease, name: str, content_type: str, data: bytes | Path) -> Artifact:  # noqa: ARG002 - as above
        body = _SaveBody(name, content_type, _absolute(data) if isinstance(data, Path) else None)
        return msgspec.json.decode(
            await self._call("save", body, b"" if isinstance(data, Path) else data), type=Artifact
        )

    async def read(self, lease: Lease, name: str) -> AsyncGenerator[bytes]:  # noqa: ARG002 - as above
        """Ask for each piece when it is needed; an empty one is the end."""
        number = self._pending.next_number()
        try:
            while piece := await self._call("read", (number, name)):
                yield piece
        finally:
            self._pending.send(self._of("close", number))


class JobCalls:
    """Answers the calls of one job, by its worker's source. Whatever they contain, they are about this job."""

    def __init__(self, source: JobSource, lease: Lease) -> None:
        self._source = source
        self._lease = lease
        self._reading: dict[int, AsyncGenerator[bytes]] = {}

    def is_of(self, call: JobCall) -> bool:
        """Whether a call is of this attempt of the job."""
        return (call.job_id, call.epoch) == (self._lease.job_id, self._lease.epoch)

    async def answer(self, call: JobCall) -> CallReply:
        try:
            return CallReply(call.number, await self._answer(call))
        except Exception as error:  # noqa: BLE001 - it is raised in the process
            return CallReply(call.number, error=_error_body(error))

    async def close(self) -> None:
        for reading in self._reading.values():
            with contextlib.suppress(Exception):
                await reading.aclose()
        self._reading.clear()

    async def _answer(self, call: JobCall) -> bytes:
        if call.verb == "read":
            return await self._read(*msgspec.json.decode(call.body, type=tuple[int, str]))
        if call.verb == "close":
            reading = self._reading.pop(msgspec.json.decode(call.body, type=int), None)
            return b"" if reading is None else await _closed(reading)
        return msgspec.json.encode(await getattr(self, f"_{call.verb}")(call))

    async def _extend(self, call: JobCall) -> tuple[bool, bool]:  # noqa: ARG002 - the same for all
        answer = await self._source.extend([self._lease])
        return self._lease.job_id in answer.canceling, self._lease.job_id in answer.lost

    async def _note(self, call: JobCall) -> bool:
        bodies = msgspec.json.decode(call.body, type=list[_NoteBody])
        return await self._source.note(*(Note(self._lease, **msgspec.structs.asdict(body)) for body in bodies))

    async def _emit(self, call: JobCall) -> bool:
        bodies = msgspec.json.decode(call.body, type=list[_ChunkBody])
        (result,) = await self._source.emit([Chunk(self._lease, body.number, body.text) for body in bodies])
        if isinstance(result, Exception):
            raise result
        return result

    async def _proceed(self, call: JobCall) -> str:
        answer, memo = (msgspec.json.decode(text) for text in msgspec.json.decode(call.body, type=tuple[str, str]))
        return await self._source.proceed(self._lease, answer, memo)

    async def _recall(self, call: JobCall) -> list[Step]:
        return await self._source.recall(self._lease, msgspec.json.decode(call.body, type=str))

    async def _record(self, call: JobCall) -> Step:
        body = msgspec.json.decode(call.body, type=_StepBody)
        return await self._source.record(StepRequest(self._lease, **msgspec.structs.asdict(body)))

    async def _spawn(self, call: JobCall) -> Step:
        body = msgspec.json.decode(call.body, type=_SpawnBody)
        return await self._source.spawn(SpawnRequest(self._lease, **msgspec.structs.asdict(body)))

    async def _results(self, call: JobCall) -> BatchResults:
        body = msgspec.json.decode(call.body, type=_ResultsBody)
        return await self._source.results(self._lease, body.batch_id, body.after)

    async def _save(self, call: JobCall) -> Artifact:
        body = msgspec.json.decode(call.body, type=_SaveBody)
        data = call.data if body.path is None else Path(body.path)
        return await self._source.save(self._lease, body.name, body.content_type, data)

    async def _read(self, number: int, name: str) -> bytes:
        reading = self._reading.get(number)
        if reading is None:
            reading = self._reading[number] = self._source.read(self._lease, name)
        async for piece in reading:
            if piece:
                return piece
        return b""


def refused(call: JobCall) -> CallReply:
    """The reply to a call of a job that no longer runs."""
    return CallReply(call.number, error=_error_body(LeaseLostError()))


async def _closed(reading: AsyncGenerator[bytes]) -> bytes:
    await reading.aclose()
    return b""


def _absolute(path: Path) -> str:
    return str(path.absolute())


def _error_body(error: Exception) -> bytes:
    """An error for the process: of the class of Millpond's errors that it is, or else with its text alone."""
    if not isinstance(error, MillpondError):
        return msgspec.json.encode(_ErrorBody("", f"{type(error).__name__}: {error}", None, None, {}))
    name = next(each.__name__ for each in type(error).__mro__ if getattr(errors, each.__name__, None) is each)
    return msgspec.json.encode(_ErrorBody(name, error.message, error.field, error.hint, error.details), enc_hook=str)


def _error(body: bytes) -> Exception:
    found = msgspec.json.decode(body, type=_ErrorBody)
    known = getattr(errors, found.type, None) if found.type else None
    if known is None:
        return RuntimeError(found.message)
    if known is LeaseLostError:
        return LeaseLostError()
    details = {name: value for name, value in found.details.items() if name not in {"field", "hint"}}
    return known(found.message, field=found.field, hint=found.hint, **details)
