"""The worker: claims jobs, runs their handlers, reports how they ended.

Claims, heartbeats and handlers share one loop, so a worker that looks alive is one that takes jobs. All it
believes about a job ends with its lease: when it cannot prolong that in time, it stops the job by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import random
import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from millpond import logs, values
from millpond.errors import (
    BlockedError,
    CanceledError,
    ConflictError,
    InterruptedJobError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    StalledError,
    TimeLimitError,
    TransientError,
    UnavailableError,
)
from millpond.kinds import Kind
from millpond.work import End, Lease, Notice, Return
from millpond.worker.calls import contained, in_thread, interrupt, told
from millpond.worker.context import Job, Parked

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
    from uuid import UUID

    from millpond.app import Millpond
    from millpond.kinds import Handler
    from millpond.worker.source import Source

POLL: Final = 1.0
SAFETY: Final = 15.0
"""Seconds of a notice that are kept for giving back what is not done."""
_MARGIN: Final = 0.8  # of a lease is trusted when it could not be prolonged
_LAST_WORDS: Final = 3.0  # seconds that a handler has left once it is cut
_STRANGE: Final = timedelta(seconds=5)  # until a job of a kind we do not know is offered again
_SLOTS: Final = 10
_GRACE: Final = timedelta(seconds=30)


@dataclass(slots=True)
class Run:
    """One job being run here."""

    lease: Lease
    kind: Kind
    job: Job
    task: asyncio.Task[None] | None = None
    thread: int | None = None
    cut: Exception | None = None
    has_begun: bool = False
    is_over: bool = False

    def in_thread(self, thread: int | None) -> None:
        self.thread = thread


@dataclass(slots=True)
class Worker:
    """Runs the jobs that a source has for an app, at most ``slots`` at a time.

    The source is ``engine.source()`` beside the database, or a :class:`~millpond.worker.RemoteSource` over HTTP.
    """

    source: Source
    app: Millpond
    slots: int = _SLOTS
    grace: timedelta = _GRACE
    """How long a job may take to end once the worker, or its customer, wants it to."""
    stall_limit: timedelta | None = None
    """How long the code of a kind that has no limit of its own may give no sign."""
    fallback: Handler | None = None
    """The code for jobs of kinds that the app does not declare."""
    notices: AsyncIterable[Notice] | None = None
    """Tells when the machine will be taken away."""
    on_busy: Callable[[bool], Awaitable[object] | None] | None = None
    """Is called with True when the first job begins, and with False when the last has ended."""

    _runs: dict[UUID, Run] = field(default_factory=dict["UUID", Run], init=False)
    _held: dict[UUID, int] = field(default_factory=dict["UUID", int], init=False)
    _closed: set[UUID] = field(default_factory=set["UUID"], init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _leaving: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _hurry: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _leave_by: float = field(default=math.inf, init=False)
    _reason: str | None = field(default=None, init=False)
    _dismissed: MillpondError | None = field(default=None, init=False)
    _trusted_until: float = field(default=0.0, init=False)
    _beating: asyncio.Task[None] | None = field(default=None, init=False)
    _busy_told: bool = field(default=False, init=False)
    _busy_task: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.source.name

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then finish what can be finished in time and give back the rest.

        Raises when the source lets it in no more.
        """
        async with self._watching(stop):
            if await self._opened():
                logs.emit("worker.started", worker=self.name, slots=self.slots, queues=self.source.queues)
                while not self._leaving.is_set():
                    await self._turn()
                logs.emit("worker.stopping", worker=self.name, running=len(self._runs))
            await self._leave()
        logs.emit("worker.stopped", worker=self.name)
        if self._dismissed is not None:
            raise self._dismissed

    async def drain(self, stop: asyncio.Event | None = None) -> int:
        """Run what is ready now, until nothing is or it is told to stop; tells how many jobs that were."""
        done = 0
        async with self._watching(stop or asyncio.Event()):
            is_open = await self._opened()
            while is_open and not self._leaving.is_set():
                taken = await self._claim(self.slots, is_waiting=False)
                if not taken:
                    break
                done += taken
                await self._until_idle()
            await self._leave()
        if self._dismissed is not None:
            raise self._dismissed
        return done

    def leave(self, seconds: float, reason: str | None = None) -> None:
        """Take no more jobs; what does not end within so many seconds goes back, with the reason."""
        self._leave_by = min(self._leave_by, time.monotonic() + max(seconds, 0.0))
        self._reason = self._reason or reason
        self.source.hush()
        self._leaving.set()
        self._hurry.set()
        self._wake.set()

    @contextlib.asynccontextmanager
    async def _watching(self, stop: asyncio.Event) -> AsyncGenerator[None]:
        watchers: list[Coroutine[Any, Any, None]] = [self._watch(stop)]
        if self.notices is not None:
            watchers.append(self._heed(self.notices))
        tasks = [asyncio.create_task(watcher) for watcher in watchers]
        try:
            yield
        finally:
            for task in (*tasks, self._beating):
                if task is not None:
                    task.cancel()
            self._leaving.clear()
            self._leave_by = math.inf
            self._reason = None

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.leave(self.grace.total_seconds())

    async def _heed(self, notices: AsyncIterable[Notice]) -> None:
        """What can end before the machine goes ends; the rest must be given back while there still is time."""
        try:
            async for notice in notices:
                logs.emit("worker.leaving", worker=self.name, reason=notice.reason, seconds=notice.seconds_left)
                self.leave(notice.seconds_left - SAFETY, notice.reason)
        except Exception as error:  # noqa: BLE001 - without notices it works on
            self._stumbled(error)

    async def _opened(self) -> bool:
        """Whether the source let us in before we had to leave."""
        opening = asyncio.ensure_future(self.source.open(self.app, self.slots, self))
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait([opening, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            is_open = opening.done()
            opening.cancel()
        (error,) = await asyncio.gather(opening, return_exceptions=True)
        if is_open and error is not None:
            await self.source.close()
            raise error
        if is_open:
            self._beating = asyncio.create_task(self._beat())  # by now it is told how often
        return is_open and not self._leaving.is_set()

    # Taking jobs

    async def _turn(self) -> None:
        """Claim as much as there is room for; wait where there is none, or nothing to claim."""
        self._wake.clear()
        free = self.slots - len(self._runs)
        if free > 0:
            try:
                if await self._claim(free, is_waiting=True) == free or self.source.is_patient:
                    return
            except UnavailableError as error:
                logs.emit(self.source.outage, worker=self.name, error=str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs are running that must be looked after
                self._stumbled(error)
            if self._leaving.is_set():
                return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL * random.uniform(0.8, 1.2)):  # noqa: S311 - jitter
                await self._wake.wait()

    async def _claim(self, want: int, *, is_waiting: bool) -> int:
        began = time.monotonic()
        leases = await self.source.claim(want, is_waiting=is_waiting)
        if leases and not self._runs:
            self._trusted_until = began + self.source.lease.total_seconds() * _MARGIN
        for lease in leases:
            self._start(lease)
        return len(leases)

    def _start(self, lease: Lease) -> None:
        if lease.job_id in self._runs:  # its lease had run out before we noticed, and now it comes round again
            self._drop([self._runs[lease.job_id]])
        kind = self._kind(lease)
        run = Run(lease, kind, Job(self.source, lease, kind, asyncio.get_running_loop()))
        self._runs[lease.job_id] = run
        self._held[lease.token] = self._held.get(lease.token, 0) + 1
        run.task = asyncio.create_task(self._work(run))
        self._tell_busy()

    def _kind(self, lease: Lease) -> Kind:
        """What we know of a job's kind; where we do not have it, what came with the job."""
        kind = self.app.kinds.get(lease.kind)
        if kind is None:
            code: dict[str | None, Handler] = {} if self.fallback is None else {None: self.fallback}
            kind = Kind(name=lease.kind, handlers=MappingProxyType(code), takes_whole_input=True, stages=lease.stages)
        if lease.time_limit is not None and lease.time_limit != kind.time_limit:
            kind = replace(kind, time_limit=lease.time_limit)
        return kind

    # What the source tells

    def wake(self) -> None:
        """There may be something to claim."""
        self._wake.set()

    def cancel(self, job_id: UUID) -> None:
        """A job must stop."""
        if job_id in self._runs:
            self._cut_later(self._runs[job_id], CanceledError())

    def lose(self, leases: Iterable[Lease] | None = None) -> None:
        """These leases, or all, are not held any more. A job of theirs may have come round again under another."""
        lost = None if leases is None else {(lease.job_id, lease.token) for lease in leases}
        runs = self._runs.values()
        self._drop([run for run in runs if lost is None or (run.lease.job_id, run.lease.token) in lost])

    def dismiss(self, reason: MillpondError) -> None:
        """The source wants nothing from us any more: all work stops, and :meth:`run` raises this."""
        if self._dismissed is None:
            self._dismissed = reason
            logs.emit("worker.dismissed", worker=self.name, error=str(reason))
            self.lose()
            self.leave(0)

    # Running one

    async def _work(self, run: Run) -> None:
        """Run the handler, report its outcome, free the slot; whatever happens, the slot is freed."""
        run.has_begun = True
        try:
            await self._report(run, await self._outcome(run))
        except LeaseLostError:
            pass
        except Exception as error:  # noqa: BLE001 - the lease will run out, and the job be taken back
            self._stumbled(error, job_id=run.lease.job_id)
        finally:
            self._forget(run)

    async def _outcome(self, run: Run) -> End | Return | Parked | None:
        """What came of the handler: an end, a return to the queue, a pause, or nothing (the lease is lost)."""
        watch = self._watch_silence(run)
        try:
            output = values.encode(await self._call(run), field="output", most=run.kind.size_max)
            return End(run.lease, "succeeded", output, captured=run.job.captured, artifacts=run.job.saved)
        except Parked as parked:
            return parked
        except asyncio.CancelledError:
            return self._judge(run, run.cut or InterruptedJobError(self._reason))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return self._judge(run, run.cut or error)
        finally:
            if watch is not None:
                watch.cancel()

    async def _call(self, run: Run) -> Any:
        if run.cut is not None:
            raise run.cut
        handler = run.kind.handler(run.lease.state)
        if handler is None and run.kind.name not in self.app.kinds:
            raise InterruptedJobError("The worker does not know this kind of job; a newer one may.")
        if handler is None:
            raise InvalidError(f"Kind {run.kind.name!r} has no code for the state {run.lease.state!r}.")
        positional, named = run.kind.arguments(run.lease.input)
        limit = run.kind.time_limit.total_seconds() if run.kind.time_limit else None
        if inspect.iscoroutinefunction(handler):
            call: Awaitable[Any] = handler(run.job, *positional, **named)
        else:
            call = in_thread(
                f"millpond {run.job.id}", lambda: handler(run.job, *positional, **named), began=run.in_thread
            )
        try:
            return await asyncio.wait_for(contained(call), limit)
        except TimeoutError:
            if limit is None:
                raise
            run.job.cut()
            interrupt(run.thread)
            raise TimeLimitError(f"It ran longer than {limit:g} s.") from None

    def _watch_silence(self, run: Run) -> asyncio.Task[None] | None:
        limit = run.kind.stall_limit or self.stall_limit
        return asyncio.create_task(self._until_stalled(run, limit.total_seconds())) if limit else None

    async def _until_stalled(self, run: Run, limit: float) -> None:
        """Cut a run whose code has given no sign for so long, be its worker ever so alive."""
        while (left := limit - run.job.silent_for) > 0:  # noqa: ASYNC110 - the clock is what it waits for
            await asyncio.sleep(left)
        reason = StalledError(f"It gave no sign for {limit:g} s.")
        run.job.stop(reason)
        self._cut(run, reason)

    def _judge(self, run: Run, error: BaseException) -> End | Return | None:
        """What an error means for the job."""
        said = told(error)
        match error:
            case LeaseLostError():
                return None
            case CanceledError():
                return End(run.lease, "canceled", error=said)
            case BlockedError():
                return End(run.lease, "blocked", error=said)
            case InterruptedJobError():
                return Return(run.lease, "interruption", said, None if run.kind.handlers else _STRANGE)
            case MillpondError() if not error.retryable:
                self._raised(run, error)
                return End(run.lease, "failed", error=said)
            case _:
                self._raised(run, error)
                return Return(run.lease, "attempt", said, self._delay(run, error))

    def _delay(self, run: Run, error: BaseException) -> timedelta:
        if isinstance(error, TransientError) and error.retry_after is not None:
            return error.retry_after
        return run.kind.backoff.delay(run.lease.attempts + 1, random.random())  # noqa: S311 - jitter

    def _raised(self, run: Run, error: BaseException) -> None:
        logs.emit(
            "handler.raised",
            job_id=run.lease.job_id,
            type=run.lease.kind,
            attempt=run.lease.attempts + 1,
            error=f"{type(error).__name__}: {values.printable(str(error), 500)}",
        )

    def _stumbled(self, error: Exception, job_id: UUID | None = None) -> None:
        text = values.printable(str(error), 500)
        logs.emit("service.failed", worker=self.name, job_id=job_id, error=f"{type(error).__name__}: {text}")

    async def _report(self, run: Run, outcome: End | Return | Parked | None) -> None:
        """Tell the source; as long as the lease lives, one that is away is waited for."""
        while True:
            try:
                await self._tell(run, outcome)
                return
            except LeaseLostError:
                raise
            except (ConflictError, InvalidError) as refused:
                # Such an end is not drawn in its lifecycle, or a file is not what was said: every job can fail.
                if not isinstance(outcome, End) or outcome.outcome == "failed":
                    raise
                outcome = self._instead(run, refused)
            except UnavailableError:
                if time.monotonic() > self._trusted_until:
                    raise
                await asyncio.sleep(0.5)

    async def _tell(self, run: Run, outcome: End | Return | Parked | None) -> None:
        match outcome:
            case End():
                await self.source.finish(outcome)
            case Return():
                await self.source.give_back(outcome)
            case Parked():
                await self.source.park(run.lease, outcome.memo)
            case None:
                pass

    def _instead(self, run: Run, refused: MillpondError) -> End | Return:
        if refused.code.startswith("artifact_"):  # another attempt may store its files better
            return Return(run.lease, "attempt", told(refused), self._delay(run, refused))
        return End(run.lease, "failed", error=told(refused))

    def _forget(self, run: Run) -> None:
        if run.is_over:
            return
        run.is_over = True
        run.job.stop(LeaseLostError())  # what still speaks for it is not heard any more
        if self._runs.get(run.lease.job_id) is run:
            del self._runs[run.lease.job_id]
        self._held[run.lease.token] -= 1
        if not self._held[run.lease.token]:
            del self._held[run.lease.token]
            self._closed.add(run.lease.token)
        self._tell_busy()
        self._wake.set()

    def _tell_busy(self) -> None:
        if self.on_busy is not None and (self._busy_task is None or self._busy_task.done()):
            self._busy_task = asyncio.create_task(self._keep_told(self.on_busy))

    async def _keep_told(self, on_busy: Callable[[bool], Awaitable[object] | None]) -> None:
        """One call at a time, each with what is true when it is made."""
        while bool(self._runs) != self._busy_told:
            self._busy_told = bool(self._runs)
            try:
                done = on_busy(self._busy_told)
                if inspect.isawaitable(done):
                    await done
            except Exception as error:  # noqa: BLE001 - it protects the work, and must not end it
                self._stumbled(error)

    # Staying alive, and leaving

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.source.heartbeat.total_seconds() * random.uniform(0.8, 1.0))  # noqa: S311 - jitter
            try:
                await self._heartbeat()
            except Exception as error:  # noqa: BLE001 - a worker without a heartbeat loses all it does
                logs.emit(self.source.outage, worker=self.name, error=str(error))
                if time.monotonic() > self._trusted_until:
                    self.lose()

    async def _heartbeat(self) -> None:
        """Prolong every lease, stop what must stop, forget the leases that are done."""
        began = time.monotonic()
        held = [run.lease for run in self._runs.values()]
        if held:
            pulse = await self.source.extend(held)
            self.lose(lease for lease in held if lease.job_id in pulse.lost)
            for job_id in pulse.canceling:
                self.cancel(job_id)
        self._trusted_until = began + self.source.lease.total_seconds() * _MARGIN
        if self._closed:
            closed, self._closed = self._closed, set()
            await self.source.close_leases(closed)

    def _drop(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.job.stop(LeaseLostError())
            self._cut(run, LeaseLostError())

    def _cut_later(self, run: Run, reason: Exception) -> None:
        """Ask at the next checkpoint; after the grace, cut."""
        if run.job.is_canceled:
            return
        run.job.stop(reason)
        asyncio.get_running_loop().call_later(self.grace.total_seconds(), self._cut, run, reason)

    def _cut(self, run: Run, reason: Exception) -> None:
        if not run.is_over and run.task is not None:
            run.cut = run.cut or reason
            run.job.cut()
            interrupt(run.thread)
            if run.has_begun:  # a task that is canceled before would not free its slot; it looks when it begins
                run.task.cancel()

    async def _leave(self) -> None:
        """Finish what ends in time; give back the rest without a penalty for its attempts."""
        if not self._leaving.is_set():
            self.leave(self.grace.total_seconds())
        await self._until_idle()
        for run in list(self._runs.values()):
            reason = InterruptedJobError(self._reason)
            run.job.stop(reason)
            self._cut(run, reason)
        if self._runs:
            await asyncio.wait(self._tasks(), timeout=_LAST_WORDS)
        for run in list(self._runs.values()):  # code that takes no notice: its job goes back over its head
            with contextlib.suppress(MillpondError):
                if self._dismissed is None:
                    await self.source.give_back(
                        Return(run.lease, "interruption", told(InterruptedJobError(self._reason)))
                    )
            self._forget(run)
        with contextlib.suppress(MillpondError):
            await self.source.close_leases(self._closed)
        if self._busy_task is not None:
            await asyncio.wait([self._busy_task], timeout=_LAST_WORDS)
        await self.source.close()

    async def _until_idle(self) -> None:
        """Until nothing runs any more, or it is time to leave."""
        while self._runs and (left := self._leave_by - time.monotonic()) > 0:
            self._hurry.clear()
            hurry = asyncio.create_task(self._hurry.wait())
            try:
                patience = None if math.isinf(left) else left
                await asyncio.wait([hurry, *self._tasks()], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            finally:
                hurry.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self._runs.values() if run.task]
