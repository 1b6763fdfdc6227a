"""Companions: processes that ``up`` and ``serve`` run beside the API, for products that need them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from contextlib import AbstractContextManager

    from millpond.kinds import Kind
    from millpond.settings import Settings


def _never(settings: Settings, kinds: Iterable[Kind]) -> bool:  # noqa: ARG001 - the signature of is_wanted
    return False


def _nothing() -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A companion that has an address and is ready to run."""

    settings: Settings
    """The settings, completed with the URL of the companion and the key that it requires."""
    run: Callable[[asyncio.Event, Callable[[], object]], Awaitable[None]]
    """Runs it until the event is set; calls the callback when it first serves requests."""
    lines: Mapping[str, str] = field(default_factory=dict[str, str])
    """The lines that ``up`` prints about it, by label."""
    is_awaited: bool = False
    """Whether ``up`` is ready only when this companion is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A program that can run beside the API: ``up --with NAME``, ``serve --role api,NAME``."""

    name: str
    start: Callable[[Any, str], AbstractContextManager[Started]]
    """Starts it, from the settings and the private addresses that its outbound calls may reach. Raises an error if
    the settings already name another one."""
    missing: Callable[[], str | None] = _nothing
    """Returns the command that installs what it needs, or None if everything is installed."""
    is_wanted: Callable[[Any, Iterable[Kind]], bool] = _never
    """Whether ``up`` starts it without ``--with``."""
