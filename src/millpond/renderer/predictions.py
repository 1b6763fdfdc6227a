"""Predictions: what was asked for, how far it is, what came of it. In memory alone: a new start forgets them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from millpond import logs
from millpond.renderer import images
from millpond.renderer.orders import Order
from millpond.renderer.presses import PressError
from millpond.renderer.refusals import Refusal, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.outbound import Outbound
    from millpond.renderer.folder import File, Folder
    from millpond.renderer.hooks import Hooks
    from millpond.renderer.models import Input, Model
    from millpond.renderer.presses import Presses

Status = Literal["starting", "processing", "succeeded", "failed", "canceled", "aborted"]
Event = Literal["start", "output", "logs", "completed"]

EVENTS: Final[tuple[Event, ...]] = ("start", "output", "logs", "completed")
USUAL: Final[tuple[Event, ...]] = ("output", "completed")
"""What a webhook is told of that names no events."""
REMEMBERED_MAX: Final = 10_000
FOLDER_MAX: Final = 2 * 1024**3
"""Bytes of outputs; above it the oldest go before their hour."""
PAGE: Final = 100
_LOGS_MAX: Final = 64 * 1024
_LOGS_SECONDS: Final = 0.5
_SWEEP_SECONDS: Final = 1.0


class Prediction(msgspec.Struct, kw_only=True):
    """One prediction, as clients see it."""

    id: str
    model: str
    version: str
    input: dict[str, Any]
    logs: str = ""
    output: str | None = None
    error: str | None = None
    status: Status = "starting"
    data_removed: bool = False
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    deadline: datetime | None = None
    metrics: dict[str, float] = {}
    urls: dict[str, str]
    source: Literal["api"] = "api"

    @property
    def is_over(self) -> bool:
        return self.completed_at is not None


class _Kept:
    """A prediction with what belongs to it and is nobody else's business."""

    def __init__(self, prediction: Prediction, webhook: str | None, events: Sequence[Event]) -> None:
        self.prediction = prediction
        self.webhook = webhook
        self.events = events
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self.file: File | None = None
        self.began = time.monotonic()
        self.started: float | None = None
        self.logs_told = 0.0


class Predictions:
    """All of them, newest last."""

    def __init__(
        self,
        url: str,
        presses: Presses,
        hooks: Hooks,
        folder: Folder,
        outbound: Outbound,
        *,
        waiting_max: int,
        lifetime: timedelta,
    ) -> None:
        self._url = url
        self._presses = presses
        self._hooks = hooks
        self._folder = folder
        self._outbound = outbound
        self._waiting_max = waiting_max
        self._lifetime = lifetime
        self._all: dict[str, _Kept] = {}
        self._unfinished = 0

    def make(
        self,
        model: Model,
        given: Input,
        *,
        webhook: str | None = None,
        events: Sequence[Event] = USUAL,
        within: timedelta | None = None,
    ) -> Prediction:
        """Take it on, or refuse it because so many others wait."""
        if self._unfinished >= self._waiting_max:
            detail = "Request was throttled. Your rate limit resets in ~2s."
            raise Refusal(429, "Too many requests", detail, headers={"Retry-After": "2"})
        prediction = self._new(model, given, within)
        kept = _Kept(prediction, webhook, events)
        self._all[prediction.id] = kept
        self._unfinished += 1
        if within is not None:
            kept.deadline = asyncio.get_running_loop().call_later(within.total_seconds(), partial(self._expire, kept))
        kept.task = asyncio.create_task(self._run(kept, given))
        return prediction

    def find(self, prediction_id: str) -> Prediction:
        return self._find(prediction_id).prediction

    def page(self, cursor: str | None) -> tuple[list[Prediction], str | None]:
        """The newest first, and where the next page begins."""
        newest = [kept.prediction for kept in reversed(self._all.values())]
        places = {prediction.id: place for place, prediction in enumerate(newest)}
        if cursor is not None and cursor not in places:
            raise unknown("page")
        start = 0 if cursor is None else places[cursor]
        end = start + PAGE
        return newest[start:end], newest[end].id if end < len(newest) else None

    async def wait(self, prediction_id: str, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._find(prediction_id).over.wait()

    def cancel(self, prediction_id: str) -> Prediction:
        """End it; one that is over stays as it is."""
        kept = self._find(prediction_id)
        self._end(kept, "canceled")
        return kept.prediction

    async def sweep(self) -> None:
        """Forget what is an hour old, for as long as this runs."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._forget()

    async def close(self) -> None:
        tasks = [kept.task for kept in self._all.values() if kept.task is not None and not kept.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new(self, model: Model, given: Input, within: timedelta | None) -> Prediction:
        prediction_id = base64.b32encode(os.urandom(16)).decode().rstrip("=").lower()
        address = f"{self._url}/v1/predictions/{prediction_id}"
        now = datetime.now(UTC)
        return Prediction(
            id=prediction_id,
            model=model.full_name,
            version=model.version,
            input=_shown(given),
            created_at=now,
            deadline=None if within is None else now + within,
            urls={"get": address, "cancel": f"{address}/cancel", "web": address},
        )

    def _find(self, prediction_id: str) -> _Kept:
        kept = self._all.get(prediction_id)
        if kept is None:
            raise unknown("prediction")
        return kept

    # From the start to the end

    async def _run(self, kept: _Kept, given: Input) -> None:
        stem = self._folder.new()
        try:
            image = await images.fetch(getattr(given, "image", None), stem, self._folder, self._outbound, self._url)
            async with self._presses.turn() as press:
                self._start(kept)
                made = await press.run(_order(kept.prediction, given, image, stem), partial(self._said, kept))
                path = Path(made.path)
                kept.file = self._folder.keep(path, f"output{path.suffix}", made.content_type)
            kept.prediction.output = f"{self._url}/v1/files/{kept.file.secret}/{kept.file.name}"
            self._tell(kept, "output")
            self._end(kept, "succeeded")
        except (PressError, images.ImageError) as error:
            self._end(kept, "failed", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for an end
            logs.emit("request.failed", request_id=None, path=kept.prediction.urls["get"], error=repr(error))
            self._end(kept, "failed", "Something went wrong in the renderer.")
        finally:
            self._folder.remove_all(stem, but=kept.file)

    def _start(self, kept: _Kept) -> None:
        kept.started = time.monotonic()
        kept.prediction.status = "processing"
        kept.prediction.started_at = datetime.now(UTC)
        self._tell(kept, "start")

    def _said(self, kept: _Kept, text: str) -> None:
        prediction = kept.prediction
        prediction.logs = f"{prediction.logs}{text}\n"[-_LOGS_MAX:]
        now = time.monotonic()
        if now - kept.logs_told >= _LOGS_SECONDS:
            kept.logs_told = now
            self._tell(kept, "logs")

    def _end(self, kept: _Kept, status: Status, error: str | None = None) -> None:
        """The first end is the end; what runs is stopped."""
        prediction = kept.prediction
        if prediction.is_over:
            return
        now = time.monotonic()
        prediction.status = status
        prediction.error = error
        prediction.completed_at = datetime.now(UTC)
        prediction.metrics = {"total_time": round(now - kept.began, 6)}
        if kept.started is not None:
            prediction.metrics["predict_time"] = round(now - kept.started, 6)
        if status != "succeeded":
            prediction.output = None
            if kept.file is not None:
                self._folder.remove(kept.file)
        if kept.deadline is not None:
            kept.deadline.cancel()
        if kept.task is not None and kept.task is not asyncio.current_task():
            kept.task.cancel()
        self._unfinished -= 1
        self._tell(kept, "completed")
        logs.emit(
            "renderer.ended",
            prediction=prediction.id,
            model=prediction.model,
            status=status,
            error=error,
            seconds=prediction.metrics["total_time"],
        )
        kept.over.set()

    def _expire(self, kept: _Kept) -> None:
        """As Replicate has it: what had not begun is aborted, what had is canceled."""
        self._end(kept, "aborted" if kept.prediction.status == "starting" else "canceled")

    def _tell(self, kept: _Kept, event: Event) -> None:
        if kept.webhook is not None and event in kept.events:
            body = msgspec.json.encode(kept.prediction)
            self._hooks.tell(kept.prediction.id, kept.webhook, body, is_end=event == "completed")

    # The hour after

    def _forget(self) -> None:
        self._folder.remove_old(self._lifetime.total_seconds())  # uploads too
        ended = [kept for kept in self._all.values() if kept.prediction.completed_at is not None]
        horizon = datetime.now(UTC) - self._lifetime
        is_old: Callable[[_Kept], bool] = lambda kept: (kept.prediction.completed_at or horizon) <= horizon  # noqa: E731
        size = self._folder.size
        for kept in ended:
            if kept.prediction.data_removed or not (is_old(kept) or size > FOLDER_MAX):
                continue
            if kept.file is not None:
                size -= kept.file.size
                self._folder.remove(kept.file)
            prediction = kept.prediction
            prediction.input, prediction.output, prediction.logs = {}, None, ""
            prediction.data_removed = True
        for kept in ended[: max(0, len(self._all) - REMEMBERED_MAX)]:
            if kept.file is not None:
                self._folder.remove(kept.file)
            del self._all[kept.prediction.id]


def _order(prediction: Prediction, given: Input, image: Path | None, stem: Path) -> Order:
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    return Order(
        model=prediction.model,
        input=msgspec.to_builtins(given) | ({"image": None} if hasattr(given, "image") else {}),
        seed=seed,
        image=None if image is None else str(image),
        target=str(stem),
    )


def _shown(given: Input) -> dict[str, Any]:
    """The input as it is told back: what was left out stays out, and a picture in it is not repeated."""
    shown: dict[str, Any] = msgspec.to_builtins(given)
    if str(shown.get("image")).startswith("data:"):
        shown["image"] = f"{str(shown['image'])[:40]}…"
    return {name: value for name, value in shown.items() if value is not None}
