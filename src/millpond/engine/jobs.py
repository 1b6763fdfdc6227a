"""Jobs: submit, read, list, cancel, answer, retry, and the one door for state."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, kinds, logs, values
from millpond.engine import idempotency, ledger
from millpond.engine.ledger import Bill
from millpond.errors import (
    AnswerUnavailableError,
    BusyError,
    CancelUnavailableError,
    ConflictError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    MillpondError,
    MoveDeniedError,
    NotFoundError,
    PriorityUnavailableError,
    RetryUnavailableError,
    TooManyActiveJobsError,
    UnavailableError,
)
from millpond.lifecycle import OUTCOMES
from millpond.store.db import DuplicateError, NotAcceptedError, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from millpond.engine.deliveries import SealedHook
    from millpond.kinds import Kind
    from millpond.store.db import Door, Row

SQL: Final = queries("millpond.engine", "jobs")

PAGE_MAX: Final = 200
ENDED: Final[Counter[tuple[str, str]]] = Counter()
"""How many jobs this process has ended since it began, by kind and outcome."""
GRACE: Final = timedelta(seconds=30)
_LAST: Final = UUID(int=2**128 - 1)
_TRIES: Final = 4
_MORE: Final = 8_192  # what a request may have beside its input
_ROUNDS: Final = 2_000  # each settles an item or more, unless somebody else changes the accounts all the time


class Submission(msgspec.Struct, frozen=True, gc=False):
    """A job to be, checked and priced; its id is known before it is sent, so it can be sent twice."""

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
    """The URL it is submitted with, as JSON; its secret is encrypted."""


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a submit; a replay is the first answer again.

    ``available`` is what the account has left after the hold; a job that costs nothing does not tell.
    """

    job_id: UUID
    kind: str
    state: str
    price: int
    available: int | None
    created_at: datetime
    expires_at: datetime | None
    is_replay: bool = False

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it stands."""

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
    input: Any
    memo: Any
    answer: Any
    output: Any
    error: Any

    @property
    def id(self) -> str:
        return ids.text("job", self.job_id)


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """Whether the cancel was accepted, and where the job stands."""

    job_id: UUID
    is_accepted: bool
    state: str
    stage: str | None


@dataclass(frozen=True, slots=True)
class Prioritized:
    """Where a job stands that was given another priority, and which one it had."""

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
) -> Submission:
    """Check a request for a job and price it; raises what is wrong with it."""
    found = kinds.find(declared, kind)
    given: Any = {} if input is None else input
    text = values.encode(given, field="input", most=found.size_max)
    lifetime = found.expires_in if expires_in is None else values.duration(expires_in, field="expires_in")
    job_id = job_id or new_id()
    if hook is not None and request is None and idempotency_key is not None:
        request = {"input": given, "webhook": _asked_hook(hook)}
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
        scope=account if scope is None else values.check_name(scope, field="scope"),
        key=None if idempotency_key is None else values.check_key(idempotency_key),
        request=None if request is None else values.encode(request, field="request", most=found.size_max + _MORE),
        priority=found.priority if priority is None else values.check_priority(priority),
        run_at=None if run_at is None else values.check_moment(run_at, field="run_at"),
        lifetime=lifetime,
        retry_of=retry_of,
        is_fair=found.is_fair,
        hook=None if hook is None else _hook_text(hook, job_id, tenant),
    )


def _asked_hook(hook: SealedHook) -> dict[str, Any]:
    """What of a URL belongs to the request: a secret too, where the caller has chosen it."""
    asked: dict[str, Any] = {"url": hook.url, "moments": hook.moments}
    return asked if hook.digest is None else asked | {"secret_sha256": hook.digest}


def _hook_text(hook: SealedHook, job_id: UUID, tenant: str) -> str:
    told = msgspec.structs.asdict(hook) | {"job_id": str(job_id), "tenant": tenant}
    del told["digest"]
    return msgspec.json.encode(told).decode()


async def submit(db: Door, batch: Sequence[Submission], topics: str | None = None) -> list[Submitted | Exception]:
    """Take in a batch of jobs, each accepted or refused by itself, and ring for these topics if there are any.

    The answer to a submit can get lost on its way. Ids are made here, so it is then asked for what was admitted,
    and only the rest is sent again. Where the server was still at the first try when the second one came, the second
    fails on what the first has written by then.
    """
    done: dict[UUID, Submitted | Exception] = {}
    by_id = {item.job_id: item for item in reversed(batch)}
    todo: list[Submission] = list(reversed(by_id.values()))
    for left in reversed(range(_TRIES)):
        try:
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
            if not left:
                raise
    return [done[item.job_id] if _is_same(item, by_id[item.job_id]) else _id_is_taken() for item in batch]


async def _submit_round(
    db: Door, todo: Sequence[Submission], done: dict[UUID, Submitted | Exception], topics: str | None
) -> None:
    """One round: all are accepted; or those that can be are, those that never can are told, the others stay."""
    first = _without_twins(todo)
    try:
        done.update(await _accept(db, first, topics))
    except NotAcceptedError:
        final, fitting = await _judge(db, first)
        done.update(final)
        with contextlib.suppress(NotAcceptedError):  # It has changed once more.
            done.update(await _accept(db, fitting, topics) if fitting else {})
    except BusyError:
        await _accept_apart(db, first, done, topics)


async def _accept_apart(
    db: Door, items: Sequence[Submission], done: dict[UUID, Submitted | Exception], topics: str | None
) -> None:
    """Each account by itself: one that a caller's transaction holds on to must not keep the others waiting."""
    accounts: dict[tuple[str, str], list[Submission]] = {}
    for item in items:
        accounts.setdefault((item.tenant, item.account), []).append(item)

    async def accept(own: list[Submission]) -> None:
        try:
            done.update(await _accept(db, own, topics))
        except BusyError as busy:
            done.update((item.job_id, busy) for item in own)
        except NotAcceptedError:
            pass  # The next round tells why.

    await asyncio.gather(*map(accept, accounts.values()))


async def _accept(db: Door, items: Sequence[Submission], topics: str | None) -> dict[UUID, Submitted]:
    bill = Bill((item.tenant, item.account, item.price) for item in items)
    columns = (any(item.is_fair for item in items), *_columns(items), *bill.columns(), hooks_text(items))
    row = await (
        db.run(SQL["submit"], *columns) if topics is None else db.run(SQL["submit_and_ring"], topics, *columns)
    )
    return _accepted(items, bill, row)


def _without_twins(todo: Sequence[Submission]) -> list[Submission]:
    """Of the items with one key the first only: the others wait for the next round, to find its answer."""
    first: dict[object, Submission] = {}
    for item in todo:
        name = item.job_id if item.key is None else (item.tenant, item.scope, item.key)
        first.setdefault(name, item)
    return list(first.values())


def _accepted(items: Sequence[Submission], bill: Bill, row: Row) -> dict[UUID, Submitted]:
    """The answers to accepted items: an account tells what is left after all of them, and so after each."""
    before = [left + paid for left, paid in zip(row["available"], bill.sums, strict=True)]
    born = row["created_at"]
    return {
        item.job_id: _submitted(item, born, before[payer - 1] - spent)
        for item, payer, spent in zip(items, bill.payers, bill.spents, strict=True)
    }


def _submitted(item: Submission, born: datetime, available: int | None) -> Submitted:
    begin = born if item.run_at is None else max(born, item.run_at)
    state = item.entry_state if begin == born else item.initial_state
    if logs.is_on("job.created"):
        logs.emit("job.created", job_id=item.job_id, type=item.kind, state=state, credits_cost=item.price)
        report_path(item.job_id, item.kind, item.initial_state, state)
    return Submitted(
        item.job_id,
        item.kind,
        state,
        item.price,
        available if item.price else None,
        born,
        None if item.lifetime is None else begin + item.lifetime,
    )


async def _judge(db: Door, items: Sequence[Submission]) -> tuple[dict[UUID, Submitted | Exception], list[Submission]]:
    """Of items that were not accepted together: refusals and answers given before, which are final; and what fits."""
    columns = _columns(items)
    tenants, accounts, scopes, keys = columns[1], columns[2], columns[10], columns[11]
    rows: Sequence[Row] = await db.run(SQL["judge"], tenants, accounts, scopes, keys, len(items))
    judged = list(zip(items, rows, strict=True))
    if strangers := [item for item, row in judged if row["is_stranger"]]:
        await ledger.open_accounts(db, ((item.tenant, item.account) for item in strangers))
    refused, fitting = _sift(judged)
    keyed = [item for item, row in judged if item.key is not None and (row["is_replay"] or item.job_id in refused)]
    replayed = await replays(db, keyed) if keyed else {}
    return {**refused, **replayed}, fitting


def _sift(judged: Iterable[tuple[Submission, Row]]) -> tuple[dict[UUID, Exception], list[Submission]]:
    """What is refused for what its account has, and what fits into it together, in order.

    Nothing is refused for the sake of another item: that one may still be refused itself, before it is accepted.
    """
    refused: dict[UUID, Exception] = {}
    fitting: list[Submission] = []
    taken: dict[tuple[str, str], tuple[int, int]] = {}
    for item, row in judged:
        price, jobs = taken.get((item.tenant, item.account), (0, 0))
        if row["is_stranger"]:
            continue  # The account exists by now: the next round sees what it can carry.
        if refusal := _refusal(item, row):
            refused[item.job_id] = refusal
        elif item.price <= row["available"] - price and row["active"] + jobs < _limit(row):
            taken[item.tenant, item.account] = price + item.price, jobs + 1
            fitting.append(item)
    return refused, fitting


def _limit(row: Row) -> float:
    return math.inf if row["active_max"] is None else row["active_max"]


async def replays(db: Door, items: Sequence[Submission]) -> dict[UUID, Submitted | IdempotencyConflictError]:
    """The answers that the keys of these items were given before, as they are given again."""
    answers = await idempotency.answers(db, items)
    return {item.job_id: _replay(item, answers[item.job_id]) for item in items if item.job_id in answers}


def _replay(item: Submission, row: Row) -> Submitted | IdempotencyConflictError:
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


async def _recover(db: Door, todo: Iterable[Submission], done: dict[UUID, Submitted | Exception]) -> None:
    items = {item.job_id: item for item in todo}
    for row in await db.run(SQL["present"], list(items)):
        item = items[row["job_id"]]
        if (row["tenant"], row["account"], row["kind"]) == (item.tenant, item.account, item.kind):
            done[item.job_id] = _submitted(item, row["created_at"], row["available"])
        else:
            done[item.job_id] = _id_is_taken()


def _is_same(item: Submission, other: Submission) -> bool:
    return (item.tenant, item.account, item.kind) == (other.tenant, other.account, other.kind)


def _id_is_taken() -> ConflictError:
    return ConflictError("The id is taken.", field="job_id")


def _columns(batch: Sequence[Submission]) -> list[list[Any] | None]:
    """The batch column by column. One value where all are the same, none where all are empty: most are."""
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


def hooks_text(items: Iterable[Submission]) -> str | None:
    """The URLs that jobs are submitted with; most have none."""
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
    """Why an item is not accepted, whatever becomes of the others."""
    if row["is_replay"]:
        return UnavailableError("The first request with this key has just been withdrawn; send it again.")
    if item.price > row["available"]:
        return InsufficientCreditsError(
            f"The job costs {item.price} credits and {row['available']} are available.",
            required=item.price,
            available=row["available"],
        )
    if row["active"] >= _limit(row):
        return TooManyActiveJobsError(
            f"The account has {row['active']} active jobs, which is its limit.", active=row["active"]
        )
    return None


async def read(db: Door, tenant: str, job_id: UUID | str) -> JobRecord:
    row = await db.run(SQL["read"], ids.parse("job", job_id), tenant)
    if row is None:
        raise _absent(job_id)
    return _record(row)


async def read_many(db: Door, job_ids: Sequence[UUID]) -> list[JobRecord]:
    """Those of these jobs that are here, whoever's they are."""
    return [_record(row) for row in await db.run(SQL["read_many"], list(job_ids))]


async def list_jobs(
    db: Door,
    tenant: str,
    account: str,
    *,
    before: UUID | None = None,
    kind: str | None = None,
    state: str | None = None,
    phase: str | None = None,
    limit: int = 50,
) -> list[JobRecord]:
    """One page, the newest first; the next one is before the last id of this one."""
    values.check_limit(limit, PAGE_MAX)
    found = await db.run(SQL["list"], tenant, account, before or _LAST, kind, state, phase, limit)
    return [_record(row) for row in found]


async def cancel(db: Door, tenant: str, job_id: UUID | str, *, grace: timedelta = GRACE) -> CancelAnswer:
    """End a job that has not started, or ask the worker of one that has to stop."""
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
            return CancelAnswer(number, verdict in ("canceled", "asked"), row["state"], row["stage"])


async def prioritize(db: Door, tenant: str, job_id: UUID | str, priority: int) -> Prioritized:
    """Give a job that waits for its turn another priority."""
    number = ids.parse("job", job_id)
    row = await db.run(SQL["prioritize"], tenant, number, values.check_priority(priority))
    match row["verdict"]:
        case "absent":
            raise _absent(job_id)
        case "started" | "ended" as verdict:
            told = "has ended" if verdict == "ended" else "has had its turn"
            raise PriorityUnavailableError(f"The job {told}: it is {row['state']!r}.", state=row["state"])
        case verdict:
            return Prioritized(number, row["state"], row["queue"], row["before"], is_changed=verdict == "changed")


async def answer(
    db: Door, tenant: str, job_id: UUID | str, given: Any, *, size_max: int = values.BYTES_MAX
) -> tuple[str, str]:
    """Give a parked job what it waits for; the same answer again is harmless. Tells its state and queue."""
    text = values.encode(given, field="answer", most=size_max)
    row = await db.run(SQL["answer"], tenant, ids.parse("job", job_id), text)
    match row["verdict"]:
        case "absent":
            raise _absent(job_id)
        case "unavailable":
            raise AnswerUnavailableError(
                f"The job is {row['state']!r} and does not wait for this answer.", state=row["state"]
            )
        case _:
            report_path(ids.parse("job", job_id), row["kind"], row["from_state"], row["state"])
            return row["state"], row["queue"]


async def revive(db: Door, job: JobRecord, lifetime: timedelta | None) -> Submitted:
    """Retry in place: the same job, a new run with its own hold."""
    row = await db.run(SQL["revive"], job.tenant, job.job_id, lifetime)
    match row["verdict"]:
        case "revived":
            return Submitted(
                job.job_id, job.kind, row["state"], row["price"], row["available"], job.created_at, row["expires_at"]
            )
        case "short":
            raise InsufficientCreditsError(
                f"The job costs {row['price']} credits and {row['available']} are available.",
                required=row["price"],
                available=row["available"],
            )
        case "capped":
            raise TooManyActiveJobsError
        case "absent":
            raise _absent(job.job_id)
        case _:
            raise RetryUnavailableError(f"A job in state {row['state']!r} cannot be retried.", state=row["state"])


def again(
    declared: Mapping[str, Kind],
    job: JobRecord,
    *,
    idempotency_key: str | None = None,
    errand: str | None = None,
    **options: Any,
) -> Submission:
    """Retry as a new job that names the one it repeats. What a key stands for is that it is repeated, not its input."""
    if job.outcome is None:
        raise RetryUnavailableError(f"A job in state {job.state!r} has not ended yet.", state=job.state)
    request = {"retry_of": job.id} | ({} if errand is None else {"errand": errand})
    return prepare(
        declared,
        job.kind,
        job.input,
        tenant=job.tenant,
        account=job.account,
        priority=job.priority,
        idempotency_key=idempotency_key,
        request=None if idempotency_key is None else request,
        retry_of=job.job_id,
        route=job.queue if kinds.find(declared, job.kind).runs == "fleet" else None,
        **options,
    )


async def move(db: Door, tenant: str, job_id: UUID | str, state: str) -> str:
    """An operator's move to a state; one that the lifecycle does not draw is denied and logged."""
    number = ids.parse("job", job_id)
    row = await db.run(SQL["shift"], tenant, number, state)
    match row["verdict"]:
        case "moved":
            await _report_move(db, tenant, number, row)
            return str(row["state"])
        case "absent":
            raise _absent(job_id)
        case _:
            denied = MoveDeniedError(
                f"A job cannot be moved from {row['from_state']!r} to {state!r}.",
                from_state=row["from_state"],
                to_state=state,
            )
            report_denied(number, row["from_state"], state, denied)
            raise denied


async def _report_move(db: Door, tenant: str, job_id: UUID, moved: Row) -> None:
    job = await read(db, tenant, job_id)
    row = {"job_id": job_id, "kind": job.kind, "price": job.price, "captured": job.captured, **moved}
    if moved["outcome"] is None:
        report([row])
    else:
        report_end(moved["outcome"], [row], None if moved["outcome"] == "succeeded" else {job_id: job.error or _MOVED})


async def expire(db: Door, most: int) -> int:
    """End the jobs whose deadline has passed; a lifecycle may call that a failure."""
    moved: Sequence[Row] = await db.run(SQL["expire"], most)
    for outcome in {row["outcome"] for row in moved}:
        group = [row for row in moved if row["outcome"] == outcome]
        report_end(outcome, group, {row["job_id"]: _LATE for row in group})
    return len(moved)


async def enforce(db: Door, most: int) -> int:
    return report_end("canceled", await db.run(SQL["enforce"], most))


async def promote(db: Door, most: int) -> set[str]:
    """Let due jobs join the line; tells which queues have grown."""
    found = await db.run(SQL["promote"], most)
    report(found)
    return {row["queue"] for row in found}


def report(moved: Sequence[Row] | Sequence[dict[str, Any]]) -> int:
    """Log what became of jobs; tells how many there were."""
    if logs.is_on("job.transition"):
        for row in moved:
            report_path(row["job_id"], row["kind"], row["from_state"], row["state"])
    return len(moved)


def report_path(job_id: UUID, kind: str, *states: str) -> None:
    """Log the states that a job went through; a moment that left it where it was is no transition."""
    for before, after in pairwise(states):
        if before != after:
            logs.emit("job.transition", job_id=job_id, type=kind, from_status=before, to_status=after)


def report_denied(job_id: UUID, before: str, after: str, denied: MillpondError) -> None:
    """Log a change of state that was refused."""
    logs.emit("job.transition_denied", job_id=job_id, from_status=before, to_status=after, reason=denied.message)


@contextlib.contextmanager
def denied_as(job_id: UUID, after: str) -> Generator[None]:
    """Where a verb is refused for the state of its job, log it as the change of state that it would have been."""
    try:
        yield
    except MoveDeniedError as denied:
        report_denied(job_id, str(denied.details["state"]), after, denied)
        raise


def report_end(
    outcome: str, moved: Sequence[Row] | Sequence[dict[str, Any]], told: Mapping[UUID, Any] | None = None
) -> int:
    """Count the end of jobs, and log it with what it meant for the wallet.

    What is ``told`` of each: about its output where it succeeded, otherwise its error.
    """
    ENDED.update((str(row["kind"]), outcome) for row in moved)
    event = _END_EVENTS[outcome]
    if logs.is_on(event):
        for row in moved:
            said = (told or {}).get(row["job_id"])
            extra = {} if said is None else {"output" if outcome == "succeeded" else "error": said}
            if outcome != "succeeded":
                extra["refunded"] = row["price"] - row["captured"]
            logs.emit(event, job_id=row["job_id"], type=row["kind"], to_status=row["state"], **extra)
    return report(moved)


_LATE: Final = {"code": "expired", "message": "Its deadline passed."}
_MOVED: Final = {"code": "moved", "message": "An operator ended it."}
_END_EVENTS: Final = {outcome: f"job.{outcome}" for outcome in OUTCOMES} | {"succeeded": "job.completed"}


def decode(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _record(row: Row) -> JobRecord:
    fields = dict(row)
    for name in ("input", "memo", "answer", "output", "error"):
        fields[name] = decode(fields[name])
    return JobRecord(job_id=fields.pop("id"), **fields)


def _absent(job_id: UUID | str) -> NotFoundError:
    given = job_id if isinstance(job_id, str) else ids.text("job", job_id)
    return NotFoundError(f"There is no job {given[:60]!r}.", field="id")
