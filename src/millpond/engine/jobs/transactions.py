"""Transactions: submit in the caller's own transaction: its rows, the job and the hold commit or roll back together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID

import msgspec

from millpond import ids
from millpond.engine.jobs import jobs
from millpond.errors import (
    ConflictError,
    IdempotencyConflictError,
    InvalidError,
    TooManyActiveJobsError,
)
from millpond.store.callers_transaction import adopt
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.app import Millpond
    from millpond.engine.jobs.jobs import Submission, SubmitOptions, Submitted
    from millpond.store.callers_transaction import CallersTransaction
    from millpond.webhooks import Hook

SQL: Final = queries("millpond.engine.jobs", "transactions")

_WATCH: Final = 30.0
"""For how many seconds the end of a transaction is awaited. Workers find jobs that are committed later by polling."""
_LOOK_FIRST: Final = 0.002
_LOOK_MAX: Final = 0.1


def submit_in(
    tx: Any, app: Millpond, kind: str, input: Any = None, *, hook: Hook | None = None, **options: Unpack[SubmitOptions]
) -> Submitted:
    """Submit a job on a synchronous connection: psycopg, a SQLAlchemy Session, Django's, or any of DB-API 2.

    The options are those of ``Engine.submit``.
    """
    if hook is not None:
        raise InvalidError(
            "A job with its own webhook requires an engine, which encrypts the secret.",
            field="hook",
            hint="Use Engine.submit.",
        )
    item = jobs.prepare(app.kinds, kind, input, **options)
    if app.kinds[item.kind].gate is not None:
        raise InvalidError(
            f"Kind {item.kind!r} has a gate, which requires an engine.",
            field="kind",
            hint="Use Engine.submit.",
        )
    return _submitted(item, adopt(tx).fetch_now(SQL["admit"], _text(item)))


async def submit(tx: CallersTransaction, item: Submission) -> Submitted:
    """Submit a job on the caller's connection. A refusal is raised, and leaves the caller's transaction usable."""
    return _submitted(item, await tx.fetch(SQL["admit"], _text(item)))


def remote_tenant() -> InvalidError:
    return InvalidError(
        "The tenant's jobs are stored in another database, which cannot take part in this transaction.",
        field="tx",
        hint="Commit your transaction, then submit without tx and with an idempotency key.",
    )


async def ended(tx: CallersTransaction) -> None:
    """Wait until the caller's transaction is over, as far as its driver knows."""
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + _WATCH, _LOOK_FIRST
    while not tx.has_ended() and loop.time() < until:
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LOOK_MAX)


def _text(item: Submission) -> str:
    hooks = jobs.hooks_text([item])
    fields: dict[str, Any] = msgspec.structs.asdict(item) | {
        "hooks": None if hooks is None else msgspec.Raw(hooks.encode()),
        "lifetime": None if item.lifetime is None else item.lifetime.total_seconds(),
    }
    fields |= {name: msgspec.Raw(fields[name].encode()) for name in jobs.JSON_FIELDS if fields[name] is not None}
    return msgspec.json.encode(fields, enc_hook=str).decode()


def _submitted(item: Submission, answer: str) -> Submitted:
    row: dict[str, Any] = msgspec.json.decode(answer)
    match row["verdict"]:
        case "accepted" | "replayed" as verdict:
            return msgspec.convert(row | {"kind": item.kind, "is_replay": verdict == "replayed"}, jobs.Submitted)
        case "remote":
            raise remote_tenant()
        case "conflict":
            raise IdempotencyConflictError(field="idempotency_key", job_id=ids.text("job", UUID(row["job_id"])))
        case "short":
            raise jobs.insufficient(item.cost, row["available"])
        case "capped":
            raise TooManyActiveJobsError(
                f"The account has {row['active']} active jobs, which is its limit.", active=row["active"]
            )
        case _:
            raise ConflictError("A job with this id already exists.", field="job_id")
