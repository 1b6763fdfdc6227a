"""The actions product: automation with append-only logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millpond.errors import LifecycleError
from millpond_products.actions.kinds import ACTIONS, KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.kinds import Handler
    from millpond.product import Millpond


def action(app: Millpond, name: str, **options: Any) -> Callable[[Handler], Handler]:
    """Declare an action: the decorated function is its handler, and the parameters after the job are its input.

    An action is a kind, and takes the same ``options``. ``attempts_max`` defaults to 1, because a retry of an action is
    a new job, made on request.
    """
    if any(kind.name == f"{ACTIONS.name}.{name}" for kind in KINDS):
        raise LifecycleError(f"The action {name!r} is built in.", hint="Use another name.")
    defaults: dict[str, Any] = {"lifecycle": ACTIONS, "attempts_max": 1}
    return app.kind(f"{ACTIONS.name}.{name}", **(defaults | options))


__all__ = ["ACTIONS", "action"]
