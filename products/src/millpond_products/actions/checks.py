"""Checks of an input at submission. They refuse an input with which the action could only fail.

The worker checks again, because it may have other settings, and because jobs can also be submitted in other ways.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond_products.actions import http_request, run_command, trigger_github_workflow
from millpond_products.actions.kinds import HTTP_REQUEST, RUN_COMMAND, TRIGGER_GITHUB_WORKFLOW

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from millpond.kinds import Kind
    from millpond.product import Engine
    from millpond_products.settings import ProductSettings

CHECKS: Final[Mapping[str, Callable[[Engine, ProductSettings, Any], Awaitable[None]]]] = {
    HTTP_REQUEST.name: http_request.check,
    RUN_COMMAND.name: run_command.check,
    TRIGGER_GITHUB_WORKFLOW.name: trigger_github_workflow.check,
}


async def check(engine: Engine, settings: ProductSettings, kind: Kind, given: Any) -> None:
    check_input = CHECKS.get(kind.name)
    if check_input is not None:
        await check_input(engine, settings, kind.read(given))
