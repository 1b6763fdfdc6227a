"""The lifecycle of actions as defined by their contract, and the built-in actions."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond_products.actions import inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIONS = lifecycle(
    "actions",
    """
    *       -> pending    submitted
    pending -> running    started
    pending -> cancelled  canceled expired
    running -> success    succeeded
    running -> failed     failed expired blocked
    running -> cancelled  canceled
    """,
    ends="success=succeeded failed=failed cancelled=canceled",
)

_MARGIN: Final = timedelta(minutes=1)
"""The time for an action to clean up after its time limit."""


def _kind(name: str, summary: str, shape: Any, seconds_max: int) -> Kind:
    """A retry is a new job; there are no automatic retries. The input is validated by the product's own route."""
    return Kind(
        name=f"{ACTIONS.name}.{name}",
        lifecycle=ACTIONS,
        input_type=shape,
        takes_whole_input=True,
        is_open=False,
        attempts_max=1,
        time_limit=timedelta(seconds=seconds_max) + _MARGIN,
        summary=summary,
    )


RUN_COMMAND: Final = _kind("run-command", "Run an allowed command.", inputs.RunCommand, inputs.COMMAND_SECONDS_MAX)
HTTP_REQUEST: Final = _kind("http-request", "Make an HTTP request.", inputs.HttpRequest, inputs.REQUEST_SECONDS_MAX)
TRIGGER_GITHUB_WORKFLOW: Final = _kind(
    "trigger-github-workflow",
    "Dispatch a GitHub Actions workflow and follow its run to the end.",
    inputs.TriggerGithubWorkflow,
    inputs.RUN_SECONDS_MAX,
)
KINDS: Final = (HTTP_REQUEST, RUN_COMMAND, TRIGGER_GITHUB_WORKFLOW)


def actions_of(kinds: Mapping[str, Kind]) -> dict[str, Kind]:
    """The actions among the kinds of an app, by name: the built-in ones and those declared by the app."""
    found = {name_of(kind.name): kind for kind in kinds.values() if kind.lifecycle is ACTIONS}
    return dict(sorted(found.items()))


def name_of(kind: str) -> str:
    """The contract's name of the kind."""
    return kind.removeprefix(f"{ACTIONS.name}.")
