"""The worker: claims jobs, runs their handlers, reports how they ended.

Claims, heartbeats and handlers share one loop, so a worker that looks alive is one that takes jobs. All it
believes about a job ends with its lease: when it cannot prolong that in time, it stops the job by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import os
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from penstock import logs, values
from penstock.engine.dispatches import Lanes
from penstock.engine.engine import BACK_TOPIC, CANCEL_TOPIC
from penstock.engine.leases import End, Lease, Return
from penstock.errors import (
    BlockedError,
    CanceledError,
    HandlerError,
    InvalidError,
    LeaseLostError,
    MoveDeniedError,
    PenstockError,
    TimeLimitError,
    TransientError,
    UnavailableError,
)
from penstock.kinds import Kind
from penstock.worker.context import Job, Parked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from uuid import UUID

    from penstock.engine.engine import Engine
    from penstock.services.bell import Bell

POLL: Final = 1.0
_MARGIN: Final = 0.8  # of a lease is trusted when it could not be prolonged
_LAST_WORDS: Final = 3.0  # seconds that a handler has left once it is cut
_STRANGE: Final = timedelta(seconds=5)  # until a job of a kind we do not know is offered again


class InterruptedJobError(HandlerError):
    """The worker had to go before the job was done."""

    code = "interrupted"


@dataclass(slots=True)
class Run:
    """One job being run here."""

    lease: Lease
    kind: Kind
    job: Job
    task: asyncio.Task[None] | None = None
    thread: int | None = None
    cut: Exception | None = None
    is_over: bool = False


@dataclass(slots=True)
class Worker:
    """Runs the jobs of an engine's app, at most ``slots`` at a time."""

    engine: Engine
    bell: Bell | None = None
    slots: int = 10
    name: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")
    lease: timedelta = timedelta(seconds=60)
    heartbeat: timedelta = timedelta(seconds=5)
    grace: timedelta = timedelta(seconds=30)
    """How long a job may take to end once the worker, or its customer, wants it to."""

    _runs: dict[UUID, Run] = field(default_factory=dict["UUID", Run], init=False)
    _held: dict[UUID, int] = field(default_factory=dict["UUID", int], init=False)
    _closed: set[UUID] = field(default_factory=set["UUID"], init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _lanes: Lanes = field(init=False)
    _trusted_until: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._lanes = Lanes(sorted({kind.queue for kind in self.engine.app.kinds.values() if kind.handlers}))
        if self.bell is not None:
            self.bell.listen(self._heard)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; then finish what can be finished in time and give back the rest."""
        logs.emit("worker.started", worker=self.name, slots=self.slots, queues=self._lanes.queues)
        beat = asyncio.create_task(self._beat())
        watch = asyncio.create_task(self._watch(stop))
        try:
            while not stop.is_set():
                await self._turn(stop)
            logs.emit("worker.stopping", worker=self.name, running=len(self._runs))
            await self._leave()
        finally:
            beat.cancel()
            watch.cancel()
        logs.emit("worker.stopped", worker=self.name)

    async def drain(self, stop: asyncio.Event | None = None) -> int:
        """Run what is ready now, until nothing is or it is told to stop; tells how many jobs that were."""
        stop = stop or asyncio.Event()
        done = 0
        beat = asyncio.create_task(self._beat())
        watch = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                self._lanes.look_at = 0.0
                taken = await self._claim(self.slots)
                if not taken:
                    break
                done += taken
                while self._runs and not stop.is_set():
                    await asyncio.wait([watch, *self._tasks()], return_when=asyncio.FIRST_COMPLETED)
            await self._leave()
        finally:
            beat.cancel()
            watch.cancel()
        return done

    # Taking jobs

    async def _turn(self, stop: asyncio.Event) -> None:
        """Claim as much as there is room for; wait where there is none, or nothing to claim."""
        self._wake.clear()
        free = self.slots - len(self._runs)
        if free > 0:
            try:
                if await self._claim(free) == free:
                    return
            except UnavailableError as error:
                logs.emit("db.unavailable", worker=self.name, error=str(error))
            except Exception as error:  # noqa: BLE001 - whatever it is, jobs are running that must be looked after
                logs.emit("service.failed", worker=self.name, error=f"{type(error).__name__}: {error}")
            if stop.is_set():
                return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(POLL * random.uniform(0.8, 1.2)):  # noqa: S311 - jitter
                await self._wake.wait()

    async def _claim(self, want: int) -> int:
        began = time.monotonic()
        leases = await self.engine.claim(self._lanes, want, worker=self.name, duration=self.lease)
        if leases and not self._runs:
            self._trusted_until = began + self.lease.total_seconds() * _MARGIN
        for lease in leases:
            self._start(lease)
        return len(leases)

    def _start(self, lease: Lease) -> None:
        if lease.job_id in self._runs:  # its lease had run out before we noticed, and now it comes round again
            self._drop([self._runs[lease.job_id]])
        kind = self.engine.app.kinds.get(lease.kind) or Kind(name=lease.kind)
        run = Run(lease, kind, Job(self.engine, lease, kind, asyncio.get_running_loop()))
        self._runs[lease.job_id] = run
        self._held[lease.token] = self._held.get(lease.token, 0) + 1
        run.task = asyncio.create_task(self._work(run))

    def _heard(self, topics: frozenset[str]) -> None:
        for run in list(self._runs.values()) if any(t.startswith(CANCEL_TOPIC) for t in topics) else ():
            if f"{CANCEL_TOPIC}{run.lease.job_id}" in topics:
                self._cut_later(run, CanceledError())
        ours = topics.intersection(self._lanes.queues)
        back = any(f"{BACK_TOPIC}{queue}" in topics for queue in self._lanes.queues)
        if back:
            self._lanes.rung_back()
        elif ours:
            self._lanes.rung(ours)
        if ours or back:
            self._wake.set()

    # Running one

    async def _work(self, run: Run) -> None:
        """Run the handler, report its outcome, free the slot; whatever happens, the slot is freed."""
        try:
            await self._report(run, await self._outcome(run))
        except LeaseLostError:
            pass
        except Exception as error:  # noqa: BLE001 - the lease will run out, and the job be taken back
            logs.emit(
                "service.failed",
                worker=self.name,
                job_id=run.lease.job_id,
                error=f"{type(error).__name__}: {values.printable(str(error), 500)}",
            )
        finally:
            self._forget(run)

    async def _outcome(self, run: Run) -> End | Return | Parked | None:
        """What came of the handler: an end, a return to the queue, a pause, or nothing (the lease is lost)."""
        try:
            output = await self._call(run)
            return End(run.lease, "succeeded", values.encode(output, field="output"), captured=run.job.captured)
        except Parked as parked:
            return parked
        except asyncio.CancelledError:
            return self._judge(run, run.cut or InterruptedJobError())
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return self._judge(run, run.cut or error)

    async def _call(self, run: Run) -> Any:
        handler = run.kind.handler(run.lease.state)
        if handler is None and run.kind.name not in self.engine.app.kinds:
            raise InterruptedJobError("The worker does not know this kind of job; a newer one may.")
        if handler is None:
            raise InvalidError(f"Kind {run.kind.name!r} has no code for the state {run.lease.state!r}.")
        positional, named = run.kind.arguments(run.lease.input)
        limit = run.kind.time_limit.total_seconds() if run.kind.time_limit else None
        if inspect.iscoroutinefunction(handler):
            call = handler(run.job, *positional, **named)
        else:
            call = _in_thread(run, handler, positional, named)
        try:
            return await asyncio.wait_for(_contained(call), limit)
        except TimeoutError:
            if limit is None:
                raise
            _interrupt(run.thread)
            raise TimeLimitError(f"It ran longer than {limit:g} s.") from None

    def _judge(self, run: Run, error: BaseException) -> End | Return | None:
        """What an error means for the job."""
        told = _told(error)
        match error:
            case LeaseLostError():
                return None
            case CanceledError():
                return End(run.lease, "canceled", error=told)
            case BlockedError():
                return End(run.lease, "blocked", error=told)
            case InterruptedJobError():
                return Return(run.lease, "interruption", told, None if run.kind.handlers else _STRANGE)
            case PenstockError() if not error.retryable:
                self._raised(run, error)
                return End(run.lease, "failed", error=told)
            case _:
                self._raised(run, error)
                return Return(run.lease, "attempt", told, self._delay(run, error))

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

    async def _report(self, run: Run, outcome: End | Return | Parked | None) -> None:
        """Tell the engine; as long as the lease lives, a database that is away is waited for."""
        while True:
            try:
                match outcome:
                    case End():
                        await self.engine.finish(outcome)
                    case Return():
                        await self.engine.give_back(outcome)
                    case Parked():
                        await self.engine.park(run.lease, outcome.memo)
                    case None:
                        pass
                return
            except MoveDeniedError as denied:
                # Its lifecycle has no arrow for such an end; every job that runs can fail.
                if not isinstance(outcome, End) or outcome.outcome == "failed":
                    raise
                outcome = End(run.lease, "failed", error=_told(denied))
            except UnavailableError:
                if time.monotonic() > self._trusted_until:
                    raise
                await asyncio.sleep(0.5)

    def _forget(self, run: Run) -> None:
        if run.is_over:
            return
        run.is_over = True
        if self._runs.get(run.lease.job_id) is run:
            del self._runs[run.lease.job_id]
        self._held[run.lease.token] -= 1
        if not self._held[run.lease.token]:
            del self._held[run.lease.token]
            self._closed.add(run.lease.token)
        self._wake.set()

    # Staying alive, and leaving

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.heartbeat.total_seconds() * random.uniform(0.8, 1.0))  # noqa: S311 - jitter
            try:
                await self._heartbeat()
            except Exception as error:  # noqa: BLE001 - a worker without a heartbeat loses all it does
                logs.emit("db.unavailable", worker=self.name, error=str(error))
                if time.monotonic() > self._trusted_until:
                    self._drop(list(self._runs.values()))

    async def _heartbeat(self) -> None:
        """Prolong every lease, stop what must stop, forget the leases that are done."""
        began = time.monotonic()
        held = [run.lease for run in self._runs.values()]
        if held:
            pulse = await self.engine.extend(held, self.lease)
            self._drop([run for run in self._runs.values() if run.lease.job_id in pulse.lost])
            for job_id in pulse.canceling:
                if job_id in self._runs:
                    self._cut_later(self._runs[job_id], CanceledError())
        self._trusted_until = began + self.lease.total_seconds() * _MARGIN
        if self._closed:
            closed, self._closed = self._closed, set()
            await self.engine.close_leases(closed)

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
            _interrupt(run.thread)
            run.task.cancel()

    async def _leave(self) -> None:
        """Finish what ends within the grace; give back the rest without a penalty for its attempts."""
        if self._runs:
            await asyncio.wait(self._tasks(), timeout=self.grace.total_seconds())
        for run in list(self._runs.values()):
            run.job.stop(InterruptedJobError())
            self._cut(run, InterruptedJobError())
        if self._runs:
            await asyncio.wait(self._tasks(), timeout=_LAST_WORDS)
        for run in list(self._runs.values()):  # code that takes no notice: its job goes back over its head
            with contextlib.suppress(PenstockError):
                await self.engine.give_back(Return(run.lease, "interruption", _told(InterruptedJobError())))
            self._forget(run)
        if self._closed:
            with contextlib.suppress(PenstockError):
                await self.engine.close_leases(self._closed)

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [run.task for run in self._runs.values() if run.task]

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()


def _told(error: BaseException) -> dict[str, Any]:
    """An error as it is kept on the job: short, storable, without a stack."""
    if isinstance(error, PenstockError):
        told = error.as_dict()
    else:
        told = {"code": HandlerError.code, "message": f"{type(error).__name__}: {error}"}
    told["message"] = values.printable(str(told["message"]), 2_000)
    try:
        values.encode(told, field="error")
    except InvalidError:
        return {"code": told["code"], "message": told["message"]}
    return told


async def _contained(call: Awaitable[Any]) -> Any:
    """A handler that wants to end the process ends its job instead."""
    try:
        return await call
    except (KeyboardInterrupt, SystemExit) as error:
        raise RuntimeError(repr(error)) from error


def _in_thread(run: Run, handler: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> asyncio.Future[Any]:
    """Run a plain handler in a thread of its own.

    Not in a pool: a handler that never comes back would keep one of its threads for ever, and an interrupt could
    hit the next job in it. The thread is a daemon, so it does not keep the process either.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def work() -> None:
        run.thread = threading.get_ident()
        try:
            outcome: tuple[Any, BaseException | None] = handler(run.job, *positional, **named), None
        except BaseException as error:  # noqa: BLE001 - it is raised again where it is awaited
            outcome = None, error
        finally:
            run.thread = None
        with contextlib.suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(_deliver, future, *outcome)

    threading.Thread(target=work, name=f"penstock {run.job.id}", daemon=True).start()
    return future


def _deliver(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        # A StopIteration cannot be set on a future.
        future.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)


def _interrupt(thread: int | None) -> None:
    """Raise in a thread at its next step of Python; code that is inside C notices when it comes back."""
    if thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InterruptedJobError))
