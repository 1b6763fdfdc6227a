"""Transactions: submit inside the caller's own, so that his rows, the hold and the job commit or roll back together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids
from millpond.engine import jobs
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    InvalidError,
    TooManyActiveJobsError,
)
from millpond.store.borrowed import borrow
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.app import Millpond
    from millpond.engine.jobs import Submission, Submitted
    from millpond.store.borrowed import Borrowed

SQL: Final = queries("millpond.engine", "transactions")

_WATCH: Final = 30.0
"""For how many seconds a transaction is watched. Workers find by themselves what is committed later."""
_LOOK_FIRST: Final = 0.002
_LOOK_MAX: Final = 0.1


def submit_in(tx: Any, app: Millpond, kind: str, input: Any = None, **options: Any) -> Submitted:
    """Take a job in on a connection that blocks: psycopg, a SQLAlchemy Session, Django's, any of DB-API 2.

    For code that does not await. The options are those of ``Engine.submit``.
    """
    if options.get("hook") is not None:
        raise InvalidError(
            "A URL of its own needs an engine, which encrypts its secret.", field="hook", hint="Use Engine.submit."
        )
    item = jobs.prepare(app.kinds, kind, input, **options)
    if app.kinds[item.kind].gate is not None:
        raise InvalidError(
            f"Kind {item.kind!r} is behind a gate, which is asked by an engine alone.",
            field="kind",
            hint="Submit it with Engine.submit.",
        )
    return _submitted(item, borrow(tx).fetch_now(SQL["admit"], _text(item)))


async def submit(tx: Borrowed, item: Submission) -> Submitted:
    """Take a job in on the caller's connection. A refusal is raised, and leaves his transaction usable."""
    return _submitted(item, await tx.fetch(SQL["admit"], _text(item)))


def away() -> InvalidError:
    return InvalidError(
        "The tenant's jobs are in another database: they cannot commit with the rows of this transaction.",
        field="tx",
        hint="Submit without tx, with an idempotency key, once your own transaction has committed.",
    )


async def ended(tx: Borrowed) -> None:
    """Wait until the caller's transaction is over, as far as his driver tells."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + _WATCH, _LOOK_FIRST
    while not tx.has_ended() and loop.time() < until:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LOOK_MAX)


def _text(item: Submission) -> str:
    hooks = jobs.hooks_text([item])
    told = msgspec.structs.asdict(item) | {
        "hooks": None if hooks is None else msgspec.Raw(hooks.encode()),
        "input": msgspec.Raw(item.input.encode()),
        "request": None if item.request is None else msgspec.Raw(item.request.encode()),
        "lifetime": None if item.lifetime is None else item.lifetime.total_seconds(),
    }
    return msgspec.json.encode(told, enc_hook=str).decode()


def _submitted(item: Submission, answer: str) -> Submitted:
    told: dict[str, Any] = msgspec.json.decode(answer)
    match told["verdict"]:
        case "accepted" | "replayed" as verdict:
            return msgspec.convert(told | {"kind": item.kind, "is_replay": verdict == "replayed"}, jobs.Submitted)
        case "away":
            raise away()
        case "conflict":
            raise IdempotencyConflictError(field="idempotency_key", job_id=ids.text("job", UUID(told["job_id"])))
        case "short":
            raise InsufficientCreditsError(
                f"The job costs {item.price} credits and {told['available']} are available.",
                required=item.price,
                available=told["available"],
            )
        case "capped":
            raise TooManyActiveJobsError(
                f"The account has {told['active']} active jobs, which is its limit.", active=told["active"]
            )
        case _:
            raise ConflictError("The id is taken.", field="job_id")
