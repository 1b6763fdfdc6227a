"""The worker: claims jobs, runs their handlers and reports the outcomes.

Claims, heartbeats and async handlers share one event loop, so a worker that sends heartbeats also takes jobs. If a
worker cannot extend its leases in time, it stops the jobs by itself: they may already run elsewhere.
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

import msgspec

from millpond import logs, values
from millpond.errors import (
    CanceledError,
    ConflictError,
    InterruptedJobError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    ResourceFailedError,
    StalledError,
    StoreError,
    TimeLimitError,
    UnavailableError,
)
from millpond.kinds import Kind
from millpond.resources import closure
from millpond.work import End, Lease, Notice, Return
from millpond.worker import job_logging
from millpond.worker.calls import arranged, contained, describe, in_thread, interrupt
from millpond.worker.context import Job
from millpond.worker.emitter import TEXT_TIMEOUT, Emitter
from millpond.worker.pool import CANCEL_GRACE, ProcessPool
from millpond.worker.raised import raised_by
from millpond.worker.resources import Resources
from millpond.worker.steps import Parked, parked_by

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Sequence
    from uuid import UUID

    from millpond.app import Millpond
    from millpond.kinds import Handler
    from millpond.worker.raised import Raised
    from millpond.worker.source import Source

POLL: Final = 1.0
SAFETY: Final = 15.0
"""Seconds before the end of a notice that are reserved for giving back unfinished jobs."""
_MARGIN: Final = 0.8  # the share of a lease for which it is trusted if it cannot be extended
_CUT_TIMEOUT: Final = 3.0  # seconds that an interrupted handler has to end
_TRACEBACK_TIMEOUT: Final = 5.0  # seconds for storing a traceback, before the failure is reported
_UNKNOWN_KIND_DELAY: Final = timedelta(seconds=5)  # before a job of an unknown kind is offered again
_PROCESS_PATIENCE: Final = 1.25  # the share of a stall limit after which a process has certainly reported
_REPORT_PAUSE: Final = 0.5  # seconds between two reports of the same outcome
_SLOTS: Final = 10
_GRACE: Final = timedelta(seconds=30)


@dataclass(slots=True)
class Run:
    """A job that this worker runs."""

    lease: Lease
    kind: Kind
    job: Job
    task: asyncio.Task[None] | None = None
    thread: int | None = None
    cut: Exception | None = None
    traceback: str | None = None
    """Where the handler raised its error."""
    has_begun: bool = False
    is_reporting: bool = False
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
    """How long a job may take to end after it was canceled, or after the worker began to stop."""
    stall_limit: timedelta | None = None
    """How long a handler may report nothing, for kinds without a stall limit of their own."""
    fallback: Handler | None = None
    """The handler for jobs of kinds that the app does not declare."""
    notices: AsyncIterable[Notice] | None = None
    """Announces when the machine will be terminated."""
    on_busy: Callable[[bool], Awaitable[object] | None] | None = None
    """Called with True when the first job begins, and with False when the last one has ended."""

    _runs: dict[UUID, Run] = field(default_factory=dict["UUID", Run], init=False)
    _held: dict[UUID, int] = field(default_factory=dict["UUID", int], init=False)
    _closed: set[UUID] = field(default_factory=set["UUID"], init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _leaving: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _poll_now: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _leave_by: float = field(default=math.inf, init=False)
    _reason: str | None = field(default=None, init=False)
    _dismissed: MillpondError | None = field(default=None, init=False)
    _trusted_until: float = field(default=0.0, init=False)
    _beating: asyncio.Task[None] | None = field(default=None, init=False)
    _busy_reported: bool = field(default=False, init=False)
    _busy_task: asyncio.Task[None] | None = field(default=None, init=False)
    _emitter: Emitter = field(init=False)
    _resources: Resources = field(init=False)
    _pool: ProcessPool | None = field(default=None, init=False)
    """Its processes, if it has kinds that run in them."""

    def __post_init__(self) -> None:
        self._emitter = Emitter(self.source)
        self._resources = Resources(_in_thread, self._report_loaded, self._log_unclosed)

    @property
    def name(self) -> str:
        return self.source.name

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set; then finish the jobs that end in time, and give back the others.

        Raises if the source does not admit the worker, or no longer does.
        """
        async with self._watching(stop):
            if await self._open_source():
                await self._warm_up()
                logs.emit("worker.started", worker=self.name, slots=self.slots, queues=self.source.queues)
                while not self._leaving.is_set():
                    await self._turn()
                logs.emit("worker.stopping", worker=self.name, running=len(self._runs))
            await self._leave()
        logs.emit("worker.stopped", worker=self.name)
        if self._dismissed is not None:
            raise self._dismissed

    async def drain(self, stop: asyncio.Event | None = None) -> int:
        """Run jobs until none is ready or ``stop`` is set; returns the number of jobs."""
        done = 0
        async with self._watching(stop or asyncio.Event()):
            is_open = await self._open_source()
            if is_open:
                await self._warm_up()
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
        """Take no more jobs. Jobs that do not end within the given seconds are given back with the reason."""
        self._leave_by = min(self._leave_by, time.monotonic() + max(seconds, 0.0))
        self._reason = self._reason or reason
        self.source.stop_polling()
        self._leaving.set()
        self._poll_now.set()
        self._wake.set()

    @contextlib.asynccontextmanager
    async def _watching(self, stop: asyncio.Event) -> AsyncGenerator[None]:
        watchers: list[Coroutine[Any, Any, None]] = [self._watch(stop)]
        if self.notices is not None:
            watchers.append(self._follow_notices(self.notices))
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

    async def _follow_notices(self, notices: AsyncIterable[Notice]) -> None:
        """Leave after a notice, early enough to give back the jobs that do not end before the machine is terminated."""
        try:
            async for notice in notices:
                logs.emit("worker.leaving", worker=self.name, reason=notice.reason, seconds=notice.seconds_left)
                self.leave(notice.seconds_left - SAFETY, notice.reason)
        except Exception as error:  # noqa: BLE001 - the worker also works without notices
            self._log_failure(error)

    async def _open_source(self) -> bool:
        """Open the source; returns whether that succeeded before the worker had to leave."""
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
            self._beating = asyncio.create_task(self._beat())  # the open source knows the interval
        return is_open and not self._leaving.is_set()

    # Processes and resources

    async def _warm_up(self) -> None:
        """Start the pool, and create the eager resources, before jobs are taken; raises if the app is not importable.

        A resource that cannot be created now is created when a job needs it.
        """
        warming = asyncio.ensure_future(self._warm())
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait([warming, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            is_warm = warming.done()
            warming.cancel()
        (error,) = await asyncio.gather(warming, return_exceptions=True)
        if is_warm and error is not None:
            await self._leave()
            raise error

    async def _warm(self) -> None:
        known = [kind for kind in self.app.kinds.values() if any(kind.has_route(name) for name in self.source.queues)]
        if apart := [kind for kind in known if kind.run == "process" and kind.handlers]:
            self._pool = ProcessPool(self.source, apart, self._report_loaded)
            await self._pool.open(self.slots)
        inline = closure(resource for kind in known if kind.run != "process" for resource in kind.resources)
        for resource in inline.values():
            if resource.is_eager:
                try:
                    await self._resources.get([resource])
                except ResourceFailedError as error:
                    self._log_failure(error)

    async def _resources_of(self, run: Run) -> dict[str, Any]:
        """The resources of the handler. The job is not considered stalled while they are created."""
        if not run.kind.resources:
            return {}
        with run.job.doing():
            return await self._resources.get(run.kind.resources)

    def _report_loaded(self) -> None:
        pool = set[str]() if self._pool is None else self._pool.loaded
        self.source.report_loaded(sorted(pool.union(self._resources.loaded)))

    def _log_unclosed(self, name: str, error: Exception) -> None:
        text = values.printable(str(error), 500)
        logs.emit("service.failed", worker=self.name, resource=name, error=f"{type(error).__name__}: {text}")

    async def _cool_down(self) -> None:
        """End the processes and close the resources, after the jobs."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()
        await self._resources.close()

    # Claiming jobs

    async def _turn(self) -> None:
        """Claim jobs for all free slots. Wait if no slot is free, or if there were fewer jobs."""
        self._wake.clear()
        free = self.slots - len(self._runs)
        if free > 0:
            try:
                if await self._claim(free, is_waiting=True) == free or self.source.is_patient:
                    return
            except UnavailableError as error:
                logs.emit(self.source.outage, worker=self.name, error=str(error))
            except Exception as error:  # noqa: BLE001 - after any error, the running jobs still need the worker
                self._log_failure(error)
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
        if lease.job_id in self._runs:  # its lease expired unnoticed, and it was claimed again
            self._drop([self._runs[lease.job_id]])
        kind = self._kind(lease)
        run = Run(lease, kind, Job(self.source, lease, kind, asyncio.get_running_loop(), self._emitter))
        self._runs[lease.job_id] = run
        self._held[lease.token] = self._held.get(lease.token, 0) + 1
        run.task = asyncio.create_task(self._work(run))
        self._update_busy()

    def _kind(self, lease: Lease) -> Kind:
        """The kind of a job as the app declares it, or else as the lease describes it."""
        kind = self.app.kinds.get(lease.kind)
        if kind is None:
            code: dict[str | None, Handler] = {} if self.fallback is None else {None: self.fallback}
            kind = Kind(name=lease.kind, handlers=MappingProxyType(code), takes_whole_input=True, stages=lease.stages)
        if lease.time_limit is not None and lease.time_limit != kind.time_limit:
            kind = replace(kind, time_limit=lease.time_limit)
        return kind

    # Callbacks of the source

    def wake(self) -> None:
        """Look for jobs to claim."""
        self._wake.set()

    def cancel(self, job_id: UUID) -> None:
        """Stop a job."""
        if job_id in self._runs:
            self._cut_later(self._runs[job_id], CanceledError())

    def lose(self, leases: Iterable[Lease] | None = None) -> None:
        """Stop the jobs of these lost leases, or of all. A job that was claimed again under a newer lease continues."""
        lost = None if leases is None else {(lease.job_id, lease.token) for lease in leases}
        runs = self._runs.values()
        self._drop([run for run in runs if lost is None or (run.lease.job_id, run.lease.token) in lost])

    def dismiss(self, reason: MillpondError) -> None:
        """Stop all work, because the source no longer admits this worker; :meth:`run` raises the reason."""
        if self._dismissed is None:
            self._dismissed = reason
            logs.emit("worker.dismissed", worker=self.name, error=str(reason))
            self.lose()
            self.leave(0)

    # Running a job

    async def _work(self, run: Run) -> None:
        """Run the handler and report its outcome. The slot is freed in any case."""
        run.has_begun = True
        job_logging.enter(run.job)
        try:
            outcome = await self._outcome(run)
            run.is_reporting = True
            with contextlib.suppress(asyncio.CancelledError):  # its code has ended: the outcome is reported in any case
                await run.job.flush_log()
                if run.job.has_unwritten_text:
                    await self._flush_text(run, outcome)
                await self._keep_traceback(run)
            await self._report(run, outcome)
        except LeaseLostError:
            pass
        except Exception as error:  # noqa: BLE001 - the lease expires, and the job is requeued
            self._log_failure(error, job_id=run.lease.job_id)
        finally:
            self._forget(run)

    async def _outcome(self, run: Run) -> End | Return | Parked | None:
        """The outcome of the handler: an end, a return to the queue, a park, or None if the lease is lost."""
        watch = self._watch_silence(run)
        try:
            if run.kind.run == "process":
                return await self._run_in_process(run)
            output = values.encode(await self._call(run), field="output", limit=run.kind.size_max)
            run.job.steps.check_end()
            return End(run.lease, "succeeded", output, captured=run.job.captured, artifacts=run.job.saved)
        except (Parked, BaseExceptionGroup) as raised:
            return parked_by(raised) or self._judge(run, run.cut or raised)
        except asyncio.CancelledError:
            return self._judge(run, run.cut or InterruptedJobError(self._reason))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return self._judge(run, run.cut or error)
        finally:
            if watch is not None:
                watch.cancel()

    def _handler(self, run: Run) -> Handler:
        if run.cut is not None:
            raise run.cut
        handler = run.kind.handler(run.lease.state)
        if handler is None and run.kind.name not in self.app.kinds:
            raise InterruptedJobError("The worker does not know this kind of job; a newer worker may.")
        if handler is None:
            raise InvalidError(f"Kind {run.kind.name!r} has no handler for state {run.lease.state!r}.")
        return handler

    async def _run_in_process(self, run: Run) -> End | Parked:
        self._handler(run)
        pool = self._pool_of(run.kind)
        found = await pool.run(
            run.job, run.lease, run.kind, run.kind.time_limit, run.kind.stall_limit or self.stall_limit
        )
        if found.is_parked:
            return Parked(None if found.memo is None else msgspec.json.decode(found.memo), found.step)
        return End(run.lease, "succeeded", found.output, captured=found.captured, artifacts=found.artifacts)

    def _pool_of(self, kind: Kind) -> ProcessPool:
        """The pool; it is there unless the kind was declared after the worker had started."""
        if self._pool is None:
            self._pool = ProcessPool(self.source, [kind], self._report_loaded)
        return self._pool

    async def _call(self, run: Run) -> Any:
        handler = self._handler(run)
        given = await self._resources_of(run)
        if run.lease.has_steps:
            await run.job.load_steps()
        positional, named = arranged(handler, *run.kind.arguments(run.lease.input), given)
        limit = run.kind.time_limit.total_seconds() if run.kind.time_limit else None
        if inspect.iscoroutinefunction(handler):
            call: Awaitable[Any] = entered(run.job, handler(run.job, *positional, **named))
        else:

            def code() -> Any:
                run.job.steps.enter()
                return handler(run.job, *positional, **named)

            work = job_logging.in_context(code)
            call = in_thread(f"millpond {run.job.id}", work, began=run.in_thread)
        try:
            return await asyncio.wait_for(contained(call), limit)
        except TimeoutError:
            if limit is None:
                raise
            run.job.cut()
            interrupt(run.thread)
            raise TimeLimitError(f"The job exceeded its time limit of {limit:g} s.") from None

    def _watch_silence(self, run: Run) -> asyncio.Task[None] | None:
        limit = run.kind.stall_limit or self.stall_limit
        return asyncio.create_task(self._until_stalled(run, limit.total_seconds())) if limit else None

    async def _until_stalled(self, run: Run, limit: float) -> None:
        """Interrupt a run whose code has reported nothing for the limit. The heartbeats of its worker do not count.

        A process reports from time to time whether the code was silent, so that is known later.
        """
        patience = limit * _PROCESS_PATIENCE if run.kind.run == "process" else limit
        while (left := patience - run.job.silent_for) > 0:  # noqa: ASYNC110 - it waits for time to pass
            await asyncio.sleep(left)
        reason = StalledError(f"The job reported no progress for {limit:g} s.")
        run.job.stop(reason)
        self._cut(run, reason)

    def _judge(self, run: Run, error: BaseException) -> End | Return | None:
        """The outcome of a job whose handler raised this error; None if the lease is lost."""
        raised = raised_by(error)
        match raised.verdict:
            case "lost":
                return None
            case "canceled" | "blocked":
                return End(run.lease, raised.verdict, error=raised.detail)
            case "interrupted":
                delay = None if run.kind.handlers else _UNKNOWN_KIND_DELAY
                return Return(run.lease, "interruption", raised.detail, delay)
            case "failed":
                self._log_raised(run, raised)
                return End(run.lease, "failed", error=raised.detail)
            case "attempt":
                self._log_raised(run, raised)
                return Return(run.lease, "attempt", raised.detail, raised.retry_after or self._delay(run))

    def _delay(self, run: Run) -> timedelta:
        return run.kind.backoff.delay(run.lease.attempts + 1, random.random())  # noqa: S311 - jitter

    async def _flush_text(self, run: Run, outcome: End | Return | Parked | None) -> None:
        """Write what the handler has emitted before its end, so that readers get all of it first.

        Text of an attempt that has failed is soon replaced, so it is not waited for long. What is blocked is not shown.
        """
        if isinstance(outcome, End) and outcome.outcome == "blocked":
            return
        is_whole = isinstance(outcome, Parked) or (isinstance(outcome, End) and outcome.outcome == "succeeded")
        try:
            async with asyncio.timeout(None if is_whole else TEXT_TIMEOUT):
                await run.job.flush_text()
        except (LeaseLostError, TimeoutError):
            pass  # the report is refused too; or readers lack text that is void
        except MillpondError as error:
            self._log_failure(error, job_id=run.lease.job_id)

    async def _keep_traceback(self, run: Run) -> None:
        """Store the traceback for operators, if that is possible: the outcome of the job does not depend on it.

        An older server does not know the request.
        """
        if run.traceback is not None:
            with contextlib.suppress(MillpondError, TimeoutError):
                async with asyncio.timeout(_TRACEBACK_TIMEOUT):
                    await self.source.keep_traceback(run.lease, run.traceback)

    def _log_raised(self, run: Run, raised: Raised) -> None:
        run.traceback = raised.traceback
        logs.emit(
            "handler.raised",
            job_id=run.lease.job_id,
            type=run.lease.kind,
            attempt=run.lease.attempts + 1,
            error=raised.text,
            **({} if run.traceback is None else {"traceback": run.traceback}),
        )

    def _log_failure(self, error: Exception, job_id: UUID | None = None) -> None:
        text = values.printable(str(error), 500)
        logs.emit("service.failed", worker=self.name, job_id=job_id, error=f"{type(error).__name__}: {text}")

    async def _report(self, run: Run, outcome: End | Return | Parked | None) -> None:
        """Report an outcome to the source; retry while the source is unavailable.

        That is safe even if the lease can no longer be trusted: the write is fenced, and refused if the lease expired.
        """
        while True:
            try:
                await self._send_outcome(run, outcome)
                return
            except LeaseLostError:
                raise
            except (ConflictError, InvalidError) as refused:
                # The lifecycle has no such end, or a file in storage is not as reported. Every job can fail.
                if not isinstance(outcome, End) or outcome.outcome == "failed":
                    raise
                outcome = self._replacement(run, refused)
            except StoreError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(_REPORT_PAUSE)

    async def _send_outcome(self, run: Run, outcome: End | Return | Parked | None) -> None:
        match outcome:
            case End():
                await self.source.finish(outcome)
            case Return():
                await self.source.give_back(outcome)
            case Parked(step=None):
                await self.source.park(run.lease, outcome.memo)
            case Parked():
                await self.source.suspend(run.lease, str(outcome.step))
            case None:
                pass

    def _replacement(self, run: Run, refused: MillpondError) -> End | Return:
        if refused.code.startswith("artifact_"):  # another attempt may store its files correctly
            return Return(run.lease, "attempt", describe(refused), self._delay(run))
        return End(run.lease, "failed", error=describe(refused))

    def _forget(self, run: Run) -> None:
        if run.is_over:
            return
        run.is_over = True
        run.job.stop(LeaseLostError())  # code that is still running gets this at its next checkpoint
        run.job.drop_text()
        if self._runs.get(run.lease.job_id) is run:
            del self._runs[run.lease.job_id]
        self._held[run.lease.token] -= 1
        if not self._held[run.lease.token]:
            del self._held[run.lease.token]
            self._closed.add(run.lease.token)
        self._update_busy()
        self._wake.set()

    def _update_busy(self) -> None:
        if self.on_busy is not None and (self._busy_task is None or self._busy_task.done()):
            self._busy_task = asyncio.create_task(self._report_busy(self.on_busy))

    async def _report_busy(self, on_busy: Callable[[bool], Awaitable[object] | None]) -> None:
        """Call the hook until it knows the current state, one call at a time."""
        while bool(self._runs) != self._busy_reported:
            self._busy_reported = bool(self._runs)
            try:
                done = on_busy(self._busy_reported)
                if inspect.isawaitable(done):
                    await done
            except Exception as error:  # noqa: BLE001 - a failure of the hook must not stop the jobs
                self._log_failure(error)

    # Heartbeats and shutdown

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.source.heartbeat.total_seconds() * random.uniform(0.8, 1.0))  # noqa: S311 - jitter
            try:
                await self._heartbeat()
            except Exception as error:  # noqa: BLE001 - without heartbeats, the worker loses all its jobs
                logs.emit(self.source.outage, worker=self.name, error=str(error))
                if time.monotonic() > self._trusted_until:
                    self._drop([run for run in self._runs.values() if not run.is_reporting])

    async def _heartbeat(self) -> None:
        """Extend every lease, stop canceled and lost jobs, and close the leases that are done."""
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
        await self.source.beat()

    def _drop(self, runs: Sequence[Run]) -> None:
        for run in runs:
            run.job.stop(LeaseLostError())
            self._cut(run, LeaseLostError())

    def _cut_later(self, run: Run, reason: Exception) -> None:
        """Stop a job at its next checkpoint; interrupt it after the grace."""
        if run.job.is_canceled:
            return
        run.job.stop(reason)
        grace = self.grace.total_seconds()
        if run.kind.run == "process" and self._pool is not None:
            self._pool.cancel(run.job)
            grace = min(grace, CANCEL_GRACE)
        asyncio.get_running_loop().call_later(grace, self._cut, run, reason)

    def _cut(self, run: Run, reason: Exception) -> None:
        if not run.is_over and run.task is not None:
            run.cut = run.cut or reason
            run.job.cut()
            interrupt(run.thread)
            if run.has_begun:  # if canceled earlier, it would not free its slot; it checks run.cut itself
                run.task.cancel()

    async def _leave(self) -> None:
        """Wait for the jobs that end in time; give back the others as interruptions, which are not failed attempts."""
        if not self._leaving.is_set():
            self.leave(self.grace.total_seconds())
        await self._until_idle()
        for run in list(self._runs.values()):
            reason = InterruptedJobError(self._reason)
            run.job.stop(reason)
            self._cut(run, reason)
        if self._runs:
            await asyncio.wait(self._tasks(), timeout=_CUT_TIMEOUT)
        for run in list(self._runs.values()):  # their code ignores the interrupt; the jobs are given back anyway
            with contextlib.suppress(MillpondError):
                if self._dismissed is None:
                    await self.source.give_back(
                        Return(run.lease, "interruption", describe(InterruptedJobError(self._reason)))
                    )
            self._forget(run)
        with contextlib.suppress(MillpondError):
            await self.source.close_leases(self._closed)
        self._emitter.close()
        if self._busy_task is not None:
            await asyncio.wait([self._busy_task], timeout=_CUT_TIMEOUT)
        await self.source.close()
        await self._cool_down()

    async def _until_idle(self) -> None:
        """Wait until no job runs, or it is time to leave."""
        while self._runs and (left := self._leave_by - time.monotonic()) > 0:
            self._poll_now.clear()
            waking = asyncio.create_task(self._poll_now.wait())
            try:
                patience = None if math.isinf(left) else left
                await asyncio.wait([waking, *self._tasks()], timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waking.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self._runs.values() if run.task]


def _in_thread(call: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call plain code of a resource in a thread, so that the leases of jobs are extended meanwhile."""
    return in_thread("millpond resource", call, began=lambda _: None)


async def entered(job: Job, call: Awaitable[Any]) -> Any:
    """Await a handler as the task that makes the steps of the job."""
    job.steps.enter()
    return await call
