"""Hypothesis lets customers, workers, operators and time loose on the engine, in any order it can think of."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from millpond.engine.engine import Engine
from millpond.store.db import Database
from tests.clocks import Clock
from tests.model.machine import Machine, System
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same stories in every run; MODEL_EXAMPLES=1000 tells that many new ones.
EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "0"))
STORIES = settings(
    max_examples=EXAMPLES or 120,
    stateful_step_count=40,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@pytest.fixture
def system(dsn: str) -> Iterator[System]:
    with asyncio.Runner() as runner:
        db = runner.run(Database.open(dsn, size=2))
        yield System(runner, Engine(db, app), Clock(db))
        runner.run(db.close())


@pytest.mark.slow
def test_the_engine_does_what_its_model_says(system: System) -> None:
    """States, counters, wallets and keys agree after every step, and every invariant holds at the end."""
    response = type("Told", (Machine,), {"system": system})
    run_state_machine_as_test(response, settings=STORIES)
