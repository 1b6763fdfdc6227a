"""Jobs: submit, read, list, cancel, answer, retry, and the only function that changes state."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict
from uuid import UUID

import msgspec

from millpond import ids, kinds, logs, values
from millpond.engine.credits import ledger
from millpond.engine.credits.ledger import Bill
from millpond.engine.jobs import idempotency
from millpond.errors import (
    AnswerUnavailableError,
    BusyError,
    CancelUnavailableError,
    ConflictError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    MillpondError,
    NotFoundError,
    PriorityUnavailableError,
    RetryUnavailableError,
    TooManyActiveJobsError,
    TransitionDeniedError,
    UnavailableError,
)
from millpond.lifecycle import OUTCOMES
from millpond.store.db import PATIENCE, DuplicateError, NotAcceptedError, new_id, patience
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from millpond.engine.webhooks.deliveries import SealedHook
    from millpond.kinds import Kind
    from millpond.store.db import Executor, Row
    from millpond.webhooks import Hook

SQL: Final = queries("millpond.engine.jobs", "jobs")

PAGE_MAX: Final = 200
SCHEDULES: Final = "#schedules"
"""The scope of the idempotency keys of schedules. No account can have this name, so no client has the scope."""
ENDED: Final[Counter[tuple[str, str]]] = Counter()
"""How many jobs this process has ended since it started, by kind and outcome."""
GRACE: Final = timedelta(seconds=30)
_LAST: Final = UUID(int=2**128 - 1)
_TRIES: Final = 4
_MORE: Final = 8_192  # bytes that a request may have beside its input
_ROUNDS: Final = 2_000  # each settles at least one item, unless others change the accounts all the time


class JobOptions(TypedDict, total=False):
    """The options of a submit beside the kind, the input, the tenant and the account."""

    scope: str | None
    request: Any
    priority: int | None
    run_at: datetime | None
    expires_in: timedelta | str | float | None
    retry_of: UUID | None
    job_id: UUID | None
    route: str | None
    tags: Mapping[str, str] | None


class SubmitOptions(JobOptions, total=False):
    """The keywords of a submit, as :func:`prepare` takes them."""

    tenant: Required[str]
    account: Required[str]
    idempotency_key: str | None


class SubmitRequest(SubmitOptions, total=False):
    """One job of a bulk submit."""

    kind: Required[str]
    input: Any
    hook: Hook | None


class Submission(msgspec.Struct, frozen=True, gc=False):
    """A validated and priced request for a job. Its id is created before it is sent, so it can be sent twice."""

    job_id: UUID
    tenant: str
    account: str
    kind: str
    lifecycle: str
    queue: str
    initial_state: str
    entry_state: str
    price: int
    input: str
    scope: str
    key: str | None
    request: str | None
    priority: int
    run_at: datetime | None
    lifetime: timedelta | None
    retry_of: UUID | None
    is_fair: bool
    hook: str | None = None
    """The job's own webhook as JSON, with an encrypted secret; none if it has none."""
    tags: str | None = None
    """As JSON; none if the job has no tags."""
    budget: int | None = None
    is_limited: bool = False
    """Whether its kind has limits."""

    @property
    def cost(self) -> int:
        """What is held for the job: its price, with its budget."""
        return self.price + (self.budget or 0)


JSON_FIELDS: Final = ("input", "request", "tags")
"""The fields of a submission that are already JSON."""


class KeyedRequest(msgspec.Struct, frozen=True, gc=False):
    """The part of a request that its idempotency key is looked up with. It is not priced.

    It has what distinguishes the request from another one.
    """

    job_id: UUID
    tenant: str
    scope: str
    key: str
    kind: str
    input: str
    request: str | None
    tags: str | None


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submit; a replay is the first answer again.

    ``available`` is the balance of the account after the hold; none if the job is free.
    """

    job_id: UUID
    kind: str
    state: str
    price: int
    available: int | None
    created_at: datetime
    expires_at: datetime | None
    is_replay: bool = False
    webhook_secret: str | None = None
    """The secret that signs the job's own webhooks, if it was generated and belongs in the answer."""

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)

    def __repr__(self) -> str:
        """Without the secret, because a repr ends up in logs and tracebacks."""
        fields = msgspec.structs.asdict(self)
        del fields["webhook_secret"]
        return f"Submitted({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class JobFields(msgspec.Struct, frozen=True, gc=False):
    """A job without its input, memo, answer, output and error: the columns that every reader of jobs reads.

    The statements that read jobs select them as ``jobs.fields``. The tags, which are JSON there, stay the last.
    """

    job_id: UUID
    tenant: str
    account: str
    kind: str
    lifecycle: str
    queue: str
    state: str
    phase: str
    outcome: str | None
    priority: int
    run: int
    epoch: int
    attempts: int
    events: int
    price: int
    captured: int | None
    progress: float
    stage: str | None
    created_at: datetime
    run_at: datetime | None
    expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested_at: datetime | None
    retry_of: UUID | None
    batch_id: UUID | None
    parent_id: UUID | None
    depth: int | None
    waits_for: str | None
    """What a parked job waits for: children, time or question; none if it waits for an answer to itself."""
    tags: dict[str, str]

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


_SHARED: Final = len(JobFields.__struct_fields__)


class JobRecord(JobFields, frozen=True, gc=False):
    """A job as the engine works with it: its JSON is decoded."""

    input: Any
    memo: Any
    answer: Any
    output: Any
    error: Any


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """Whether the cancel was accepted, whether it ended the job, and the job's state and stage."""

    job_id: UUID
    is_accepted: bool
    is_ended: bool
    state: str
    stage: str | None


@dataclass(frozen=True, slots=True)
class Prioritized:
    """The state and queue of a job whose priority was set, and its previous priority."""

    job_id: UUID
    state: str
    queue: str
    before: int
    is_changed: bool


def prepare(
    declared: Mapping[str, Kind],
    kind: str,
    input: Any = None,
    *,
    tenant: str,
    account: str,
    idempotency_key: str | None = None,
    scope: str | None = None,
    request: Any = None,
    priority: int | None = None,
    run_at: datetime | None = None,
    expires_in: timedelta | str | float | None = None,
    retry_of: UUID | None = None,
    job_id: UUID | None = None,
    route: str | None = None,
    hook: SealedHook | None = None,
    tags: Mapping[str, str] | None = None,
) -> Submission:
    """Validate and price a request for a job, or raise. :class:`SubmitOptions` has the keywords."""
    found = kinds.find(declared, kind)
    given: Any = {} if input is None else input
    text = values.encode(given, field="input", limit=found.size_max)
    lifetime = found.expires_in if expires_in is None else values.duration(expires_in, field="expires_in")
    job_id = job_id or new_id()
    tagged = values.check_tags(tags) if tags is not None else {}
    if hook is not None and request is None and idempotency_key is not None:
        request = {"input": given, "webhook": _asked_hook(hook)} | ({"tags": tagged} if tagged else {})
    return Submission(
        job_id=job_id,
        tenant=values.check_name(tenant, field="tenant"),
        account=values.check_name(account, field="account"),
        kind=found.name,
        lifecycle=found.lifecycle.name,
        queue=found.route(route),
        initial_state=found.lifecycle.initial,
        entry_state=found.entry_state,
        price=found.cost(found.read(given)),
        input=text,
        scope=_scope(account, scope),
        key=None if idempotency_key is None else values.check_key(idempotency_key),
        request=None if request is None else values.encode(request, field="request", limit=found.size_max + _MORE),
        priority=found.priority if priority is None else values.check_priority(priority),
        run_at=None if run_at is None else values.check_time(run_at, field="run_at"),
        lifetime=lifetime,
        retry_of=retry_of,
        is_fair=found.is_fair,
        hook=None if hook is None else _hook_text(hook, job_id, tenant),
        tags=_tags_text(tagged),
        budget=found.budget,
        is_limited=bool(found.limits),
    )


def keyed(
    declared: Mapping[str, Kind],
    kind: str,
    input: Any = None,
    *,
    tenant: str,
    account: str,
    idempotency_key: str,
    scope: str | None = None,
    request: Any = None,
    tags: Mapping[str, str] | None = None,
) -> KeyedRequest:
    """What the key of a request is looked up with. If ``request`` is given, the input may be invalid or missing."""
    found = kinds.find(declared, kind)
    return KeyedRequest(
        job_id=new_id(),
        tenant=values.check_name(tenant, field="tenant"),
        scope=_scope(values.check_name(account, field="account"), scope),
        key=values.check_key(idempotency_key),
        kind=found.name,
        input=values.encode({} if input is None else input, field="input", limit=found.size_max),
        request=None if request is None else values.encode(request, field="request", limit=found.size_max + _MORE),
        tags=_tags_text(values.check_tags(tags) if tags is not None else {}),
    )


def _scope(account: str, scope: str | None) -> str:
    """The scope of a key: the account's own, unless the caller has another one."""
    if scope is None:
        return account
    return scope if scope == SCHEDULES else values.check_name(scope, field="scope")


def _tags_text(tags: Mapping[str, str]) -> str | None:
    return msgspec.json.encode(tags).decode() if tags else None


def _asked_hook(hook: SealedHook) -> dict[str, Any]:
    """The part of a webhook that belongs to the request: also the digest of a secret that the caller chose."""
    asked: dict[str, Any] = {"url": hook.url, "events": hook.events}
    return asked if hook.digest is None else asked | {"secret_sha256": hook.digest}


def _hook_text(hook: SealedHook, job_id: UUID, tenant: str) -> str:
    fields = msgspec.structs.asdict(hook) | {"job_id": str(job_id), "tenant": tenant}
    del fields["digest"]
    return msgspec.json.encode(fields).decode()


async def submit(db: Executor, batch: Sequence[Submission], topics: str | None = None) -> list[Submitted | Exception]:
    """Submit a batch of jobs, each accepted or refused by itself, and notify these topics if there are any.

    The answer of the database can get lost. The ids are created here, so the next try asks which of them were inserted
    and sends only the others again. If the server was still at work on the first try when the second one arrived, the
    second fails on the rows that the first has written by then. All tries together have the time of one call.
    """
    until = time.monotonic() + PATIENCE
    done: dict[UUID, Submitted | Exception] = {}
    by_id = {item.job_id: item for item in reversed(batch)}
    todo: list[Submission] = list(reversed(by_id.values()))
    for left in reversed(range(_TRIES)):
        try:
            with patience(until - time.monotonic()):
                if done or left < _TRIES - 1:
                    await _recover(db, todo, done)
                for _ in range(_ROUNDS):
                    todo = [item for item in todo if item.job_id not in done]
                    if not todo:
                        break
                    await _submit_round(db, todo, done, topics)
            done.update((item.job_id, BusyError()) for item in todo if item.job_id not in done)
            break
        except (UnavailableError, DuplicateError):
            if not left or time.monotonic() > until:
                raise
    return [done[item.job_id] if _is_same(item, by_id[item.job_id]) else _id_is_taken() for item in batch]


async def _submit_round(
    db: Executor, todo: Sequence[Submission], done: dict[UUID, Submitted | Exception], topics: str | None
) -> None:
    """One round: accept all items; or accept those that fit, settle refusals and replays, and leave the rest."""
    first = _first_of_each_key(todo)
    try:
        done.update(await _accept(db, first, topics))
    except NotAcceptedError:
        final, fitting = await _judge(db, first)
        done.update(final)
        with contextlib.suppress(NotAcceptedError):  # The accounts changed again.
            done.update(await _accept(db, fitting, topics) if fitting else {})
    except BusyError:
        await _accept_apart(db, first, done, topics)


async def _accept_apart(
    db: Executor, items: Sequence[Submission], done: dict[UUID, Submitted | Exception], topics: str | None
) -> None:
    """Accept the items of each account separately: an account that is locked must not delay the others.

    A caller's transaction can hold the lock of an account for long.
    """
    accounts: dict[tuple[str, str], list[Submission]] = {}
    for item in items:
        accounts.setdefault((item.tenant, item.account), []).append(item)

    async def accept(own: list[Submission]) -> None:
        try:
            done.update(await _accept(db, own, topics))
        except BusyError as busy:
            done.update((item.job_id, busy) for item in own)
        except NotAcceptedError:
            pass  # The next round finds out why.

    await asyncio.gather(*map(accept, accounts.values()))


async def _accept(db: Executor, items: Sequence[Submission], topics: str | None) -> dict[UUID, Submitted]:
    bill, columns = submit_columns(items)
    row = await (
        db.run(SQL["submit"], False, *columns)  # noqa: FBT003 - the columns of its statement
        if topics is None
        else db.run(SQL["submit_and_notify"], topics, *columns)
    )
    return _accepted(items, bill, row)


def submit_columns(items: Sequence[Submission]) -> tuple[Bill, tuple[Any, ...]]:
    """What these items cost, and the columns of ``millpond.submit_batch`` after the first."""
    bill = Bill((item.tenant, item.account, item.cost) for item in items)
    budgets = _unless_empty([item.budget for item in items])
    is_fair = any(item.is_fair for item in items)
    return bill, (is_fair, *_columns(items), *bill.columns(), hooks_text(items), _tags(items), budgets)


def _first_of_each_key(todo: Sequence[Submission]) -> list[Submission]:
    """Of items with the same key only the first: the others wait for the next round, which finds its answer."""
    first: dict[object, Submission] = {}
    for item in todo:
        name = item.job_id if item.key is None else (item.tenant, item.scope, item.key)
        first.setdefault(name, item)
    return list(first.values())


def _accepted(items: Sequence[Submission], bill: Bill, row: Row) -> dict[UUID, Submitted]:
    """The answers to accepted items: the balance after each is computed from the account's balance after all."""
    before = [left + paid for left, paid in zip(row["available"], bill.sums, strict=True)]
    created_at = row["created_at"]
    return {
        item.job_id: submitted(item, created_at, before[payer - 1] - spent)
        for item, payer, spent in zip(items, bill.payers, bill.spents, strict=True)
    }


def submitted(item: Submission, created_at: datetime, available: int | None) -> Submitted:
    starts_at = created_at if item.run_at is None else max(created_at, item.run_at)
    state = item.entry_state if starts_at == created_at else item.initial_state
    if logs.is_on("job.created"):
        fields = kinds.log_fields(item.kind)
        logs.emit("job.created", job_id=item.job_id, **fields, state=state, credits_cost=item.price)
        report_path(item.job_id, item.kind, item.initial_state, state)
    return Submitted(
        item.job_id,
        item.kind,
        state,
        item.price,
        available if item.cost else None,
        created_at,
        None if item.lifetime is None else starts_at + item.lifetime,
    )


async def _judge(
    db: Executor, items: Sequence[Submission]
) -> tuple[dict[UUID, Submitted | Exception], list[Submission]]:
    """Sort items that were not accepted together into final answers (refusals, replays) and those that fit."""
    columns = _columns(items)
    tenants, accounts, scopes, keys = columns[1], columns[2], columns[10], columns[11]
    rows: Sequence[Row] = await db.run(SQL["judge"], tenants, accounts, scopes, keys, len(items))
    judged = list(zip(items, rows, strict=True))
    if without_account := [item for item, row in judged if row["has_no_account"]]:
        await ledger.open_accounts(db, ((item.tenant, item.account) for item in without_account))
    refused, fitting = _sift(judged)
    keyed = [item for item, row in judged if item.key is not None and (row["is_replay"] or item.job_id in refused)]
    replayed = await replays(db, keyed) if keyed else {}
    return {**refused, **replayed}, fitting


def _sift(judged: Iterable[tuple[Submission, Row]]) -> tuple[dict[UUID, Exception], list[Submission]]:
    """The items that their account alone rules out, and those that fit into it together, in order.

    No item is refused because of another item: that one may still be refused itself, before it is accepted.
    """
    refused: dict[UUID, Exception] = {}
    fitting: list[Submission] = []
    taken: dict[tuple[str, str], tuple[int, int]] = {}
    for item, row in judged:
        price, jobs = taken.get((item.tenant, item.account), (0, 0))
        if row["has_no_account"]:
            continue  # The account was just created: the next round checks what it can pay for.
        if refusal := _refusal(item, row):
            refused[item.job_id] = refusal
        elif item.cost <= row["available"] - price and row["active"] + jobs < _limit(row):
            taken[item.tenant, item.account] = price + item.cost, jobs + 1
            fitting.append(item)
    return refused, fitting


def _limit(row: Row) -> float:
    return math.inf if row["active_max"] is None else row["active_max"]


async def replays(
    db: Executor, items: Sequence[Submission | KeyedRequest]
) -> dict[UUID, Submitted | IdempotencyConflictError]:
    """The stored answers to the keys of these items, as replays."""
    answers = await idempotency.answers(db, items)
    return {item.job_id: _replay(item, answers[item.job_id]) for item in items if item.job_id in answers}


def _replay(item: Submission | KeyedRequest, row: Row) -> Submitted | IdempotencyConflictError:
    if not row["is_same"]:
        return IdempotencyConflictError(field="idempotency_key", job_id=ids.text("job", row["job_id"]))
    return Submitted(
        row["job_id"],
        item.kind,
        row["state"],
        row["price"],
        row["available"],
        row["created_at"],
        row["expires_at"],
        is_replay=True,
    )


async def _recover(db: Executor, todo: Iterable[Submission], done: dict[UUID, Submitted | Exception]) -> None:
    items = {item.job_id: item for item in todo}
    for row in await db.run(SQL["present"], list(items)):
        item = items[row["job_id"]]
        if (row["tenant"], row["account"], row["kind"]) == (item.tenant, item.account, item.kind):
            done[item.job_id] = submitted(item, row["created_at"], row["available"])
        else:
            done[item.job_id] = _id_is_taken()


def _is_same(item: Submission, other: Submission) -> bool:
    return (item.tenant, item.account, item.kind) == (other.tenant, other.account, other.kind)


def _id_is_taken() -> ConflictError:
    return ConflictError("A job with this id already exists.", field="job_id")


def _columns(batch: Sequence[Submission]) -> list[list[Any] | None]:
    """The columns of a batch: one value if all are equal, none if all are null, as most are."""
    return [
        [item.job_id for item in batch],
        _packed([item.tenant for item in batch]),
        _packed([item.account for item in batch]),
        _packed([item.kind for item in batch]),
        _packed([item.lifecycle for item in batch]),
        _packed([item.queue for item in batch]),
        _packed([item.initial_state for item in batch]),
        _packed([item.entry_state for item in batch]),
        _packed([item.price for item in batch]),
        [item.input for item in batch],
        _packed([item.scope for item in batch]),
        _unless_empty([item.key for item in batch]),
        _unless_empty([item.request for item in batch]),
        _packed([item.priority for item in batch]),
        _packed([item.run_at for item in batch]),
        _packed([item.lifetime for item in batch]),
        _unless_empty([item.retry_of for item in batch]),
    ]


def _tags(items: Iterable[Submission]) -> list[str | None] | None:
    return _unless_empty([item.tags for item in items])


def hooks_text(items: Iterable[Submission]) -> str | None:
    """The webhooks of jobs that have their own, as a JSON array; none if no job has one, as is usual."""
    hooks = [item.hook for item in items if item.hook is not None]
    return f"[{','.join(hooks)}]" if hooks else None


def _packed(column: list[Any]) -> list[Any] | None:
    first = column[0]
    if column.count(first) == len(column):
        return None if first is None else [first]
    return column


def _unless_empty(column: list[Any]) -> list[Any] | None:
    return None if column.count(None) == len(column) else column


def _refusal(item: Submission, row: Row) -> MillpondError | None:
    """Why an item is refused regardless of the other items; none if it is not."""
    if row["is_replay"]:
        return UnavailableError("The first request with this key was rolled back. Try again.")
    if item.cost > row["available"]:
        return insufficient(item.cost, row["available"])
    if row["active"] >= _limit(row):
        return TooManyActiveJobsError(
            f"The account has {row['active']} active jobs, which is its limit.", active=row["active"]
        )
    return None


def insufficient(required: int, available: int) -> InsufficientCreditsError:
    return InsufficientCreditsError(
        f"The job costs {required} credits, but only {available} are available.",
        required=required,
        available=available,
    )


async def read(db: Executor, tenant: str, job_id: UUID | str) -> JobRecord:
    row = await db.run(SQL["read"], ids.parse("job", job_id), tenant)
    if row is None:
        raise _absent(job_id)
    return _record(row)


async def memo(db: Executor, tenant: str, job_id: UUID | str) -> str | None:
    """The memo that the job's code has stored, as JSON."""
    row = await db.run(SQL["memo"], ids.parse("job", job_id), tenant)
    if row is None:
        raise _absent(job_id)
    return row["memo"]


async def read_many(db: Executor, job_ids: Sequence[UUID]) -> list[JobRecord]:
    """The jobs with these ids that are in this database, of any tenant."""
    return [_record(row) for row in await db.run(SQL["read_many"], list(job_ids))]


async def list_jobs(
    db: Executor,
    tenant: str,
    account: str,
    *,
    before: UUID | None = None,
    kind: str | None = None,
    state: str | None = None,
    phase: str | None = None,
    limit: int = 50,
) -> list[JobRecord]:
    """One page, the newest first; for the next page, pass the last id of this one as ``before``."""
    values.check_limit(limit, PAGE_MAX)
    found = await db.run(SQL["list"], tenant, account, before or _LAST, kind, state, phase, limit)
    return [_record(row) for row in found]


async def cancel(db: Executor, tenant: str, job_id: UUID | str, *, grace: timedelta = GRACE) -> CancelAnswer:
    """End a job that has not started, or ask the worker of a started one to stop it."""
    number = ids.parse("job", job_id)
    row = await db.run(SQL["cancel"], tenant, number, grace)
    match row["verdict"]:
        case "absent":
            raise _absent(job_id)
        case "firm":
            raise CancelUnavailableError(
                f"The stage {row['stage']!r} cannot be interrupted.",
                state=row["state"],
                stage=row["stage"],
                hint="Wait for the next stage and try again, or let the job finish.",
            )
        case "unavailable":
            raise CancelUnavailableError("Jobs of this kind cannot be canceled.", state=row["state"])
        case verdict:
            if verdict == "canceled":
                report_end("canceled", [{"job_id": number, **row}])
            is_ended = verdict == "canceled"
            return CancelAnswer(number, is_ended or verdict == "asked", is_ended, row["state"], row["stage"])


async def prioritize(db: Executor, tenant: str, job_id: UUID | str, priority: int) -> Prioritized:
    """Change the priority of a job that has not started."""
    number = ids.parse("job", job_id)
    row = await db.run(SQL["prioritize"], tenant, number, values.check_priority(priority))
    match row["verdict"]:
        case "absent":
            raise _absent(job_id)
        case "started" | "ended" as verdict:
            reason = "has already ended" if verdict == "ended" else "has already started"
            raise PriorityUnavailableError(f"The job {reason}: its state is {row['state']!r}.", state=row["state"])
        case verdict:
            return Prioritized(number, row["state"], row["queue"], row["before"], is_changed=verdict == "changed")


async def answer(
    db: Executor, tenant: str, job_id: UUID | str, given: Any, *, size_max: int = values.BYTES_MAX
) -> tuple[str, str]:
    """Answer a parked job, and return its state and queue. Repeating the same answer has no effect."""
    text = values.encode(given, field="answer", limit=size_max)
    row = await db.run(SQL["answer"], tenant, ids.parse("job", job_id), text)
    match row["verdict"]:
        case "absent":
            raise _absent(job_id)
        case "unavailable":
            raise AnswerUnavailableError(
                f"The job does not wait for this answer: its state is {row['state']!r}.", state=row["state"]
            )
        case _:
            report_path(ids.parse("job", job_id), row["kind"], row["from_state"], row["state"])
            return row["state"], row["queue"]


async def revive(db: Executor, job: JobRecord, lifetime: timedelta | None) -> Submitted:
    """Retry in place: the same job, a new run with its own hold."""
    row = await db.run(SQL["revive"], job.tenant, job.job_id, lifetime)
    match row["verdict"]:
        case "revived":
            return Submitted(
                job.job_id, job.kind, row["state"], row["price"], row["available"], job.created_at, row["expires_at"]
            )
        case "short":
            raise insufficient(row["price"], row["available"])
        case "capped":
            raise TooManyActiveJobsError
        case "absent":
            raise _absent(job.job_id)
        case _:
            raise RetryUnavailableError(f"A job in state {row['state']!r} cannot be retried.", state=row["state"])


def check_success(job: JobRecord, *, even_if_succeeded: bool) -> None:
    """Refuse to retry a job that succeeded, unless that is what the caller wants."""
    if job.outcome == "succeeded" and not even_if_succeeded:
        raise RetryUnavailableError(
            "The job has succeeded.", hint="Set even_if_succeeded to run it again all the same.", state=job.state
        )


def again(
    declared: Mapping[str, Kind],
    job: JobRecord,
    *,
    idempotency_key: str | None = None,
    operation: str | None = None,
    job_id: UUID | None = None,
    hook: SealedHook | None = None,
) -> Submission:
    """Prepare a retry as a new job that refers to the first one. A key identifies the retry, not the input."""
    if job.outcome is None:
        raise RetryUnavailableError(f"A job in state {job.state!r} has not ended yet.", state=job.state)
    request = {"retry_of": job.id} | ({} if operation is None else {"bulk_operation": operation})
    return prepare(
        declared,
        job.kind,
        job.input,
        tenant=job.tenant,
        account=job.account,
        priority=job.priority,
        tags=job.tags,
        idempotency_key=idempotency_key,
        request=None if idempotency_key is None else request,
        retry_of=job.job_id,
        route=job.queue if kinds.find(declared, job.kind).runs == "fleet" else None,
        job_id=job_id,
        hook=hook,
    )


async def transition(db: Executor, tenant: str, job_id: UUID | str, state: str) -> str:
    """An operator's transition to a state; one that the lifecycle does not define is denied and logged."""
    number = ids.parse("job", job_id)
    row = await db.run(SQL["transition_to"], tenant, number, state)
    match row["verdict"]:
        case "transitioned":
            await _report_transition(db, tenant, number, row)
            return str(row["state"])
        case "absent":
            raise _absent(job_id)
        case _:
            denied = TransitionDeniedError(
                f"A job in state {row['from_state']!r} cannot be moved to {state!r}.",
                from_state=row["from_state"],
                to_state=state,
            )
            report_denied(number, row["from_state"], state, denied)
            raise denied


async def _report_transition(db: Executor, tenant: str, job_id: UUID, transitioned: Row) -> None:
    job = await read(db, tenant, job_id)
    row = {"job_id": job_id, "kind": job.kind, "price": job.price, "captured": job.captured, **transitioned}
    if transitioned["outcome"] is None:
        report([row])
    else:
        report_end(
            transitioned["outcome"],
            [row],
            None if transitioned["outcome"] == "succeeded" else {job_id: job.error or _ENDED_BY_OPERATOR},
        )


def ignore(_: Sequence[Row]) -> None:
    """For verbs that end jobs: nobody need hear of them."""


async def expire(db: Executor, limit: int, on_end: Callable[[Sequence[Row]], None] = ignore) -> int:
    """End the jobs whose deadline has passed. A lifecycle may define that as a failure."""
    transitioned: Sequence[Row] = await db.run(SQL["apply_due"], "expired", limit)
    on_end(transitioned)
    for outcome in {row["outcome"] for row in transitioned}:
        group = [row for row in transitioned if row["outcome"] == outcome]
        report_end(outcome, group, {row["job_id"]: _LATE for row in group})
    return len(transitioned)


async def resume_due(db: Executor, limit: int) -> set[str]:
    """Make parked jobs ready whose time has come, and return the queues that they joined."""
    found = await db.run(SQL["apply_due"], "resumed", limit)
    report(found)
    return {row["queue"] for row in found}


async def force_cancel(db: Executor, limit: int, on_end: Callable[[Sequence[Row]], None] = ignore) -> int:
    """End the jobs whose workers did not stop within the grace of a cancel."""
    transitioned: Sequence[Row] = await db.run(SQL["apply_due"], "canceled", limit)
    on_end(transitioned)
    return report_end("canceled", transitioned)


async def promote(db: Executor, limit: int) -> set[str]:
    """Make jobs ready whose start time has come, and return the queues that they joined."""
    found = await db.run(SQL["apply_due"], "queued", limit)
    report(found)
    return {row["queue"] for row in found}


def report(transitioned: Sequence[Row] | Sequence[dict[str, Any]]) -> int:
    """Log the transitions of jobs, and return how many there were."""
    if logs.is_on("job.transition"):
        for row in transitioned:
            report_path(row["job_id"], row["kind"], row["from_state"], row["state"])
    return len(transitioned)


def report_path(job_id: UUID, kind: str, *states: str) -> None:
    """Log the states that a job went through. A lifecycle event that does not change the state is not a transition."""
    for before, after in pairwise(states):
        if before != after:
            logs.emit("job.transition", job_id=job_id, **kinds.log_fields(kind), from_status=before, to_status=after)


def report_denied(job_id: UUID, before: str, after: str, denied: MillpondError) -> None:
    """Log a change of state that was refused."""
    logs.emit("job.transition_denied", job_id=job_id, from_status=before, to_status=after, reason=denied.message)


@contextlib.contextmanager
def denied_as(job_id: UUID, after: str) -> Generator[None]:
    """If the verb is refused because of the job's state, log it as the transition to ``after`` that was denied."""
    try:
        yield
    except TransitionDeniedError as denied:
        report_denied(job_id, str(denied.details["state"]), after, denied)
        raise


def report_end(
    outcome: str, transitioned: Sequence[Row] | Sequence[dict[str, Any]], details: Mapping[UUID, Any] | None = None
) -> int:
    """Count and log the end of jobs, with the credits that are returned.

    ``details`` has for each job what is logged about its output if it succeeded, otherwise its error.
    """
    ENDED.update((str(row["kind"]), outcome) for row in transitioned)
    event = _END_EVENTS[outcome]
    if logs.is_on(event):
        for row in transitioned:
            detail = (details or {}).get(row["job_id"])
            extra = {} if detail is None else {"output" if outcome == "succeeded" else "error": detail}
            if outcome != "succeeded":
                extra["refunded"] = row["price"] - row["captured"]
            logs.emit(event, job_id=row["job_id"], **kinds.log_fields(row["kind"]), to_status=row["state"], **extra)
    return report(transitioned)


_LATE: Final = {"code": "expired", "message": "The job did not finish by its deadline."}
_ENDED_BY_OPERATOR: Final = {"code": "ended_by_operator", "message": "An operator ended the job."}
_END_EVENTS: Final = {outcome: f"job.{outcome}" for outcome in OUTCOMES} | {"succeeded": "job.completed"}


def decode(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def records(rows: Iterable[Row]) -> list[JobRecord]:
    return [_record(row) for row in rows]


def _record(row: Row) -> JobRecord:
    return JobRecord(*shared(row), *map(decode, row[_SHARED:]))


def shared(row: Row | Sequence[Any]) -> tuple[Any, ...]:
    """The fields of :class:`JobFields`, from a row whose statement selects them first and in that order."""
    *fields, tags = row[:_SHARED]
    return (*fields, decode(tags) or {})


def _absent(job_id: UUID | str) -> NotFoundError:
    given = job_id if isinstance(job_id, str) else ids.text("job", job_id)
    return NotFoundError(f"There is no job {given[:60]!r}.", field="id")
