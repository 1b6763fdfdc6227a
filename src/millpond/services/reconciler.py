"""The reconciler: asks a provider where it stands, from the moment it was asked to do something.

Callbacks get lost, and so do answers. Whatever was submitted is looked at again and again, less and less often, until
its job has ended and the provider knows it. It alone wakes the jobs that wait for a provider, stops at the provider
what nobody wants any more, and does so before a job expires.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import ids, logs
from millpond.engine import dispatches, submissions
from millpond.engine.breakers import RestingError
from millpond.engine.split import passed_over
from millpond.errors import AnswerUnavailableError, MillpondError, NotFoundError, TransientError
from millpond.services.service import Service

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.engine.providers import Line
    from millpond.engine.submissions import Look
    from millpond.providers import Prediction
    from millpond.store.db import Database

SUBMISSIONS_MAX: Final = 100
CALLS_MAX: Final = 20
"""How many calls to a provider are under way at once."""
SOON: Final = timedelta(seconds=0.25)
"""After which it looks again at something that is about to change."""


def reconciler(engine: Engine, provider: str | None = None, every: timedelta = timedelta(seconds=0.25)) -> Service:
    """For one provider, so that a slow one keeps no other waiting; for all, where none is named."""

    async def run_once() -> int:
        lines = engine.providers.lines if provider is None else (engine.providers.line(provider),)
        return sum(await asyncio.gather(*(_run(engine, line) for line in lines)))

    return Service("reconciler" if provider is None else f"reconciler {provider}", every, run_once)


async def _run(engine: Engine, line: Line) -> int:
    done = 0
    gate = asyncio.Semaphore(CALLS_MAX)
    for db in engine.all_homes():
        with passed_over():
            while not line.breaker.seconds_left:
                looks = await submissions.take(db, line.name, SUBMISSIONS_MAX)
                await asyncio.gather(*(_guarded(_Looking(engine, db, line, look), gate) for look in looks))
                done += len(looks)
                if len(looks) < SUBMISSIONS_MAX:
                    break
    return done


async def _guarded(looking: _Looking, gate: asyncio.Semaphore) -> None:
    """What one submission is ill with must not stop the others; it comes round again."""
    async with gate:
        try:
            await looking.look_at_it()
        except MillpondError as error:
            logs.emit(
                "service.failed",
                service="reconciler",
                job_id=looking.look.job_id,
                error=f"{type(error).__name__}: {error}",
            )


@dataclass(frozen=True, slots=True)
class _Looking:
    """One look at one submission."""

    engine: Engine
    db: Database
    line: Line
    look: Look

    async def look_at_it(self) -> None:
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
        """Nobody waits for it any more: see that the provider does not work for nothing."""
        look = self.look
        if look.prediction_id is None or look.status == "over":
            await submissions.close(self.db, look)
            return
        prediction = await self._cancel()
        if prediction is not None and not prediction.is_over:
            await self._later()
            return
        if prediction is not None and prediction.status == "succeeded":
            logs.emit("provider.late", job_id=look.job_id, provider=self.line.name, prediction_id=prediction.id)
        else:
            logs.emit(
                "provider.canceled", job_id=look.job_id, provider=self.line.name, prediction_id=look.prediction_id
            )
        await submissions.close(self.db, look)

    async def _pass_deadline(self) -> None:
        """Its time is up. What is done by now is collected; what is not is stopped, and only then expires."""
        look, prediction = self.look, None
        if look.phase != "parked":  # its worker has it, or it waits for one; or for its next attempt, and then expires
            await self._later(SOON)
            return
        if look.prediction_id is not None:
            prediction = await self._ask()
            if prediction is not None and not prediction.is_over:
                prediction = await self._cancel() or prediction
            if prediction is not None and prediction.status in ("succeeded", "failed"):
                await self._answer(prediction)
                return
            logs.emit(
                "provider.canceled", job_id=look.job_id, provider=self.line.name, prediction_id=look.prediction_id
            )
        await self.engine.db.run(dispatches.SQL["let_go"], look.job_id)
        if look.prediction_id is not None and (prediction is None or prediction.is_over):
            await submissions.over(self.db, look)
        await self._later(SOON)

    async def _follow(self) -> None:
        match self.look.status:
            case "held" if self.line.breaker.is_probed:  # it would only be held again
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
            case _:  # it is being sent, or its next attempt will see to it
                await self._later()

    async def _answer(self, prediction: Prediction | None) -> None:
        """The provider is done with it: whoever claims the job asks once more what came of it."""
        await submissions.over(self.db, self.look)
        await self._wake({"status": "over" if prediction is None else prediction.status})

    async def _wake(self, told: dict[str, str]) -> None:
        """Let the job be claimed, if it waits; and look again, for only its end makes an end of this."""
        look = self.look
        answer = told | {"submission": ids.text("sub", look.id), "look": str(look.looks)}
        if look.phase == "parked":
            with contextlib.suppress(AnswerUnavailableError, NotFoundError):
                await self.engine.answer(look.tenant, look.job_id, answer)
        is_news = look.phase == "leased" and look.status == "running"  # it is about to be parked
        await self._later(SOON if is_news else None)

    async def _ask(self) -> Prediction | None:
        """Where it stands; nothing where the provider knows nothing of it. Any other refusal is not about it."""
        with contextlib.suppress(NotFoundError):
            return await self.line.status(self.look.id, self.look.prediction_id or "")
        return None

    async def _cancel(self) -> Prediction | None:
        with contextlib.suppress(NotFoundError):
            return await self.line.cancel(self.look.id, self.look.prediction_id or "")
        return None

    async def _later(self, after: timedelta | None = None) -> None:
        pause = submissions.LOOKS.delay(self.look.looks, random.random())  # noqa: S311 - jitter
        await submissions.later(self.db, self.look, pause if after is None else after)
