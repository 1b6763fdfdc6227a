"""Steps: what a run of a job has recorded, and what it waits for. A later attempt gets the recorded results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import kinds, values
from millpond.engine.jobs import jobs
from millpond.errors import AnswerUnavailableError, LeaseLostError, NotFoundError
from millpond.store.queries import queries
from millpond.work import Step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.store.db import Executor, Row
    from millpond.work import Lease, StepRequest

SQL: Final = queries("millpond.engine.composition", "steps")

_PAGE: Final = 1_000


class Question(msgspec.Struct, frozen=True):
    """A question that a job asks."""

    name: str
    question: str
    schema: dict[str, Any] | None
    """The JSON Schema of the answer; none if any answer is accepted."""
    who: str
    """Who may answer: client, operator, or the id of a key."""
    asked_at: datetime
    due_at: datetime | None
    answered_at: datetime | None
    answered_by: str | None
    answer: Any

    @property
    def is_open(self) -> bool:
        return self.answered_at is None


def check_question(details: str) -> None:
    """Check the schema of a question before it is recorded: later, nobody could answer it."""
    schema = msgspec.json.decode(details).get("schema")
    if schema is not None:
        kinds.check_is_schema(schema, field="question.schema")


async def record(db: Executor, items: Sequence[StepRequest]) -> list[Step | Exception]:
    """Record steps. Each result is the step as it is recorded now, perhaps by an earlier attempt, or a lost lease."""
    rows: Sequence[Row] = await db.run(
        SQL["record"],
        [item.lease.job_id for item in items],
        [item.lease.epoch for item in items],
        [item.name for item in items],
        [item.position for item in items],
        [item.type for item in items],
        [item.details for item in items],
        [item.wait for item in items],
        [item.result for item in items],
    )
    recorded = {row["n"]: _step(row) for row in rows}
    return [recorded.get(n) or LeaseLostError() for n in range(1, len(items) + 1)]


async def recall(db: Executor, lease: Lease, after: str) -> list[Step]:
    """Some of what the current run of a leased job has recorded, by name, after a name; none at the end."""
    return [_step(row) for row in await db.run(SQL["recall"], lease.job_id, lease.epoch, after, _PAGE)]


async def find(db: Executor, job_id: UUID, name: str) -> Step | None:
    """A step of the current run of a job."""
    row = await db.run(SQL["step"], job_id, name)
    return None if row is None else _step(row)


async def suspend(db: Executor, lease: Lease, step: Step) -> str:
    """Park a job until what the step waits for has come; return its state."""
    rows: Sequence[Row] = await db.run(SQL["suspend"], [lease.job_id], [lease.token], [step.name], [step.due_at])
    jobs.report(rows)
    if not rows:
        raise LeaseLostError
    return str(rows[0]["state"])


async def questions(db: Executor, tenant: str, job_id: UUID) -> list[Question]:
    """The questions of the current run of a job, the oldest first."""
    return [_question(row) for row in await db.run(SQL["questions"], job_id, tenant)]


async def answer(db: Executor, tenant: str, job_id: UUID, name: str, given: Any, *, actor: str) -> tuple[str, str]:
    """Answer a question, and return the state and queue of its job."""
    found = next((question for question in await questions(db, tenant, job_id) if question.name == name), None)
    if found is None:
        raise NotFoundError(f"The job asks no question {name[:80]!r}.", field="question")
    text = values.encode(given, field="answer")
    if found.schema is not None:
        kinds.check_schema(found.schema, msgspec.json.decode(text), field="answer")
    row = await db.run(SQL["answer_question"], tenant, job_id, name, text, actor)
    match row["verdict"]:
        case "answered" | "repeated":
            return row["state"], row["queue"]
        case "late":
            raise AnswerUnavailableError("The deadline of the question has passed.", state=row["state"])
        case _:
            raise AnswerUnavailableError("The question has another answer, or its job has ended.", state=row["state"])


def _step(row: Row) -> Step:
    return Step(
        row["name"],
        row["position"],
        row["type"],
        row["batch_id"],
        row["due_at"],
        row["is_done"],
        row["is_due"],
        row["result"],
        row["submitted"],
    )


def _question(row: Row) -> Question:
    details: dict[str, Any] = msgspec.json.decode(row["details"])
    return Question(
        row["name"],
        details["question"],
        details.get("schema"),
        details["who"],
        row["at"],
        row["due_at"],
        row["done_at"],
        row["done_by"],
        jobs.decode(row["result"]),
    )
