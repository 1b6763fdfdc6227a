"""The job object of handlers: its input and history, and methods to report progress."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import mimetypes
import os
import random
import tempfile
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from millpond import ids, values
from millpond.errors import CanceledError, InputError, InvalidError, LeaseLostError, MillpondError, UnavailableError
from millpond.retry import Backoff
from millpond.work import ChildRequest, Note, gated
from millpond.worker.emitter import TextBuffer
from millpond.worker.note_queue import NoteQueue
from millpond.worker.steps import (
    NO_DEFAULT,
    Child,
    Parked,
    Steps,
    check_question,
    decode,
    first_failure,
    outcome,
)

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
    from datetime import datetime

    from millpond.kinds import Kind
    from millpond.work import Artifact, ChildResult, Lease, Step
    from millpond.worker.emitter import Emitter
    from millpond.worker.source import JobSource
    from millpond.worker.steps import Place

Answer = TypeVar("Answer")

_PROGRESS_GAP: Final = 0.25
"""The minimum seconds between two stored progress values; values in between are skipped."""
_ASK_GAP: Final = 2.0
"""The minimum seconds between two requests about a cancel."""
_LOG_MAX: Final = 8_192
_LEVEL_MAX: Final = 20
_BACKOFF: Final = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=2), jitter=0.5)
_FLUSH_SECONDS: Final = 5.0
_UNWRITTEN_MAX: Final = 5_000
"""How many lines of ``log_soon`` wait to be written; more are dropped."""
_UNKNOWN_TYPE: Final = "application/octet-stream"


class Job:
    """The job passed to its handler.

    In an ``async def`` handler the methods are awaited, in a plain one they are called. Each is also a checkpoint: it
    raises :class:`~millpond.CanceledError` if the job must stop.
    """

    def __init__(
        self, source: JobSource, lease: Lease, kind: Kind, loop: asyncio.AbstractEventLoop, emitter: Emitter
    ) -> None:
        self._source = source
        self._lease = lease
        self._kind = kind
        self._loop = loop
        self._notes = 0
        self._note_queue = NoteQueue(self._send_notes)
        self._emitter = emitter
        self._text: TextBuffer | None = None
        """The text that was emitted, if any."""
        self._written_at = 0.0
        self._value = round(lease.progress, 6)  # the database keeps fewer digits than Python shows
        self._stage = -1 if lease.stage is None or lease.stage not in kind.stages else kind.stages.index(lease.stage)
        self._stop: Exception | None = None
        self._seen_at = time.monotonic()
        self._asked_at = time.monotonic()
        self._asking = 0
        self._unwritten: set[asyncio.Future[bool]] = set()
        """Lines of ``log_soon``."""
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self.steps = Steps(source, lease, kind.size_max)
        """What the code does in steps. Used by the worker."""
        self.captured: int | None = None
        self.saved: tuple[Artifact, ...] = ()
        """The files saved so far."""

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
        """The number of the attempt, starting at 1."""
        return self._lease.attempts + 1

    @property
    def epoch(self) -> int:
        """The number of times the job was leased. It is unique per lease and can be used in names of written data."""
        return self._lease.epoch

    @property
    def memo(self) -> Any:
        """The memo stored when the job was parked."""
        return None if self._lease.memo is None else msgspec.json.decode(self._lease.memo)

    @property
    def answer(self) -> Any:
        """The answer to a parked job."""
        return None if self._lease.answer is None else msgspec.json.decode(self._lease.answer)

    @property
    def is_canceled(self) -> bool:
        """Whether the job must stop; for code that polls instead of being interrupted."""
        return self._stop is not None

    @property
    def silent_for(self) -> float:
        """For how many seconds the code has reported nothing; 0 while a method of the job is running."""
        return 0.0 if self._asking else time.monotonic() - self._seen_at

    def progress(self, value: float) -> Awaitable[None]:
        """Report the progress from 0 to 1; it never decreases."""
        if isinstance(value, bool) or not math.isfinite(value) or not 0 <= value <= 1:
            raise InputError(f"The progress must be from 0 to 1, not {value!r}.", field="progress")
        if value <= self._value:
            return self.checkpoint()
        now = time.monotonic()
        self._value = value
        if now - self._written_at < _PROGRESS_GAP:
            return self.checkpoint()
        self._written_at = now
        return self._add_note("progress", {"progress": self._value}, value=self._value)

    def stage(self, name: str) -> Awaitable[None]:
        """Enter a stage of the kind; earlier stages are ignored."""
        if name not in self._kind.stages:
            raise InputError(
                f"{name!r} is not a stage of {self.kind!r}.",
                field="stage",
                hint=f"Its stages: {', '.join(self._kind.stages) or 'none'}.",
            )
        if self._kind.stages.index(name) <= self._stage:  # already written, perhaps by an earlier attempt
            return self.checkpoint()
        self._stage = self._kind.stages.index(name)
        return self._add_note("stage", {"stage": name}, stage=name)

    def log(self, text: str, *, level: str = "info") -> Awaitable[None]:
        """Write a line to the job's log. Until the code reaches the last recorded step, nothing is written again."""
        if self.steps.is_replaying:
            return self.checkpoint()
        return self._add_note("log", _line(text, level))

    def log_soon(self, text: str, *, level: str = "info") -> None:
        """Write a line to the job's log in the background. Not a checkpoint; may be called in any thread.

        Lines are dropped while very many of them wait, and after the job has ended.
        """
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._add_line, _line(text, level))

    def emit(self, text: str) -> Awaitable[None]:
        """Emit a piece of text, such as a token, which the readers of the job's stream receive at once and in order.

        Pieces are sent together, at most twenty times a second. An attempt may emit 1 MiB; a later attempt restarts the
        text. The text is deleted soon after the end of the job, so return what matters of it. A kind with a gate cannot
        emit text.
        """
        self.checkpoint()
        if self._is_on_loop():
            return self._accept(text)
        return self._run(self._emit(text))

    def checkpoint(self) -> Awaitable[None]:
        """Raise if the job must stop."""
        self._seen_at = time.monotonic()
        if self._stop is not None:
            raise self._stop
        return _DONE

    def check_cancel(self) -> Awaitable[None]:
        """A checkpoint that asks whether the job was canceled, at most every two seconds.

        Otherwise the worker learns of a cancel by its next heartbeat or report about the job, which may take half a
        minute. For code that waits for another system.
        """
        checked = self.checkpoint()
        if time.monotonic() - max(self._asked_at, self._written_at) < _ASK_GAP:
            return checked
        self._asked_at = time.monotonic()
        return self._run(self._ask())

    def capture(self, amount: int) -> None:
        """Charge only a part of the price if the job succeeds; the rest is released."""
        if values.check_amount(amount, field="amount") > self._lease.price:
            raise InvalidError(f"The job's price is {self._lease.price}.", field="amount")
        self.captured = amount

    def park(self, memo: Any = None) -> Any:
        """Park until an answer is given; the handler is then called again, with the memo and the answer."""
        if self._lease.expires_at is None:
            raise InvalidError(
                "The job cannot park, because it has no deadline.", hint="Declare the kind with expires_in."
            )
        if memo is not None:
            values.encode(memo, field="memo", limit=self._kind.size_max)
        raise Parked(memo)

    def proceed(self, answer: Any, memo: Any = None) -> Any:
        """Continue as if the job had parked and its answer had arrived; returns the new state.

        For a job that does not need to wait, because the answer is already known.
        """
        self.checkpoint()
        return self._run(self._proceed(answer, memo), is_plain=True)

    # Steps. What they do is recorded once: when the code runs again, it gets the record.

    def step(self, name: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function and record its result under this name; a later attempt gets the recorded result.

        The result is what JSON preserves of it. The function is called again if the worker stops before the result is
        recorded.
        """
        self.checkpoint()
        place = self.steps.place(name, "call")
        if self._is_on_loop():
            return self._call_step(place, function, arguments, named)
        if (recorded := self.steps.find(place)) is not None:
            return decode(recorded.result)
        return self._run(self._record(place, function(*arguments, **named)), is_plain=True)

    def child(
        self,
        kind: str,
        input: Any = None,
        *,
        name: str | None = None,
        is_detached: bool = False,
        tags: Mapping[str, str] | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        expires_in: timedelta | str | float | None = None,
        route: str | None = None,
    ) -> Child:
        """A child of the job: another job, which is submitted when it is awaited, started or gathered.

        While this job waits for it, it is parked. If this job ends first, the child is canceled, unless it is
        detached.
        """
        request = ChildRequest(
            kind,
            input,
            None if tags is None else dict(tags),
            priority,
            run_at,
            None if expires_in is None else values.duration(expires_in, field="expires_in").total_seconds(),
            route,
        )
        return Child(self, self.steps.place(name or kind, "children"), request, is_detached=is_detached)

    def gather(self, *children: Child, return_exceptions: bool = False) -> Any:
        """Submit children together and wait for all of them; returns their results in order.

        If one does not succeed, that raises :class:`~millpond.ChildFailedError` at once. With ``return_exceptions``,
        all are awaited, and the errors are returned in place of the results.
        """
        self.checkpoint()
        return self._run(self._gather(children, return_exceptions=return_exceptions), is_plain=True)

    def gather_one(self, child: Child) -> Any:
        """The result of one child."""
        self.checkpoint()
        return self._run(self._gather_one(child), is_plain=True)

    def start_child(self, child: Child) -> Any:
        """Submit a child without waiting for it."""
        self.checkpoint()
        return self._run(self._start_child(child), is_plain=True)

    def sleep(self, duration: timedelta | str | float) -> Any:
        """Park the job for this long, counted from the first time that the code gets here."""
        self.checkpoint()
        seconds = values.duration(duration, field="duration")
        return self._run(self._waiting(self.steps.wait(self.steps.place("sleep", "sleep"), seconds)), is_plain=True)

    def ask(
        self,
        question: str,
        *,
        schema: Any = None,
        who: str = "client",
        within: timedelta | str | float | None = None,
        default: Any = NO_DEFAULT,
        name: str = "question",
    ) -> Any:
        """Ask somebody, park until there is an answer, and return it.

        ``schema`` is a type or a JSON Schema, ``who`` is ``client``, ``operator`` or the id of a key. If there is no
        answer ``within`` a time, the result is the default; without one, that raises
        :class:`~millpond.UnansweredError`.
        """
        self.checkpoint()
        check_question(question, who)
        details = {"question": question, "schema": _json_schema(schema), "who": who}
        limit = None if within is None else values.duration(within, field="within")
        place = self.steps.place(name, "question")
        answering = self._answer(self.steps.ask(place, details, limit, default), schema, default)
        return self._run(answering, is_plain=True)

    # Files. A plain handler gets what they return; an ``async def`` one awaits it.

    def save(self, name: str, data: bytes | str, content_type: str | None = None) -> Any:
        """Save a file with the job; returns its :class:`~millpond.worker.Artifact`."""
        self.checkpoint()
        whole = data.encode() if isinstance(data, str) else bytes(data)
        return self._run(self._save(_file_name(name), content_type, whole), is_plain=True)

    def upload(self, path: str | os.PathLike[str], name: str | None = None, content_type: str | None = None) -> Any:
        """Save a file from disk, of any size; returns its :class:`~millpond.worker.Artifact`."""
        self.checkpoint()
        file = Path(path)
        if not file.is_file():
            raise InputError(f"The file {str(file)!r} does not exist.", field="path")
        return self._run(self._save(_file_name(name or file.name), content_type, file), is_plain=True)

    def open(self, name: str) -> Any:
        """The content of a file by its artifact id (``art_…``), or by the name defined by its kind."""
        self.checkpoint()
        return self._run(self._open(name), is_plain=True)

    def download(self, name: str, path: str | os.PathLike[str]) -> Any:
        """Download such a file to disk, of any size; returns its path. The file is written atomically."""
        self.checkpoint()
        return self._run(self._download(name, Path(path)), is_plain=True)

    async def flush_log(self) -> None:
        """Wait until the lines of ``log_soon`` are written, for a few seconds at most. Called by the worker."""
        await asyncio.sleep(0)  # lines of a thread that has just ended are added first
        if self._unwritten:
            await asyncio.wait(self._unwritten, timeout=_FLUSH_SECONDS)

    @property
    def has_unwritten_text(self) -> bool:
        """Whether emitted text is not written yet."""
        return self._text is not None and self._text.unwritten > 0

    async def flush_text(self) -> None:
        """Wait until the emitted text is written. Called by the worker."""
        if self._text is not None and (written := self._emitter.flush(self._text)) is not None:
            with self.doing():
                await written

    def drop_text(self) -> None:
        """Forget text that is not written. Called by the worker."""
        if self._text is not None:
            self._emitter.drop(self._text)

    def _add_line(self, line: dict[str, str]) -> None:
        if self._stop is not None or self.steps.is_replaying or len(self._unwritten) >= _UNWRITTEN_MAX:
            return
        self._notes += 1
        note = Note(self._lease, self._notes, "log", msgspec.json.encode(line).decode())
        future = self._note_queue.add(note)
        self._unwritten.add(future)
        future.add_done_callback(self._written)

    def _written(self, future: asyncio.Future[bool]) -> None:
        self._unwritten.discard(future)
        if future.cancelled():
            return
        if isinstance(future.exception(), LeaseLostError):
            self.stop(LeaseLostError())
        elif future.exception() is None and future.result():
            self.stop(CanceledError())

    def seem_silent(self, seconds: float) -> None:
        """Take over for how long the code has reported nothing in its own process. Called by the worker."""
        self._seen_at = time.monotonic() - seconds

    def stop(self, reason: Exception) -> None:
        """Let the next checkpoint raise this. Called by the worker."""
        if self._stop is None:
            self._stop = reason

    def cut(self) -> None:
        """Release the threads that wait for the job. Called by the worker."""
        for call in list(self._calls):
            call.cancel()

    async def load_steps(self) -> None:
        """Read what earlier attempts have recorded. Called by the worker."""
        await self._retry(self.steps.load)

    async def _call_step(
        self, place: Place, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        recorded = self.steps.find(place)
        if recorded is not None:
            return decode(recorded.result)
        result = function(*arguments, **named)
        return await self._record(place, await result if inspect.isawaitable(result) else result)

    async def _record(self, place: Place, result: Any) -> Any:
        return await self._waiting(self._retry(lambda: self.steps.record_result(place, result)))

    async def _gather(self, children: Sequence[Child], *, return_exceptions: bool) -> list[Any]:
        if not children:
            return []
        if len({child.is_detached for child in children}) > 1:
            raise InvalidError("Detached children cannot be gathered with others.", field="children")
        results = await self._results(children, fails_fast=not return_exceptions)
        if return_exceptions:
            return [outcome(result) for result in results]
        if failure := first_failure(results):
            raise failure
        return results

    async def _gather_one(self, child: Child) -> ChildResult:
        (result,) = await self._gather([child], return_exceptions=False)
        return result

    async def _results(self, children: Sequence[Child], *, fails_fast: bool) -> list[ChildResult]:
        step = await self._submit(children, fails_fast=fails_fast)
        return await self._waiting(self._retry(lambda: self.steps.results(step, len(children))))

    async def _submit(self, children: Sequence[Child], *, fails_fast: bool) -> Step:
        is_detached = children[0].is_detached
        submitting = self._retry(lambda: self.steps.submit(children, is_detached=is_detached, fails_fast=fails_fast))
        return await self._waiting(submitting)

    async def _start_child(self, child: Child) -> None:
        await self._submit([child], fails_fast=True)

    async def _answer(self, asking: Coroutine[Any, Any, Any], schema: Any, default: Any) -> Any:
        answer = await self._waiting(asking)
        if schema is None or isinstance(schema, dict) or answer is default:
            return answer
        return msgspec.convert(answer, schema)

    async def _waiting(self, call: Awaitable[Answer]) -> Answer:
        with self.doing():
            return await call

    def _is_on_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_ASK_GAP):
                answer = await self._source.extend([self._lease])
            if self._lease.job_id in answer.lost:
                self.stop(LeaseLostError())
            elif self._lease.job_id in answer.canceling:
                self.stop(CanceledError())
        except LeaseLostError as lost:
            self.stop(lost)
        except (MillpondError, TimeoutError):
            pass  # the heartbeats of the worker deal with an outage
        await self.checkpoint()

    async def _proceed(self, answer: Any, memo: Any) -> str:
        with self.doing():
            state = await self._retry(lambda: self._source.proceed(self._lease, answer, memo))
        given = {"memo": memo, "answer": answer}
        changes = {name: msgspec.json.encode(value).decode() for name, value in given.items() if value is not None}
        self._lease = msgspec.structs.replace(self._lease, state=state, **changes)
        return state

    async def _save(self, name: str, content_type: str | None, data: bytes | Path) -> Artifact:
        guessed = content_type or mimetypes.guess_type(name)[0] or _UNKNOWN_TYPE
        with self.doing():
            artifact = await self._source.save(self._lease, name, guessed, data)
        self.saved += (artifact,)
        await self.checkpoint()
        return artifact

    async def _open(self, name: str) -> bytes:
        with self.doing():
            async with contextlib.aclosing(self._source.read(self._lease, name)) as chunks:
                found = b"".join([chunk async for chunk in chunks])
        await self.checkpoint()
        return found

    async def _download(self, name: str, path: Path) -> Path:
        with self.doing():
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
    def doing(self) -> Generator[None]:
        """While a method of the job is running, the code is not considered stalled. Also called by the worker."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            self._seen_at = time.monotonic()

    def _add_note(
        self, type: str, data: dict[str, Any], *, value: float | None = None, stage: str | None = None
    ) -> Awaitable[None]:
        self.checkpoint()
        text = msgspec.json.encode(data).decode()
        return self._run(self._write(type, text, value, stage))

    async def _write(self, type: str, text: str, value: float | None, stage: str | None) -> None:
        # Numbered on the loop's thread, just before it is queued, so that notes are sent in the order of their numbers.
        self._notes += 1
        note = Note(self._lease, self._notes, type, text, value, stage)
        with self.doing():
            try:
                if await self._note_queue.add(note):
                    self.stop(CanceledError())
            except LeaseLostError as lost:
                self.stop(lost)
        await self.checkpoint()

    async def _send_notes(self, notes: Sequence[Note]) -> bool:
        return await self._retry(lambda: self._source.note(*notes))

    async def _retry(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Wait until a result can be written, as the code's effects cannot be undone.

        The request may be repeated. The wait ends with the lease, or when the job must stop.
        """
        for failures in count(1):
            try:
                return await ask()
            except UnavailableError:
                await asyncio.sleep(_BACKOFF.delay(failures, random.random()).total_seconds())  # noqa: S311 - jitter
                if self._stop is not None:
                    raise self._stop from None
        raise AssertionError  # the count has no end

    def _accept(self, text: str) -> Awaitable[None]:
        if self._kind.gate is not None:
            raise gated(self.kind)
        size = values.check_text(text, field="text")
        if not size:
            return _DONE
        if self._text is None:
            self._text = TextBuffer(self._lease, self.stop, lambda: self._stop)
        written = self._emitter.add(self._text, text, size)
        if written is not None:
            return self._until_written(written)
        return asyncio.sleep(0) if self._emitter.is_late(self._text) else _DONE

    async def _emit(self, text: str) -> None:
        await self._accept(text)

    async def _until_written(self, written: asyncio.Future[None]) -> None:
        with self.doing():
            await written
        await self.checkpoint()

    def _run(self, call: Coroutine[Any, Any, Answer], *, is_plain: bool = False) -> Any:
        """On the event loop's thread, returns an awaitable; on others, returns when done.

        There it returns the result itself if ``is_plain``, and otherwise a value that can still be awaited.
        """
        if self._is_on_loop():
            return call
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        self._calls.add(future)
        try:
            answer = future.result()
        finally:
            self._calls.discard(future)
        return answer if is_plain else _Done(answer)


def _json_schema(schema: Any) -> dict[str, Any] | None:
    """A type or a JSON Schema as JSON Schema."""
    if schema is None or isinstance(schema, dict):
        return cast("dict[str, Any] | None", schema)
    return msgspec.json.schema(schema)


def _line(text: str, level: str) -> dict[str, str]:
    return {"level": values.printable(str(level), _LEVEL_MAX), "text": values.printable(str(text), _LOG_MAX)}


def _file_name(name: str) -> str:
    """A name that is valid in every storage and does not leave its directory."""
    plain = values.printable(str(name), 255)
    if plain != name or not name or name in {".", ".."} or any(c in "/\\" or c < " " for c in name):
        raise InputError(f"{str(name)[:80]!r} is not a valid file name.", field="name")
    return name


class _Done:
    """A result that is already available, for handlers that await nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield


_DONE: Final = _Done()
