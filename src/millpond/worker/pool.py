"""The pool of a worker: warm processes, each of which runs one job at a time.

A process is started when a job needs one and none is idle, and used again. It can be killed at any time, whatever its
code does, and another takes its place. It is started anew, never forked: the threads and locks of a worker do not
survive a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from importlib.metadata import version
from typing import IO, TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids, logs, resources, values
from millpond.errors import ProcessCrashedError, SettingsError, TimeLimitError
from millpond.lifeline import Guard
from millpond.worker import job_logging, tracebacks
from millpond.worker.calls import describe
from millpond.worker.channel import (
    CancelJob,
    Channel,
    EndProcess,
    InterruptJob,
    JobBegan,
    JobCall,
    JobResult,
    JobSilence,
    JobTaken,
    JobWarned,
    ProcessReady,
    ResourceReference,
    ResourcesLoaded,
    SetUp,
    StartJob,
    ToWorker,
)
from millpond.worker.job_calls import JobCalls, refused
from millpond.worker.raised import HandlerRaisedError, Raised
from millpond.worker.references import files_of, reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from millpond.errors import HandlerError
    from millpond.kinds import Kind
    from millpond.work import Lease
    from millpond.worker.channel import Frame
    from millpond.worker.context import Job
    from millpond.worker.source import JobSource

CANCEL_GRACE: Final = 2.0
"""Seconds that a canceled job has to reach a checkpoint, after which its process is killed."""
KILL_GRACE: Final = 1.0
"""Seconds between the interrupt of a process and SIGKILL."""
_CLOSE_TIMEOUT: Final = 10.0
"""Seconds that an idle process has to close its resources."""
_REAP_TIMEOUT: Final = 5.0
_FAULTS_MAX: Final = 64_000
_LOWEST: Final = 10
"""The lowest descriptor for the process: the shell that starts it uses those with one digit."""
_REPORTS_PER_LIMIT: Final = 4
"""How often the process reports its silence within a stall limit."""


class ProcessPool:
    """The processes of one worker. ``on_loaded`` is called when they have created or lost resources."""

    def __init__(self, source: JobSource, kinds: Iterable[Kind], on_loaded: Callable[[], object]) -> None:
        self._source = source
        self._on_loaded = on_loaded
        self._setup = _set_up(kinds)
        self._idle: list[PoolProcess] = []
        self._processes: set[PoolProcess] = set()
        self._spares: deque[asyncio.Task[PoolProcess]] = deque()
        """Processes that start, and are nobody's yet."""
        self._is_closed = False

    @property
    def loaded(self) -> set[str]:
        """The names of the resources that its processes have created."""
        return {name for process in self._processes for name in process.loaded}

    async def open(self, slots: int) -> None:
        """Start a process, which shows that the app can be imported; as many as there are slots if one is eager."""
        is_eager = any(resource.is_eager for resource in self._setup.resources)
        self._spares.extend(self._start() for _ in range(slots if is_eager else 1))
        try:
            await asyncio.gather(*self._spares)
        except ProcessCrashedError as error:
            raise SettingsError(f"A process for handlers could not start: {error.message}", field="app") from None

    async def close(self) -> None:
        """End all processes. Those that run no job close their resources."""
        self._is_closed = True
        for spare in self._spares:
            spare.cancel()
        await asyncio.gather(*self._spares, return_exceptions=True)
        self._spares.clear()
        await asyncio.gather(*(process.end() for process in list(self._processes)))

    async def run(
        self, job: Job, lease: Lease, kind: Kind, limit: timedelta | None, stall_limit: timedelta | None
    ) -> JobResult:
        """Run the handler of a job; raises its error, or that of the process. If canceled, kills the process."""
        handler = kind.handler(lease.state)
        start = StartJob(
            lease,
            reference(handler, "") if handler is not None else "",
            tuple(resource.name for resource in kind.resources),
            _input_type(kind),
            kind.takes_whole_input,
            kind.stages,
            kind.gate,
            kind.size_max,
            None if stall_limit is None else stall_limit.total_seconds() / _REPORTS_PER_LIMIT,
        )
        while True:
            process = await self._acquire(job, set(start.resources))
            try:
                job.checkpoint()
                return await process.run(job, start, limit)
            except _NotTakenError:
                continue  # it ended while it was idle
            finally:
                self._release(process)

    def cancel(self, job: Job) -> None:
        """Let the next checkpoint of a job raise that it is canceled."""
        for process in self._processes:
            if process.job is job:
                process.send(CancelJob())

    async def _acquire(self, job: Job, needed: set[str]) -> PoolProcess:
        """An idle process, preferably one that has created what the job needs, or a new one."""
        if self._idle:
            best = max(range(len(self._idle)), key=lambda n: (len(needed.intersection(self._idle[n].loaded)), n))
            return self._idle.pop(best)
        spare = self._next_spare()
        try:
            with job.doing():
                return await asyncio.shield(spare)
        except asyncio.CancelledError:
            self._spares.append(spare)
            raise
        except SettingsError as error:  # it could be imported when the worker started
            raise ProcessCrashedError(f"The process could not start: {error}") from None

    def _next_spare(self) -> asyncio.Task[PoolProcess]:
        while self._spares:
            spare = self._spares.popleft()
            if not spare.done() or (not spare.cancelled() and spare.exception() is None):
                return spare
        return self._start()

    def _start(self) -> asyncio.Task[PoolProcess]:
        with job_logging.outside():
            task = asyncio.create_task(self._started())
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return task

    async def _started(self) -> PoolProcess:
        process = PoolProcess(self._source, self._on_loaded, self._lost)
        self._processes.add(process)
        try:
            await process.start(self._setup)
        except BaseException:
            await process.kill()
            raise
        return process

    def _release(self, process: PoolProcess) -> None:
        """Keep a process that may run another job. In place of any other, start one."""
        if self._is_closed:
            return
        if process.is_idle:
            self._idle.append(process)
        elif not self._spares:
            self._spares.append(self._start())

    def _lost(self, process: PoolProcess) -> None:
        self._processes.discard(process)
        if process in self._idle:
            self._idle.remove(process)
        if process.loaded:
            self._on_loaded()


class _NotTakenError(Exception):
    """The process ended before it received the job."""


class PoolProcess:
    """A process of the pool, at its worker's end of the channel."""

    def __init__(
        self, source: JobSource, on_loaded: Callable[[], object], on_end: Callable[[PoolProcess], object]
    ) -> None:
        self.job: Job | None = None
        """The job that it runs."""
        self.loaded: list[str] = []
        """The names of the resources that it has created."""
        self._source = source
        self._on_loaded = on_loaded
        self._on_end = on_end
        self._guard = Guard()
        self._faults = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._killing: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] | None = None
        self._result: asyncio.Future[JobResult] | None = None
        self._began = asyncio.Event()
        self._is_taken = False
        self._calls: JobCalls | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._stack = ""

    @property
    def is_idle(self) -> bool:
        return not self._is_over and self._killing is None and self.job is None

    async def start(self, setup: SetUp) -> None:
        """Start the process; returns when it takes jobs."""
        ours, theirs = socket.socketpair()
        given = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _LOWEST) for end in (theirs.fileno(), self._faults.fileno())]
        theirs.close()
        words = [sys.executable, "-u", "-m", "millpond.worker.pooled", *map(str, given)]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._guard.words(words),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=2,  # what a handler prints: the standard output of the worker may be read by a program
                pass_fds=(self._guard.descriptor, *given),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            for end in given:
                os.close(end)
        self._ready = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch(self._process))
        self._channel = Channel(*await asyncio.open_connection(sock=ours), ToWorker)
        self._reading = asyncio.create_task(self._read(self._channel))
        self.send(setup)
        await self._ready

    def send(self, frame: Frame) -> None:
        if self._channel is not None:
            self._channel.send(frame)

    async def run(self, job: Job, start: StartJob, limit: timedelta | None) -> JobResult:
        """Run a job. The time limit counts from the call of its handler, when its resources are there."""
        self.job = job
        self._began.clear()
        self._is_taken = False
        self._result = asyncio.get_running_loop().create_future()
        if self._is_over:
            self._result.set_exception(_NotTakenError())
        self._calls = JobCalls(self._source, start.lease)
        seconds = None if limit is None else limit.total_seconds()
        try:
            self.send(start)
            with job.doing():
                await self._until_began(self._result)
            async with asyncio.timeout(seconds):
                result = await self._result
            self.job = None
        except TimeoutError:
            self._ask_where()
            await self.kill()
            raise self._raised(TimeLimitError(f"The job exceeded its time limit of {seconds:g} s.")) from None
        except BaseException:
            await self.kill()
            raise
        finally:
            for task in self._answering:
                task.cancel()
            await self._calls.close()
        if result.raised is not None:
            raise HandlerRaisedError(msgspec.json.decode(result.raised, type=Raised))
        return result

    async def _until_began(self, result: asyncio.Future[JobResult]) -> None:
        began = asyncio.create_task(self._began.wait())
        try:
            await asyncio.wait([began, result], return_when=asyncio.FIRST_COMPLETED)
        finally:
            began.cancel()

    async def end(self) -> None:
        """Let an idle process close its resources and exit; kill any other."""
        if self.is_idle and self._watching is not None:
            self.send(EndProcess())
            await asyncio.wait([self._watching], timeout=_CLOSE_TIMEOUT)
        await self.kill()

    async def kill(self) -> None:
        """Interrupt the process, and kill it and all that it has started if that takes too long. Waits for its end."""
        if self._killing is None:
            with job_logging.outside():
                self._killing = asyncio.create_task(self._kill())
        await asyncio.shield(self._killing)  # a second cancel does not keep it alive

    async def _kill(self) -> None:
        if self._process is None or self._watching is None:
            self._close()
            return
        self.send(InterruptJob())
        await asyncio.wait([self._watching], timeout=KILL_GRACE if self.job is not None else 0)
        if not self._is_over:  # afterwards, the number may be that of another group
            self._signal(self._process.pid)
        await asyncio.wait([self._watching], timeout=_REAP_TIMEOUT)

    def _ask_where(self) -> None:
        """Let the process write where its code is, for the traceback."""
        if self._process is not None and not self._is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGUSR2)

    def _signal(self, group: int) -> None:
        """Kill the process and those that it has started: they are in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)

    # What the process reports

    async def _read(self, channel: Channel) -> None:
        try:
            async with contextlib.aclosing(channel.frames()) as frames:
                async for frame in frames:
                    self._receive(frame)
        except msgspec.MsgspecError:  # its code has written to the channel: nothing is known of it any more
            if self._process is not None and not self._is_over:
                self._signal(self._process.pid)

    def _receive(self, frame: Any) -> None:
        match frame:
            case JobCall():
                self._answer_later(frame)
            case JobSilence() if self.job is not None:
                self.job.seem_silent(frame.seconds)
            case JobTaken():
                self._is_taken = True
            case JobBegan():
                self._began.set()
            case JobResult() if self._result is not None and not self._result.done():
                self._result.set_result(frame)
            case ResourcesLoaded():
                self.loaded = frame.names
                self._on_loaded()
            case JobWarned():
                self._log(frame)
            case ProcessReady() if self._ready is not None and not self._ready.done():
                self._settle_ready(self._ready, frame.error)
            case _:
                pass

    def _settle_ready(self, ready: asyncio.Future[None], error: str | None) -> None:
        if error is None:
            ready.set_result(None)
        else:
            ready.set_exception(SettingsError(error, field="app"))

    def _answer_later(self, call: JobCall) -> None:
        if self._calls is not None and self.job is not None and self._calls.is_of(call):
            task = asyncio.create_task(self._answer(self._calls, self.job, call))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        else:  # of a job that has ended
            self.send(refused(call))

    async def _answer(self, calls: JobCalls, job: Job, call: JobCall) -> None:
        with job.doing():
            self.send(await calls.answer(call))

    def _log(self, warned: JobWarned) -> None:
        text = values.printable(warned.text, tracebacks.LENGTH_MAX)
        if warned.is_in_job and self.job is not None:
            job_id = ids.parse("job", self.job.id)
            logs.emit("handler.warned", job_id=job_id, library=warned.library, text=text)
        else:
            logs.emit("library.warned", library=warned.library, text=text)

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        """Wait until the process has ended; then its job has failed, unless its result is known."""
        status = await process.wait()
        self._is_over = True
        self._signal(process.pid)
        self._guard.dismiss()
        if self._reading is not None:
            await asyncio.wait([self._reading], timeout=1)
            self._reading.cancel()
        self._stack = _read(self._faults)
        crashed = ProcessCrashedError(_how(status), **_facts(status))
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(crashed)
        if self._result is not None and not self._result.done():
            self._result.set_exception(self._raised(crashed) if self._is_taken else _NotTakenError())
            self._result.exception()  # it may be that nobody waits for it
        self._close()

    def _raised(self, error: HandlerError) -> HandlerRaisedError:
        """The error of the job, with the stacks that the process has written at its end."""
        stack = tracebacks.stored(self._stack) or None
        return HandlerRaisedError(Raised("attempt", describe(error), f"{type(error).__name__}: {error}", stack))

    def _close(self) -> None:
        self._is_over = True
        self._guard.dismiss()
        if self._channel is not None:
            self._channel.close()
        self._faults.close()
        self._on_end(self)


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_FAULTS_MAX).decode("utf-8", "replace")


def _set_up(kinds: Iterable[Kind]) -> SetUp:
    """What the processes import, by names; raises if something cannot be imported."""
    handlers: dict[str, None] = {}
    needed: dict[str, resources.DeclaredResource] = {}
    for kind in kinds:
        for handler in kind.handlers.values():
            handlers[reference(handler, f"The handler of kind {kind.name!r}, which runs in a process,")] = None
        needed |= resources.closure(kind.resources)
    references = [
        ResourceReference(
            each.name,
            reference(each.create, f"The resource {each.name!r}, which a process needs,"),
            tuple(need.name for need in each.needs),
            each.is_eager,
        )
        for each in needed.values()
    ]
    names = [*handlers, *(each.create for each in references)]
    return SetUp(version("millpond"), list(sys.path), files_of(names), list(handlers), references)


def _input_type(kind: Kind) -> str | None:
    if kind.input_type is None:
        return None
    try:
        return reference(kind.input_type, "")
    except SettingsError:
        return ""


def _how(status: int) -> str:
    if status >= 0:
        return f"The process that ran the job exited with code {status}."
    if -status == signal.SIGKILL:
        return "The process that ran the job was killed by SIGKILL. The usual reason is that memory was used up."
    return f"The process that ran the job was killed by {_name(-status)}."


def _name(number: int) -> str:
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    meaning = signal.strsignal(number)
    return f"{found.name} ({meaning.lower()})" if meaning else found.name


def _facts(status: int) -> dict[str, Any]:
    if status >= 0:
        return {"exit_code": status}
    try:
        return {"signal": signal.Signals(-status).name}
    except ValueError:
        return {"signal": str(-status)}
