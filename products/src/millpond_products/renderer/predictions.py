"""Predictions: their inputs, progress and outputs. They are only in memory, so a restart loses them."""

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
from millpond_products.renderer import images
from millpond_products.renderer.errors import ErrorResponse, unknown
from millpond_products.renderer.orders import RenderOrder
from millpond_products.renderer.presses import PressError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millpond.product import Outbound
    from millpond_products.renderer.folder import Folder, PublishedFile
    from millpond_products.renderer.hooks import Hooks
    from millpond_products.renderer.models import Input, Model
    from millpond_products.renderer.presses import Presses

Status = Literal["starting", "processing", "succeeded", "failed", "canceled", "aborted"]
Event = Literal["start", "output", "logs", "completed"]

EVENTS: Final[tuple[Event, ...]] = ("start", "output", "logs", "completed")
USUAL: Final[tuple[Event, ...]] = ("output", "completed")
"""The events that a webhook receives by default."""
REMEMBERED_MAX: Final = 10_000
FOLDER_MAX: Final = 2 * 1024**3
"""Bytes of outputs; above this, the oldest are deleted before their lifetime has passed."""
PAGE: Final = 100
_LOGS_MAX: Final = 64 * 1024
_LOGS_SECONDS: Final = 0.5
_SWEEP_SECONDS: Final = 1.0


class RendererPrediction(msgspec.Struct, kw_only=True):
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
    """A prediction with its internal state."""

    def __init__(self, prediction: RendererPrediction, webhook: str | None, events: Sequence[Event]) -> None:
        self.prediction = prediction
        self.webhook = webhook
        self.events = events
        self.over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.deadline: asyncio.TimerHandle | None = None
        self.file: PublishedFile | None = None
        self.began = time.monotonic()
        self.started: float | None = None
        self.logs_sent_at = 0.0


class Predictions:
    """All predictions, newest last."""

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
    ) -> RendererPrediction:
        """Accept a prediction, or refuse it if too many are unfinished."""
        if self._unfinished >= self._waiting_max:
            detail = "Request was throttled. Your rate limit resets in ~2s."
            raise ErrorResponse(429, "Too many requests", detail, headers={"Retry-After": "2"})
        prediction = self._new(model, given, within)
        kept = _Kept(prediction, webhook, events)
        self._all[prediction.id] = kept
        self._unfinished += 1
        if within is not None:
            kept.deadline = asyncio.get_running_loop().call_later(within.total_seconds(), partial(self._expire, kept))
        kept.task = asyncio.create_task(self._run(kept, given))
        return prediction

    def find(self, prediction_id: str) -> RendererPrediction:
        return self._find(prediction_id).prediction

    def page(self, cursor: str | None) -> tuple[list[RendererPrediction], str | None]:
        """A page, newest first, and the id with which the next page begins."""
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

    def cancel(self, prediction_id: str) -> RendererPrediction:
        """Cancel a prediction. An ended one is not changed."""
        kept = self._find(prediction_id)
        self._end(kept, "canceled")
        return kept.prediction

    async def sweep(self) -> None:
        """Remove data after its lifetime, until this task is cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._forget()

    async def close(self) -> None:
        tasks = [kept.task for kept in self._all.values() if kept.task is not None and not kept.task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _new(self, model: Model, given: Input, within: timedelta | None) -> RendererPrediction:
        prediction_id = base64.b32encode(os.urandom(16)).decode().rstrip("=").lower()
        address = f"{self._url}/v1/predictions/{prediction_id}"
        now = datetime.now(UTC)
        return RendererPrediction(
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

    # Running

    async def _run(self, kept: _Kept, given: Input) -> None:
        stem = self._folder.new()
        try:
            image = await images.fetch(getattr(given, "image", None), stem, self._folder, self._outbound, self._url)
            async with self._presses.turn() as press:
                self._start(kept)
                made = await press.run(_order(kept.prediction, given, image, stem), partial(self._log, kept))
                path = Path(made.path)
                kept.file = self._folder.keep(path, f"output{path.suffix}", made.content_type)
            kept.prediction.output = f"{self._url}/v1/files/{kept.file.secret}/{kept.file.name}"
            self._notify(kept, "output")
            self._end(kept, "succeeded")
        except (PressError, images.ImageError) as error:
            self._end(kept, "failed", str(error))
        except Exception as error:  # noqa: BLE001 - the client waits for an end in any case
            logs.emit("request.failed", request_id=None, path=kept.prediction.urls["get"], error=repr(error))
            self._end(kept, "failed", "The renderer failed.")
        finally:
            self._folder.remove_all(stem, but=kept.file)

    def _start(self, kept: _Kept) -> None:
        kept.started = time.monotonic()
        kept.prediction.status = "processing"
        kept.prediction.started_at = datetime.now(UTC)
        self._notify(kept, "start")

    def _log(self, kept: _Kept, text: str) -> None:
        prediction = kept.prediction
        prediction.logs = f"{prediction.logs}{text}\n"[-_LOGS_MAX:]
        now = time.monotonic()
        if now - kept.logs_sent_at >= _LOGS_SECONDS:
            kept.logs_sent_at = now
            self._notify(kept, "logs")

    def _end(self, kept: _Kept, status: Status, error: str | None = None) -> None:
        """End a prediction and stop its work. Only the first call has an effect."""
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
        self._notify(kept, "completed")
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
        """As at Replicate, a prediction that has not started is aborted, and a running one is canceled."""
        self._end(kept, "aborted" if kept.prediction.status == "starting" else "canceled")

    def _notify(self, kept: _Kept, event: Event) -> None:
        if kept.webhook is not None and event in kept.events:
            body = msgspec.json.encode(kept.prediction)
            self._hooks.enqueue(kept.prediction.id, kept.webhook, body, is_end=event == "completed")

    # Cleaning up

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


def _order(prediction: RendererPrediction, given: Input, image: Path | None, stem: Path) -> RenderOrder:
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    return RenderOrder(
        model=prediction.model,
        input=msgspec.to_builtins(given) | ({"image": None} if hasattr(given, "image") else {}),
        seed=seed,
        image=None if image is None else str(image),
        target=str(stem),
    )


def _shown(given: Input) -> dict[str, Any]:
    """The input as returned to clients: without omitted fields, and with data URLs shortened."""
    shown: dict[str, Any] = msgspec.to_builtins(given)
    if str(shown.get("image")).startswith("data:"):
        shown["image"] = f"{str(shown['image'])[:40]}…"
    return {name: value for name, value in shown.items() if value is not None}
