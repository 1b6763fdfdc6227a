"""Client batches: up to 100,000 independent jobs that a client submits under one handle.

The jobs come in requests of up to a thousand, because all of them do not fit into one. Each request is one commit: its
jobs are charged together, or none of them is, so a request that was refused can be sent again as it is. By its position
a repeated one is recognized.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Required, TypedDict
from uuid import UUID

from millpond import ids, values
from millpond.engine.composition import batches
from millpond.engine.credits import ledger
from millpond.engine.jobs import jobs
from millpond.engine.webhooks import deliveries
from millpond.errors import (
    BatchClosedError,
    BusyError,
    ConflictError,
    IdempotencyConflictError,
    InsufficientCreditsError,
    InvalidError,
    NotFoundError,
    TooManyActiveJobsError,
)
from millpond.store.db import NotAcceptedError, fetch, new_id
from millpond.store.queries import queries
from millpond.webhooks import secret_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.engine.composition.batches import Batch
    from millpond.engine.engine import Engine
    from millpond.engine.jobs.jobs import Submission, SubmitRequest
    from millpond.store.db import Connection, Database, Row
    from millpond.webhooks import Hook

SQL: Final = queries("millpond.engine.composition", "client_batches")

TOTAL_MAX: Final = 100_000
PART_MAX: Final = 1_000
"""How many jobs one request may add."""
NAME_MAX: Final = 200
PAGE_MAX: Final = 200
CANCEL_SIZE: Final = 500
STATES: Final = ("open", "running", "canceling", "completed", "canceled")
_REQUEST_MAX: Final = 64 * 1024 * 1024
_TRIES: Final = 4
_DUE_MAX: Final = 20
_CLOCK_PAUSE: Final = 0.002
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)


class BatchJob(TypedDict, total=False):
    """A job of a batch. The batch has the account, and the tags of all its jobs."""

    kind: Required[str]
    input: Any
    priority: int | None
    run_at: datetime | None
    expires_in: timedelta | str | float | None
    tags: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class CreatedBatch:
    """A batch that was created, now or by an earlier request with the same key."""

    batch: Batch
    is_replay: bool
    kinds: tuple[str, ...] = ()
    """The kinds of the jobs that were submitted with it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Jobs to add to a batch, from a position on."""

    first: int
    digest: bytes
    items: Sequence[Submission]


class ClientBatches:
    """The batches of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # Submitting

    async def create(
        self,
        *,
        tenant: str,
        account: str,
        jobs: Sequence[BatchJob] = (),
        total: int | None = None,
        name: str | None = None,
        tags: Mapping[str, str] | None = None,
        hook: Hook | None = None,
        key: str | None = None,
    ) -> CreatedBatch:
        """Create a batch, with its first jobs in the same commit. ``total`` is how many jobs it is to have.

        By default, it has these jobs only. With ``hook``, the end of the batch is sent to a URL of its own.
        """
        values.check_name(tenant, field="tenant")
        values.check_name(account, field="account")
        total = _checked_total(total, len(jobs))
        tagged = values.check_tags(tags) if tags is not None else {}
        label = _checked_name(name)
        asked = _digest(_asked(jobs))
        request = {"name": label, "total": total, "tags": tagged, "jobs": asked.hex(), "webhook": _asked_hook(hook)}
        digest = _digest(request)
        if key is not None and (known := await self._known(tenant, account, values.check_key(key), digest)) is not None:
            return known
        batch_id = new_id()
        sealed = None if hook is None else await self._engine.deliveries.seal_for_batch(hook, tenant, batch_id)
        part = None
        if jobs:
            items = await self._prepared(jobs, tenant, account, tagged, batch_id)
            part = _Part(0, asked, items)
        columns = (
            batch_id,
            tenant,
            account,
            label,
            total,
            _tags_text(tagged),
            key,
            digest,
            *(sealed or (None, None, None)),
        )
        made, _ = await self._submit(tenant, account, batch_id, part, columns)
        if made is not None and made["verdict"] != "created":
            known = await self._known(tenant, account, str(key), digest)
            if known is not None:
                return known
        batch = await self.read(tenant, None, batch_id)
        return CreatedBatch(batch, is_replay=False, kinds=() if part is None else tuple(i.kind for i in part.items))

    async def add(
        self, tenant: str, batch: UUID | str, first: int, jobs: Sequence[BatchJob], *, account: str | None = None
    ) -> CreatedBatch:
        """Add jobs to a batch, from the position ``first`` on: all of them or none. A repeated request adds nothing."""
        found = await self.read(tenant, account, batch)
        _check_count(len(jobs))
        digest = _digest(_asked(jobs))
        if not found.submitted == first < found.total or found.canceled_at is not None:
            # It is refused or repeated, which needs no valid jobs.
            row = await self._engine.database(found.tenant).run(SQL["page"], found.batch_id, first)
            if row is None or row["digest"] != digest:
                raise _refusal(_misplaced(found, row), found, first, len(jobs))
            return CreatedBatch(found, is_replay=True)
        items = await self._prepared(jobs, found.tenant, found.account, found.tags, found.batch_id)
        _, added = await self._submit(found.tenant, found.account, found.batch_id, _Part(first, digest, items), None)
        now = await self.read(found.tenant, None, found.batch_id)
        if added is not None and added["verdict"] == "repeated":
            return CreatedBatch(now, is_replay=True)
        if added is not None and added["verdict"] != "added":
            raise _refusal(added["verdict"], now, first, len(jobs))
        return CreatedBatch(now, is_replay=False, kinds=tuple(item.kind for item in items))

    async def _known(self, tenant: str, account: str, key: str, digest: bytes) -> CreatedBatch | None:
        """The batch that was created with this key, if the request was the same."""
        row = await self._engine.database(tenant).run(SQL["known"], tenant, account, key)
        if row is None:
            return None
        if row["digest"] != digest:
            raise IdempotencyConflictError(field="Idempotency-Key", batch_id=ids.text("batch", row["batch_id"]))
        return CreatedBatch(await self.read(tenant, None, row["batch_id"]), is_replay=True)

    async def _prepared(
        self, asked: Sequence[BatchJob], tenant: str, account: str, tags: Mapping[str, str], batch_id: UUID
    ) -> list[Submission]:
        """Validated and priced jobs. Their ids are in order, even if the clocks of machines differ."""
        last = (await self._engine.database(tenant).run(SQL["last"], batch_id))["job_id"] or batch_id
        requests: list[SubmitRequest] = []
        for job in asked:
            while (job_id := new_id()) <= last:  # noqa: ASYNC110 - it waits for time to pass
                await asyncio.sleep(_CLOCK_PAUSE)
            tagged = {**tags, **(job.get("tags") or {})}
            requests.append({**job, "tenant": tenant, "account": account, "tags": tagged, "job_id": job_id})
        return await self._engine.prepare_many(requests)

    async def _submit(
        self, tenant: str, account: str, batch_id: UUID, part: _Part | None, batch: tuple[Any, ...] | None
    ) -> tuple[Row | None, Row | None]:
        """Create a batch if there is none yet, and submit jobs of it, in one commit. Returns the rows of both."""
        engine, database = self._engine, self._engine.database(tenant)
        items: Sequence[Submission] = () if part is None else part.items
        bill, columns = jobs.submit_columns(items) if items else (None, ())

        async def work(tx: Connection) -> tuple[Row | None, Row | None]:
            made = None if batch is None else await fetch(tx, SQL["create"], *batch)
            if part is None or (made is not None and made["verdict"] != "created"):
                return made, None
            is_remote = database is not engine.db
            return made, await fetch(tx, SQL["add"], batch_id, tenant, part.first, part.digest, is_remote, *columns)

        for _ in range(_TRIES):
            try:
                made, added = await database.transact(work)
            except NotAcceptedError:
                await _explain(database, tenant, account, items, sum(bill.sums) if bill else 0)
            else:
                if added is not None and added["verdict"] == "added":
                    answers = [jobs.submitted(item, added["created_at"], None) for item in items]
                    await engine.tenant_databases.enqueue(items, answers, engine.notifier)
                    engine.deliveries.poll_soon()
                return made, added
        raise BusyError

    async def secret(self, batch: Batch) -> str:
        """The secret of a batch's own webhook: a replay returns it like the first answer."""
        row = await self._engine.database(batch.tenant).run(SQL["hook"], batch.batch_id)
        if row is None:
            raise NotFoundError("The batch was created without a webhook URL.", field="id")
        vault = await self._engine.safe.opened()
        return vault.open(row["secret"], deliveries.about("batch_hook", batch.batch_id))

    # Reading

    async def read(self, tenant: str | None, account: str | None, batch: UUID | str) -> Batch:
        """A batch of a client, or of a job's children; without a tenant, of any."""
        number = ids.parse("batch", batch)
        if tenant is None:
            row = await self._engine.tenant_databases.find(SQL["find"], number)
        else:
            row = await self._engine.database(tenant).run(batches.SQL["read"], number, tenant)
        found = None if row is None else batches.record(row)
        if found is None or (account is not None and found.account != account):
            raise absent(number)
        return found

    async def list(
        self,
        tenant: str | None,
        account: str | None = None,
        *,
        state: str | None = None,
        tags: Mapping[str, str] | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> list[Batch]:
        """One page of the batches of clients, the newest first; the next one is before the last id of this one."""
        values.check_limit(limit, PAGE_MAX)
        if tenant is None and account is not None:
            raise InvalidError("The account requires a tenant.", field="tenant")
        if state is not None and state not in STATES:
            raise InvalidError(f"The state must be one of {', '.join(STATES)}.", field="state")
        tagged = _tags_text(values.check_tags(tags, field="tag") if tags else {})
        query, owner = SQL["list_all"], tuple[str, ...]()
        if tenant is not None:
            query, owner = SQL["list_of_tenant"], (tenant,)
        if tenant is not None and account is not None:
            query, owner = SQL["list_of_account"], (tenant, account)
        gather = self._engine.tenant_databases.gather
        rows = await gather(query, before or _LAST, state, tagged, limit, *owner, of=tenant)
        return sorted(map(batches.record, rows), key=lambda batch: batch.batch_id, reverse=True)[:limit]

    async def jobs(
        self,
        batch: Batch,
        *,
        phase: str | None = None,
        outcome: str | None = None,
        after: UUID | None = None,
        limit: int = 50,
    ) -> batches.ChildPage:
        """A page of the ids of a batch's jobs, in the order of their positions, after one of them."""
        values.check_limit(limit, jobs.PAGE_MAX)
        database = self._engine.database(batch.tenant)
        given = (batch.batch_id, after or _FIRST, limit + 1, phase, outcome)
        rows: Sequence[Row] = await database.run(SQL["jobs"], *given)
        found = [row["job_id"] for row in rows[:limit]]
        return batches.ChildPage(found, found[-1] if found and rows[0]["found"] > len(found) else None)

    # Canceling

    async def cancel(self, tenant: str | None, batch: UUID | str, *, account: str | None = None) -> tuple[Batch, bool]:
        """Cancel a batch, and return whether it had not ended. Those of its jobs that have not ended are canceled.

        The first ones are canceled at once, and a service cancels the others.
        """
        found = await self.read(tenant, account, batch)
        database = self._engine.database(found.tenant)
        verdict = (await database.run(SQL["cancel"], found.batch_id, found.tenant))["verdict"]
        if verdict in {"absent", "children"}:
            raise _refusal(verdict, found, 0, 0)
        if verdict == "canceled":
            await self._cancel_some(database, found.tenant, found.batch_id, _FIRST, CANCEL_SIZE)
            self._engine.deliveries.poll_soon()
        return await self.read(found.tenant, None, found.batch_id), verdict != "ended"

    async def cancel_jobs(self, limit: int) -> int:
        """Cancel jobs of canceled batches, of each at most ``limit``; return how many were looked at."""
        return sum(await self._engine.tenant_databases.each(lambda db: self._cancel_due(db, limit)))

    async def _cancel_due(self, db: Database, limit: int) -> int:
        due: Sequence[Row] = await db.run(SQL["canceling"], _DUE_MAX)
        return sum([await self._cancel_some(db, row["tenant"], row["batch_id"], row["after"], limit) for row in due])

    async def _cancel_some(self, db: Database, tenant: str, batch_id: UUID, after: UUID, limit: int) -> int:
        """Cancel the next jobs of a batch: together where no worker holds them, and the others one by one."""
        job_ids = [row["job_id"] for row in await db.run(SQL["open_jobs"], batch_id, after, limit)]
        if job_ids:
            done = await self._cancel_unstarted(tenant, job_ids)
            for job_id in (each for each in job_ids if each not in done):
                with contextlib.suppress(ConflictError, NotFoundError):  # it cannot be canceled now, or has ended
                    await self._engine.cancel(tenant, job_id)
        await db.run(SQL["looked_at"], batch_id, job_ids[-1] if len(job_ids) == limit else None)
        return len(job_ids)

    async def _cancel_unstarted(self, tenant: str, job_ids: list[UUID]) -> set[UUID]:
        executor = self._engine.tenant_databases.executor(tenant)
        rows: Sequence[Row] = await executor.run(SQL["cancel_unstarted"], job_ids)
        jobs.report_end("canceled", rows)
        await self._engine.canceled(tenant, {row["job_id"]: row["kind"] for row in rows})
        return {row["job_id"] for row in rows}


async def _explain(db: Database, tenant: str, account: str, items: Sequence[Submission], required: int) -> None:
    """Raise why jobs were not accepted together; returns if they may be accepted now."""
    (row,) = await db.run(jobs.SQL["judge"], [tenant], [account], [account], None, 1)
    if row["has_no_account"]:
        await ledger.open_accounts(db, [(tenant, account)])
    elif required > row["available"]:
        raise InsufficientCreditsError(
            f"The jobs of this request cost {required} credits, but only {row['available']} are available.",
            required=required,
            available=row["available"],
        )
    elif row["active_max"] is not None and row["active"] + len(items) > row["active_max"]:
        raise TooManyActiveJobsError(
            f"The account has {row['active']} active jobs, and its limit is {row['active_max']}.", active=row["active"]
        )


def _misplaced(batch: Batch, page: Row | None) -> str:
    """Why jobs cannot be added to a batch, in the order of millpond.add_to_batch."""
    if batch.parent_id is not None:
        return "children"
    if page is not None:
        return "changed"
    if batch.canceled_at is not None:
        return "canceled"
    return "closed" if batch.submitted == batch.total else "misplaced"


def _refusal(verdict: str, batch: Batch, first: int, count: int) -> Exception:
    match verdict:
        case "absent":
            return absent(batch.batch_id)
        case "children":
            return ConflictError("The jobs of this batch are the children of a job, which submits and cancels them.")
        case "changed":
            return ConflictError(
                f"Other jobs were added at position {first:,} before.",
                field="first",
                hint="Another client may be adding jobs to the batch.",
                submitted=batch.submitted,
            )
        case "misplaced":
            return ConflictError(
                f"The next position is {batch.submitted:,}, not {first:,}.", field="first", submitted=batch.submitted
            )
        case "many":
            return InvalidError(
                f"The batch was created for {batch.total:,} jobs. With these {count:,} it would have "
                f"{batch.submitted + count:,}.",
                field="jobs",
                submitted=batch.submitted,
            )
        case _:
            return BatchClosedError(_CLOSED["canceled" if batch.canceled_at else verdict], state=batch.state)


_CLOSED: Final = {
    "canceled": "The batch was canceled, so no more jobs can be added.",
    "closed": "The batch has all its jobs, so no more can be added.",
}


def _checked_total(total: Any, count: int) -> int:
    if count > PART_MAX:
        raise InvalidError(
            f"At most {PART_MAX:,} jobs can be added at once.",
            field="jobs",
            hint="Set total, and add the others with further requests.",
        )
    if total is None:
        if not count:
            raise InvalidError(
                "The batch has no jobs.", field="jobs", hint="Add jobs, or set total and add them later."
            )
        return count
    if isinstance(total, bool) or not isinstance(total, int) or not 1 <= total <= TOTAL_MAX:
        raise InvalidError(f"The value must be a whole number from 1 to {TOTAL_MAX:,}.", field="total")
    if count > total:
        raise InvalidError(f"There are {count:,} jobs, which is more than the total.", field="total")
    return total


def _check_count(count: int) -> None:
    if not 1 <= count <= PART_MAX:
        raise InvalidError(f"From 1 to {PART_MAX:,} jobs can be added at once.", field="jobs")


def _checked_name(name: Any) -> str:
    if name is None:
        return ""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= NAME_MAX:
        raise InvalidError(f"The name must be 1 to {NAME_MAX} printable characters.", field="name")
    return name


def _asked(given: Sequence[BatchJob]) -> list[dict[str, Any]]:
    """The jobs of a request as a repeated request is compared with them."""
    return [
        {name: value if name in {"input", "tags"} else str(value) for name, value in job.items() if value is not None}
        for job in given
    ]


def _asked_hook(hook: Hook | None) -> dict[str, Any] | None:
    if hook is None:
        return None
    return {"url": hook.url} | ({"secret_sha256": secret_digest(hook.secret)} if hook.is_secret_chosen else {})


def _digest(asked: Any) -> bytes:
    return hashlib.sha256(values.encode(asked, field="jobs", limit=_REQUEST_MAX).encode()).digest()


def _tags_text(tags: Mapping[str, str]) -> str | None:
    """Tags as JSON; none if there are none."""
    return values.encode(dict(tags), field="tags") if tags else None


def absent(batch_id: UUID) -> NotFoundError:
    return NotFoundError(f"There is no batch {ids.text('batch', batch_id)!r}.", field="id")
