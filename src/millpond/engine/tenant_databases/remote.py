"""Remote tenants: the verbs for a tenant with a database of its own, each in two transactions.

Most tenants are in the database of the queue, and a verb is one transaction. A tenant with a database of its own has
its jobs and credits there; its dispatches stay in central. Then a verb is two transactions, and this is the protocol:

1. Central's transaction begins first. The dispatches that it locks are the fence: no other verb can touch these jobs.
2. The tenant's begins within it. Both must be in step: each job is where its dispatch says it is.
3. Each does its half. Then the tenant commits, and then central.

So a process that dies leaves both as they were, or the job one verb ahead of its dispatch, and never behind it. A verb
that finds them out of step mends that first: the dispatch follows the job (`RemoteExecutor.mend`). A new job has no
dispatch to lock: the tenant commits it with a row in `owed`, and the ensurer makes the dispatches that stay owed.

No verb waits for a lock of central while it holds locks that another holder of central's locks may need: dispatches are
locked before jobs, and jobs before accounts, across both databases. So there are no deadlocks that neither server sees.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import logs
from millpond.engine.composition import batches, steps
from millpond.engine.jobs.jobs import GRACE
from millpond.engine.jobs.jobs import SQL as JOBS
from millpond.engine.queue import dispatches, leases
from millpond.errors import BusyError, MillpondError, StoreError, UnavailableError
from millpond.store.db import AgainError, fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.engine.jobs.jobs import Submission, Submitted
    from millpond.engine.tenant_databases.databases import RemoteDatabase, TenantDatabases
    from millpond.store.db import Connection, Database, Row
    from millpond.store.queries import NamedQuery

    Work = Callable[[Connection, Connection], Awaitable[Any]]

SQL: Final = queries("millpond.engine.tenant_databases", "remote")

_TRIES: Final = 5
_FIRST: Final = UUID(int=0)
_REPAIR: Final = '{"cause": "repair"}'
_NO_PLACE: Final[Mapping[str, Any]] = {"phase": None, "is_asked": False, "is_waited_for": False}
_PLACE: Final = ("phase", "epoch", "attempts", "is_asked", "rank")


class DispatchMismatchError(StoreError):
    """A job is not where its dispatch says."""

    def __init__(self, job_ids: Sequence[UUID]) -> None:
        super().__init__()
        self.job_ids = job_ids


class RemoteExecutor:
    """Runs the verbs of the tenants of one remote database: the same verbs, in two transactions."""

    def __init__(self, central: Database, database: RemoteDatabase) -> None:
        self.central = central
        self.database = database
        self._paid: list[UUID] = []
        self._paying: asyncio.Task[None] | None = None
        self._seen = [_FIRST, _FIRST]

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        """Run a verb in two halves, or only in the tenant's database if it needs no other."""
        verb = _VERBS.get(query.name)
        return await (self.database.run(query, *arguments) if verb is None else verb(self, *arguments))

    async def close(self) -> None:
        if self._paying is not None:
            await self._paying

    # The protocol

    async def both(self, work: Work) -> Any:
        """Run a verb's work in both transactions; first mend what is out of step."""
        for left in reversed(range(_TRIES)):
            try:
                # Connections are taken in the order in which claims take them: central's, then the tenant's. The
                # tenant's database is reached before anything is locked. The inner block ends first: the tenant
                # commits first.
                async with self.central.transaction() as central, self.database.transaction() as own:
                    return await work(central, own)
            except AgainError:
                if not left:
                    raise
            except DispatchMismatchError as error:
                if not left:
                    raise BusyError from error
                await self.mend(error.job_ids)
        raise AssertionError

    async def mend(self, job_ids: Sequence[UUID]) -> set[str]:
        """Update the dispatches of jobs to the state of the jobs; return the queues that have grown.

        The one exception is a claim that central does not know: it is undone, because no worker has received it.
        """
        grown: set[str] = set()

        async def work(central: Connection, own: Connection) -> None:
            queued = _by_id(await fetch(central, SQL["fence"], job_ids, self.database.tenants))
            jobs = _by_id(await fetch(own, SQL["truth"], job_ids, self.database.tenants))
            absent = [job_id for job_id in jobs if job_id not in queued]
            if absent and await fetch(central, SQL["dispatched"], absent):
                raise AgainError("A dispatch was created while the job was being locked.")
            await _take_claims_back(own, jobs, queued)
            live = {job_id: job for job_id, job in jobs.items() if job["phase"] != "ended"}
            missing = [
                job | {"run_at": job["until"]} if job["phase"] == "parked" else job
                for job_id, job in live.items()
                if job_id not in queued
            ]
            behind = [live[key] for key in live.keys() & queued.keys() if not _agree(live[key], queued[key])]
            over = [job_id for job_id in queued if job_id not in live]
            grown.update(await _ensure(partial(fetch, central), missing) if missing else ())
            grown.update(await _follow(central, behind) if behind else ())
            if over:
                await fetch(central, SQL["discard"], over)
            for job_id in (*over, *(job["job_id"] for job in (*missing, *behind))):
                logs.emit("tenant_database.repaired", job_id=job_id)

        await self.both(work)
        return grown

    async def _fence(self, central: Connection, own: Connection, job_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Lock jobs in both databases, and check that they are in step."""
        queued = _by_id(await fetch(central, SQL["fence"], job_ids, self.database.tenants))
        nowhere: dict[str, Any] = {"phase": None, "epoch": None}
        await _step(own, {job_id: queued.get(job_id, nowhere) for job_id in job_ids})
        return queued

    async def _one(
        self,
        job_id: UUID,
        job_half: Callable[[Mapping[str, Any]], tuple[Any, ...]],
        dispatch_half: Callable[[Row], tuple[Any, ...]],
        verdicts: Collection[str] | None = None,
    ) -> Row:
        """Run a verb on one job: the tenant's half, then central's, if it follows the verdict.

        Each half is a statement with its arguments: the tenant's depends on the dispatch, central's on the answer.
        """

        async def work(central: Connection, own: Connection) -> Row:
            place = (await self._fence(central, own, [job_id])).get(job_id, _NO_PLACE)
            row = await fetch(own, *job_half(place))
            if verdicts is None or row["verdict"] in verdicts:
                await fetch(central, *dispatch_half(row))
            return row

        return await self.both(work)

    async def _held(
        self,
        job_ids: Sequence[UUID],
        dispatch_half: tuple[Any, ...],
        job_half: Callable[[Connection, list[UUID]], Awaitable[list[dict[str, Any]]]],
    ) -> list[dict[str, Any]]:
        """Run a verb on held jobs: central's half, then the tenant's for the jobs that it returns, if any."""

        async def work(central: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(central, own, job_ids)
            held = {row["job_id"] for row in await fetch(central, *dispatch_half)}
            kept = [job_id for job_id in dict.fromkeys(job_ids) if job_id in held]
            return await job_half(own, kept) if kept else []

        return await self.both(work)

    # Clients

    async def submit(self, _is_remote: bool, *columns: Any) -> Row:  # noqa: FBT001 - the columns of its statement
        """The tenant's half; `dispatch` is central's."""
        return await self.database.run(JOBS["submit"], True, *columns)  # noqa: FBT003

    async def dispatch(
        self, items: Sequence[Submission], answers: Sequence[Submitted | Exception]
    ) -> list[Submitted | Exception]:
        """Queue jobs that were just submitted; what the queue rejects is undone in the tenant's database.

        If central cannot be reached, the ensurer queues them later: they are submitted all the same.
        """
        accepted = {
            item.job_id: (item, answer)
            for item, answer in zip(items, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        fresh = [(item, answer) for item, answer in accepted.values() if not answer.is_replay]
        refused: dict[UUID, Exception] = {}
        with _or_later():
            refused = await self._enqueue(fresh)
            await self.restore([answer.job_id for _, answer in accepted.values() if answer.is_replay])
        return [refused.get(item.job_id, answer) for item, answer in zip(items, answers, strict=True)]

    async def _enqueue(self, fresh: Sequence[tuple[Submission, Submitted]]) -> dict[UUID, Exception]:
        if not fresh:
            return {}
        job_ids = [item.job_id for item, _ in fresh]
        try:
            limits = await self._limits_of([item for item, _ in fresh])
            made = [_new_dispatch(item, answer, limits.get(item.job_id)) for item, answer in fresh]
            await _ensure(self.central.run, made)
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - after any error the jobs are not queued
            if len(fresh) == 1:
                await self._refuse(job_ids, error)
                return {job_ids[0]: error}
            refused: dict[UUID, Exception] = {}
            for one in fresh:
                refused |= await self._enqueue([one])
            return refused
        self._pay_later(job_ids)
        return {}

    async def _limits_of(self, items: Sequence[Submission]) -> dict[UUID, str]:
        """The keys of those jobs that have limits by input or tags, which central does not know."""
        limited = [item.job_id for item in items if item.is_limited]
        if not limited:
            return {}
        return {row["job_id"]: row["limits"] for row in await self.database.run(SQL["limit_keys"], limited)}

    async def _refuse(self, job_ids: Sequence[UUID], error: Exception) -> None:
        """End jobs that will never be dispatched: they fail, and their holds are released."""
        known = error if isinstance(error, MillpondError) else StoreError("The job could not be queued.")
        async with self.database.transaction() as own:
            for row in await fetch(own, SQL["refused"], job_ids):
                reason = msgspec.json.encode(known.as_dict()).decode()
                await _transition(own, row["event"], "ended", [row["job_id"]], errors=[reason])
            await fetch(own, SQL["paid"], job_ids)

    async def restore(self, job_ids: Sequence[UUID]) -> set[str]:
        """Make the dispatches of those jobs that are still owed one; return the queues that have grown."""
        with _or_later():
            owing = [row["job_id"] for row in await self.database.run(SQL["owing"], job_ids)] if job_ids else []
            return await self.pay(owing) if owing else set()
        return set()

    async def pay(self, job_ids: Sequence[UUID]) -> set[str]:
        """Make the dispatches that are owed; return the queues that have grown."""
        grown = await self.mend(job_ids)
        await self.database.run(SQL["paid"], job_ids)
        return grown

    def _pay_later(self, job_ids: Sequence[UUID]) -> None:
        """Delete the rows in ``owed`` in the background: whatever finds one meanwhile finds the dispatch too."""
        self._paid += job_ids
        if self._paying is None or self._paying.done():
            self._paying = asyncio.create_task(self._settle_debts())

    async def _settle_debts(self) -> None:
        with contextlib.suppress(MillpondError):  # The ensurer does it later.
            while self._paid:
                paid, self._paid = self._paid, []
                await self.database.run(SQL["paid"], paid)

    async def cancel(self, tenant: str, job_id: UUID, grace: timedelta) -> Row:
        return await self._one(
            job_id,
            lambda place: (SQL["cancel_job"], tenant, job_id, place["phase"], place["is_asked"]),
            lambda row: (SQL["cancel_dispatch"], job_id, row["verdict"], grace),
        )

    async def cancel_unstarted(self, job_ids: Sequence[UUID]) -> list[Row]:
        async def work(central: Connection, own: Connection) -> list[Row]:
            queued = await self._fence(central, own, job_ids)
            idle = [job_id for job_id, place in queued.items() if place["phase"] != "leased"]
            ended: list[Row] = await fetch(own, SQL["cancel_jobs"], idle) if idle else []
            if ended:
                await fetch(central, SQL["discard"], [row["job_id"] for row in ended])
            return ended

        return await self.both(work)

    async def prioritize(self, tenant: str, job_id: UUID, priority: int) -> Row:
        return await self._one(
            job_id,
            lambda place: (SQL["prioritize_job"], tenant, job_id, priority, place["phase"]),
            lambda _: (SQL["prioritize_dispatch"], job_id, priority),
            {"changed", "same"},
        )

    async def answer(self, tenant: str, job_id: UUID, answer: str) -> Row:
        return await self._one(
            job_id,
            lambda place: (SQL["answer_job"], tenant, job_id, answer, place["is_waited_for"]),
            lambda _: (SQL["make_ready"], [job_id]),
            {"answered"},
        )

    async def transition_to(self, tenant: str, job_id: UUID, state: str) -> Row:
        return await self._one(
            job_id,
            lambda place: (
                SQL["transition_job_to"],
                tenant,
                job_id,
                state,
                place["phase"] is not None,
                place["is_asked"],
            ),
            lambda row: (SQL["transition_dispatch_to"], job_id, row["phase"], row["forgets"]),
            {"transitioned"},
        )

    async def refund(  # noqa: PLR0917 - the columns of its statement
        self, tenant: str, job_id: UUID, amount: int | None, key: str | None, reason: str, actor: str, run: int | None
    ) -> Row:
        """A job that has ended has no dispatch, so central's half is only the audit.

        A repeated request writes it too: the process of the first one may have died between the two commits.
        """

        async def work(central: Connection, own: Connection) -> Row:
            row = await fetch(own, SQL["refund_job"], tenant, job_id, amount, key, reason, run)
            if row["verdict"] in {"posted", "repeated"}:
                details = (row["given"], row["why"], row["reference"], row["at"])
                await fetch(central, SQL["audit_refunded"], actor, tenant, job_id, *details)
            return row

        return await self.both(work)

    async def revive(self, tenant: str, job_id: UUID, lifetime: timedelta | None) -> Row:
        async def work(central: Connection, own: Connection) -> Row:
            await self._fence(central, own, [job_id])
            row = await fetch(own, SQL["revive_job"], tenant, job_id, lifetime)
            if row["verdict"] == "revived":
                await fetch(own, SQL["owe"], row["revived_at"], [job_id])
            return row

        row = await self.both(work)
        if row["verdict"] == "revived":
            with _or_later():
                await self.pay([job_id])
        return row

    # Workers

    async def start(self, rows: Sequence[Row], room: int | None) -> list[dict[str, Any]]:
        """The tenant's half of a claim, committed: returns what its database knows of the claimed jobs.

        If there is a ``room``, jobs are started up to the one with which their JSON has reached this size.
        """
        async with self.database.transaction() as own:
            await _step(own, {row["job_id"]: {"phase": "ready", "epoch": row["epoch"] - 1} for row in rows})
            if room is not None:
                columns = [row["job_id"] for row in rows], [row["turn"] for row in rows]
                fitting = {row["job_id"] for row in await fetch(own, SQL["fitting_jobs"], *columns, room)}
                rows = [row for row in rows if row["job_id"] in fitting]
            job_ids = [row["job_id"] for row in rows]
            transitioned = await _transition(own, "started", "leased", job_ids, epochs=[row["epoch"] for row in rows])
        claimed = {row["job_id"]: {name: row[name] for name in ("token", "rank", "turn")} for row in rows}
        return [row | claimed[row["job_id"]] for row in transitioned]

    async def finish(  # noqa: PLR0917 - the columns of its statement
        self,
        outcome: str,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        outputs: Sequence[Any],
        errors: Sequence[Any] | None,
        captures: Sequence[Any] | None,
        origins: Any,
    ) -> list[dict[str, Any]]:
        _check_apart(job_ids)

        given = zip(job_ids, outputs, _or_none(errors, job_ids), _or_none(captures, job_ids), strict=True)
        end_of = {job_id: rest for job_id, *rest in given}

        async def end(own: Connection, held: list[UUID]) -> list[dict[str, Any]]:
            outputs_, errors_, captures_ = map(list, zip(*(end_of[job_id] for job_id in held), strict=True))
            return await _transition(own, outcome, "ended", held, outputs=outputs_, errors=errors_, captures=captures_)

        return await self._held(job_ids, (SQL["withdraw"], outcome, job_ids, tokens, origins), end)

    async def deliver(
        self,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        outputs: Sequence[Any],
        captures: Sequence[Any] | None,
        origins: Sequence[Any] | None,
    ) -> list[dict[str, Any]]:
        """Jobs whose end depends on a delivery are now delivering; the others have succeeded, which is another verb."""
        _check_apart(job_ids)
        given = zip(job_ids, tokens, outputs, _or_none(captures, job_ids), _or_none(origins, job_ids), strict=True)
        waiting = set((await self.database.run(SQL["deciding"], job_ids))["job_ids"])
        ends = [end for end in given if end[0] not in waiting]
        transitioned: list[dict[str, Any]] = []
        if ends:
            ids, held, outputs_, captured, origins_ = map(list, zip(*ends, strict=True))
            ended = await self.finish("succeeded", ids, held, outputs_, None, captured, origins_ if origins else None)
            transitioned += [row | {"is_ended": True} for row in ended]

        async def deliver(own: Connection, held: list[UUID]) -> list[dict[str, Any]]:
            given = zip(job_ids, outputs, _or_none(captures, job_ids), strict=True)
            columns = map(list, zip(*(item for item in given if item[0] in set(held)), strict=True))
            return [dict(row) for row in await fetch(own, SQL["deliver_jobs"], *columns)]

        if waiting:
            half = (SQL["start_delivery"], job_ids, tokens, origins, list(waiting))
            delivering = await self._held(list(waiting), half, deliver)
            transitioned += [row | {"is_ended": False} for row in delivering]
        return transitioned

    async def conclude(self, outcome: str, job_ids: Sequence[UUID]) -> list[dict[str, Any]]:
        async def conclude(own: Connection, out: list[UUID]) -> list[dict[str, Any]]:
            return [dict(row) for row in await fetch(own, SQL["conclude_jobs"], outcome, out)]

        return await self._held(job_ids, (SQL["end_delivery"], job_ids), conclude)

    async def requeue(  # noqa: PLR0917 - the columns of its statement
        self,
        cause: str,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        delays: Any,
        errors: Sequence[str],
        origins: Any,
        *,
        is_by_worker: bool = True,
    ) -> list[dict[str, Any]]:
        _check_apart(job_ids)
        error_of = dict(zip(job_ids, errors, strict=True))

        async def work(central: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(central, own, job_ids)
            fates = await fetch(
                central, SQL["give_back"], cause, is_by_worker, job_ids, tokens, delays, origins, errors
            )
            transitioned: list[dict[str, Any]] = []
            for fate, phase in sorted({(row["fate"], row["phase"]) for row in fates}):
                group = [row for row in fates if (row["fate"], row["phase"]) == (fate, phase)]
                rows = await _transition(
                    own,
                    fate,
                    phase if fate == "requeued" else "ended",
                    [row["job_id"] for row in group],
                    attempts=[row["attempts"] for row in group],
                    errors=[error_of[row["job_id"]] for row in group],
                    notes=[row["note"] for row in group],
                )
                transitioned += [row | {"fate": fate} for row in rows]
            return transitioned

        return await self.both(work)

    async def park(
        self, job_ids: Sequence[UUID], tokens: Sequence[UUID], memos: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        memo_of = dict(zip(job_ids, memos, strict=True))

        async def park(own: Connection, held: list[UUID]) -> list[dict[str, Any]]:
            return await _transition(own, "parked", "parked", held, memos=[memo_of[job_id] for job_id in held])

        return await self._held(job_ids, (SQL["park_dispatches"], job_ids, tokens, None), park)

    async def suspend(
        self,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        names: Sequence[str],
        untils: Sequence[datetime | None],
    ) -> list[dict[str, Any]]:
        async def suspend(own: Connection, held: list[UUID]) -> list[dict[str, Any]]:
            return [dict(row) for row in await fetch(own, steps.SQL["suspend_jobs"], held, job_ids, names)]

        parked = await self._held(job_ids, (SQL["park_dispatches"], job_ids, tokens, untils), suspend)
        await self.restore([row["job_id"] for row in parked if row["is_resumed"]])
        return parked

    async def spawn(self, *arguments: Any) -> Row:
        """The tenant's half: the job that its worker holds is locked there. `dispatch` is central's."""
        before, after = arguments[: batches.IS_REMOTE], arguments[batches.IS_REMOTE + 1 :]
        return await self.database.run(batches.SQL["spawn"], *before, True, *after)  # noqa: FBT003 - as in `submit`

    async def proceed(
        self,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        memos: Sequence[str | None],
        answers: Sequence[str],
    ) -> list[dict[str, Any]]:
        async def proceed(own: Connection, held: list[UUID]) -> list[dict[str, Any]]:
            return [dict(row) for row in await fetch(own, SQL["proceed_jobs"], held, job_ids, memos, answers)]

        return await self._held(job_ids, (SQL["keep"], job_ids, tokens), proceed)

    async def note(self, job_ids: Sequence[UUID], tokens: Sequence[UUID], *columns: Any) -> Sequence[Row]:
        """Central is only asked who holds the jobs: the epoch is fence enough, since a new lease has another."""
        epochs = await self._epochs(job_ids, tokens)
        return await self.database.run(SQL["note_jobs"], job_ids, tokens, epochs, *columns)

    async def emit(
        self, job_ids: Sequence[UUID], tokens: Sequence[UUID], numbers: Sequence[int], *columns: Any
    ) -> Sequence[Row]:
        """As for notes, central is only asked who holds the jobs."""
        epochs = await self._epochs(job_ids, tokens)
        return await self.database.run(SQL["emit_chunks"], job_ids, tokens, epochs, numbers, *columns)

    async def _epochs(self, job_ids: Sequence[UUID], tokens: Sequence[UUID]) -> list[int | None]:
        """The epoch of each lease that holds its job."""
        held = await self.central.run(SQL["held"], job_ids, tokens)
        epochs = {(row["job_id"], row["token"]): row["epoch"] for row in held}
        return [epochs.get(name) for name in zip(job_ids, tokens, strict=True)]

    # Services

    async def apply_due(self, event: str, limit: int) -> list[dict[str, Any]]:
        phase, half = ("ready", "make_ready") if event in {"queued", "resumed"} else ("ended", "discard")

        async def work(central: Connection, own: Connection) -> list[dict[str, Any]]:
            due = _by_id(await fetch(central, SQL["due"], event, self.database.tenants, limit))
            if not due:
                return []
            await _step(own, due)
            await fetch(central, SQL[half], list(due))
            return await _transition(own, event, phase, list(due))

        return await self.both(work)

    async def ensure(self, older: timedelta, limit: int) -> set[str]:
        """Make the dispatches that have been owed for this long; return the queues that have grown."""
        grown: set[str] = set()
        while owed := [row["job_id"] for row in await self.database.run(SQL["owed"], older, limit)]:
            grown |= await self.pay(owed)
        return grown

    async def sweep(self, limit: int) -> set[str]:
        """Check whether the next ``limit`` jobs and dispatches are in step, and mend those that are not."""
        dispatches_, self._seen[0] = await self._next(self.central, SQL["dispatches"], 0, limit, self.database.tenants)
        jobs_, self._seen[1] = await self._next(self.database, SQL["walk"], 1, limit)
        queued, walked = _by_id(dispatches_), [row["job_id"] for row in jobs_ if not row["is_ended"]]
        live = _by_id(await self.database.run(SQL["some"], list(queued))) if queued else {}
        known = {row["job_id"] for row in await self.central.run(SQL["dispatched"], walked)} if walked else set[UUID]()
        odd = {job_id for job_id in queued if job_id not in live or not _agree(live[job_id], queued[job_id])}
        odd.update(job_id for job_id in walked if job_id not in known)
        return await self.mend(sorted(odd)) if odd else set()

    async def _next(
        self, db: Database, query: NamedQuery, side: int, limit: int, *arguments: Any
    ) -> tuple[list[Row], UUID]:
        rows: list[Row] = await db.run(query, *arguments, self._seen[side], limit)
        return rows, rows[-1]["job_id"] if len(rows) == limit else _FIRST


_VERBS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "jobs.submit": RemoteExecutor.submit,
    "jobs.cancel": RemoteExecutor.cancel,
    "jobs.prioritize": RemoteExecutor.prioritize,
    "ledger.refund": RemoteExecutor.refund,
    "jobs.answer": RemoteExecutor.answer,
    "jobs.transition_to": RemoteExecutor.transition_to,
    "jobs.revive": RemoteExecutor.revive,
    "jobs.apply_due": RemoteExecutor.apply_due,
    "leases.finish": RemoteExecutor.finish,
    "deliveries.deliver": RemoteExecutor.deliver,
    "deliveries.conclude": RemoteExecutor.conclude,
    "leases.requeue": RemoteExecutor.requeue,
    "leases.park": RemoteExecutor.park,
    "leases.proceed": RemoteExecutor.proceed,
    "steps.suspend": RemoteExecutor.suspend,
    "batches.spawn": RemoteExecutor.spawn,
    "client_batches.cancel_unstarted": RemoteExecutor.cancel_unstarted,
    "leases.note": RemoteExecutor.note,
    "chunks.emit": RemoteExecutor.emit,
}
"""Verbs by the name of their single statement, with the methods that run them in two halves."""


class AllDatabasesExecutor:
    """Runs verbs about all jobs: those of central in one transaction, those of each remote database in two."""

    def __init__(self, tenant_databases: TenantDatabases) -> None:
        self._tenant_databases = tenant_databases
        self._central = tenant_databases.central

    async def run(self, query: NamedQuery, *arguments: Any) -> Any:
        match query.name:
            case "leases.claim":
                return await self._claim(*arguments)
            case "leases.lapse":
                return [*await self._central.run(query, *arguments), *await self._lapse(*arguments)]
            case "leases.abandon":
                return await self._abandon(*arguments)
            case "jobs.apply_due":
                return [*await self._central.run(query, *arguments), *await self._each(query, *arguments)]
            case _:
                return await self._central.run(query, *arguments)

    def _executors(self) -> list[RemoteExecutor]:
        return [
            executor for executor in dict.fromkeys(self._tenant_databases.executors.values()) if executor.database.is_up
        ]

    async def _each(self, query: NamedQuery, *arguments: Any) -> list[Any]:
        found: list[Any] = []
        for executor in self._executors():
            with skip_unavailable():
                found += await executor.run(query, *arguments)
        return found

    async def _claim(self, *arguments: Any) -> list[Any]:
        """Lease in central, start in each remote database, commit. Jobs of a database that fails stay queued."""
        for left in reversed(range(_TRIES)):
            try:
                claimed, odd = await self._claim_once(*arguments)
            except AgainError:
                if not left:
                    raise
                continue
            for executor, job_ids in odd:
                try:
                    await executor.mend(job_ids)
                except Exception as error:  # noqa: BLE001 - the claimed jobs must be returned all the same
                    logs.emit("service.failed", service="tenant_databases", error=f"{type(error).__name__}: {error}")
            return claimed
        raise AssertionError

    async def _claim_once(self, *arguments: Any) -> tuple[list[Any], list[tuple[RemoteExecutor, Sequence[UUID]]]]:
        remote = [tenant for executor in self._executors() for tenant in executor.database.tenants]
        odd: list[tuple[RemoteExecutor, Sequence[UUID]]] = []
        *_, tokens, _, _, origins = arguments
        async with self._central.transaction() as central:
            rows: list[Any] = await fetch(central, SQL["claim"], *arguments, remote)
            strays = [row for row in rows if row["state"] is None and row["job_id"] is not None]
            claimed = [row for row in rows if row["state"] is not None or row["job_id"] is None]
            for executor, group in self._by_executor(strays):
                room = None if origins is None else leases.BYTES_MAX - leases.size(claimed)
                started: list[dict[str, Any]] = []
                try:
                    started = await executor.start(group, room)
                except (UnavailableError, AgainError):
                    pass
                except DispatchMismatchError as error:
                    odd.append((executor, error.job_ids))
                claimed += started
                job_ids = {row["job_id"] for row in started}
                if len(started) < len(group):
                    await fetch(
                        central, SQL["unlease"], [row["job_id"] for row in group if row["job_id"] not in job_ids]
                    )
                if origins is not None and started:
                    await fetch(central, SQL["audit_leased"], list(job_ids), tokens, origins)
        return claimed, odd

    async def _lapse(self, limit: int) -> list[Any]:
        down = [
            tenant for database in self._tenant_databases.remote if not database.is_up for tenant in database.tenants
        ]
        rows = await self._central.run(SQL["lapsed"], limit, down)
        taken = await self._take_back("lapse", [row for row in rows if row["job_id"] is not None], leases.LAPSED)
        await self._close({row["token"] for row in rows})
        return taken

    async def _abandon(self, token: UUID) -> list[Any]:
        rows = await self._central.run(SQL["held_by"], token)
        taken = await self._take_back("interruption", rows, leases.INTERRUPTED)
        await self._close({token})
        return taken

    async def _take_back(self, cause: str, rows: Sequence[Row], error: dict[str, str]) -> list[Any]:
        """Requeue jobs of leases; those of a database that cannot be reached stay until it can."""
        reason = msgspec.json.encode(error).decode()
        workers = {row["job_id"]: {"worker": row["worker"]} for row in rows}
        taken: list[Any] = []
        own = [row for row in rows if row["tenant"] not in self._tenant_databases.executors]
        if own:
            held = [row["job_id"] for row in own], [row["token"] for row in own]
            taken += await self._central.run(SQL["take_back"], cause, *held, [reason] * len(own))
        for executor, group in self._by_executor(
            row for row in rows if row["tenant"] in self._tenant_databases.executors
        ):
            held = [row["job_id"] for row in group], [row["token"] for row in group]
            with skip_unavailable():
                taken += await executor.requeue(cause, *held, None, [reason] * len(group), None, is_by_worker=False)
        return [dict(row) | workers[row["job_id"]] for row in taken]

    async def _close(self, tokens: set[UUID]) -> None:
        if tokens:
            await self._central.run(dispatches.SQL["close_leases"], list(tokens))

    def _by_executor(self, rows: Iterable[Row]) -> list[tuple[RemoteExecutor, list[Row]]]:
        groups: dict[RemoteExecutor, list[Row]] = {}
        for row in rows:
            groups.setdefault(self._tenant_databases.executors[row["tenant"]], []).append(row)
        return list(groups.items())


# Halves of verbs


def _check_apart(job_ids: Sequence[UUID]) -> None:
    """Reject a batch that names a job twice: it is split, and each item is then checked by its own token."""
    if len(set(job_ids)) < len(job_ids):
        raise StoreError("A job is named more than once.")


async def _step(own: Connection, places: Mapping[UUID, Any]) -> None:
    odd = await fetch(
        own,
        SQL["out_of_step"],
        list(places),
        [place["phase"] for place in places.values()],
        [place["epoch"] for place in places.values()],
    )
    if odd:
        raise DispatchMismatchError([row["job_id"] for row in odd])


async def _transition(
    own: Connection,
    event: str,
    phase: str,
    job_ids: Sequence[UUID],
    *,
    epochs: Any = None,
    attempts: Any = None,
    outputs: Any = None,
    errors: Any = None,
    captures: Any = None,
    memos: Any = None,
    notes: Any = None,
) -> list[dict[str, Any]]:
    columns = (epochs, attempts, outputs, errors, captures, memos, None, notes)
    return [dict(row) for row in await fetch(own, SQL["transition"], event, phase, job_ids, *columns)]


async def _take_claims_back(
    own: Connection, jobs: dict[UUID, dict[str, Any]], queued: Mapping[UUID, Mapping[str, Any]]
) -> None:
    """Requeue leased jobs whose dispatches do not know of the lease: no worker holds them."""
    for job_id, job in jobs.items():
        place = queued.get(job_id)
        epoch = job["epoch"] if place is None else max(job["epoch"], place["epoch"])
        is_held = place is not None and (place["phase"], place["epoch"]) == ("leased", job["epoch"])
        if job["phase"] == "leased" and not is_held:
            await _transition(own, "requeued", "ready", [job_id], epochs=[epoch], notes=[_REPAIR])
            job["phase"] = "ready"
        elif job["epoch"] < epoch:
            await fetch(own, SQL["raise_epochs"], [job_id], [epoch])
        job["epoch"] = epoch


async def _ensure(run: Callable[..., Awaitable[Any]], jobs: Sequence[Mapping[str, Any]]) -> set[str]:
    names = (
        "job_id",
        "tenant",
        "account",
        "kind",
        "queue",
        "phase",
        "priority",
        "epoch",
        "attempts",
        "run_at",
        "expires_at",
        "limits",
    )
    rows = await run(SQL["ensure"], *([job[name] for job in jobs] for name in names))
    return {row["queue"] for row in rows}


async def _follow(central: Connection, jobs: Sequence[Mapping[str, Any]]) -> set[str]:
    *columns, ranks, untils = ([job[name] for job in jobs] for name in ("job_id", *_PLACE, "until"))
    return {row["queue"] for row in await fetch(central, SQL["follow"], *columns, GRACE, ranks, untils)}


def _new_dispatch(item: Submission, answer: Submitted, limits: str | None) -> dict[str, Any]:
    """The fields of the dispatch of a job that was just submitted."""
    waits = item.run_at is not None and item.run_at > answer.created_at
    return msgspec.structs.asdict(item) | {
        "phase": "waiting" if waits else "ready",
        "epoch": 0,
        "attempts": 0,
        "expires_at": answer.expires_at,
        "limits": limits,
    }


def _agree(job: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(job[name] == place[name] for name in _PLACE)


def _by_id(rows: Iterable[Any]) -> dict[UUID, dict[str, Any]]:
    return {row["job_id"]: dict(row) for row in rows}


def _or_none(column: Sequence[Any] | None, like: Sequence[Any]) -> Sequence[Any]:
    return [None] * len(like) if column is None else column


@contextlib.contextmanager
def _or_later() -> Any:
    """Leave dispatches to the ensurer if a database cannot be reached."""
    try:
        yield
    except UnavailableError as error:
        logs.emit("db.unavailable", service="dispatch", error=str(error))


@contextlib.contextmanager
def skip_unavailable() -> Any:
    """Skip a database that cannot be reached, and log that, so that it does not delay the others."""
    try:
        yield
    except UnavailableError as error:
        logs.emit("db.unavailable", service="tenant_databases", error=str(error))
