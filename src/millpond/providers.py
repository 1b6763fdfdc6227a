"""Providers: external services that run jobs. What a provider implements, and how a kind uses one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from millpond.work import Artifact  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

Status = Literal["starting", "processing", "succeeded", "failed", "canceled"]


class Ask(msgspec.Struct, frozen=True):
    """The request for a prediction."""

    model: str
    input: dict[str, Any]


class Prediction(msgspec.Struct, frozen=True):
    """The state of a prediction at its provider."""

    id: str
    status: Status
    output: Any = None
    error: str | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("succeeded", "failed", "canceled")


class PartResult(msgspec.Struct, frozen=True):
    """The result of a prediction for a part of a job."""

    output: Any
    """The provider's output, in which artifact ids replace the URLs of files."""
    files: list[Artifact]
    """The files of the output, in its order; they are in storage."""


class Callback(msgspec.Struct, frozen=True):
    """A callback with a valid signature and timestamp. It is only a hint: the state is then read from the provider."""

    message_id: str
    """The same for every attempt of a callback."""
    external_id: str
    status: str


class Provider(Protocol):
    """An external service.

    Its methods raise :class:`~millpond.errors.TransientError` if the call may be retried (with ``retry_after`` if the
    provider states it), and :class:`~millpond.errors.PermanentError` if not. A rejected token is not the fault of the
    prediction, so the call may be retried.
    """

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str:
        """``scheme://host:port`` of its API; the files of predictions may be on this origin too."""
        ...

    async def submit(self, ask: Ask, *, callback: str | None, deadline: timedelta | None) -> Prediction: ...

    async def status(self, external_id: str) -> Prediction:
        """Read a prediction; raises :class:`~millpond.errors.NotFoundError` if the provider does not have it.

        After any other error, the prediction is considered to be still running.
        """
        ...

    async def cancel(self, external_id: str) -> Prediction | None:
        """Cancel a prediction and return its new state; None if the provider does not have it."""
        ...

    async def verify(self, headers: Mapping[str, str], body: bytes) -> Callback:
        """Verify a callback and read it; raises :class:`~millpond.errors.BadSignatureError` if it is not authentic."""
        ...

    async def close(self) -> None: ...


def _plain_output(given: Any, prediction: Prediction, files: Sequence[Artifact]) -> Any:  # noqa: ARG001 - the signature of output
    return {"output": prediction.output, "files": [file.id for file in files]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Provided:
    """How a provider runs the jobs of a kind."""

    provider: str
    ask: Callable[[Any], Ask]
    """Makes the request from the input."""
    output: Callable[[Any, Prediction, Sequence[Artifact]], Any] = field(default=_plain_output)
    """Makes the job's output from the input, the prediction and its files, which are already in storage."""
