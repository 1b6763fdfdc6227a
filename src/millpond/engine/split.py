"""Split: the verbs for a tenant that lives in another database than the queue, each in two transactions.

Most tenants live beside the queue, and a verb is one transaction. One that lives in another database has its jobs and
its money there; its dispatches stay here. Then a verb is two transactions, and this is the protocol:

1. Central's transaction is opened first. The dispatches it locks are the fence: no other verb comes near these jobs.
2. The tenant's is opened within it. Both must be in step: each job where its dispatch says it is.
3. Each does its half. Then the tenant commits, and then central.

So a process that dies leaves both as they were, or the job one verb ahead of its dispatch, and never behind it. Who
finds them out of step mends that first: the dispatch follows the job (`Split.mend`). A job that is new has no dispatch
to lock: the tenant commits it with a note of what is owed, and the ensurer looks after what nobody paid.

Nobody waits for central while he holds what another holder of central's locks may want: dispatches are locked before
jobs, and jobs before accounts, over both databases. So no two verbs wait for each other where neither server sees it.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import logs
from millpond.engine import dispatches
from millpond.engine.jobs import GRACE
from millpond.errors import BusyError, MillpondError, StoreError, UnavailableError
from millpond.store.db import AgainError, fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from millpond.engine.homes import Home, Homes
    from millpond.engine.jobs import Submission, Submitted
    from millpond.store.db import Connection, Database, Row
    from millpond.store.queries import Query

    Work = Callable[[Connection, Connection], Awaitable[Any]]

SQL: Final = queries("millpond.engine", "split")

_TRIES: Final = 5
_FIRST: Final = UUID(int=0)
_SILENT: Final = {"code": "lease_lost", "message": "Its worker fell silent."}
_GONE: Final = {"code": "interrupted", "message": "Its worker had to go."}
_REPAIR: Final = '{"cause": "repair"}'
_PLACE: Final = ("phase", "epoch", "attempts", "is_asked", "rank")


class OutOfStepError(StoreError):
    """A job is not where its dispatch says."""

    def __init__(self, job_ids: Sequence[UUID]) -> None:
        super().__init__()
        self.job_ids = job_ids


class Split:
    """The door to the tenants of one home: the same verbs, in two transactions."""

    def __init__(self, central: Database, home: Home) -> None:
        self.central = central
        self.home = home
        self._paid: list[UUID] = []
        self._paying: asyncio.Task[None] | None = None
        self._seen = [_FIRST, _FIRST]

    async def run(self, query: Query, *arguments: Any) -> Any:
        """A verb by its halves; what is of the tenant alone, at its home."""
        verb = _VERBS.get(query.name)
        return await (self.home.run(query, *arguments) if verb is None else verb(self, *arguments))

    async def close(self) -> None:
        if self._paying is not None:
            await self._paying

    # The protocol

    async def both(self, work: Work) -> Any:
        """Do a verb's work in both transactions; mend first what is out of step."""
        for left in reversed(range(_TRIES)):
            try:
                # Connections are taken in the order in which claims take them: central's, then the home's. The home is
                # reached before anything is locked. Blocks are left from within: the tenant commits first.
                async with self.central.transaction() as hub, self.home.transaction() as own:
                    return await work(hub, own)
            except AgainError as again:
                if not left:
                    raise StoreError(str(again)) from again
            except OutOfStepError as error:
                if not left:
                    raise BusyError from error
                await self.mend(error.job_ids)
        raise AssertionError

    async def mend(self, job_ids: Sequence[UUID]) -> set[str]:
        """Bring the dispatches of jobs to where the jobs are; tells which queues have grown.

        A claim that central knows nothing of is the one thing that is taken back: nobody has heard of it.
        """
        grown: set[str] = set()

        async def work(hub: Connection, own: Connection) -> None:
            queued = _by_id(await fetch(hub, SQL["fence"], job_ids, self.home.tenants))
            jobs = _by_id(await fetch(own, SQL["truth"], job_ids, self.home.tenants))
            absent = [job_id for job_id in jobs if job_id not in queued]
            if absent and await fetch(hub, SQL["dispatched"], absent):
                raise AgainError("A dispatch was made while the job was waited for.")
            await _take_claims_back(own, jobs, queued)
            live = {job_id: job for job_id, job in jobs.items() if job["phase"] != "ended"}
            missing = [job for job_id, job in live.items() if job_id not in queued]
            behind = [live[key] for key in live.keys() & queued.keys() if not _agree(live[key], queued[key])]
            over = [job_id for job_id in queued if job_id not in live]
            grown.update(await _ensure(partial(fetch, hub), missing) if missing else ())
            grown.update(await _follow(hub, behind) if behind else ())
            if over:
                await fetch(hub, SQL["discard"], over)
            for job_id in (*over, *(job["job_id"] for job in (*missing, *behind))):
                logs.emit("home.mended", job_id=job_id)

        await self.both(work)
        return grown

    async def _fence(self, hub: Connection, own: Connection, job_ids: Sequence[UUID]) -> dict[UUID, dict[str, Any]]:
        """Lock jobs in both homes, and see that they are in step."""
        queued = _by_id(await fetch(hub, SQL["fence"], job_ids, self.home.tenants))
        nowhere: dict[str, Any] = {"phase": None, "epoch": None}
        await _step(own, {job_id: queued.get(job_id, nowhere) for job_id in job_ids})
        return queued

    # Customers

    async def submit(self, *columns: Any) -> Row:
        """The tenant's half; `dispatch` is central's."""
        return await self.home.run(SQL["submit"], *columns)

    async def dispatch(
        self, items: Sequence[Submission], answers: Sequence[Submitted | Exception]
    ) -> list[Submitted | Exception]:
        """Put jobs that were just taken in into the queue; what the queue refuses is undone at home.

        Where central cannot be reached they wait for the ensurer: they are taken in all the same.
        """
        told = {
            item.job_id: (item, answer)
            for item, answer in zip(items, answers, strict=True)
            if not isinstance(answer, Exception)
        }
        fresh = [(item, answer) for item, answer in told.values() if not answer.is_replay]
        refused: dict[UUID, Exception] = {}
        try:
            refused = await self._enqueue(fresh)
            replays = [answer.job_id for _, answer in told.values() if answer.is_replay]
            if owing := [row["job_id"] for row in await self.home.run(SQL["owing"], replays)] if replays else []:
                await self.pay(owing)
        except UnavailableError as error:
            logs.emit("db.unavailable", service="dispatch", error=str(error))
        return [refused.get(item.job_id, answer) for item, answer in zip(items, answers, strict=True)]

    async def _enqueue(self, fresh: Sequence[tuple[Submission, Submitted]]) -> dict[UUID, Exception]:
        if not fresh:
            return {}
        job_ids = [item.job_id for item, _ in fresh]
        try:
            await _ensure(self.central.run, [_born(item, answer) for item, answer in fresh])
        except UnavailableError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the queue does not take it
            if len(fresh) == 1:
                await self._refuse(job_ids, error)
                return {job_ids[0]: error}
            refused: dict[UUID, Exception] = {}
            for one in fresh:
                refused |= await self._enqueue([one])
            return refused
        self._pay_later(job_ids)
        return {}

    async def _refuse(self, job_ids: Sequence[UUID], error: Exception) -> None:
        """Undo what will never be dispatched: the jobs fail, and their holds are released."""
        known = error if isinstance(error, MillpondError) else StoreError("The job could not be put into the queue.")
        async with self.home.transaction() as own:
            for row in await fetch(own, SQL["refused"], job_ids):
                reason = msgspec.json.encode(known.as_dict()).decode()
                await _move(own, row["moment"], "ended", [row["job_id"]], errors=[reason])
            await fetch(own, SQL["paid"], job_ids)

    async def pay(self, job_ids: Sequence[UUID]) -> set[str]:
        """Make the dispatches that are owed; tells which queues have grown."""
        grown = await self.mend(job_ids)
        await self.home.run(SQL["paid"], job_ids)
        return grown

    def _pay_later(self, job_ids: Sequence[UUID]) -> None:
        """The note of what was owed goes when there is time: who finds it meanwhile finds the dispatch too."""
        self._paid += job_ids
        if self._paying is None or self._paying.done():
            self._paying = asyncio.create_task(self._settle_debts())

    async def _settle_debts(self) -> None:
        with contextlib.suppress(MillpondError):  # The ensurer does it.
            while self._paid:
                paid, self._paid = self._paid, []
                await self.home.run(SQL["paid"], paid)

    async def cancel(self, tenant: str, job_id: UUID, grace: timedelta) -> Row:
        async def work(hub: Connection, own: Connection) -> Row:
            place = (await self._fence(hub, own, [job_id])).get(job_id, {})
            row = await fetch(own, SQL["cancel_job"], tenant, job_id, place.get("phase"), place.get("is_asked", False))
            await fetch(hub, SQL["cancel_dispatch"], job_id, row["verdict"], grace)
            return row

        return await self.both(work)

    async def refund(  # noqa: PLR0917 - the columns of its statement
        self, tenant: str, job_id: UUID, amount: int | None, key: str | None, reason: str, actor: str, run: int | None
    ) -> Row:
        """A job that has ended has no dispatch: all that is central's is the audit.

        It is written by who asks again, too: whoever asked first may have died between the two commits.
        """

        async def work(hub: Connection, own: Connection) -> Row:
            row = await fetch(own, SQL["refund_job"], tenant, job_id, amount, key, reason, run)
            if row["verdict"] in {"posted", "repeated"}:
                told = (row["given"], row["why"], row["reference"], row["at"])
                await fetch(hub, SQL["tell_refunded"], actor, tenant, job_id, *told)
            return row

        return await self.both(work)

    async def prioritize(self, tenant: str, job_id: UUID, priority: int) -> Row:
        async def work(hub: Connection, own: Connection) -> Row:
            place = (await self._fence(hub, own, [job_id])).get(job_id, {})
            row = await fetch(own, SQL["prioritize_job"], tenant, job_id, priority, place.get("phase"))
            if row["verdict"] in {"changed", "same"}:
                await fetch(hub, SQL["prioritize_dispatch"], job_id, priority)
            return row

        return await self.both(work)

    async def answer(self, tenant: str, job_id: UUID, answer: str) -> Row:
        async def work(hub: Connection, own: Connection) -> Row:
            place = (await self._fence(hub, own, [job_id])).get(job_id, {})
            row = await fetch(own, SQL["answer_job"], tenant, job_id, answer, place.get("is_waited_for", False))
            if row["verdict"] == "answered":
                await fetch(hub, SQL["make_ready"], [job_id])
            return row

        return await self.both(work)

    async def shift(self, tenant: str, job_id: UUID, state: str) -> Row:
        async def work(hub: Connection, own: Connection) -> Row:
            place = (await self._fence(hub, own, [job_id])).get(job_id)
            is_asked = place is not None and place["is_asked"]
            row = await fetch(own, SQL["shift_job"], tenant, job_id, state, place is not None, is_asked)
            if row["verdict"] == "moved":
                await fetch(hub, SQL["shift_dispatch"], job_id, row["phase"], row["forgets"])
            return row

        return await self.both(work)

    async def revive(self, tenant: str, job_id: UUID, lifetime: timedelta | None) -> Row:
        async def work(hub: Connection, own: Connection) -> Row:
            await self._fence(hub, own, [job_id])
            row = await fetch(own, SQL["revive_job"], tenant, job_id, lifetime)
            if row["verdict"] == "revived":
                await fetch(own, SQL["owe"], row["revived_at"], [job_id])
            return row

        row = await self.both(work)
        if row["verdict"] == "revived":
            try:
                await self.pay([job_id])
            except UnavailableError as error:
                logs.emit("db.unavailable", service="dispatch", error=str(error))
        return row

    # Workers

    async def start(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The tenant's half of a claim, committed: what its home knows of the jobs that were handed out."""
        job_ids = [row["job_id"] for row in rows]
        async with self.home.transaction() as own:
            await _step(own, {row["job_id"]: {"phase": "ready", "epoch": row["epoch"] - 1} for row in rows})
            moved = await _move(own, "started", "leased", job_ids, epochs=[row["epoch"] for row in rows])
        claimed = {row["job_id"]: {name: row[name] for name in ("token", "rank", "turn")} for row in rows}
        return [row | claimed[row["job_id"]] for row in moved]

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

        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, job_ids)
            rows = await fetch(hub, SQL["withdraw"], outcome, job_ids, tokens, origins)
            gone = {row["job_id"] for row in rows}
            given = zip(job_ids, outputs, _or_none(errors, job_ids), _or_none(captures, job_ids), strict=True)
            ended = {job_id: rest for job_id, *rest in given if job_id in gone}
            if not ended:
                return []
            outputs_, errors_, captures_ = map(list, zip(*ended.values(), strict=True))
            return await _move(own, outcome, "ended", list(ended), outputs=outputs_, errors=errors_, captures=captures_)

        return await self.both(work)

    async def deliver(
        self,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        outputs: Sequence[Any],
        captures: Sequence[Any] | None,
        origins: Sequence[Any] | None,
    ) -> list[dict[str, Any]]:
        """Those whose URL has yet to take the news; the others have succeeded, which is another verb."""
        _check_apart(job_ids)
        given = zip(job_ids, tokens, outputs, _or_none(captures, job_ids), _or_none(origins, job_ids), strict=True)
        waiting = set((await self.home.run(SQL["deciding"], job_ids))["job_ids"])
        ends = [end for end in given if end[0] not in waiting]
        moved: list[dict[str, Any]] = []
        if ends:
            ids, held, said, captured, where = map(list, zip(*ends, strict=True))
            ended = await self.finish("succeeded", ids, held, said, None, captured, where if origins else None)
            moved += [row | {"is_ended": True} for row in ended]

        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, list(waiting))
            over = await fetch(hub, SQL["hand_over"], job_ids, tokens, origins, list(waiting))
            gone = {row["job_id"] for row in over}
            told = zip(job_ids, outputs, _or_none(captures, job_ids), strict=True)
            kept = [item for item in told if item[0] in gone]
            if not kept:
                return []
            return [dict(row) for row in await fetch(own, SQL["deliver_jobs"], *map(list, zip(*kept, strict=True)))]

        if waiting:
            moved += [row | {"is_ended": False} for row in await self.both(work)]
        return moved

    async def conclude(self, outcome: str, job_ids: Sequence[UUID]) -> list[dict[str, Any]]:
        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, job_ids)
            out = [row["job_id"] for row in await fetch(hub, SQL["take_out"], job_ids)]
            return [dict(row) for row in await fetch(own, SQL["conclude_jobs"], outcome, out)] if out else []

        return await self.both(work)

    async def requeue(  # noqa: PLR0917 - the columns of its statement
        self,
        cause: str,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        delays: Any,
        errors: Sequence[str],
        origins: Any,
        *,
        is_wish: bool = True,
    ) -> list[dict[str, Any]]:
        _check_apart(job_ids)
        said = dict(zip(job_ids, errors, strict=True))

        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, job_ids)
            fates = await fetch(hub, SQL["give_back"], cause, is_wish, job_ids, tokens, delays, origins)
            moved: list[dict[str, Any]] = []
            for fate, phase in sorted({(row["fate"], row["phase"]) for row in fates}):
                group = [row for row in fates if (row["fate"], row["phase"]) == (fate, phase)]
                rows = await _move(
                    own,
                    fate,
                    phase if fate == "requeued" else "ended",
                    [row["job_id"] for row in group],
                    attempts=[row["attempts"] for row in group],
                    errors=[said[row["job_id"]] for row in group],
                    notes=[_note(cause, row["counted"], said[row["job_id"]]) for row in group],
                )
                moved += [row | {"fate": fate} for row in rows]
            return moved

        return await self.both(work)

    async def park(
        self, job_ids: Sequence[UUID], tokens: Sequence[UUID], memos: Sequence[str | None]
    ) -> list[dict[str, Any]]:
        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, job_ids)
            aside = {row["job_id"] for row in await fetch(hub, SQL["set_aside"], job_ids, tokens)}
            kept = {job_id: memo for job_id, memo in zip(job_ids, memos, strict=True) if job_id in aside}
            return await _move(own, "parked", "parked", list(kept), memos=list(kept.values())) if kept else []

        return await self.both(work)

    async def proceed(
        self,
        job_ids: Sequence[UUID],
        tokens: Sequence[UUID],
        memos: Sequence[str | None],
        answers: Sequence[str],
    ) -> list[dict[str, Any]]:
        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            await self._fence(hub, own, job_ids)
            held = [row["job_id"] for row in await fetch(hub, SQL["keep"], job_ids, tokens)]
            return [dict(row) for row in await fetch(own, SQL["proceed_jobs"], held, job_ids, memos, answers)]

        return await self.both(work)

    async def note(self, job_ids: Sequence[UUID], tokens: Sequence[UUID], *columns: Any) -> Sequence[Row]:
        """Central is only asked who holds what: the epoch is fence enough, since a job that goes on has another."""
        held = await self.central.run(SQL["held"], job_ids, tokens)
        epochs = {(row["job_id"], row["token"]): row["epoch"] for row in held}
        named = zip(job_ids, tokens, strict=True)
        return await self.home.run(SQL["note_jobs"], job_ids, tokens, [epochs.get(name) for name in named], *columns)

    # Services

    async def expire(self, most: int) -> list[dict[str, Any]]:
        return await self._due("expired", "ended", "discard", most)

    async def enforce(self, most: int) -> list[dict[str, Any]]:
        return await self._due("canceled", "ended", "discard", most)

    async def promote(self, most: int) -> list[dict[str, Any]]:
        return await self._due("queued", "ready", "make_ready", most)

    async def _due(self, moment: str, phase: str, half: str, most: int) -> list[dict[str, Any]]:
        async def work(hub: Connection, own: Connection) -> list[dict[str, Any]]:
            due = _by_id(await fetch(hub, SQL["due"], moment, self.home.tenants, most))
            if not due:
                return []
            await _step(own, due)
            await fetch(hub, SQL[half], list(due))
            return await _move(own, moment, phase, list(due))

        return await self.both(work)

    async def ensure(self, older: timedelta, most: int) -> set[str]:
        """Make the dispatches that have been owed for so long; tells which queues have grown."""
        grown: set[str] = set()
        while owed := [row["job_id"] for row in await self.home.run(SQL["owed"], older, most)]:
            grown |= await self.pay(owed)
        return grown

    async def sweep(self, most: int) -> set[str]:
        """Look at the next so many jobs, and so many dispatches, whether they are in step; mend what is not."""
        dispatches_, self._seen[0] = await self._next(self.central, SQL["dispatches"], 0, most, self.home.tenants)
        jobs_, self._seen[1] = await self._next(self.home, SQL["walk"], 1, most)
        queued, walked = _by_id(dispatches_), [row["job_id"] for row in jobs_ if not row["is_ended"]]
        live = _by_id(await self.home.run(SQL["some"], list(queued))) if queued else {}
        known = {row["job_id"] for row in await self.central.run(SQL["dispatched"], walked)} if walked else set[UUID]()
        odd = {job_id for job_id in queued if job_id not in live or not _agree(live[job_id], queued[job_id])}
        odd.update(job_id for job_id in walked if job_id not in known)
        return await self.mend(sorted(odd)) if odd else set()

    async def _next(self, db: Database, query: Query, side: int, most: int, *arguments: Any) -> tuple[list[Row], UUID]:
        rows: list[Row] = await db.run(query, *arguments, self._seen[side], most)
        return rows, rows[-1]["job_id"] if len(rows) == most else _FIRST


_VERBS: Final[dict[str, Callable[..., Awaitable[Any]]]] = {
    "jobs.submit": Split.submit,
    "jobs.cancel": Split.cancel,
    "jobs.prioritize": Split.prioritize,
    "ledger.refund": Split.refund,
    "jobs.answer": Split.answer,
    "jobs.shift": Split.shift,
    "jobs.revive": Split.revive,
    "jobs.expire": Split.expire,
    "jobs.enforce": Split.enforce,
    "jobs.promote": Split.promote,
    "leases.finish": Split.finish,
    "deliveries.deliver": Split.deliver,
    "deliveries.conclude": Split.conclude,
    "leases.requeue": Split.requeue,
    "leases.park": Split.park,
    "leases.proceed": Split.proceed,
    "leases.note": Split.note,
}
"""What a whole verb is called where it is one statement, and its halves where it is two."""


class Everywhere:
    """The door to all jobs: those of central in one transaction, those of each home in two."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._central = homes.central

    async def run(self, query: Query, *arguments: Any) -> Any:
        match query.name:
            case "leases.claim":
                return await self._claim(*arguments)
            case "leases.lapse":
                return [*await self._central.run(query, *arguments), *await self._lapse(*arguments)]
            case "leases.abandon":
                return await self._abandon(*arguments)
            case "jobs.expire" | "jobs.enforce" | "jobs.promote":
                return [*await self._central.run(query, *arguments), *await self._each(query, *arguments)]
            case _:
                return await self._central.run(query, *arguments)

    def _splits(self) -> list[Split]:
        return [split for split in dict.fromkeys(self._homes.splits.values()) if split.home.is_up]

    async def _each(self, query: Query, *arguments: Any) -> list[Any]:
        found: list[Any] = []
        for split in self._splits():
            with passed_over():
                found += await split.run(query, *arguments)
        return found

    async def _claim(self, *arguments: Any) -> list[Any]:
        """Lease in central; start in each home; then commit. Jobs of a home that fails stay in the line."""
        for left in reversed(range(_TRIES)):
            try:
                claimed, odd = await self._claim_once(*arguments)
            except AgainError as again:
                if not left:
                    raise StoreError(str(again)) from again
                continue
            for split, job_ids in odd:
                try:
                    await split.mend(job_ids)
                except Exception as error:  # noqa: BLE001 - what was claimed must be told all the same
                    logs.emit("service.failed", service="homes", error=f"{type(error).__name__}: {error}")
            return claimed
        raise AssertionError

    async def _claim_once(self, *arguments: Any) -> tuple[list[Any], list[tuple[Split, Sequence[UUID]]]]:
        away = [tenant for split in self._splits() for tenant in split.home.tenants]
        odd: list[tuple[Split, Sequence[UUID]]] = []
        async with self._central.transaction() as hub:
            rows: list[Any] = await fetch(hub, SQL["claim"], *arguments, away)
            claimed = [row for row in rows if row["state"] is not None]
            for split, group in self._by_split(row for row in rows if row["state"] is None):
                try:
                    claimed += await split.start(group)
                except (UnavailableError, AgainError):
                    await fetch(hub, SQL["unlease"], [row["job_id"] for row in group])
                except OutOfStepError as error:
                    odd.append((split, error.job_ids))
                    await fetch(hub, SQL["unlease"], [row["job_id"] for row in group])
        return claimed, odd

    async def _lapse(self, most: int) -> list[Any]:
        down = [tenant for home in self._homes.away if not home.is_up for tenant in home.tenants]
        rows = await self._central.run(SQL["lapsed"], most, down)
        taken = await self._take_back("lapse", [row for row in rows if row["job_id"] is not None], _SILENT)
        await self._close({row["token"] for row in rows})
        return taken

    async def _abandon(self, token: UUID) -> list[Any]:
        rows = await self._central.run(SQL["held_by"], token)
        taken = await self._take_back("interruption", rows, _GONE)
        await self._close({token})
        return taken

    async def _take_back(self, cause: str, rows: Sequence[Row], error: dict[str, str]) -> list[Any]:
        """Take jobs from leases; those of a home that cannot be reached stay until it can."""
        reason = msgspec.json.encode(error).decode()
        workers = {row["job_id"]: {"worker": row["worker"]} for row in rows}
        taken: list[Any] = []
        own = [row for row in rows if row["tenant"] not in self._homes.splits]
        if own:
            held = [row["job_id"] for row in own], [row["token"] for row in own]
            taken += await self._central.run(SQL["take_back"], cause, *held, [reason] * len(own))
        for split, group in self._by_split(row for row in rows if row["tenant"] in self._homes.splits):
            held = [row["job_id"] for row in group], [row["token"] for row in group]
            with passed_over():
                taken += await split.requeue(cause, *held, None, [reason] * len(group), None, is_wish=False)
        return [dict(row) | workers[row["job_id"]] for row in taken]

    async def _close(self, tokens: set[UUID]) -> None:
        if tokens:
            await self._central.run(dispatches.SQL["close_leases"], list(tokens))

    def _by_split(self, rows: Iterable[Row]) -> list[tuple[Split, list[Row]]]:
        groups: dict[Split, list[Row]] = {}
        for row in rows:
            groups.setdefault(self._homes.splits[row["tenant"]], []).append(row)
        return list(groups.items())


# Halves of verbs


def _check_apart(job_ids: Sequence[UUID]) -> None:
    """Two that tell of one job are told apart by their tokens, which is done for each alone: the batch is split."""
    if len(set(job_ids)) < len(job_ids):
        raise StoreError("A job is named twice.")


async def _step(own: Connection, places: Mapping[UUID, Any]) -> None:
    odd = await fetch(
        own,
        SQL["out_of_step"],
        list(places),
        [place["phase"] for place in places.values()],
        [place["epoch"] for place in places.values()],
    )
    if odd:
        raise OutOfStepError([row["job_id"] for row in odd])


async def _move(
    own: Connection,
    moment: str,
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
    return [dict(row) for row in await fetch(own, SQL["move"], moment, phase, job_ids, *columns)]


async def _take_claims_back(
    own: Connection, jobs: dict[UUID, dict[str, Any]], queued: Mapping[UUID, Mapping[str, Any]]
) -> None:
    """Jobs that say they are leased, which their dispatches do not know: nobody holds them."""
    for job_id, job in jobs.items():
        place = queued.get(job_id)
        epoch = job["epoch"] if place is None else max(job["epoch"], place["epoch"])
        is_held = place is not None and (place["phase"], place["epoch"]) == ("leased", job["epoch"])
        if job["phase"] == "leased" and not is_held:
            await _move(own, "requeued", "ready", [job_id], epochs=[epoch], notes=[_REPAIR])
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
    )
    rows = await run(SQL["ensure"], *([job[name] for job in jobs] for name in names))
    return {row["queue"] for row in rows}


async def _follow(hub: Connection, jobs: Sequence[Mapping[str, Any]]) -> set[str]:
    *columns, ranks = ([job[name] for job in jobs] for name in ("job_id", *_PLACE))
    return {row["queue"] for row in await fetch(hub, SQL["follow"], *columns, GRACE, ranks)}


def _born(item: Submission, answer: Submitted) -> dict[str, Any]:
    """A job that was just taken in, as its dispatch needs it."""
    waits = item.run_at is not None and item.run_at > answer.created_at
    return msgspec.structs.asdict(item) | {
        "phase": "waiting" if waits else "ready",
        "epoch": 0,
        "attempts": 0,
        "expires_at": answer.expires_at,
    }


def _agree(job: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(job[name] == place[name] for name in _PLACE)


def _by_id(rows: Iterable[Any]) -> dict[UUID, dict[str, Any]]:
    return {row["job_id"]: dict(row) for row in rows}


def _or_none(column: Sequence[Any] | None, like: Sequence[Any]) -> Sequence[Any]:
    return [None] * len(like) if column is None else column


def _note(cause: str, count: int, error: str) -> str:
    return msgspec.json.encode({"cause": cause, "count": count, "error": msgspec.Raw(error.encode())}).decode()


@contextlib.contextmanager
def passed_over() -> Any:
    """A home that cannot be reached does not keep the others waiting."""
    try:
        yield
    except UnavailableError as error:
        logs.emit("db.unavailable", service="homes", error=str(error))
