"""The bulk runner: works through bulk operations in small batches, one at a time, the operations taking turns.

After each batch it pauses for as long as that took, so bulk operations never use more than half of one connection,
however many jobs they change. The jobs of a batch are stored before it begins: the process that takes over after a
kill knows which of them were changed, and changes the others if they still match the filter.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import tempfile
import time
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from millpond import ids, logs, wire
from millpond.engine.bulk import operations
from millpond.engine.bulk.operations import ACTS, READS, LostError
from millpond.engine.credits.ledger import RefundTarget
from millpond.engine.reads.summaries import FIRST, ParsedFilter
from millpond.errors import (
    CancelUnavailableError,
    ForbiddenError,
    IdempotencyConflictError,
    MillpondError,
    NotFoundError,
    RefundUnavailableError,
    RetryUnavailableError,
    TooLargeError,
    UnavailableError,
)
from millpond.services.service import Service
from millpond.storage.storage import SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from millpond.engine.bulk.operations import BulkOperationRecord, Claim
    from millpond.engine.engine import Engine
    from millpond.engine.reads.summaries import JobSummary, JobSummaryPage
    from millpond.engine.reads.views import JobView

    Act = Callable[[BulkOperationRecord, JobSummary, int], Awaitable[None]]

BATCH: Final = 50
"""How many jobs are changed between two writes of the progress."""
PAGE: Final = 500
LEASE: Final = timedelta(seconds=30)
"""After how long the bulk operation of a dead process is taken over."""
EVERY: Final = timedelta(seconds=1)
REASONS_MAX: Final = 50
"""How many different codes of refusals are recorded."""
VIOLATIONS_MAX: Final = 1_000
_RENEWALS: Final = 3  # times that a lease is renewed before it expires
_PAUSE_MAX: Final = 1.0
_PIECE: Final = 1024 * 1024
_CHUNK: Final = 50  # jobs whose whole text is in memory at once
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets treat these as operators too
COLUMNS: Final = wire.JobSummary.__struct_fields__


class AbortedError(Exception):
    """The bulk operation was aborted."""


class RefusedError(Exception):
    """A bulk operation refuses a change that the verb alone would make."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class BatchResult:
    """The results of a batch, with refusals by their code."""

    done: int = 0
    refused: int = 0
    refusals: dict[str, wire.Refusal] = field(default_factory=dict[str, wire.Refusal])

    def refuse(self, job_id: UUID, code: str, message: str) -> None:
        self.refused += 1
        known = self.refusals.get(code)
        if known is not None:
            known.count += 1
        elif len(self.refusals) < REASONS_MAX:
            self.refusals[code] = wire.Refusal(code=code, message=message, count=1, sample=ids.text("job", job_id))


class BulkRunner:
    """Runs the bulk operations of one engine. Any number may run concurrently.

    ``export_line`` makes the line of a job in a file with all details, in the format of the API.
    """

    name = "bulk_runner"

    def __init__(
        self,
        engine: Engine,
        export_line: Callable[[JobView], bytes],
        *,
        grace: timedelta = timedelta(seconds=30),
        lease: timedelta = LEASE,
        every: timedelta = EVERY,
        batch: int = BATCH,
    ) -> None:
        self._engine = engine
        self._export_line = export_line
        self._grace = grace
        self._lease = lease
        self._every = every
        self._batch = batch
        self._acts: dict[str, Act] = {
            "retry": self._retry,
            "cancel": self._cancel,
            "refund": self._refund,
            "priority": self._prioritize,
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Run changes and reads concurrently, so that a long export does not delay changes."""
        lanes = [Service(self.name, self._every, self.act), Service(self.name, self._every, self.read)]
        tasks = [asyncio.create_task(lane.run(stop), name=lane.name) for lane in lanes]
        try:
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def act(self) -> int:
        """Run batches of the operation whose turn it is until there is nothing to do; returns the number of jobs."""
        done = 0
        while (claim := await self._engine.bulk_operations.take(ACTS, self._lease)) is not None:
            began = time.monotonic()
            done += await self._work_on(claim, self._act_once)
            await asyncio.sleep(min(_PAUSE_MAX, time.monotonic() - began))
        return done

    async def read(self) -> int:
        """Run exports and verifications, one after the other."""
        done = 0
        while (claim := await self._engine.bulk_operations.take(READS, self._lease)) is not None:
            done += await self._work_on(claim, self._export if claim.operation.action == "export" else self._verify)
        return done

    async def _work_on(self, claim: Claim, work: Callable[[Claim], Awaitable[int]]) -> int:
        """Work on a claimed operation and renew the claim. If the work is interrupted, the operation is not lost."""
        renewing = asyncio.create_task(self._renew_lease(claim))
        try:
            await self._check(claim)
            return await work(claim)
        except AbortedError:
            await self._engine.bulk_operations.finish(claim, "aborted")
            return 0
        except LostError:
            return 0
        except UnavailableError:
            await self._let_go(claim)
            raise
        except Exception as error:  # noqa: BLE001 - any error is stored with the bulk operation
            if not isinstance(error, MillpondError):
                logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {error}")
            detail = error.as_dict() if isinstance(error, MillpondError) else {"code": "error", "message": _FAULT}
            with contextlib.suppress(LostError):
                await self._engine.bulk_operations.finish(claim, "failed", error=detail)
            return 0
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(claim))
            raise
        finally:
            renewing.cancel()

    async def _check(self, claim: Claim) -> None:
        if await self._engine.bulk_operations.is_aborting(claim):
            raise AbortedError

    async def _let_go(self, claim: Claim) -> None:
        """Release the claim, so that another process need not wait until the lease expires."""
        with contextlib.suppress(LostError, MillpondError):
            await self._engine.bulk_operations.release(claim)

    async def _renew_lease(self, claim: Claim) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / _RENEWALS)
            with contextlib.suppress(LostError, MillpondError):
                await self._engine.bulk_operations.renew(claim, self._lease)

    # Changes

    async def _act_once(self, claim: Claim) -> int:
        """Run one batch; then the operation is done, or the next one takes its turn."""
        operation = claim.operation
        place = operation.place
        counts = BatchResult(refusals={refusal.code: refusal for refusal in operation.refusals})
        if operation.in_hand is not None:
            seen = dict(zip(operation.in_hand, operation.ends or (), strict=True))
            batch = await self._left(operation, seen, counts)
        elif place == FIRST:
            batch, seen = [], {}
        else:
            page = await self._page(operation.sought, place, self._batch)
            batch, place = page.data, page.before or FIRST
            seen = await self._engine.bulk_operations.ends(batch)
            batch = [job for job in batch if job.job_id in seen]
            await self._engine.bulk_operations.begin(claim, seen, place, page.examined)
        is_aborting = await self._apply(claim, batch, seen, counts)
        await self._engine.bulk_operations.save(claim, counts.done, counts.refused, list(counts.refusals.values()))
        if is_aborting:
            raise AbortedError
        if place == FIRST:
            await self._engine.bulk_operations.finish(claim, "done")
        else:
            await self._engine.bulk_operations.release(claim)
        return len(seen)

    async def _left(
        self, operation: BulkOperationRecord, seen: Mapping[UUID, int], counts: BatchResult
    ) -> list[JobSummary]:
        """The remaining jobs of a batch that another process began. Jobs changed by it or since are counted."""
        job_ids, limit = tuple(seen), len(seen) or 1
        known = {job.job_id: job for job in (await self._page(ParsedFilter(job_ids=job_ids), None, limit)).data}
        fitting = await self._page(replace(operation.sought, job_ids=job_ids), None, limit)
        runs = await self._engine.bulk_operations.runs(known.values())
        fit = {job.job_id for job in fitting.data}
        left: list[JobSummary] = []
        for job_id, end in seen.items():
            job, (run, _) = known.get(job_id), runs.get(job_id, _GONE)
            if job is not None and await self._was_done(operation, job, end, run):
                counts.done += 1
            elif job is not None and job_id in fit and end in {0, run}:
                left.append(job)
            else:
                counts.refuse(job_id, "changed", "The job no longer matches the filter.")
        return left

    async def _was_done(self, operation: BulkOperationRecord, job: JobSummary, end: int, run: int) -> bool:
        """Whether a job was changed before this process took over."""
        match operation.action:
            case "retry" if end:
                return run > end or await self._engine.bulk_operations.was_retried(operation, job, _retry_key(job, end))
            case "cancel":
                return not end and (job.is_canceling or job.outcome == "canceled")
            case "priority":
                return not end and job.priority == operation.arguments["priority"]
            case "refund" if await self._engine.bulk_operations.was_refunded(
                job, RefundTarget(operation.id, end).reference(job.id)
            ):
                await self._refund(operation, job, end)  # its audit entry may be missing: it is written now
                return True
            case _:
                return False

    async def _apply(
        self, claim: Claim, batch: Sequence[JobSummary], seen: Mapping[UUID, int], counts: BatchResult
    ) -> bool:
        """Change each job; returns whether the operation must abort."""
        act = self._acts[claim.operation.action]
        for job in batch:
            if await self._engine.bulk_operations.is_aborting(claim):
                return True
            try:
                await act(claim.operation, job, seen[job.job_id])
                counts.done += 1
            except UnavailableError:
                raise
            except (MillpondError, RefusedError) as error:
                counts.refuse(job.job_id, error.code, error.message)
        return False

    async def _retry(self, operation: BulkOperationRecord, job: JobSummary, end: int) -> None:
        if not end:
            raise RetryUnavailableError(_LIVE)
        kind = self._engine.app.kinds.get(job.kind)
        if kind is not None and not kind.is_open:
            raise ForbiddenError(f"Jobs of kind {job.kind!r} can be submitted only through their product.")
        given: dict[str, Any] = {"even_if_succeeded": operation.arguments.get("even_if_succeeded") is True}
        if kind is None or not any(transition.event == "retried" for transition in kind.lifecycle.transitions):
            given |= {"idempotency_key": _retry_key(job, end), "operation": operation.id}
            try:
                await self._engine.retry(job.tenant, job.job_id, **given)
            except IdempotencyConflictError:
                raise RefusedError("retried", "The job was already retried by another bulk operation.") from None
        else:
            await self._engine.retry(job.tenant, job.job_id, **given)

    async def _cancel(self, operation: BulkOperationRecord, job: JobSummary, end: int) -> None:
        del operation, end
        answer = await self._engine.cancel(job.tenant, job.job_id, grace=self._grace)
        if not answer.is_accepted:
            raise CancelUnavailableError(f"The job had already ended: its state is {answer.state!r}.")

    async def _refund(self, operation: BulkOperationRecord, job: JobSummary, end: int) -> None:
        if not end:
            raise RefundUnavailableError(_LIVE)
        given: dict[str, Any] = {"reason": operation.arguments["reason"], "actor": operation.actor}
        await self._engine.refund(job.tenant, job.job_id, seen=RefundTarget(operation.id, end), **given)

    async def _prioritize(self, operation: BulkOperationRecord, job: JobSummary, end: int) -> None:
        del end
        priority = operation.arguments["priority"]
        change = await self._engine.prioritize(job.tenant, job.job_id, priority)
        if change.is_changed:
            await self._engine.access.audit(
                operation.actor,
                "job.prioritized",
                tenant=job.tenant,
                subject=job.id,
                data={"from": change.before, "to": priority, "bulk_operation": operation.id},
            )

    async def _page(self, sought: ParsedFilter, before: Any, limit: int) -> JobSummaryPage:
        return await self._engine.summaries.page(sought, before=before, limit=limit, is_whole=True)

    # Reads

    async def _verify(self, claim: Claim) -> int:
        operation = claim.operation
        since = operation.sought.low
        newest = None if since == FIRST else operation.created_at - ids.born(since)
        found = await self._engine.verify(newest=newest)
        violations = [
            wire.Violation(
                invariant=one.invariant,
                subject=one.subject,
                job_id=None if one.job_id is None else ids.text("job", one.job_id),
                detail=one.detail,
            )
            for one in found[:VIOLATIONS_MAX]
        ]
        await self._engine.bulk_operations.finish(claim, "done", result={"ok": not found, "violations": violations})
        return 1

    async def _export(self, claim: Claim) -> int:
        """Write a local file first, and store it when it is complete, so that a partial export is never visible."""
        operation = claim.operation
        form = operation.arguments["format"]
        store = self._engine.artifacts.store
        await self._engine.bulk_operations.restart(claim, has_file=True)
        with tempfile.TemporaryFile() as file:
            if form == "csv":
                await asyncio.to_thread(file.write, row_text(COLUMNS))
            rows = 0
            async for page in self._pages(claim):
                for start in range(0, len(page), _CHUNK):
                    text = await self._text(form, page[start : start + _CHUNK])
                    rows += text.count(b"\n") if form == "ndjson" else len(page[start : start + _CHUNK])
                    await asyncio.to_thread(file.write, text)
                if file.tell() > SIZE_MAX:
                    raise TooLargeError(
                        f"The file is larger than {SIZE_MAX:,} bytes.",
                        limit=SIZE_MAX,
                        hint="Export the jobs in parts, by since and until.",
                    )
                await self._engine.bulk_operations.save(claim, len(page), 0, ())
            size = file.tell()
            place = operations.path(operation.operation_id, form)
            await store.write(place, _pieces(file), content_type=operations.CONTENT_TYPES[form])
        result = {"name": operations.filename(operation), "size": size, "rows": rows}
        await self._engine.bulk_operations.finish(claim, "done", result=result)
        return rows

    async def _pages(self, claim: Claim) -> AsyncGenerator[list[JobSummary]]:
        """The pages of matching jobs. The start of the walk stays stored, so a process that takes over starts again."""
        before = claim.operation.place
        while True:
            await self._check(claim)
            page = await self._page(claim.operation.sought, before, PAGE)
            seen = dict.fromkeys((job.job_id for job in page.data), 0)
            await self._engine.bulk_operations.begin(claim, seen, claim.operation.place, page.examined)
            yield page.data
            if page.before is None:
                return
            before = page.before

    async def _text(self, form: str, some: Sequence[JobSummary]) -> bytes:
        """The lines of some jobs in the file. Jobs that no longer exist are left out."""
        if form == "csv":
            return b"".join(row_text(cells(job)) for job in some)
        found = await asyncio.gather(
            *(self._engine.views.job(job.tenant, None, job.job_id) for job in some), return_exceptions=True
        )
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, NotFoundError):
                raise one
        return b"".join(self._export_line(one) for one in found if not isinstance(one, BaseException))


_LIVE: Final = "The job had not ended yet."
_GONE: Final = (0, None)
_FAULT: Final = "The server failed; see its log for details."


def _retry_key(job: JobSummary, end: int) -> str:
    """The idempotency key of a retry. All bulk operations use the same, so each end of a job is retried only once."""
    return f"bulk:retry:{job.id}:{end}"


def cells(job: JobSummary) -> Iterable[Any]:
    """A job as a row, with the columns of a list."""
    return (job.id if name == "id" else getattr(job, name) for name in COLUMNS)


def row_text(values: Iterable[Any]) -> bytes:
    """A row of a CSV file. What a spreadsheet would run as a formula is made text, as it may come from any user."""
    out = io.StringIO()
    csv.writer(out).writerow([_cell(value) for value in values])
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    match value:
        case str():
            return f"'{value}" if value.lstrip(" ").startswith(_FORMULA) else value
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat()
        case _:
            return value


async def _pieces(file: Any) -> AsyncIterator[bytes]:
    await asyncio.to_thread(file.seek, 0)
    while piece := await asyncio.to_thread(file.read, _PIECE):
        yield piece
