"""Providers: outside services that run jobs. What the engine asks of one, and what a kind asks it for."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from millpond.errors import SettingsError
from millpond.work import Artifact  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "static_ad": "millpond/static-ad",
        "ugc_video": "millpond/ugc-video",
        "persona": "millpond/persona",
        "tts": "millpond/tts",
    }
)
"""The models that are asked unless an operator names others: those of the local renderer."""

Status = Literal["starting", "processing", "succeeded", "failed", "canceled"]


class Ask(msgspec.Struct, frozen=True):
    """What a provider is to do."""

    model: str
    input: dict[str, Any]


class Prediction(msgspec.Struct, frozen=True):
    """Where a provider stands with what it was asked."""

    id: str
    status: Status
    output: Any = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("succeeded", "failed", "canceled")


class Made(msgspec.Struct, frozen=True):
    """What came of a part of a job that a provider was asked for."""

    output: Any
    """What the provider said, with the id of the artifact in place of each URL of a file."""
    files: list[Artifact]
    """What it made, in the order in which it named them. They are in storage."""


class Callback(msgspec.Struct, frozen=True):
    """A call of a provider whose signature and age are right. A hint: the provider is asked what is true."""

    message_id: str
    """The same when it is sent again."""
    prediction_id: str
    status: str


class Provider(Protocol):
    """An outside service.

    What may be tried again raises :class:`~millpond.errors.TransientError` (with ``retry_after`` where the provider
    says so), what may not :class:`~millpond.errors.PermanentError`. A token that is not taken is no fault of what was
    asked for, and may be tried again.
    """

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str:
        """``scheme://host:port`` of its API, from which its files may come too."""
        ...

    async def submit(self, ask: Ask, *, callback: str | None, deadline: timedelta | None) -> Prediction: ...

    async def status(self, prediction_id: str) -> Prediction:
        """Where it stands; raises :class:`~millpond.errors.NotFoundError` where the provider knows nothing of it.

        No other error is taken for its end.
        """
        ...

    async def cancel(self, prediction_id: str) -> Prediction | None:
        """Have it stopped; tells where it stands then. Nothing where the provider knows nothing of it."""
        ...

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Callback:
        """Read a callback; raises :class:`~millpond.errors.BadSignatureError` where it is not to be believed."""
        ...

    async def close(self) -> None: ...


def models(chosen: str) -> dict[str, str]:
    """The model for each thing, as an operator has chosen: ``static_ad=owner/name, tts=owner/name``."""
    made = dict(MODELS)
    for part in filter(None, (part.strip() for part in chosen.split(","))):
        name, _, model = (word.strip() for word in part.partition("="))
        if name not in MODELS or "/" not in model:
            hint = f"It must be THING=OWNER/NAME, with commas; things: {', '.join(MODELS)}."
            raise SettingsError(f"MILLPOND_MODELS: {part[:80]!r} cannot be read.", hint=hint)
        made[name] = model
    return made


def _as_it_is(given: Any, prediction: Prediction, files: Sequence[Artifact]) -> Any:  # noqa: ARG001 - as all of them
    return {"output": prediction.output, "files": [file.id for file in files]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """How a kind is run by a provider."""

    provider: str
    ask: Callable[[Any], Ask]
    """From the input, what the provider is asked."""
    output: Callable[[Any, Prediction, Sequence[Artifact]], Any] = field(default=_as_it_is)
    """From the input, the prediction and its files, which are in storage by then: the output of the job."""
