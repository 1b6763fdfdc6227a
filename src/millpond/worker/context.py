"""What the code of a job sees: its input and history, and how it says where it is."""

from __future__ import annotations

import asyncio
import contextlib
import math
import mimetypes
import os
import random
import tempfile
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from millpond import ids, values
from millpond.errors import CanceledError, InputError, InvalidError, LeaseLostError, UnavailableError
from millpond.retry import Backoff
from millpond.work import Note
from millpond.worker.telling import Telling

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence

    from millpond.kinds import Kind
    from millpond.work import Artifact, Lease
    from millpond.worker.source import Source

Answer = TypeVar("Answer")

_PROGRESS_GAP: Final = 0.25
"""Seconds between two written progress values: the ones between are passed over, not queued."""
_LOG_MAX: Final = 8_192
_LEVEL_MAX: Final = 20
_AWAY: Final = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=2), jitter=0.5)
_UNKNOWN_TYPE: Final = "application/octet-stream"


class Parked(BaseException):
    """Leaves the handler: the job waits for an answer. Not an error, so that no ``except Exception`` eats it."""

    def __init__(self, memo: Any) -> None:
        super().__init__()
        self.memo = memo


class Job:
    """A job in the hands of its handler.

    The verbs are awaited in an ``async def`` handler and simply called in a plain one. Each is also a checkpoint:
    it raises :class:`~millpond.CanceledError` when the job must stop.
    """

    def __init__(self, source: Source, lease: Lease, kind: Kind, loop: asyncio.AbstractEventLoop) -> None:
        self._source = source
        self._lease = lease
        self._kind = kind
        self._loop = loop
        self._notes = 0
        self._telling = Telling(self._tell)
        self._written_at = 0.0
        self._value = round(lease.progress, 6)  # the database keeps fewer digits than Python shows
        self._stage = -1 if lease.stage is None or lease.stage not in kind.stages else kind.stages.index(lease.stage)
        self._stop: Exception | None = None
        self._seen_at = time.monotonic()
        self._asking = 0
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self.captured: int | None = None
        self.saved: tuple[Artifact, ...] = ()
        """The files that its code has saved so far."""

    @property
    def id(self) -> str:
        return ids.text("job", self._lease.job_id)

    @property
    def kind(self) -> str:
        return self._lease.kind

    @property
    def tenant(self) -> str:
        return self._lease.tenant

    @property
    def account(self) -> str:
        return self._lease.account

    @property
    def state(self) -> str:
        return self._lease.state

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self._lease.attempts + 1

    @property
    def epoch(self) -> int:
        """How often the job was handed out; unique to this lease, so good for naming what it writes."""
        return self._lease.epoch

    @property
    def memo(self) -> Any:
        """What was left when the job was parked."""
        return None if self._lease.memo is None else msgspec.json.decode(self._lease.memo)

    @property
    def answer(self) -> Any:
        """What a parked job was waiting for."""
        return None if self._lease.answer is None else msgspec.json.decode(self._lease.answer)

    @property
    def is_canceled(self) -> bool:
        """Whether the job must stop; for code that would rather ask than be interrupted."""
        return self._stop is not None

    @property
    def silent_for(self) -> float:
        """For how many seconds the code has given no sign; none, while we are doing something for it."""
        return 0.0 if self._asking else time.monotonic() - self._seen_at

    def progress(self, value: float) -> Awaitable[None]:
        """How far it is, from 0 to 1; never goes back."""
        if isinstance(value, bool) or not math.isfinite(value) or not 0 <= value <= 1:
            raise InputError(f"{value!r} is not a progress from 0 to 1.", field="progress")
        if value <= self._value:
            return self.checkpoint()
        now = time.monotonic()
        self._value = value
        if now - self._written_at < _PROGRESS_GAP:
            return self.checkpoint()
        self._written_at = now
        return self._say("progress", {"progress": self._value}, value=self._value)

    def stage(self, name: str) -> Awaitable[None]:
        """Enter a stage of the kind; going back is passed over."""
        if name not in self._kind.stages:
            raise InputError(
                f"{name!r} is not a stage of {self.kind!r}.",
                field="stage",
                hint=f"Its stages: {', '.join(self._kind.stages) or 'none'}.",
            )
        if self._kind.stages.index(name) <= self._stage:  # told already, perhaps by the code of an earlier attempt
            return self.checkpoint()
        self._stage = self._kind.stages.index(name)
        return self._say("stage", {"stage": name}, stage=name)

    def log(self, text: str, *, level: str = "info") -> Awaitable[None]:
        """Write a line that stays readable with the job."""
        line = {"level": values.printable(str(level), _LEVEL_MAX), "text": values.printable(str(text), _LOG_MAX)}
        return self._say("log", line)

    def checkpoint(self) -> Awaitable[None]:
        """Raise if the job must stop."""
        self._seen_at = time.monotonic()
        if self._stop is not None:
            raise self._stop
        return _DONE

    def capture(self, amount: int) -> None:
        """Charge only a part of the price when the job succeeds; the rest goes back."""
        if values.check_amount(amount, field="amount") > self._lease.price:
            raise InvalidError(f"The job's price is {self._lease.price}.", field="amount")
        self.captured = amount

    def park(self, memo: Any = None) -> Any:
        """Leave until an answer comes; the handler is then called again, with the memo and the answer."""
        if self._lease.expires_at is None:
            raise InvalidError("A job that parks needs a deadline.", hint="Declare its kind with expires_in.")
        if memo is not None:
            values.encode(memo, field="memo", most=self._kind.size_max)
        raise Parked(memo)

    def proceed(self, answer: Any, memo: Any = None) -> Any:
        """Go on as if the job had parked and its answer had come; returns the state that it has come to.

        For a job that need not wait, because what it would wait for is there.
        """
        self.checkpoint()
        return self._run(self._proceed(answer, memo), is_plain=True)

    # Files. A plain handler gets what they return; an ``async def`` one awaits it.

    def save(self, name: str, data: bytes | str, content_type: str | None = None) -> Any:
        """Keep a file with the job; returns its :class:`~millpond.worker.Artifact`."""
        self.checkpoint()
        whole = data.encode() if isinstance(data, str) else bytes(data)
        return self._run(self._save(_file_name(name), content_type, whole), is_plain=True)

    def upload(self, path: str | os.PathLike[str], name: str | None = None, content_type: str | None = None) -> Any:
        """Keep a file from the disk, however large; returns its :class:`~millpond.worker.Artifact`."""
        self.checkpoint()
        file = Path(path)
        if not file.is_file():
            raise InputError(f"There is no file {str(file)!r}.", field="path")
        return self._run(self._save(_file_name(name or file.name), content_type, file), is_plain=True)

    def open(self, name: str) -> Any:
        """The bytes of a file by the id of its artifact (``art_…``), or by the name that its kind gives it."""
        self.checkpoint()
        return self._run(self._open(name), is_plain=True)

    def download(self, name: str, path: str | os.PathLike[str]) -> Any:
        """Put such a file onto the disk, however large; returns its path. It is there whole, or not at all."""
        self.checkpoint()
        return self._run(self._download(name, Path(path)), is_plain=True)

    def stop(self, reason: Exception) -> None:
        """Let the next checkpoint raise this. Called by the worker."""
        if self._stop is None:
            self._stop = reason

    def cut(self) -> None:
        """End what its threads are waiting for. Called by the worker."""
        for call in list(self._calls):
            call.cancel()

    async def _proceed(self, answer: Any, memo: Any) -> str:
        with self._doing():
            state = await self._insist(lambda: self._source.proceed(self._lease, answer, memo))
        said = {"memo": memo, "answer": answer}
        told = {name: msgspec.json.encode(given).decode() for name, given in said.items() if given is not None}
        self._lease = msgspec.structs.replace(self._lease, state=state, **told)
        return state

    async def _save(self, name: str, content_type: str | None, data: bytes | Path) -> Artifact:
        guessed = content_type or mimetypes.guess_type(name)[0] or _UNKNOWN_TYPE
        with self._doing():
            artifact = await self._source.save(self._lease, name, guessed, data)
        self.saved += (artifact,)
        await self.checkpoint()
        return artifact

    async def _open(self, name: str) -> bytes:
        with self._doing():
            async with contextlib.aclosing(self._source.read(self._lease, name)) as chunks:
                found = b"".join([chunk async for chunk in chunks])
        await self.checkpoint()
        return found

    async def _download(self, name: str, path: Path) -> Path:
        with self._doing():
            handle, part = await asyncio.to_thread(tempfile.mkstemp, dir=path.parent, prefix=f".{path.name}.")
            try:
                async with contextlib.aclosing(self._source.read(self._lease, name)) as chunks:
                    with os.fdopen(handle, "wb") as file:
                        async for chunk in chunks:
                            await asyncio.to_thread(file.write, chunk)
                await asyncio.to_thread(os.replace, part, path)
            except BaseException:
                os.unlink(part)  # noqa: PTH108 - the name came from mkstemp as text
                raise
        await self.checkpoint()
        return path

    @contextlib.contextmanager
    def _doing(self) -> Generator[None]:
        """While we are at something for it, the code is not the one that is silent."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            self._seen_at = time.monotonic()

    def _say(
        self, word: str, data: dict[str, Any], *, value: float | None = None, stage: str | None = None
    ) -> Awaitable[None]:
        self.checkpoint()
        text = msgspec.json.encode(data).decode()
        return self._run(self._write(word, text, value, stage))

    async def _write(self, word: str, text: str, value: float | None, stage: str | None) -> None:
        # Counted here, on the loop's thread and in the step that sends it: numbers go out in their order.
        self._notes += 1
        note = Note(self._lease, self._notes, word, text, value, stage)
        with self._doing():
            try:
                if await self._telling.add(note):
                    self.stop(CanceledError())
            except LeaseLostError as lost:
                self.stop(lost)
        await self.checkpoint()

    async def _tell(self, notes: Sequence[Note]) -> bool:
        return await self._insist(lambda: self._source.note(*notes))

    async def _insist(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """What the code has done cannot be undone because it cannot be written just now: so that is waited for.

        What is asked may be asked twice. The wait ends with the lease, or when the job must stop.
        """
        for failures in count(1):
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(_AWAY.delay(failures, random.random()).total_seconds())  # noqa: S311 - jitter
                if self._stop is not None:
                    raise self._stop from None
        raise AssertionError  # the count has no end

    def _run(self, call: Coroutine[Any, Any, Answer], *, is_plain: bool = False) -> Any:
        """On the loop's own thread, something to await; on any other, done when it returns.

        There it returns the answer itself where ``is_plain``, and otherwise one that can still be awaited.
        """
        try:
            if asyncio.get_running_loop() is self._loop:
                return call
        except RuntimeError:
            pass
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        self._calls.add(future)
        try:
            answer = future.result()
        finally:
            self._calls.discard(future)
        return answer if is_plain else _Done(answer)


def _file_name(name: str) -> str:
    """A name that is a name in every storage, and no way out of a folder."""
    plain = values.printable(str(name), 255)
    if plain != name or not name or name in {".", ".."} or any(c in "/\\" or c < " " for c in name):
        raise InputError(f"{str(name)[:80]!r} cannot be the name of a file.", field="name")
    return name


class _Done:
    """An answer that is already there, for handlers that await nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield


_DONE: Final = _Done()
