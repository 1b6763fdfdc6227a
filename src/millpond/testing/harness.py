"""The harness: an app under test, with its database, its clock, and a worker that runs on demand."""

from __future__ import annotations

import asyncio
import functools
import inspect
import tempfile
import threading
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, kinds, values
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.queue.dispatches import Lanes
from millpond.engine.verify import verify
from millpond.errors import NotFoundError, TransientError
from millpond.services.canceler import canceler
from millpond.services.expirer import expirer
from millpond.services.firer import firer
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from millpond.storage.local import Local
from millpond.store.db import Database
from millpond.store.queries import queries
from millpond.testing.clocks import Clock
from millpond.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import datetime
    from typing import TypeVar
    from uuid import UUID

    from millpond.engine.composition.budgets import Budget
    from millpond.engine.composition.steps import Question
    from millpond.engine.credits.ledger import Balance, Entry
    from millpond.engine.engine import JobRecord, Submitted
    from millpond.engine.jobs.artifacts import ArtifactRecord
    from millpond.engine.jobs.events import Event
    from millpond.engine.verify import Violation
    from millpond.kinds import Handler, Kind

    Given = TypeVar("Given")
    AnyJob = JobRecord | Submitted | UUID | str

SQL: Final = queries("millpond.testing", "harness")

TENANT: Final = "test"
ACCOUNT: Final = "test"
ACTOR: Final = "test"
"""Who answers questions."""
_PAGE: Final = 200

_LEASE: Final = timedelta(seconds=60)
_TICK: Final = timedelta(milliseconds=1)
_LEDGER: Final = frozenset(
    {
        "account_equals_its_entries",
        "active_equals_unended_jobs",
        "ended_jobs_are_settled_once",
        "entries_form_a_chain",
        "held_equals_open_holds",
    }
)


class Harness:
    """The object used by tests. Its methods block until they are done, in plain and in async tests.

    Only :meth:`drain` runs the app's own code: async tests await it, and the handlers run on the test's event loop.
    """

    def __init__(self, dsn: str, app: Millpond) -> None:
        self.dsn = dsn
        """The URL of the test's database, for the code under test."""
        self._failures: dict[str, deque[Exception]] = defaultdict(deque)
        self._app = self._rigged(app)
        self._offset = timedelta(0)
        self._loop = Loop()
        self._folder = tempfile.TemporaryDirectory(prefix="millpond-files-", ignore_cleanup_errors=True)
        self._engine = self._loop.run(self._begin())

    def close(self) -> None:
        self._loop.run(self._engine.close())
        self._loop.close()
        self._folder.cleanup()

    # Doing

    def submit(
        self, kind: str, input: Any = None, *, tenant: str = TENANT, account: str = ACCOUNT, **options: Any
    ) -> Submitted:
        return self._loop.run(self._engine.submit(kind, input, tenant=tenant, account=account, **options))

    def cancel(self, job: AnyJob) -> JobRecord:
        found = self.job(job)
        self._loop.run(self._engine.cancel(found.tenant, found.job_id))
        return self.job(found)

    def answer(self, job: AnyJob, answer: Any, *, question: str | None = None) -> JobRecord:
        """Answer a parked job, or one of its questions; the name may be omitted if only one is open."""
        found = self.job(job)
        if question is None and found.waits_for is None:
            self._loop.run(self._engine.answer(found.tenant, found.job_id, answer))
        else:
            name = question or self._open_question(found)
            self._loop.run(self._engine.answer_question(found.tenant, found.job_id, name, answer, actor=ACTOR))
        return self.job(found)

    def upload(
        self,
        data: bytes,
        *,
        name: str = "file",
        content_type: str = "application/octet-stream",
        tenant: str = TENANT,
        account: str = ACCOUNT,
    ) -> ArtifactRecord:
        """Put a file into the test's storage. Its id can be used in the input of a job."""
        saving = self._engine.artifacts.save(tenant, account, name=name, content_type=content_type, data=data)
        return self._loop.run(saving)

    def drain(self, advance: timedelta | str | float | None = None) -> Any:
        """Run jobs until none is ready; returns the number of runs. Await it in async tests.

        ``advance`` moves the clock by that duration, from one due time to the next: retries, schedules, start times,
        deadlines, leases of silent workers. Schedules fire only if the test moves the clock.
        """
        by = None if advance is None else values.duration(advance, field="advance")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run(self._drain(self._engine, by))
        return self._drain_here(by)

    def fail_next(self, kind: str, error: Exception | None = None, *, times: int = 1) -> None:
        """Let the next runs of a kind fail before the handler is called; with a temporary error by default."""
        kinds.find(self._app.kinds, kind)
        self._failures[kind] += [error or TransientError("Failure requested by the test.")] * times

    def lose_worker(self, kind: str) -> JobRecord:
        """Let a worker lease the next job of a kind and then disappear."""
        queue = kinds.find(self._app.kinds, kind).queue
        leases = self._loop.run(self._engine.claim(Lanes([queue]), 1, worker="lost", duration=_LEASE))
        if not leases:
            raise AssertionError(f"No job of {kind!r} is ready.{self._job_list()}")
        return self.job(leases[0].job_id)

    # Time

    @property
    def now(self) -> datetime:
        return self._loop.run(self._clock(self._engine).now())

    def advance(self, by: timedelta | str | float) -> None:
        """Move the database's clock without running jobs."""
        clock = self._clock(self._engine)
        self._loop.run(clock.advance(values.duration(by, field="by")))
        self._offset = clock.offset

    # Looking

    def job(self, job: AnyJob) -> JobRecord:
        """The current state of a job."""
        return self._loop.run(self._read(job))

    def jobs(self, kind: str | None = None, **match: Any) -> list[JobRecord]:
        """All jobs that match, oldest first: ``jobs("image", tenant="acme", input__prompt="a cat")``."""
        wanted = match if kind is None else {"kind": kind, **match}
        found = self._loop.run(self._all())
        return [job for job in found if all(_value(job, name) == value for name, value in wanted.items())]

    def events(self, job: AnyJob) -> list[Event]:
        found = self.job(job)
        return self._loop.run(self._engine.events(found.tenant, found.job_id))

    def children(self, job: AnyJob) -> list[JobRecord]:
        """The children of a job, in the order of its code."""
        return self._loop.run(self._children(self.job(job)))

    def questions(self, job: AnyJob) -> list[Question]:
        """The questions that a job has asked, oldest first."""
        found = self.job(job)
        return self._loop.run(self._engine.questions(found.tenant, found.job_id))

    def budget(self, job: AnyJob) -> Budget | None:
        """What the children of a job may cost, and have cost; None if its kind has no budget."""
        found = self.job(job)
        return self._loop.run(self._engine.budget(found.tenant, found.job_id, found.run))

    def artifacts(self, job: AnyJob) -> list[ArtifactRecord]:
        """The files of a job: its input files and the files of the last attempt."""
        found = self.job(job)
        return self._loop.run(self._engine.artifacts.of_job(found.tenant, found.job_id))

    def download(self, artifact: ArtifactRecord) -> bytes:
        return self._loop.run(self._engine.artifacts.fetch(artifact))

    def wallet(self, tenant: str = TENANT, account: str = ACCOUNT) -> Wallet:
        return Wallet(self._loop, self._engine, tenant, account)

    def assert_submitted(self, kind: str, *, times: int | None = None, **match: Any) -> JobRecord:
        """The newest job of a kind that matches; asserts that there is one, or the given number."""
        found = self.jobs(kind, **match)
        if not found if times is None else len(found) != times:
            wanted = "at least one" if times is None else f"{times}"
            raise AssertionError(f"{len(found)} jobs of {kind!r} match {match}; expected {wanted}.{self._job_list()}")
        return found[-1]

    def assert_not_submitted(self, kind: str, **match: Any) -> None:
        if found := self.jobs(kind, **match):
            raise AssertionError(f"{len(found)} jobs of {kind!r} match {match}; expected none.{self._job_list()}")

    def assert_ledger_balanced(self) -> None:
        """Assert that every balance is the sum of its entries, and every hold is open or settled once."""
        _refuse([violation for violation in self.violations() if violation.invariant in _LEDGER])

    def assert_sound(self) -> None:
        """Assert that all invariants checked by `millpond verify` hold."""
        _refuse(self.violations())

    def violations(self) -> list[Violation]:
        return self._loop.run(verify(self._engine.db))

    # Inside

    async def _begin(self) -> Engine:
        """Declare the schedules anew: their due times are counted from the beginning of the test."""
        engine = await self._open()
        await engine.db.run(SQL["forget_schedules"])
        await engine.schedules.declare()
        return engine

    async def _open(self) -> Engine:
        files = Local(Path(self._folder.name) / "files", "http://files.test")
        return Engine(await Database.open(self.dsn, size=4), self._app, storage=files)

    async def _read(self, job: Any) -> JobRecord:
        number = ids.parse("job", getattr(job, "job_id", job))
        row = await self._engine.db.run(SQL["tenant"], number)
        if row is None:
            raise NotFoundError(f"There is no job {ids.text('job', number)!r}.", field="job")
        return await self._engine.read(row["tenant"], number)

    async def _all(self) -> list[JobRecord]:
        rows = await self._engine.db.run(SQL["jobs"])
        return [await self._engine.read(row["tenant"], row["job_id"]) for row in rows]

    async def _children(self, parent: JobRecord) -> list[JobRecord]:
        found: list[JobRecord] = []
        after: UUID | None = None
        while True:
            page = await self._engine.children(parent.tenant, parent.job_id, after=after, limit=_PAGE)
            found += [await self._engine.read(parent.tenant, job_id) for job_id in page.data]
            after = page.after
            if after is None:
                return found

    def _open_question(self, job: JobRecord) -> str:
        names = [question.name for question in self.questions(job) if question.is_open]
        if len(names) != 1:
            raise AssertionError(
                f"Open questions of {job.id}: {', '.join(names) or 'none'}; expected one, or its name."
            )
        return names[0]

    def _job_list(self) -> str:
        lines = [f"{job.id} {job.kind} {job.state} {job.tenant}/{job.account} {job.input}" for job in self.jobs()]
        return "\nJobs:\n  " + "\n  ".join(lines or ["no jobs"])

    def _clock(self, engine: Engine) -> Clock:
        return Clock(engine.db, self._offset)

    async def _drain_here(self, by: timedelta | None) -> int:
        engine = await self._open()
        try:
            return await self._drain(engine, by)
        finally:
            await engine.close()

    async def _drain(self, engine: Engine, by: timedelta | None) -> int:
        clock = self._clock(engine)
        runs = await self._settle(engine)
        if by is None:
            return runs
        end = await clock.now() + by
        while (due := await _next_wake(engine)) is not None and due < end:
            await self._move(clock, due)
            runs += await self._settle(engine)
        await self._move(clock, end)
        return runs + await self._settle(engine)

    async def _settle(self, engine: Engine) -> int:
        """Do everything that is due now, and what follows from it."""
        services = [make(engine) for make in (scheduler, expirer, reaper, canceler)]
        if self._offset:
            services.append(firer(engine))
        runs = 0
        while True:
            done = sum([await service.run_once() for service in services])
            ran = await Worker(engine.source(name="harness", lease=_LEASE, with_fleet=True), engine.app).drain()
            if not done and not ran:
                return runs
            runs += ran

    async def _move(self, clock: Clock, to: datetime) -> None:
        await clock.advance(to - await clock.now() + _TICK)
        self._offset = clock.offset

    def _rigged(self, app: Millpond) -> Millpond:
        """The same kinds, with handlers that fail when the test requests it, and run inline, where a debugger works."""
        rigged = Millpond(app.name)
        for kind in app.kinds.values():
            rigged.add(replace(kind, handlers=MappingProxyType(self._handlers(kind)), run="inline"))
        for schedule in app.schedules:
            rigged.add_schedule(schedule)
        return rigged

    def _handlers(self, kind: Kind) -> dict[str | None, Handler]:
        return {state: self._fallible(kind.name, handler) for state, handler in kind.handlers.items()}

    def _fallible(self, kind: str, handler: Handler) -> Handler:
        @functools.wraps(handler)
        def call(*positional: Any, **named: Any) -> Any:
            self._strike(kind)
            return handler(*positional, **named)

        @functools.wraps(handler)
        async def awaited(*positional: Any, **named: Any) -> Any:
            return await call(*positional, **named)

        return awaited if inspect.iscoroutinefunction(handler) else call

    def _strike(self, kind: str) -> None:
        if self._failures[kind]:
            raise self._failures[kind].popleft()


@dataclass(frozen=True, slots=True)
class Wallet:
    """An account; its values are read on every access."""

    _loop: Loop
    _engine: Engine
    tenant: str
    account: str

    @property
    def available(self) -> int:
        return self.balance.available

    @property
    def held(self) -> int:
        return self.balance.held

    @property
    def balance(self) -> Balance:
        return self._loop.run(self._engine.balance(self.tenant, self.account))

    def grant(self, amount: int) -> Wallet:
        self._loop.run(self._engine.grant(self.tenant, self.account, amount))
        return self

    def set_cap(self, active_max: int | None) -> Wallet:
        self._loop.run(self._engine.set_cap(self.tenant, self.account, active_max))
        return self

    def entries(self) -> list[Entry]:
        """Newest first."""
        return self._loop.run(self._engine.entries(self.tenant, self.account))


class Loop:
    """An event loop in its own thread, for tests with and without a loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millpond harness", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, Given]) -> Given:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _next_wake(engine: Engine) -> datetime | None:
    return (await engine.db.run(SQL["next_wake"]))["at"]


def _refuse(broken: list[Violation]) -> None:
    if broken:
        raise AssertionError("\n".join(map(str, broken)))


def _value(job: JobRecord, name: str) -> Any:
    """The value of a name: a field of the job, or through ``__`` a value in its JSON."""
    field, *path = name.split("__")
    found: Any = getattr(job, field)
    for part in path:
        try:
            found = found[part]
        except (KeyError, TypeError):
            return _NOTHING
    return found


_NOTHING: Final = object()
