"""The steward: sees to errands. What is done to each job goes on in small batches, one at a time, errands in turn.

After each batch it pauses for as long as that took, so errands never have more than half of one connection, however
many jobs they are about. What a batch is about is written down before it begins: whoever takes over after a kill knows
which of its jobs were acted on, and acts on the others where they still fit what was asked for.
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

import msgspec

from millpond import ids, logs, wire
from millpond.engine import errands, views
from millpond.engine.errands import ACTS, READS, LostError
from millpond.engine.ledger import Seen
from millpond.engine.lines import FIRST, Sought
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

    from millpond.engine.engine import Engine
    from millpond.engine.errands import ErrandRecord, Hold
    from millpond.engine.lines import Line, LinePage

    Act = Callable[[ErrandRecord, Line, int], Awaitable[None]]

BATCH: Final = 50
"""How many jobs are acted on between two writes of how far it has come."""
PAGE: Final = 500
LEASE: Final = timedelta(seconds=30)
"""After how long an errand of a process that died is taken over."""
EVERY: Final = timedelta(seconds=1)
REASONS_MAX: Final = 50
"""How many different refusals are told apart."""
VIOLATIONS_MAX: Final = 1_000
_HOLDS: Final = 3  # times within a lease that it is held on to
_PAUSE_MAX: Final = 1.0
_PIECE: Final = 1024 * 1024
_CHUNK: Final = 50  # jobs whose whole text is in memory at once
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")  # noqa: RUF001 - spreadsheets take these for signs too
COLUMNS: Final = wire.JobLine.__struct_fields__


class AbortedError(Exception):
    """It was told to stop."""


class RefusedError(Exception):
    """An errand does not do to a job what the verb alone would."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class Tally:
    """What came of some jobs, refusals by their code."""

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


class Steward:
    """Sees to the errands of one engine. Any number may, side by side."""

    name = "steward"

    def __init__(
        self,
        engine: Engine,
        *,
        grace: timedelta = timedelta(seconds=30),
        lease: timedelta = LEASE,
        every: timedelta = EVERY,
        batch: int = BATCH,
    ) -> None:
        self._engine = engine
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
        """What acts on jobs and what only reads go side by side: a long export keeps nobody waiting."""
        lanes = [Service(self.name, self._every, self.act), Service(self.name, self._every, self.read)]
        tasks = [asyncio.create_task(lane.run(stop)) for lane in lanes]
        try:
            await stop.wait()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def act(self) -> int:
        """Batch after batch, of the errand whose turn it is, until there is nothing to do; tells how many jobs."""
        done = 0
        while (hold := await self._engine.errands.take(ACTS, self._lease)) is not None:
            began = time.monotonic()
            done += await self._see_to(hold, self._act_once)
            await asyncio.sleep(min(_PAUSE_MAX, time.monotonic() - began))
        return done

    async def read(self) -> int:
        """Exports and verifications, one after the other."""
        done = 0
        while (hold := await self._engine.errands.take(READS, self._lease)) is not None:
            done += await self._see_to(hold, self._export if hold.errand.action == "export" else self._verify)
        return done

    async def _see_to(self, hold: Hold, work: Callable[[Hold], Awaitable[int]]) -> int:
        """Work at an errand while it is held; whatever stops it, it is not lost."""
        holding = asyncio.create_task(self._hold(hold))
        try:
            await self._check(hold)
            return await work(hold)
        except AbortedError:
            await self._engine.errands.finish(hold, "aborted")
            return 0
        except LostError:
            return 0
        except UnavailableError:
            await self._let_go(hold)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the errand says so
            if not isinstance(error, MillpondError):
                logs.emit("service.failed", service=self.name, error=f"{type(error).__name__}: {error}")
            told = error.as_dict() if isinstance(error, MillpondError) else {"code": "error", "message": _FAULT}
            with contextlib.suppress(LostError):
                await self._engine.errands.finish(hold, "failed", error=told)
            return 0
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(hold))
            raise
        finally:
            holding.cancel()

    async def _check(self, hold: Hold) -> None:
        if await self._engine.errands.glance(hold):
            raise AbortedError

    async def _let_go(self, hold: Hold) -> None:
        """So that another need not wait for the lease to run out."""
        with contextlib.suppress(LostError, MillpondError):
            await self._engine.errands.release(hold)

    async def _hold(self, hold: Hold) -> None:
        while True:
            await asyncio.sleep(self._lease.total_seconds() / _HOLDS)
            with contextlib.suppress(LostError, MillpondError):
                await self._engine.errands.hold(hold, self._lease)

    # What is done to each job

    async def _act_once(self, hold: Hold) -> int:
        """One batch; then the errand is over, or it is the next one's turn."""
        errand = hold.errand
        place = errand.place
        tally = Tally(refusals={refusal.code: refusal for refusal in errand.refusals})
        if errand.in_hand is not None:
            seen = dict(zip(errand.in_hand, errand.ends or (), strict=True))
            batch = await self._left(errand, seen, tally)
        elif place == FIRST:
            batch, seen = [], {}
        else:
            page = await self._page(errand.sought, place, self._batch)
            batch, place = page.data, page.before or FIRST
            seen = await self._engine.errands.ends(batch)
            batch = [line for line in batch if line.job_id in seen]
            await self._engine.errands.begin(hold, seen, place, page.looked)
        is_aborting = await self._apply(hold, batch, seen, tally)
        await self._engine.errands.save(hold, tally.done, tally.refused, list(tally.refusals.values()))
        if is_aborting:
            raise AbortedError
        if place == FIRST:
            await self._engine.errands.finish(hold, "done")
        else:
            await self._engine.errands.release(hold)
        return len(seen)

    async def _left(self, errand: ErrandRecord, seen: Mapping[UUID, int], tally: Tally) -> list[Line]:
        """What is left of a batch that another began. Those that were acted on, or have changed since, are counted."""
        job_ids, most = tuple(seen), len(seen) or 1
        known = {line.job_id: line for line in (await self._page(Sought(job_ids=job_ids), None, most)).data}
        fitting = await self._page(replace(errand.sought, job_ids=job_ids), None, most)
        runs = await self._engine.errands.runs(known.values())
        fit = {line.job_id for line in fitting.data}
        left: list[Line] = []
        for job_id, end in seen.items():
            line, (run, _) = known.get(job_id), runs.get(job_id, _GONE)
            if line is not None and await self._was_done(errand, line, end, run):
                tally.done += 1
            elif line is not None and job_id in fit and end in {0, run}:
                left.append(line)
            else:
                tally.refuse(job_id, "changed", "It no longer fits what was asked for.")
        return left

    async def _was_done(self, errand: ErrandRecord, line: Line, end: int, run: int) -> bool:
        """Whether a job was acted on before somebody else took over."""
        match errand.action:
            case "retry" if end:
                return run > end or await self._engine.errands.was_retried(errand, line, _retry_key(line, end))
            case "cancel":
                return not end and (line.is_canceling or line.outcome == "canceled")
            case "priority":
                return not end and line.priority == errand.arguments["priority"]
            case "refund" if await self._engine.errands.was_refunded(line, Seen(errand.id, end).reference(line.id)):
                await self._refund(errand, line, end)  # it may have come no further than that: its audit is written now
                return True
            case _:
                return False

    async def _apply(self, hold: Hold, batch: Sequence[Line], seen: Mapping[UUID, int], tally: Tally) -> bool:
        """Act on each job; tells whether it must stop."""
        act = self._acts[hold.errand.action]
        for line in batch:
            if await self._engine.errands.glance(hold):
                return True
            try:
                await act(hold.errand, line, seen[line.job_id])
                tally.done += 1
            except UnavailableError:
                raise
            except (MillpondError, RefusedError) as error:
                tally.refuse(line.job_id, error.code, error.message)
        return False

    async def _retry(self, errand: ErrandRecord, line: Line, end: int) -> None:
        if not end:
            raise RetryUnavailableError(_LIVE)
        kind = self._engine.app.kinds.get(line.kind)
        if kind is not None and not kind.is_open:
            raise ForbiddenError(f"Jobs of kind {line.kind!r} are made by their own product alone.")
        if kind is None or not any(move.moment == "retried" for move in kind.lifecycle.moves):
            key = _retry_key(line, end)
            try:
                await self._engine.retry(line.tenant, line.job_id, idempotency_key=key, errand=errand.id)
            except IdempotencyConflictError:
                raise RefusedError("retried", "It was retried before, by another errand.") from None
        else:
            await self._engine.retry(line.tenant, line.job_id)

    async def _cancel(self, errand: ErrandRecord, line: Line, end: int) -> None:
        del errand, end
        answer = await self._engine.cancel(line.tenant, line.job_id, grace=self._grace)
        if not answer.is_accepted:
            raise CancelUnavailableError(f"It had ended before: it is {answer.state!r}.")

    async def _refund(self, errand: ErrandRecord, line: Line, end: int) -> None:
        if not end:
            raise RefundUnavailableError(_LIVE)
        given: dict[str, Any] = {"reason": errand.arguments["reason"], "actor": errand.actor}
        await self._engine.refund(line.tenant, line.job_id, seen=Seen(errand.id, end), **given)

    async def _prioritize(self, errand: ErrandRecord, line: Line, end: int) -> None:
        del end
        priority = errand.arguments["priority"]
        told = await self._engine.prioritize(line.tenant, line.job_id, priority)
        if told.is_changed:
            await self._engine.access.audit(
                errand.actor,
                "job.prioritized",
                tenant=line.tenant,
                subject=line.id,
                data={"from": told.before, "to": priority, "errand": errand.id},
            )

    async def _page(self, sought: Sought, before: Any, limit: int) -> LinePage:
        return await self._engine.lines.page(sought, before=before, limit=limit, is_whole=True)

    # What is read

    async def _verify(self, hold: Hold) -> int:
        errand = hold.errand
        since = errand.sought.low
        newest = None if since == FIRST else errand.created_at - ids.born(since)
        found = await self._engine.verify(newest=newest)
        told = [
            wire.Violation(
                invariant=one.invariant,
                subject=one.subject,
                job_id=None if one.job_id is None else ids.text("job", one.job_id),
                detail=one.detail,
            )
            for one in found[:VIOLATIONS_MAX]
        ]
        await self._engine.errands.finish(hold, "done", result={"ok": not found, "violations": told})
        return 1

    async def _export(self, hold: Hold) -> int:
        """Written to a file here, and put into storage whole: nobody ever sees half of one."""
        errand = hold.errand
        form = errand.arguments["format"]
        store = self._engine.artifacts.store
        await self._engine.errands.restart(hold, has_file=True)
        with tempfile.TemporaryFile() as file:
            if form == "csv":
                await asyncio.to_thread(file.write, row_text(COLUMNS))
            rows = 0
            async for page in self._pages(hold):
                for start in range(0, len(page), _CHUNK):
                    text = await self._text(form, page[start : start + _CHUNK])
                    rows += text.count(b"\n") if form == "ndjson" else len(page[start : start + _CHUNK])
                    await asyncio.to_thread(file.write, text)
                if file.tell() > SIZE_MAX:
                    raise TooLargeError(
                        f"It has more than {SIZE_MAX:,} bytes.",
                        limit=SIZE_MAX,
                        hint="Export it in parts, by since and until.",
                    )
                await self._engine.errands.save(hold, len(page), 0, ())
            size = file.tell()
            place = errands.path(errand.errand_id, form)
            await store.write(place, _pieces(file), content_type=errands.CONTENT_TYPES[form])
        told = {"name": errands.filename(errand), "size": size, "rows": rows}
        await self._engine.errands.finish(hold, "done", result=told)
        return rows

    async def _pages(self, hold: Hold) -> AsyncGenerator[list[Line]]:
        """What fits, from where the walk begins: that place is kept, for whoever takes over begins there again."""
        before = hold.errand.place
        while True:
            await self._check(hold)
            page = await self._page(hold.errand.sought, before, PAGE)
            seen = dict.fromkeys((line.job_id for line in page.data), 0)
            await self._engine.errands.begin(hold, seen, hold.errand.place, page.looked)
            yield page.data
            if page.before is None:
                return
            before = page.before

    async def _text(self, form: str, some: Sequence[Line]) -> bytes:
        """Jobs as a file has them. One that is gone by now is left out."""
        if form == "csv":
            return b"".join(row_text(cells(line)) for line in some)
        found = await asyncio.gather(
            *(self._engine.views.job(line.tenant, None, line.job_id) for line in some), return_exceptions=True
        )
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, NotFoundError):
                raise one
        told = (views.told(one) for one in found if not isinstance(one, BaseException))
        return b"".join(msgspec.json.encode(one) + b"\n" for one in told)


_LIVE: Final = "It had not ended when the errand came to it."
_GONE: Final = (0, None)
_FAULT: Final = "It met a fault of ours; the server's log tells more."


def steward(engine: Engine, *, grace: timedelta = timedelta(seconds=30)) -> Steward:
    return Steward(engine, grace=grace)


def _retry_key(line: Line, end: int) -> str:
    """What a retry is known by, whichever errand makes it: each end of a job is retried by one."""
    return f"errand:retry:{line.id}:{end}"


def cells(line: Line) -> Iterable[Any]:
    """A job as a row, its columns those of a list."""
    return (line.id if name == "id" else getattr(line, name) for name in COLUMNS)


def row_text(values: Iterable[Any]) -> bytes:
    """A row of a table. What a spreadsheet would take for a formula is made text: it may come from anybody."""
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
