"""What the code of a job sees: its input and history, and how it says where it is."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from penstock import ids, values
from penstock.engine.leases import Note
from penstock.errors import CanceledError, InputError, InvalidError, LeaseLostError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Generator

    from penstock.engine.engine import Engine
    from penstock.engine.leases import Lease
    from penstock.kinds import Kind

Answer = TypeVar("Answer")

_PROGRESS_GAP: Final = 0.25
"""Seconds between two written progress values: the ones between are passed over, not queued."""
_LOG_MAX: Final = 8_192
_LEVEL_MAX: Final = 20


class Parked(BaseException):
    """Leaves the handler: the job waits for an answer. Not an error, so that no ``except Exception`` eats it."""

    def __init__(self, memo: Any) -> None:
        super().__init__()
        self.memo = memo


class Job:
    """A job in the hands of its handler.

    The verbs are awaited in an ``async def`` handler and simply called in a plain one. Each is also a checkpoint:
    it raises :class:`~penstock.CanceledError` when the job must stop.
    """

    def __init__(self, engine: Engine, lease: Lease, kind: Kind, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._lease = lease
        self._kind = kind
        self._loop = loop
        self._notes = 0
        self._written_at = 0.0
        self._value = round(lease.progress, 6)  # the database keeps fewer digits than Python shows
        self._stop: Exception | None = None
        self.captured: int | None = None

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
        return self._say("stage", {"stage": name}, stage=name)

    def log(self, text: str, *, level: str = "info") -> Awaitable[None]:
        """Write a line that stays readable with the job."""
        line = {"level": values.printable(str(level), _LEVEL_MAX), "text": values.printable(str(text), _LOG_MAX)}
        return self._say("log", line)

    def checkpoint(self) -> Awaitable[None]:
        """Raise if the job must stop."""
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
            values.encode(memo, field="memo")
        raise Parked(memo)

    def stop(self, reason: Exception) -> None:
        """Let the next checkpoint raise this. Called by the worker."""
        if self._stop is None:
            self._stop = reason

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
        try:
            if await self._engine.note(note):
                self.stop(CanceledError())
        except LeaseLostError as lost:
            self.stop(lost)
        await self.checkpoint()

    def _run(self, call: Coroutine[Any, Any, Answer]) -> Awaitable[Answer]:
        """On the loop's own thread, something to await; on any other, done when it returns."""
        try:
            if asyncio.get_running_loop() is self._loop:
                return call
        except RuntimeError:
            pass
        return _Done(asyncio.run_coroutine_threadsafe(call, self._loop).result())


class _Done:
    """An answer that is already there, for handlers that await nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        return self.value
        yield


_DONE: Final = _Done()
