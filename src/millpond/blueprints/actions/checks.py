"""Checks: what of an input is refused when it comes in, because its action could only fail.

The worker checks again: it may be another process, with other settings, and another way may lead to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.blueprints.actions import http_request, run_command, trigger_github_workflow
from millpond.blueprints.actions.kinds import HTTP_REQUEST, RUN_COMMAND, TRIGGER_GITHUB_WORKFLOW

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from millpond.engine.engine import Engine
    from millpond.kinds import Kind
    from millpond.settings import Settings

CHECKS: Final[Mapping[str, Callable[[Engine, Settings, Any], Awaitable[None]]]] = {
    HTTP_REQUEST.name: http_request.check,
    RUN_COMMAND.name: run_command.check,
    TRIGGER_GITHUB_WORKFLOW.name: trigger_github_workflow.check,
}


async def check(engine: Engine, settings: Settings, kind: Kind, given: Any) -> None:
    own = CHECKS.get(kind.name)
    if own is not None:
        await own(engine, settings, kind.read(given))
