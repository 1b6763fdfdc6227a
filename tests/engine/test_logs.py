"""What an operator reads in the log about the life of a job."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from millpond import ids, logs
from millpond.engine.jobs import jobs
from millpond.engine.queue import leases
from millpond.errors import LeaseLostError, TransitionDeniedError
from tests.factories import ERROR, HOUR, MINUTE, TENANT, attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millpond.engine.engine import Engine
    from millpond.store.db import Database
    from tests.factories import Factory

LogLine = dict[str, Any]


@pytest.fixture
def lines() -> Iterator[Callable[[], list[LogLine]]]:
    """Everything that was logged, line by line."""
    stream = io.StringIO()
    logs.configure("debug", as_json=True, stream=stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logs.silence()


def about(lines: list[LogLine], event: str) -> LogLine:
    """The one line of an event, without what every line has."""
    (line,) = [line for line in lines if line["event"] == event]
    return {name: value for name, value in line.items() if name not in {"ts", "event", "level", "job_id"}}


def path(lines: list[LogLine]) -> list[str]:
    """The states that the transitions of a job lead through."""
    transitioned = [line for line in lines if line["event"] == "job.transition"]
    assert [line["from_status"] for line in transitioned[1:]] == [line["to_status"] for line in transitioned[:-1]]
    return [transitioned[0]["from_status"], *(line["to_status"] for line in transitioned)]


async def test_birth_start_and_success(make: Factory, lines: Callable[[], list[LogLine]]) -> None:
    lease = await make.leased("restartable")
    await make.finish(lease)
    described = lines()
    own = {"kind": "restartable", "type": "restartable"}
    assert about(described, "job.created") == {**own, "state": "queued", "credits_cost": 3}
    output = {"size": 0, "files": []}
    assert about(described, "job.completed") == {**own, "to_status": "completed", "output": output}
    assert path(described) == ["pending", "queued", "processing", "completed"]
    assert {line["job_id"] for line in described} == {ids.text("job", lease.job_id)}


async def test_a_failure_reports_its_error_and_what_was_given_back(
    make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    await make.finish(await make.leased("priced"), "failed")
    own = {"kind": "priced", "type": "priced"}
    assert about(lines(), "job.failed") == {**own, "to_status": "failed", "error": ERROR, "refunded": 5}


async def test_a_denied_transition_is_reported_with_both_states(
    engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    submitted = await make.submitted("restartable")
    with pytest.raises(TransitionDeniedError):
        await engine.transition(TENANT, submitted.job_id, "completed")
    denied = about(lines(), "job.transition_denied")
    assert (denied["from_status"], denied["to_status"]) == ("queued", "completed")
    assert "cannot be moved" in denied["reason"]


async def test_an_operators_transition_is_reported(
    engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    submitted = await make.submitted("restartable")
    await engine.transition(TENANT, submitted.job_id, "failed")
    assert path(lines()) == ["pending", "queued", "failed"]
    assert about(lines(), "job.failed") == {
        "kind": "restartable",
        "type": "restartable",
        "to_status": "failed",
        "error": {"code": "ended_by_operator", "message": "An operator ended the job."},
        "refunded": 3,
    }


async def test_a_retry_is_reported(engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]) -> None:
    submitted = await make.submitted("restartable")
    await engine.transition(TENANT, submitted.job_id, "failed")
    await engine.retry(TENANT, submitted.job_id)
    assert path(lines()) == ["pending", "queued", "failed", "pending", "queued"]


async def test_an_answer_is_reported_only_where_the_state_changes(
    engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    lease = await make.leased("brief")
    await engine.park(lease)
    await engine.answer(TENANT, lease.job_id, 1)
    assert path(lines()) == ["queued", "running", "parked", "queued"]


async def test_failures_are_reported(
    db: Database, engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    lease = await make.leased("fragile")
    await engine.give_back(attempt(lease))
    assert about(lines(), "job.requeued") == {"kind": "fragile", "type": "fragile"}
    await make.claimed("fragile", worker="w7")
    await make.clock.advance(2 * MINUTE)
    await leases.lapse(db, 10)
    assert about(lines(), "lease.lapsed") == {"worker": "w7", "fate": "requeued"}
    with pytest.raises(LeaseLostError):
        await make.finish(lease)
    assert about(lines(), "lease.lost") == {}


async def test_what_time_ends_is_reported(
    db: Database, engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    lease = await make.leased("brief")
    await engine.cancel(TENANT, lease.job_id, grace=MINUTE)
    await make.submitted("brief")
    await make.clock.advance(2 * MINUTE)
    await jobs.force_cancel(db, 10)
    assert about(lines(), "job.canceled") == {"kind": "brief", "type": "brief", "to_status": "canceled", "refunded": 5}
    assert path(lines())[-2:] == ["running", "canceled"]
    await make.clock.advance(2 * HOUR)
    await jobs.expire(db, 10)
    late = {"code": "expired", "message": "The job did not finish by its deadline."}
    fields = {"kind": "brief", "type": "brief", "to_status": "expired", "error": late, "refunded": 5}
    assert about(lines(), "job.expired") == fields


async def test_a_deadline_that_a_lifecycle_calls_a_failure_is_reported_as_one(
    db: Database, engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    await make.submitted("restartable", expires_in=MINUTE)
    await make.clock.advance(2 * MINUTE)
    await jobs.expire(db, 10)
    failed = about(lines(), "job.failed")
    assert (failed["to_status"], failed["error"]["code"], failed["refunded"]) == ("failed", "expired", 3)


async def test_a_cancel_before_the_start_is_reported(
    engine: Engine, make: Factory, lines: Callable[[], list[LogLine]]
) -> None:
    submitted = await make.submitted("brief")
    await engine.cancel(TENANT, submitted.job_id)
    assert about(lines(), "job.canceled") == {"kind": "brief", "type": "brief", "to_status": "canceled", "refunded": 5}
    assert path(lines()) == ["queued", "canceled"]


async def test_a_blocked_job_is_reported(make: Factory, lines: Callable[[], list[LogLine]]) -> None:
    await make.finish(await make.leased("priced"), "blocked")
    assert about(lines(), "job.blocked")["to_status"] == "blocked"
