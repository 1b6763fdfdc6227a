"""The reconciler: polls the state of each prediction at its provider, from the moment it is submitted.

Callbacks and responses can be lost. So every prediction is polled, less and less often, until its job has ended and the
provider knows that. Only the reconciler wakes jobs that wait for a provider, and cancels predictions that are no longer
needed; it does so before a job expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import ids, logs
from millpond.engine.providers import predictions
from millpond.engine.providers.breakers import RestingError
from millpond.engine.queue import dispatches
from millpond.errors import AnswerUnavailableError, MillpondError, NotFoundError, TransientError
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.engine.providers.predictions import DuePrediction
    from millpond.engine.providers.providers import ProviderClient
    from millpond.providers import Prediction
    from millpond.store.db import Database

PREDICTIONS_MAX: Final = 100
CALLS_MAX: Final = 20
"""The limit of concurrent calls to a provider."""
SOON: Final = timedelta(seconds=0.25)
"""The delay before it looks again at a prediction that is about to change."""


def reconciler(engine: Engine, provider: str | None = None, every: timedelta = timedelta(seconds=0.25)) -> Service:
    """For one provider, so that a slow one does not delay the others; without a name, for all."""

    async def run_once() -> int:
        clients = engine.providers.clients if provider is None else (engine.providers.client(provider),)
        return sum(await asyncio.gather(*(_run(engine, client) for client in clients)))

    return Service("reconciler" if provider is None else f"reconciler {provider}", every, run_once)


async def _run(engine: Engine, client: ProviderClient) -> int:
    gate = asyncio.Semaphore(CALLS_MAX)

    async def check(db: Database) -> int:
        done = 0
        while not client.breaker.seconds_left:
            looks = await predictions.take(db, client.name, PREDICTIONS_MAX)
            await asyncio.gather(*(_guarded(_Check(engine, db, client, look), gate) for look in looks))
            done += len(looks)
            if len(looks) < PREDICTIONS_MAX:
                break
        return done

    return sum(await engine.tenant_databases.each(check))


async def _guarded(check: _Check, gate: asyncio.Semaphore) -> None:
    """A failure of one prediction must not stop the others; it is looked at again."""
    async with gate:
        try:
            await check.run()
        except MillpondError as error:
            logs.emit(
                "service.failed",
                service="reconciler",
                job_id=check.look.job_id,
                error=f"{type(error).__name__}: {error}",
            )


@dataclass(frozen=True, slots=True)
class _Check:
    """One look at a prediction."""

    engine: Engine
    db: Database
    client: ProviderClient
    look: DuePrediction

    async def run(self) -> None:
        try:
            if self.look.is_ended or self.look.status == "unwanted":
                await self._stop()
            elif self.look.is_past:
                await self._pass_deadline()
            else:
                await self._follow()
        except RestingError as resting:
            await self._later(timedelta(seconds=resting.seconds))
        except TransientError:  # the breaker has counted it
            await self._later()
        except MillpondError:
            await self._later()
            raise

    async def _stop(self) -> None:
        """The prediction is no longer needed: cancel it at the provider."""
        look = self.look
        if look.external_id is None or look.status == "over":
            await predictions.close(self.db, look)
            return
        prediction = await self._cancel()
        if prediction is not None and not prediction.is_over:
            await self._later()
            return
        if prediction is not None and prediction.status == "succeeded":
            logs.emit("provider.late", job_id=look.job_id, provider=self.client.name, external_id=prediction.id)
        else:
            logs.emit("provider.canceled", job_id=look.job_id, provider=self.client.name, external_id=look.external_id)
        await predictions.close(self.db, look)

    async def _pass_deadline(self) -> None:
        """The deadline has passed. Collect a result that exists; otherwise cancel, and only then let the job expire."""
        look, prediction = self.look, None
        if look.phase != "parked":  # a worker has it, or it waits for one; or for its next attempt, and then expires
            await self._later(SOON)
            return
        if look.external_id is not None:
            prediction = await self._ask()
            if prediction is not None and not prediction.is_over:
                prediction = await self._cancel() or prediction
            if prediction is not None and prediction.status in ("succeeded", "failed"):
                await self._answer(prediction)
                return
            logs.emit("provider.canceled", job_id=look.job_id, provider=self.client.name, external_id=look.external_id)
        await self.engine.db.run(dispatches.SQL["let_go"], look.job_id)
        if look.external_id is not None and (prediction is None or prediction.is_over):
            await predictions.over(self.db, look)
        await self._later(SOON)

    async def _follow(self) -> None:
        match self.look.status:
            case "held" if self.client.breaker.is_probed:  # the call would only be held again
                await self._later()
            case "held":
                await self._wake({"status": "held"})
            case "running":
                prediction = await self._ask()
                if prediction is None or prediction.is_over:
                    await self._answer(prediction)
                else:
                    await self._later()
            case "over":
                await self._answer(None)
            case _:  # it is being submitted, or the next attempt submits it
                await self._later()

    async def _answer(self, prediction: Prediction | None) -> None:
        """The prediction is over: the worker that claims the job then asks the provider for the result."""
        await predictions.over(self.db, self.look)
        await self._wake({"status": "over" if prediction is None else prediction.status})

    async def _wake(self, result: dict[str, str]) -> None:
        """Answer the job if it is parked, so that it can be claimed. Look again, until the job has ended."""
        look = self.look
        answer = result | {"prediction": ids.text("pred", look.id), "look": str(look.looks)}
        if look.phase == "parked":
            with contextlib.suppress(AnswerUnavailableError, NotFoundError):
                await self.engine.answer(look.tenant, look.job_id, answer)
        is_news = look.phase == "leased" and look.status == "running"  # it is about to be parked
        await self._later(SOON if is_news else None)

    async def _ask(self) -> Prediction | None:
        """The state of the prediction; None if the provider does not know it. Other errors say nothing about it."""
        with contextlib.suppress(NotFoundError):
            return await self.client.status(self.look.id, self.look.external_id or "")
        return None

    async def _cancel(self) -> Prediction | None:
        with contextlib.suppress(NotFoundError):
            return await self.client.cancel(self.look.id, self.look.external_id or "")
        return None

    async def _later(self, after: timedelta | None = None) -> None:
        pause = predictions.LOOKS.delay(self.look.looks, random.random())  # noqa: S311 - jitter
        await predictions.later(self.db, self.look, pause if after is None else after)
