"""The registry is the app: an action is a kind, and whoever declares one has it served."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from millpond.app import Millpond
from millpond.errors import LifecycleError
from millpond_products.actions import ACTIONS, action
from millpond_products.actions.kinds import KINDS, actions_of, name_of

if TYPE_CHECKING:
    from products.tests.actions.deployments import Deployment, User

HEAVY = ("starlette", "uvicorn", "asyncpg", "httpx2", "millpond.api", "millpond.engine.engine", "millpond.store.db")


def test_an_action_is_a_kind_that_is_tried_once_unless_it_says_otherwise() -> None:
    app = Millpond()

    @action(app, "greet", time_limit="1m")
    async def greet(job: Any, name: str) -> dict[str, str]:
        """Say hello."""
        del job
        return {"text": name}

    action(app, "insist", attempts_max=5)(greet)
    found = actions_of(app.kinds)
    assert list(found) == ["greet", "insist"]
    assert (found["greet"].name, found["greet"].lifecycle, found["greet"].summary) == (
        "actions.greet",
        ACTIONS,
        "Say hello.",
    )
    assert [found[name].attempts_max for name in found] == [1, 5]


@pytest.mark.parametrize("name", [name_of(kind.name) for kind in KINDS])
def test_the_name_of_one_that_comes_with_millpond_is_taken(name: str) -> None:
    """Else the app would be one that declares the kinds of the product, and that would not be served at all."""
    with pytest.raises(LifecycleError, match=f"'{name}' is built in. Use another name."):
        action(Millpond(), name)


async def test_those_that_come_with_millpond_are_asked_for_here_alone(deployment: Deployment, user: User) -> None:
    """What they take is checked on the way in, and the native API knows nothing of that."""
    for kind in KINDS:
        body = {"kind": kind.name, "input": {}}
        answer = await user.http.post(f"{deployment.url}/v1/jobs", headers=user.headers, json=body)
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), answer.text


def test_declaring_one_needs_no_server() -> None:
    code = f"import sys; from millpond_products.actions import action; print(*(set(sys.modules) & set({HEAVY!r})))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert output.stdout.strip() == ""
