"""Providers: outside services that run jobs, as the engine uses them.

A job of such a kind is run by a worker beside the database like any other. Its code is here: it writes what it is about
to ask, asks, and lets go of the job. When the provider is done the reconciler (see services) answers the job, and
whoever claims it then asks once more, brings the files into storage and ends it. A callback makes the reconciler look
sooner, and that is all it does: nothing is believed that the provider did not say when it was asked.

Code that needs a provider for parts of its job does the same by :meth:`Providers.ask`, for each part.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from millpond import ids, logs, values
from millpond.engine import callbacks, collecting, dispatches, submissions
from millpond.engine.breakers import Breaker, RestingError
from millpond.engine.callbacks import Address
from millpond.errors import (
    BadSignatureError,
    LeaseLostError,
    MillpondError,
    NotFoundError,
    PermanentError,
    ProviderMissingError,
    TransientError,
    UnauthorizedError,
    UnavailableError,
)
from millpond.providers import Made

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.submissions import Begun
    from millpond.kinds import Handler, Kind
    from millpond.providers import Ask, Prediction, Provided, Provider
    from millpond.work import Artifact
    from millpond.worker.context import Job

    Code = Mapping[str, Mapping[str | None, Handler]]

Answer = TypeVar("Answer")

GRACE: Final = timedelta(seconds=30)
"""For how long after its deadline a job is kept from expiring, so that its provider is asked and told to stop first."""
FILE_MAX: Final = 5 * 1024**3
_FAILED_MAX: Final = 10_000


class Line:
    """The way to one provider: every call passes its breaker."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.breaker = Breaker(provider.name)
        self.calls: Counter[str] = Counter()
        """How calls of this process ended."""
        self._failed: set[object] = set()
        """What was tried and failed: to try it again is a retry."""

    @property
    def name(self) -> str:
        return self.provider.name

    async def submit(self, about: object, ask: Ask, *, callback: str | None, deadline: timedelta | None) -> Prediction:
        return await self._call(("submit", about), self.provider.submit(ask, callback=callback, deadline=deadline))

    async def status(self, about: UUID, prediction_id: str) -> Prediction:
        return await self._call(("status", about), self.provider.status(prediction_id))

    async def cancel(self, about: UUID, prediction_id: str) -> Prediction | None:
        return await self._call(("cancel", about), self.provider.cancel(prediction_id))

    async def _call(self, what: object, call: Awaitable[Answer]) -> Answer:
        try:
            self.breaker.enter(is_retry=what in self._failed)
        except RestingError:
            _discard(call)
            self.calls["withheld"] += 1
            raise
        try:
            answer = await call
        except TransientError as error:
            self.calls["failed"] += 1
            if len(self._failed) >= _FAILED_MAX:
                self._failed.clear()
            self._failed.add(what)
            self.breaker.failed(error.retry_after, error.message)
            raise
        except MillpondError:
            self.calls["refused"] += 1
            self._failed.discard(what)
            self.breaker.passed()
            raise
        except BaseException:
            self.breaker.dropped()
            raise
        self.calls["answered"] += 1
        self._failed.discard(what)
        self.breaker.passed()
        return answer


class Providers:
    """The providers of an engine."""

    def __init__(self, engine: Engine, given: Iterable[Provider] = ()) -> None:
        self._engine = engine
        self._lines: dict[str, Line] = {}
        self.public_url: str | None = None
        """Where providers call back; without it they are only asked."""
        self.file_max = FILE_MAX
        """How many bytes a file of theirs may have."""
        self.heard: Counter[tuple[str, str]] = Counter()
        """The callbacks that came to this process, by provider and verdict."""
        for provider in given:
            self.add(provider)

    def beside(self, engine: Engine) -> Providers:
        """The same ways to the same providers, for an engine that shares them."""
        made = Providers(engine)
        made._lines, made.heard = self._lines, self.heard
        made.public_url, made.file_max = self.public_url, self.file_max
        return made

    def add(self, provider: Provider) -> None:
        """Have its kinds run by it, also in place of one of the same name."""
        values.check_name(provider.name, field="provider")
        self._lines[provider.name] = Line(provider)

    def get(self, name: str) -> Provider:
        return self.line(name).provider

    def line(self, name: str) -> Line:
        if name not in self._lines:
            raise ProviderMissingError(f"There is no provider {name[:80]!r} here.", provider=name[:80])
        return self._lines[name]

    @property
    def lines(self) -> tuple[Line, ...]:
        return tuple(self._lines.values())

    async def close(self) -> None:
        for line in self._lines.values():
            await line.provider.close()

    def check(self, kind: Kind) -> None:
        """Refuse a job that nobody here would run, before it is paid for."""
        for name in kind.needs:
            self.line(name)

    def serves(self, kind: Kind) -> bool:
        """Whether all that its jobs need is here."""
        return self._lines.keys() >= set(kind.needs)

    def resting(self) -> frozenset[str]:
        """The queues of kinds that need a provider which is not to be called now: their jobs stay in line."""
        asleep = {name for name, line in self._lines.items() if line.breaker.seconds_left > 0}
        if not asleep:
            return frozenset()
        kinds = self._engine.app.kinds.values()
        awake = {kind.queue for kind in kinds if asleep.isdisjoint(kind.needs)}
        return frozenset(kind.queue for kind in kinds) - awake

    async def hurry(self, tenant: str, job_id: UUID) -> None:
        """Something happened to a job: what was submitted for it is looked at soon, if not at once."""
        if any(kind.needs for kind in self._engine.app.kinds.values()):
            with contextlib.suppress(MillpondError):  # The reconciler comes by anyway.
                await submissions.hurry(self._engine.home(tenant), job_id)

    async def parked(self, tenant: str, job_id: UUID) -> None:
        """A job has begun to wait: what its provider was done with in its last moments is not to wait with it."""
        with contextlib.suppress(MillpondError):  # As above.
            await submissions.hurry_over(self._engine.home(tenant), job_id)

    # Parts of jobs

    async def ask(self, job: Job, name: str, ask: Ask, part: str) -> Made:
        """Have a provider do one thing for a job; see :meth:`ask_all`."""
        return (await self.ask_all(job, name, {part: ask}))[part]

    async def ask_all(self, job: Job, name: str, asks: Mapping[str, Ask]) -> dict[str, Made]:
        """Have a provider do several things for a job at once, each under a name that is its own within the job.

        The job waits without a worker while the provider is at them. Its code is then called again from its top, and
        what is made by then is told at once, from what was kept: it reads as if it had never waited. So it must ask for
        the same under the same name each time. Its kind names the provider in ``needs``.
        """
        line = self.line(name)
        found = {values.check_name(part, field="part"): await self._part(line, job, part, asks[part]) for part in asks}
        made = {part: each for part, each in found.items() if each is not None}
        if len(made) < len(found):
            await job.checkpoint()
            job.park()
        return made

    async def _part(self, line: Line, job: Job, part: str, ask: Ask) -> Made | None:
        begun, prediction = await self._go_on(line, job, part, ask)
        if begun.kept is not None:
            made = msgspec.json.decode(begun.kept, type=Made)
            job.saved += tuple(made.files)
            return made
        if prediction is None:
            return None
        files = await self._collect(line, job, prediction, part)
        made = Made(collecting.told(prediction.output, files), files)
        text = values.encode(msgspec.to_builtins(made), field="output")
        kept = await submissions.keep(self._engine.home(job.tenant), begun.id, text)
        return msgspec.json.decode(kept, type=Made)

    # Running jobs

    def handlers(self) -> Code:
        """The code of every kind that a provider here runs."""
        return {
            kind.name: {None: self._handler(kind.provider)}
            for kind in self._engine.app.kinds.values()
            if kind.provider is not None and self.serves(kind)
        }

    def _handler(self, provided: Provided) -> Handler:
        async def run(job: Job, given: Any) -> Any:
            line = self.line(provided.provider)
            begun, prediction = await self._go_on(line, job, "", provided.ask(given))
            if prediction is None:
                await job.checkpoint()
                job.park({"submission": ids.text("sub", begun.id)})
                raise AssertionError
            return provided.output(given, prediction, await self._collect(line, job, prediction))

        return run

    async def _go_on(self, line: Line, job: Job, part: str, ask: Ask) -> tuple[Begun, Prediction | None]:
        """Ask for a part of a job, or ask what became of it; nothing where it was kept, or has not succeeded yet."""
        await job.checkpoint()
        job_id = ids.parse("job", job.id)
        begun = await submissions.begin(
            self._engine.home(job.tenant), job.tenant, job_id, job.epoch, line.name, part=part
        )
        if begun.kept is not None:
            return begun, None
        await self._engine.db.run(dispatches.SQL["defer"], job_id, job.epoch, GRACE)
        if begun.prediction_id is None:
            prediction = await self._submit(line, job, begun, ask, about=(job_id, part))
        else:
            prediction = await self._ask(line, begun.id, begun.prediction_id)
        if prediction is None or not prediction.is_over:
            return begun, None
        if prediction.status != "succeeded":
            raise _failure(line, prediction)
        return begun, prediction

    async def _collect(self, line: Line, job: Job, prediction: Prediction, part: str = "") -> list[Artifact]:
        outbound, origin = self._engine.outbound, line.provider.origin
        return await collecting.collect(outbound, job, origin, prediction, size_max=self.file_max, part=part)

    async def _submit(self, line: Line, job: Job, begun: Begun, ask: Ask, *, about: object) -> Prediction | None:
        """Ask the provider; nothing where it is to be asked later."""
        db, job_id = self._engine.home(job.tenant), ids.parse("job", job.id)
        if begun.seconds_left <= 0:  # it was held for too long
            await submissions.hold(db, begun, 0)
            return None
        try:
            prediction = await line.submit(
                about,
                ask,
                callback=await self._callback_url(line, Address(job.tenant, begun.id)),
                deadline=timedelta(seconds=begun.seconds_left),
            )
        except RestingError as resting:
            await submissions.hold(db, begun, resting.seconds)
            return None
        except TransientError as error:
            if error.retry_after is None:  # Whether it was heard is not known; the next attempt sees to that.
                raise
            await submissions.hold(db, begun, error.retry_after.total_seconds())
            return None
        except MillpondError:
            await submissions.refuse(db, begun.id)
            raise
        if await submissions.sent(db, begun.id, prediction.id) == "unwanted":
            raise LeaseLostError
        logs.emit("provider.submitted", job_id=job_id, provider=line.name, prediction_id=prediction.id)
        return prediction

    async def _ask(self, line: Line, submission_id: UUID, prediction_id: str) -> Prediction | None:
        """The truth, as far as the provider can be reached; the reconciler comes back to it where it cannot."""
        try:
            return await line.status(submission_id, prediction_id)
        except (RestingError, TransientError):
            return None
        except NotFoundError as error:
            raise PermanentError(error.message, provider=line.name, prediction_id=prediction_id) from error

    async def _callback_url(self, line: Line, address: Address) -> str | None:
        if self.public_url is None:
            return None
        token = address.sign(await self._engine.access.signing_secret())
        return f"{self.public_url.rstrip('/')}/v1/callbacks/{line.name}/{token}"

    # Callbacks

    async def callback(self, name: str, token: str, headers: Mapping[str, str], body: bytes) -> str:
        """Hear what a provider calls; tells the verdict. What is not its own, and fresh, is refused and logged."""
        try:
            line = self.line(name)
            address = Address.read(token, await self._engine.access.signing_secret())
        except (ProviderMissingError, NotFoundError):
            self._refused(name if name in self._lines else "unknown", "unknown")
            raise NotFoundError("Nobody waits for a call here.") from None
        try:
            called = await line.provider.verify(headers, body)
        except BadSignatureError as error:
            reason = str(error.details.get("reason", "forged"))
            self._refused(name, reason, submission_id=ids.text("sub", address.submission_id))
            raise UnauthorizedError(error.message) from None
        except TransientError as error:
            raise UnavailableError("It cannot be checked just now; send it again.") from error
        verdict, job_id = await callbacks.hear(self._engine.home(address.tenant), address, name, called)
        self.heard[name, verdict] += 1
        logs.emit(
            "callback.accepted" if verdict == "accepted" else "callback.ignored",
            job_id=job_id,
            provider=name,
            verdict=verdict,
            message_id=called.message_id,
            prediction_id=called.prediction_id,
        )
        return verdict

    def _refused(self, name: str, verdict: str, **about: Any) -> None:
        self.heard[name, verdict] += 1
        logs.emit("callback.refused", provider=name, verdict=verdict, **about)


def _failure(line: Line, prediction: Prediction) -> PermanentError:
    said = values.printable(prediction.error or "", 1_000) or f"The prediction was {prediction.status}."
    return PermanentError(said, provider=line.name, prediction_id=prediction.id)


def _discard(call: Awaitable[Any]) -> None:
    """A coroutine that is never begun must be closed."""
    close: Callable[[], None] | None = getattr(call, "close", None)
    if close is not None:
        close()
