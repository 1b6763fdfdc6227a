"""Providers: external services that run jobs, as the engine uses them.

A job of such a kind is run by a worker beside the database like any other. Its handler is here: it stores the
prediction, asks the provider, and parks the job. When the provider is done, the reconciler (see services) answers the
job; the worker that claims it then asks the provider once more, brings the files into storage and ends the job. A
callback only makes the reconciler look sooner: only what the provider says when it is asked counts.

Handlers that need a provider for parts of their job do the same by :meth:`Providers.ask`, for each part.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from millpond import ids, logs, values
from millpond.engine.providers import callbacks, outputs, predictions
from millpond.engine.providers.breakers import Breaker, RestingError
from millpond.engine.providers.callbacks import CallbackTarget
from millpond.engine.queue import dispatches
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
from millpond.providers import PartResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from uuid import UUID

    from millpond.engine.engine import Engine
    from millpond.engine.providers.predictions import StartedPrediction
    from millpond.kinds import Handler, Kind
    from millpond.providers import Ask, Prediction, Provided, Provider
    from millpond.work import Artifact
    from millpond.worker.context import Job

    Code = Mapping[str, Mapping[str | None, Handler]]

Answer = TypeVar("Answer")

GRACE: Final = timedelta(seconds=30)
"""How long after its deadline a job is kept from expiring, so that its provider is asked, and told to stop, first."""
FILE_MAX: Final = 5 * 1024**3
_FAILED_MAX: Final = 10_000


class ProviderClient:
    """The client of one provider: every call passes its breaker."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.breaker = Breaker(provider.name)
        self.calls: Counter[str] = Counter()
        """The number of calls of this process, by how they ended."""
        self._failed: set[object] = set()
        """Calls that failed: making one again is a retry."""

    @property
    def name(self) -> str:
        return self.provider.name

    async def submit(self, about: object, ask: Ask, *, callback: str | None, deadline: timedelta | None) -> Prediction:
        return await self._call(("submit", about), self.provider.submit(ask, callback=callback, deadline=deadline))

    async def status(self, about: UUID, external_id: str) -> Prediction:
        return await self._call(("status", about), self.provider.status(external_id))

    async def cancel(self, about: UUID, external_id: str) -> Prediction | None:
        return await self._call(("cancel", about), self.provider.cancel(external_id))

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
        self._clients: dict[str, ProviderClient] = {}
        self.callbacks_url: str | None = None
        """The base URL of callbacks; without it, providers are only polled."""
        self.file_max = FILE_MAX
        """The maximum number of bytes of a provider's file."""
        self.heard: Counter[tuple[str, str]] = Counter()
        """The number of callbacks to this process, by provider and verdict."""
        for provider in given:
            self.add(provider)

    def beside(self, engine: Engine) -> Providers:
        """The same clients of the same providers, for an engine that shares them."""
        made = Providers(engine)
        made._clients, made.heard = self._clients, self.heard
        made.callbacks_url, made.file_max = self.callbacks_url, self.file_max
        return made

    def add(self, provider: Provider) -> None:
        """Add a provider, which runs its kinds. It replaces one of the same name."""
        values.check_name(provider.name, field="provider")
        self._clients[provider.name] = ProviderClient(provider)

    def get(self, name: str) -> Provider:
        return self.client(name).provider

    def client(self, name: str) -> ProviderClient:
        if name not in self._clients:
            raise ProviderMissingError(f"The provider {name[:80]!r} is not configured.", provider=name[:80])
        return self._clients[name]

    @property
    def clients(self) -> tuple[ProviderClient, ...]:
        return tuple(self._clients.values())

    async def close(self) -> None:
        for client in self._clients.values():
            await client.provider.close()

    def check(self, kind: Kind) -> None:
        """Reject a job that needs a provider which is not configured, before it is paid for."""
        for name in kind.needs:
            self.client(name)

    def serves(self, kind: Kind) -> bool:
        """Whether all providers that the kind's jobs need are configured."""
        return self._clients.keys() >= set(kind.needs)

    def resting(self) -> frozenset[str]:
        """The queues all of whose kinds need a provider to which calls are suspended: their jobs stay queued."""
        asleep = {name for name, client in self._clients.items() if client.breaker.seconds_left > 0}
        if not asleep:
            return frozenset()
        kinds = self._engine.app.kinds.values()
        awake = {kind.queue for kind in kinds if asleep.isdisjoint(kind.needs)}
        return frozenset(kind.queue for kind in kinds) - awake

    async def poll_soon(self, tenant: str, job_id: UUID) -> None:
        """Have the reconciler look at a job's predictions soon, because something happened to the job."""
        if any(kind.needs for kind in self._engine.app.kinds.values()):
            with contextlib.suppress(MillpondError):  # The reconciler looks at them anyway, only later.
                await predictions.poll_now(self._engine.database(tenant), job_id)

    async def parked(self, tenant: str, job_id: UUID) -> None:
        """Have the reconciler look at predictions that ended just before their job was parked."""
        with contextlib.suppress(MillpondError):  # As above.
            await predictions.poll_finished_now(self._engine.database(tenant), job_id)

    # Parts of jobs

    async def ask(self, job: Job, name: str, ask: Ask, part: str) -> PartResult:
        """Have a provider do one thing for a job; see :meth:`ask_all`."""
        return (await self.ask_all(job, name, {part: ask}))[part]

    async def ask_all(self, job: Job, name: str, asks: Mapping[str, Ask]) -> dict[str, PartResult]:
        """Have a provider do several things for a job at once, each under a name that is unique within the job.

        The job is parked, without a worker, while the provider works. Its handler is then called again from the start,
        and results that exist by then are returned at once, as they were stored: the handler reads as if it had never
        waited. So it must ask for the same under the same name each time. Its kind names the provider in ``needs``.
        """
        client = self.client(name)
        found = {
            values.check_name(part, field="part"): await self._part(client, job, part, asks[part]) for part in asks
        }
        made = {part: each for part, each in found.items() if each is not None}
        if len(made) < len(found):
            await job.checkpoint()
            job.park()
        return made

    async def _part(self, client: ProviderClient, job: Job, part: str, ask: Ask) -> PartResult | None:
        begun, prediction = await self._continue(client, job, part, ask)
        if begun.kept is not None:
            made = msgspec.json.decode(begun.kept, type=PartResult)
            job.saved += tuple(made.files)
            return made
        if prediction is None:
            return None
        files = await self._collect(client, job, prediction, part)
        made = PartResult(outputs.with_file_ids(prediction.output, files), files)
        text = values.encode(msgspec.to_builtins(made), field="output")
        kept = await predictions.keep(self._engine.database(job.tenant), begun.id, text)
        return msgspec.json.decode(kept, type=PartResult)

    # Running jobs

    def handlers(self) -> Code:
        """The handlers of all kinds that a configured provider runs."""
        return {
            kind.name: {None: self._handler(kind.provider)}
            for kind in self._engine.app.kinds.values()
            if kind.provider is not None and self.serves(kind)
        }

    def _handler(self, provided: Provided) -> Handler:
        async def run(job: Job, given: Any) -> Any:
            client = self.client(provided.provider)
            begun, prediction = await self._continue(client, job, "", provided.ask(given))
            if prediction is None:
                await job.checkpoint()
                job.park({"prediction": ids.text("pred", begun.id)})
                raise AssertionError
            return provided.output(given, prediction, await self._collect(client, job, prediction))

        return run

    async def _continue(
        self, client: ProviderClient, job: Job, part: str, ask: Ask
    ) -> tuple[StartedPrediction, Prediction | None]:
        """Submit the prediction of a part of a job, or ask for its state; None if it is stored or not over yet."""
        await job.checkpoint()
        job_id = ids.parse("job", job.id)
        begun = await predictions.begin(
            self._engine.database(job.tenant), job.tenant, job_id, job.epoch, client.name, part=part
        )
        if begun.kept is not None:
            return begun, None
        await self._engine.db.run(dispatches.SQL["defer"], job_id, job.epoch, GRACE)
        if begun.external_id is None:
            prediction = await self._submit(client, job, begun, ask, about=(job_id, part))
        else:
            prediction = await self._ask(client, begun.id, begun.external_id)
        if prediction is None or not prediction.is_over:
            return begun, None
        if prediction.status != "succeeded":
            raise _failure(client, prediction)
        return begun, prediction

    async def _collect(
        self, client: ProviderClient, job: Job, prediction: Prediction, part: str = ""
    ) -> list[Artifact]:
        outbound, origin = self._engine.outbound, client.provider.origin
        return await outputs.collect(outbound, job, origin, prediction, size_max=self.file_max, part=part)

    async def _submit(
        self, client: ProviderClient, job: Job, begun: StartedPrediction, ask: Ask, *, about: object
    ) -> Prediction | None:
        """Submit a prediction; None if it is to be submitted later."""
        db, job_id = self._engine.database(job.tenant), ids.parse("job", job.id)
        if begun.seconds_left <= 0:  # it was held for too long
            await predictions.hold(db, begun, 0)
            return None
        try:
            prediction = await client.submit(
                about,
                ask,
                callback=await self._callback_url(client, CallbackTarget(job.tenant, begun.id)),
                deadline=timedelta(seconds=begun.seconds_left),
            )
        except RestingError as resting:
            await predictions.hold(db, begun, resting.seconds)
            return None
        except TransientError as error:
            if error.retry_after is None:  # It may have arrived; the next attempt takes care of that.
                raise
            await predictions.hold(db, begun, error.retry_after.total_seconds())
            return None
        except MillpondError:
            await predictions.refuse(db, begun.id)
            raise
        if await predictions.sent(db, begun.id, prediction.id) == "unwanted":
            raise LeaseLostError
        logs.emit("provider.submitted", job_id=job_id, provider=client.name, external_id=prediction.id)
        return prediction

    async def _ask(self, client: ProviderClient, prediction_id: UUID, external_id: str) -> Prediction | None:
        """The state of a prediction; None if the provider cannot be reached: then the reconciler asks again."""
        try:
            return await client.status(prediction_id, external_id)
        except (RestingError, TransientError):
            return None
        except NotFoundError as error:
            raise PermanentError(error.message, provider=client.name, external_id=external_id) from error

    async def _callback_url(self, client: ProviderClient, address: CallbackTarget) -> str | None:
        if self.callbacks_url is None:
            return None
        token = address.sign(await self._engine.access.signing_secret())
        return f"{self.callbacks_url}/{client.name}/{token}"

    # Callbacks

    async def callback(self, name: str, token: str, headers: Mapping[str, str], body: bytes) -> str:
        """Process a provider's callback; return the verdict. A forged or old one is rejected and logged."""
        try:
            client = self.client(name)
            address = CallbackTarget.read(token, await self._engine.access.signing_secret())
        except (ProviderMissingError, NotFoundError):
            self._refused(name if name in self._clients else "unknown", "unknown")
            raise NotFoundError("The callback token is unknown.") from None
        try:
            called = await client.provider.verify(headers, body)
        except BadSignatureError as error:
            reason = str(error.details.get("reason", "forged"))
            self._refused(name, reason, prediction_id=ids.text("pred", address.prediction_id))
            raise UnauthorizedError(error.message) from None
        except TransientError as error:
            raise UnavailableError("The callback cannot be verified at the moment. Send it again.") from error
        verdict, job_id = await callbacks.hear(self._engine.database(address.tenant), address, name, called)
        self.heard[name, verdict] += 1
        logs.emit(
            "callback.accepted" if verdict == "accepted" else "callback.ignored",
            job_id=job_id,
            provider=name,
            verdict=verdict,
            message_id=called.message_id,
            external_id=called.external_id,
        )
        return verdict

    def _refused(self, name: str, verdict: str, **about: Any) -> None:
        self.heard[name, verdict] += 1
        logs.emit("callback.refused", provider=name, verdict=verdict, **about)


def _failure(client: ProviderClient, prediction: Prediction) -> PermanentError:
    message = values.printable(prediction.error or "", 1_000) or f"The prediction ended as {prediction.status}."
    return PermanentError(message, provider=client.name, external_id=prediction.id)


def _discard(call: Awaitable[Any]) -> None:
    """Close a coroutine that is never awaited."""
    close: Callable[[], None] | None = getattr(call, "close", None)
    if close is not None:
        close()
