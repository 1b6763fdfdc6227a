"""``python -m millpond.worker.pooled``: a process of a worker's pool. Started by :mod:`millpond.worker.pool`.

Plain handlers run in the main thread, as many libraries expect. The event loop runs in another thread, with ``async``
handlers and the channel to the worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import faulthandler
import inspect
import logging
import os
import queue
import signal
import socket
import sys
import threading
from functools import lru_cache
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from millpond import kinds, values
from millpond.errors import CanceledError, InterruptedJobError, LeaseLostError, MillpondError, SettingsError
from millpond.kinds import Kind
from millpond.resources import DeclaredResource
from millpond.worker import job_logging
from millpond.worker.calls import arranged, contained
from millpond.worker.channel import (
    CallReply,
    CancelJob,
    Channel,
    EndProcess,
    InterruptJob,
    JobBegan,
    JobResult,
    JobSilence,
    JobTaken,
    JobWarned,
    ProcessReady,
    ResourcesLoaded,
    SetUp,
    StartJob,
    ToProcess,
)
from millpond.worker.context import Job
from millpond.worker.emitter import TEXT_TIMEOUT, Emitter
from millpond.worker.job_calls import ChannelSource, PendingCalls
from millpond.worker.raised import Raised, raised_by
from millpond.worker.references import import_modules, resolve
from millpond.worker.resources import Resources
from millpond.worker.steps import Parked, parked_by

if TYPE_CHECKING:
    from collections.abc import Callable


class MainThread:
    """Calls functions in the main thread, one after the other, and interrupts the one that is running."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], concurrent.futures.Future[Any]] | None]
        self._calls = queue.SimpleQueue()
        self._is_interrupted = False
        self._is_calling = False

    def run(self) -> None:
        """Make the calls, until :meth:`end`."""
        signal.signal(signal.SIGTERM, self._interrupt)
        signal.signal(signal.SIGINT, self._interrupt)
        while (call := self._calls.get()) is not None:
            self._make(*call)

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._calls.put((function, done))
        return asyncio.wrap_future(done)

    def interrupt(self) -> None:
        """Let the running call raise InterruptedJobError. Called in another thread."""
        self._is_interrupted = True
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGTERM)

    def end(self) -> None:
        self._calls.put(None)

    def _make(self, function: Callable[[], Any], done: concurrent.futures.Future[Any]) -> None:
        try:
            self._is_calling = True
            value = function()
            self._is_calling = False
        except BaseException as error:  # noqa: BLE001 - it is raised where the call is awaited
            self._is_calling = False
            done.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
        else:
            done.set_result(value)

    def _interrupt(self, *_: Any) -> None:
        """Signals that are not from :meth:`interrupt` are ignored: a service manager sends them to all processes."""
        if self._is_interrupted and self._is_calling:
            raise InterruptedJobError


class WarningRelay(logging.Handler):
    """Sends the warnings that no logging handler takes to the log of the worker."""

    def __init__(self, send: Callable[[JobWarned], None]) -> None:
        super().__init__(logging.WARNING)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(JobWarned(record.name, self.format(record), job_logging.current_job() is not None))


class Program:
    """What the process does, on its event loop."""

    def __init__(self, main: MainThread) -> None:
        self._main = main
        self._loop = asyncio.get_running_loop()
        self._resources = Resources(main.call, self._report_loaded, self._report_unclosed)
        self._declared: dict[str, DeclaredResource] = {}
        self._job: Job | None = None
        self._running: asyncio.Task[None] | None = None
        self._call: asyncio.Future[Any] | None = None
        self._is_interrupted = False
        self._channel: Channel
        self._pending: PendingCalls

    async def run(self, end: socket.socket) -> None:
        """Serve the worker until it ends this process, or is gone."""
        self._channel = Channel(*await asyncio.open_connection(sock=end), ToProcess)
        self._pending = PendingCalls(self._channel)
        logging.lastResort = WarningRelay(self._send_later)
        async with contextlib.aclosing(self._channel.frames()) as frames:
            async for frame in frames:
                if isinstance(frame, EndProcess):
                    break
                await self._receive(frame)
        await self._resources.close()
        await self._channel.flush()

    async def _receive(self, frame: Any) -> None:
        match frame:
            case SetUp():
                await self._set_up(frame)
            case StartJob():
                self._channel.send(JobTaken())
                self._running = asyncio.create_task(self._work(frame))
            case CancelJob() if self._job is not None:
                self._job.stop(CanceledError())
            case InterruptJob():
                self._interrupt()
            case CallReply():
                self._pending.receive(frame)
            case _:
                pass

    async def _set_up(self, given: SetUp) -> None:
        error = None
        try:
            await contained(self._main.call(lambda: self._import(given)))
            await self._resources.get([each for each in self._declared.values() if each.is_eager])
        except MillpondError as failed:
            # A resource that cannot be created now is created when a job needs it.
            error = str(failed) if not failed.retryable else None
        except Exception as failed:  # noqa: BLE001 - the code of an app may raise anything
            error = f"The app cannot be imported by another process: {type(failed).__name__}: {failed}"
        self._channel.send(ProcessReady(error))

    def _import(self, given: SetUp) -> None:
        if (found := version("millpond")) != given.version:
            raise SettingsError(
                f"Millpond {found} is installed, and the worker runs {given.version}: restart the worker."
            )
        sys.path[:] = given.path
        import_modules(given.files, [*given.handlers, *(each.create for each in given.resources)])
        for each in given.resources:
            needs = tuple(self._declared[name] for name in each.needs)
            self._declared[each.name] = DeclaredResource(each.name, resolve(each.create), needs, each.is_eager)

    def _report_loaded(self) -> None:
        self._channel.send(ResourcesLoaded(self._resources.loaded))

    def _report_unclosed(self, name: str, error: Exception) -> None:
        self._channel.send(JobWarned(name, f"The resource could not be closed: {error!r}", is_in_job=False))

    def _send_later(self, warned: JobWarned) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._channel.send, warned)

    # Running a job

    async def _work(self, start: StartJob) -> None:
        handler = resolve(start.handler)
        kind = _kind(start, handler)
        source = ChannelSource(self._pending, start.lease)
        emitter = Emitter(source)
        job = self._job = Job(source, start.lease, kind, self._loop, emitter)
        job_logging.enter(job)
        reporting = asyncio.create_task(self._report_silence(job, start.silence_every))
        try:
            result = await self._result(job, kind, handler, start)
            if self._is_interrupted:
                os._exit(0)
            await job.flush_log()
            await self._flush_text(job, result)
        finally:
            reporting.cancel()
            job.stop(LeaseLostError())  # code that is still running gets this at its next checkpoint
            job.drop_text()
            emitter.close()
            self._job = self._call = None
        self._channel.send(result)

    async def _result(self, job: Job, kind: Kind, handler: Callable[..., Any], start: StartJob) -> JobResult:
        try:
            given = await self._resources.get(self._declared[name] for name in start.resources)
            if start.lease.has_steps:
                await job.load_steps()
            positional, named = arranged(handler, *kind.arguments(start.lease.input), given)
            job.checkpoint()
            self._channel.send(JobBegan())
            output = await self._handle(job, lambda: handler(job, *positional, **named), handler)
            encoded = values.encode(output, field="output", limit=kind.size_max)
            job.steps.check_end()
            return JobResult(encoded, job.captured, job.saved)
        except (Parked, BaseExceptionGroup) as raised:
            parked = parked_by(raised)
            return _raised(raised) if parked is None else _parked(parked, kind)
        except asyncio.CancelledError:
            return _raised(InterruptedJobError())
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return _raised(error)

    async def _handle(self, job: Job, call: Callable[[], Any], handler: Callable[..., Any]) -> Any:
        if inspect.iscoroutinefunction(handler):
            job.steps.enter()
            self._call = asyncio.ensure_future(contained(call()))
            return await self._call

        def code() -> Any:
            job.steps.enter()
            return call()

        return await contained(self._main.call(job_logging.in_context(code)))

    async def _flush_text(self, job: Job, result: JobResult) -> None:
        """Write what the handler has emitted before its end, as the worker does for handlers that it runs itself."""
        raised = None if result.raised is None else msgspec.json.decode(result.raised, type=Raised)
        if job.has_unwritten_text and (raised is None or raised.verdict != "blocked"):
            with contextlib.suppress(MillpondError, TimeoutError):
                async with asyncio.timeout(None if raised is None else TEXT_TIMEOUT):
                    await job.flush_text()

    async def _report_silence(self, job: Job, every: float | None) -> None:
        while every is not None:
            self._channel.send(JobSilence(job.silent_for))
            await asyncio.sleep(every)

    def _interrupt(self) -> None:
        self._is_interrupted = True
        if self._job is None:
            os._exit(0)
        self._job.stop(InterruptedJobError())
        self._job.cut()
        if self._call is not None:
            self._call.cancel()
        self._main.interrupt()


@lru_cache(1_000)
def _input_type(kind: str, handler: Callable[..., Any], name: str, resources: tuple[str, ...]) -> Any:
    return resolve(name) if name else kinds.input_type(kind, handler, resources)[0]


def _kind(start: StartJob, handler: Callable[..., Any]) -> Kind:
    """The kind of the job, as far as its code needs it."""
    given = start.input_type
    shape = None if given is None else _input_type(start.lease.kind, handler, given, start.resources)
    return Kind(
        name=start.lease.kind,
        handlers=MappingProxyType({None: handler}),
        input_type=shape,
        takes_whole_input=start.takes_whole_input,
        stages=start.stages,
        gate=start.gate,
        size_max=start.size_max,
    )


def _raised(error: BaseException) -> JobResult:
    return JobResult(raised=msgspec.json.encode(raised_by(error)))


def _parked(parked: Parked, kind: Kind) -> JobResult:
    memo = None if parked.memo is None else values.encode(parked.memo, field="memo", limit=kind.size_max)
    return JobResult(is_parked=True, memo=memo, step=parked.step)


def main() -> None:
    end, faults = (int(word) for word in sys.argv[1:])
    os.set_inheritable(end, False)  # noqa: FBT003 - positional only
    os.set_inheritable(faults, False)  # noqa: FBT003 - as above
    faulthandler.enable(file=faults)
    faulthandler.register(signal.SIGUSR2, file=faults)  # writes where the code is, even if it blocks in C
    thread = MainThread()

    async def serve() -> None:
        await Program(thread).run(socket.socket(fileno=end))

    def work() -> None:
        try:
            asyncio.run(serve())
        finally:
            thread.end()

    threading.Thread(target=work, name="millpond", daemon=True).start()
    thread.run()


if __name__ == "__main__":
    main()
