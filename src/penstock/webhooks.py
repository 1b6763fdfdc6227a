"""Webhooks: what is sent to a customer's URL, in the shape and with the signatures of Standard Webhooks 1.0."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from uuid import UUID

MOMENTS: Final = (
    "submitted",
    "queued",
    "started",
    "requeued",
    "parked",
    "answered",
    "delivering",
    "succeeded",
    "failed",
    "canceled",
    "expired",
    "blocked",
    "retried",
)
"""The moments of a job that a webhook can tell of; what it says on its way is for streams."""
ENDS: Final = ("succeeded", "failed", "canceled", "expired", "blocked")
"""Those that are told unless others are asked for."""
SCHEDULE: Final = (
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""How long to wait after the first, second, … try that failed; after the last of them it is given up."""


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """The URL that one job was submitted with."""

    url: str
    secret: str
    """``whsec_…``: what is sent is signed with it."""
    moments: tuple[str, ...] | None = None
    """None: those that the kind tells of."""


@dataclass(frozen=True, slots=True)
class Told:
    """A moment of a job, as it was then: what the body of a webhook is made from."""

    job_id: UUID
    moment: str
    at: datetime
    job: Mapping[str, Any]
    """tenant, account, kind, state, outcome, created_at, expires_at, input, memo, answer, output, error and so on."""


def _native_body(told: Told) -> dict[str, Any]:
    raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """In which words the URL of a job is told of it."""

    names: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({end: f"job.{end}" for end in ENDS}))
    """What each moment is called that is told."""
    body: Callable[[Told], dict[str, Any]] = _native_body
    """The body; the same bytes for the same moment, whenever it is sent."""
    schedule: tuple[timedelta, ...] = SCHEDULE


NATIVE: Final = Webhook()
