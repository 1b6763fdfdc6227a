"""The actions blueprint: automation with append-only logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.blueprints.actions.kinds import ACTIONS, KINDS
from millpond.errors import LifecycleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.app import Millpond
    from millpond.kinds import Handler


def action(app: Millpond, name: str, **options: Any) -> Callable[[Handler], Handler]:
    """Declare an action of an app by the function that does it; its parameters after the job are its input.

    It is a kind like any other, and takes the same ``options``. It is tried once unless they say otherwise: with
    actions a retry is a new job, and somebody's wish.
    """
    if any(kind.name == f"{ACTIONS.name}.{name}" for kind in KINDS):
        raise LifecycleError(f"The action {name!r} comes with Millpond.", hint="Give yours another name.")
    usual: dict[str, Any] = {"lifecycle": ACTIONS, "attempts_max": 1}
    return app.kind(f"{ACTIONS.name}.{name}", **(usual | options))


__all__ = ["ACTIONS", "action"]
