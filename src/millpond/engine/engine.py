"""The engine: every verb in one place. Each is one transaction; the hot ones share theirs through batchers."""

from __future__ import annotations

import asyncio
import dataclasses
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from millpond import ids, kinds, logs, values
from millpond.app import Millpond
from millpond.engine import events, gates, jobs, leases, ledger, queues, registry, transactions, verify
from millpond.engine.access import Access
from millpond.engine.artifacts import Artifacts
from millpond.engine.batcher import Batcher
from millpond.engine.deliveries import Deliveries
from millpond.engine.dispatches import BACK_TOPIC, CANCEL_TOPIC
from millpond.engine.endpoints import Endpoints
from millpond.engine.errands import Errands
from millpond.engine.estimates import Estimates
from millpond.engine.gates import Gates
from millpond.engine.homes import Homes
from millpond.engine.jobs import Submission, Submitted
from millpond.engine.leases import End, Want
from millpond.engine.lines import Lines
from millpond.engine.providers import Providers
from millpond.engine.scaling import Scaling
from millpond.engine.source import EngineSource
from millpond.engine.split import Split
from millpond.engine.tallies import Tallies
from millpond.engine.vault import Safe, Vault
from millpond.engine.views import Views
from millpond.engine.workers import Workers
from millpond.errors import (
    CanceledError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    MoveDeniedError,
    NotFoundError,
    OutboundRefusedError,
)
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.store.borrowed import borrow
from millpond.store.db import Database, new_id
from millpond.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from uuid import UUID

    from millpond.engine.dispatches import Lanes
    from millpond.engine.events import Event
    from millpond.engine.jobs import CancelAnswer, JobRecord, Prioritized
    from millpond.engine.leases import Lease, Note, Pulse, Return
    from millpond.engine.ledger import Balance, Entry, Refund, Seen
    from millpond.engine.verify import Violation
    from millpond.errors import IdempotencyConflictError
    from millpond.lifecycle import Lifecycle
    from millpond.providers import Provider
    from millpond.storage import Storage
    from millpond.store.borrowed import Borrowed

BULK_MAX: Final = 10_000
_BULK_SIZE: Final = 1_000
_BULK_LANES: Final = 4  # some are prepared here, or wait for the disk, while the database is at the others


class Engine:
    """A product's jobs on one database, with tenants that may live in others."""

    def __init__(
        self,
        db: Database,
        app: Millpond | None = None,
        *,
        storage: Storage | None = None,
        homes: Homes | None = None,
        outbound: Outbound | None = None,
        providers: Iterable[Provider] = (),
        vault: Vault | Callable[[], Vault] | None = None,
    ) -> None:
        self.db = db
        self.outbound = outbound or Outbound()
        """What calls URLs of users: unless told otherwise, nothing of the inside is open to it."""
        self.safe = Safe(vault, db)
        """What secrets of webhooks are encrypted with."""
        self.homes = homes or Homes(db)
        self.app = app or Millpond()
        self.bell: Ringer = _Silence()
        """What wakes those who wait; the bell hangs itself here."""
        self.access = Access(db, lambda topics: self.bell.ring(topics), self.home)  # noqa: PLW0108 - the bell comes later
        self.views = Views(self.homes)
        self.lines = Lines(self.homes)
        self.errands = Errands(self)
        self.audience: Audience = _Nobody()
        """Who wants to know of which jobs something was just written; the hub puts itself here."""
        self.estimates = Estimates(db, self.homes)
        self.tallies = Tallies(self.homes)
        self.artifacts = Artifacts(self.home, self.all_homes, storage)
        self.workers = Workers(self)
        self.scaling = Scaling(self)
        self.endpoints = Endpoints(self)
        self.deliveries = Deliveries(self)
        self.providers = Providers(self, providers)
        self.gates = Gates(self.app.gates)
        """What inputs and outputs must pass, by name: those of the app, and those that blueprints hang here."""
        door = self.homes.door
        self._submits: Batcher[Submission, Submitted] = Batcher(
            self._submit_batch, apart=lambda item: door(item.tenant)
        )
        self._finishes: Batcher[End, str] = Batcher(
            lambda batch: leases.finish(door(batch[0].lease.tenant), batch),
            lanes=2,
            apart=lambda end: (end.outcome, door(end.lease.tenant)),
        )
        self._returns: Batcher[Return, str] = Batcher(
            lambda batch: leases.give_back(door(batch[0].lease.tenant), batch),
            apart=lambda item: (item.cause, door(item.lease.tenant)),
        )
        self._notes: Batcher[Sequence[Note], bool] = Batcher(
            lambda batch: leases.note_groups(door(batch[0][0].lease.tenant), batch),
            apart=lambda notes: door(notes[0].lease.tenant),
            weigh=len,
        )
        self._watchers: set[asyncio.Task[None]] = set()
        self._is_guest = False
        """Whether what it works with is another's, but for the connections."""

    @classmethod
    async def open(
        cls,
        dsn: str,
        app: Millpond | None = None,
        *,
        lifecycles: Iterable[Lifecycle] = (),
        pool_size: int = 10,
        storage: Storage | None = None,
        tenant_databases: Mapping[str, str] | None = None,
        outbound: Outbound | None = None,
        providers: Iterable[Provider] = (),
        vault: Vault | Callable[[], Vault] | None = None,
    ) -> Engine:
        """Connect, bring the schema up to date and make the app's kinds known. Without storage it takes no files.

        Each of ``tenant_databases`` is the address of the database in which a tenant lives. Without a vault there are
        no webhooks: their secrets are kept encrypted.
        """
        app = app or Millpond()
        drawn = list(lifecycles)

        async def prepare(address: str) -> None:
            if applied := await migrate(address):
                logs.emit("db.migrated", applied=applied)
            db = await Database.open(address, size=1)
            try:
                await registry.register(db, app.kinds.values(), drawn)
            finally:
                await db.close()

        if applied := await migrate(dsn):
            logs.emit("db.migrated", applied=applied)
        db = await Database.open(dsn, size=pool_size)
        homes = await Homes.open(db, tenant_databases or {}, size=pool_size, step=prepare)
        engine = cls(db, app, storage=storage, homes=homes, outbound=outbound, providers=providers, vault=vault)
        await registry.register(engine.db, engine.app.kinds.values(), drawn)
        return engine

    async def beside(self, *, pool_size: int, cut: timedelta) -> Engine:
        """The same engine over a few connections of its own, on which the database cuts what takes longer than this.

        For those who must take nothing from the others. It behaves as another process would: what one does, the other
        hears by the bell. To close it closes its connections alone. Make the bell first.
        """
        db = await Database.open(self.db.dsn, size=pool_size, cut=cut)
        made = Engine(
            db,
            self.app,
            storage=self.artifacts.store if self.artifacts.has_store else None,
            homes=await self.homes.beside(db, size=pool_size, cut=cut),
            outbound=self.outbound,
            vault=self.safe.vault,
        )
        made._is_guest = True
        made.providers = self.providers.beside(made)
        made.gates, made.bell, made.audience = self.gates, self.bell, self.audience
        made.workers.rules = self.workers.rules
        made.deliveries.listen(self.deliveries.stir)
        for hear in (made.access.hear, made.workers.hear):
            self.bell.listen(hear)
        return made

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await self.workers.close()
        if not self._is_guest:
            await self.providers.close()
            await self.outbound.close()
        await self.access.close()
        await self.homes.close()
        await self.db.close()

    def home(self, tenant: str) -> Database:
        """Where the tables of a tenant are."""
        return self.homes.of(tenant)

    def all_homes(self) -> Iterable[Database]:
        """Every database in which there are tables of tenants."""
        return self.homes.all

    # Customers

    async def submit(self, kind: str, input: Any = None, *, tx: Any = None, **options: Any) -> Submitted:
        """Take a job in: its key, cap, hold, row, place in the queue and first events commit together.

        With ``tx``, a connection or session of asyncpg, psycopg or SQLAlchemy, they do so with the caller's own rows.
        With ``hook`` a URL is told of it, signed with a secret of its own.
        """
        if options.get("hook") is not None:
            hooked = await self._hooked(kind, {"input": input, **options})
            if isinstance(hooked, Submitted):
                return hooked
            options = {name: value for name, value in hooked.items() if name != "input"}
        item = jobs.prepare(self.app.kinds, kind, input, **options)
        self.providers.check(self.app.kinds[item.kind])
        passed = await self._passed(item)
        if isinstance(passed, Submitted):
            return passed
        return await (self._submits.add(passed) if tx is None else self._submit_in(borrow(tx), passed))

    async def _passed(self, item: Submission) -> Submission | Submitted:
        """A job to be as its gate, if its kind has one, lets it pass; or what its key was answered."""
        if self.app.kinds[item.kind].gate is None:
            return item
        (passed,) = await self._admit([item])
        if isinstance(passed, Exception):
            raise passed
        return passed

    async def replay(self, kind: str, input: Any = None, **options: Any) -> Submitted | None:
        """What the key of a submit was answered before, or none if it is new; for who would rather know first.

        Whatever has changed since, a replay is a replay: what the input is made from need not be there any more.
        """
        item = jobs.prepare(self.app.kinds, kind, input, **options)
        known = (await jobs.replays(self.home(item.tenant), [item])).get(item.job_id)
        if isinstance(known, Exception):
            raise known
        return known

    async def _admit(self, items: Sequence[Submission]) -> list[Submission | Submitted | Exception]:
        """Jobs of kinds with gates: each as its gate lets it pass, or its refusal.

        A key that was answered is answered as before: gates are asked of nothing twice, whatever they would say today.
        """
        marked = [gates.digested(item) for item in items]
        replayed = await self._replayed(items, marked)
        return await asyncio.gather(*(self._pass(item, replayed.get(item.job_id)) for item in marked))

    async def _replayed(
        self, items: Sequence[Submission], marked: Sequence[Submission]
    ) -> dict[UUID, Submitted | IdempotencyConflictError]:
        """What their keys were answered, as they are and as gates mark them."""
        replayed: dict[UUID, Submitted | IdempotencyConflictError] = {}
        for home in {self.home(item.tenant) for item in marked if item.key is not None}:
            own = [n for n, item in enumerate(marked) if item.key is not None and self.home(item.tenant) is home]
            replayed |= await jobs.replays(home, [marked[n] for n in own])
            strange = [n for n in own if isinstance(replayed.get(marked[n].job_id), Exception)]
            if strange:  # Its kind may have had no gate at the time.
                replayed |= await jobs.replays(home, [items[n] for n in strange])
        return replayed

    async def _pass(self, item: Submission, known: Submitted | Exception | None) -> Submission | Submitted | Exception:
        if known is not None:
            return known
        try:
            return await self.gates.admit(self.app.kinds[item.kind], item)
        except MillpondError as error:
            return error

    async def _hooked(self, kind: str, options: dict[str, Any]) -> dict[str, Any] | Submitted:
        """The URL that a job is submitted with, checked, and its secret encrypted: it is bound to the id of the job.

        A key that was answered is answered as before, also where its URL is not there any more.
        """
        tenant, job_id = values.check_name(options.get("tenant"), field="tenant"), options.get("job_id") or new_id()
        found = kinds.find(self.app.kinds, kind)
        try:
            sealed = await self.deliveries.seal(options["hook"], found, tenant, job_id)
        except OutboundRefusedError:
            if options.get("idempotency_key") is None:
                raise
            asked = self.deliveries.asked(options["hook"], found)
            item = jobs.prepare(self.app.kinds, **dict[str, Any](options, kind=kind, hook=asked, job_id=job_id))
            known = (await self._replayed([item], [gates.digested(item)])).get(job_id)
            if known is None:
                raise
            if isinstance(known, Exception):
                raise known from None
            return known
        return options | {"hook": sealed, "job_id": job_id}

    async def hook_secret(self, tenant: str, job_id: UUID | str) -> str:
        """The secret of the URL that a job was submitted with: the answer to a replay tells it as the first did."""
        hook = await self.deliveries.hook_of(tenant, ids.parse("job", job_id))
        if hook is None:
            raise NotFoundError("The job was submitted without a URL.", field="id")
        return hook.secret

    async def _submit_in(self, tx: Borrowed, item: Submission) -> Submitted:
        if self.home(item.tenant) is not self.db:
            raise transactions.away()
        submitted = await transactions.submit(tx, item)
        if not isinstance(self.bell, _Silence):
            watcher = asyncio.create_task(self._ring_after(tx, item.queue))
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)
        return submitted

    async def _ring_after(self, tx: Borrowed, queue: str) -> None:
        """By the time its transaction commits, others may stand in line before the job."""
        await transactions.ended(tx)
        self.ring_back({queue})
        self.deliveries.stir()

    async def submit_many(self, requests: Sequence[dict[str, Any]]) -> list[Submitted | Exception]:
        """Take many jobs in; each is accepted or refused by itself.

        They are sent some hundreds at a time. Where an account cannot pay for all, the first of each such part get
        what there is.
        """
        if len(requests) > BULK_MAX:
            raise InvalidError(f"At most {BULK_MAX:,} jobs may be submitted at once.", field="jobs")
        gate = asyncio.Semaphore(_BULK_LANES)

        async def send(chunk: Sequence[dict[str, Any]]) -> list[Submitted | Exception]:
            async with gate:
                return await self._submit_chunk(chunk)

        chunks = [requests[n : n + _BULK_SIZE] for n in range(0, len(requests), _BULK_SIZE)]
        return [answer for answers in await asyncio.gather(*map(send, chunks)) for answer in answers]

    async def _submit_chunk(self, requests: Sequence[dict[str, Any]]) -> list[Submitted | Exception]:
        if any(request.get("hook") is not None for request in requests):
            ready = await asyncio.gather(*map(self._prepared_with_hook, requests))
        else:
            ready = [self._prepared(request) for request in requests]
        prepared = await self._admit_some(ready)
        items = [item for item in prepared if isinstance(item, Submission)]
        submitted: dict[int, Submitted | Exception] = {}
        for door in {self.homes.door(item.tenant) for item in items}:
            own = [item for item in items if self.homes.door(item.tenant) is door]
            try:
                answers: Iterable[Submitted | Exception] = await self._submit_batch(own)
            except MillpondError as error:
                answers = repeat(error, len(own))
            submitted.update(zip(map(id, own), answers, strict=True))
        return [submitted[id(item)] if isinstance(item, Submission) else item for item in prepared]

    async def _admit_some(
        self, prepared: Sequence[Submission | Submitted | Exception]
    ) -> Sequence[Submission | Submitted | Exception]:
        """Send those through their gates that have one."""
        kinds = self.app.kinds
        gated = [item for item in prepared if isinstance(item, Submission) and kinds[item.kind].gate is not None]
        if not gated:
            return prepared
        passed = dict(zip(map(id, gated), await self._admit(gated), strict=True))
        return [passed.get(id(item), item) for item in prepared]

    async def _submit_batch(self, items: Sequence[Submission]) -> list[Submitted | Exception]:
        """Take in jobs of tenants that share a home."""
        queues = {item.queue for item in items}
        door = self.homes.door(items[0].tenant)
        if isinstance(door, Split):
            answers = await door.dispatch(items, await jobs.submit(door, items))
            self.bell.ring(queues)
            self.deliveries.stir()
            return answers
        topics = self.bell.carry(queues)
        submitted = await jobs.submit(door, items, topics)
        self.bell.ring(queues, carried=topics is not None)
        self.deliveries.stir()
        return submitted

    async def _prepared_with_hook(self, request: dict[str, Any]) -> Submission | Submitted | Exception:
        try:
            has_hook = request.get("hook") is not None
            hooked = await self._hooked(request.get("kind", ""), request) if has_hook else request
            return hooked if isinstance(hooked, Submitted) else self._prepared(hooked)
        except Exception as error:  # noqa: BLE001 - each item has its own outcome
            return error

    def _prepared(self, request: dict[str, Any]) -> Submission | Exception:
        try:
            item = jobs.prepare(self.app.kinds, **request)
            self.providers.check(self.app.kinds[item.kind])
            return item
        except Exception as error:  # noqa: BLE001 - each item has its own outcome
            return error

    async def read(self, tenant: str, job_id: UUID | str) -> JobRecord:
        return await jobs.read(self.home(tenant), tenant, job_id)

    async def list_jobs(self, tenant: str, account: str, **filters: Any) -> list[JobRecord]:
        return await jobs.list_jobs(self.home(tenant), tenant, account, **filters)

    async def cancel(self, tenant: str, job_id: UUID | str, *, grace: timedelta = jobs.GRACE) -> CancelAnswer:
        """End a job that has not started, or ask the worker of one that has to stop."""
        answer = await jobs.cancel(self.homes.door(tenant), tenant, job_id, grace=grace)
        if answer.is_accepted:
            self.bell.ring({f"{CANCEL_TOPIC}{answer.job_id}"})
            await self.providers.hurry(tenant, answer.job_id)
            self._touch((answer.job_id,))
        return answer

    async def answer(self, tenant: str, job_id: UUID | str, answer: Any, *, size_max: int = values.BYTES_MAX) -> str:
        """Give a parked job what it waits for; tells its state."""
        state, queue = await jobs.answer(self.homes.door(tenant), tenant, job_id, answer, size_max=size_max)
        self._touch((ids.parse("job", job_id),))
        self.ring_back({queue})
        return state

    async def retry(
        self, tenant: str, job_id: UUID | str, *, idempotency_key: str | None = None, errand: str | None = None
    ) -> Submitted:
        """Run an ended job once more: in place where its lifecycle says so, otherwise as a new job.

        A key makes that new job once. In place there is none to remember it by, and it is refused: a job that has
        begun anew has not ended, so that a second retry changes nothing while it runs. An errand is part of what its
        key stands for: what another has retried is a conflict.
        """
        job = await self.read(tenant, job_id)
        kind = self.app.kinds.get(job.kind)
        if kind is not None:
            self.providers.check(kind)
        if kind is not None and any(m.moment == "retried" for m in kind.lifecycle.moves):
            if idempotency_key is not None:
                raise InvalidError(
                    f"Jobs of kind {kind.name!r} are retried in place: no key is remembered for that.",
                    field="idempotency_key",
                    hint="Send it without one, and read the job first where it may have been retried already.",
                )
            if kind.gate is not None:
                await self.gates.admit_again(kind, job)
            with jobs.denied_as(job.job_id, kind.lifecycle.initial):
                submitted = await jobs.revive(self.homes.door(tenant), job, kind.expires_in)
            jobs.report_path(job.job_id, job.kind, job.state, kind.lifecycle.initial, submitted.state)
        else:
            hook = await self._same_hook(job)
            item = jobs.again(self.app.kinds, job, idempotency_key=idempotency_key, errand=errand, **hook)
            passed = await self._passed(item)
            submitted = passed if isinstance(passed, Submitted) else await self._submits.add(passed)
        self.ring_back({job.queue})
        self._touch((job.job_id,))
        return submitted

    async def _same_hook(self, job: JobRecord) -> dict[str, Any]:
        """The URL of a job that is repeated is told of the new one too."""
        hook = await self.deliveries.hook_of(job.tenant, job.job_id)
        if hook is None:
            return {}
        job_id = new_id()
        kind = kinds.find(self.app.kinds, job.kind)
        return {"hook": await self.deliveries.seal(hook, kind, job.tenant, job_id), "job_id": job_id}

    async def events(self, tenant: str, job_id: UUID | str, after: int = 0, *, limit: int = 500) -> list[Event]:
        """What happened to a job after this number, in order."""
        found = await events.after(self.home(tenant), tenant, ids.parse("job", job_id), after, limit=limit)
        if not found:  # either nothing new, or no such job
            await self.read(tenant, job_id)
        return found

    # Operators

    async def move(self, tenant: str, job_id: UUID | str, state: str) -> str:
        """Take a job to a state along an arrow of its lifecycle."""
        moved = await jobs.move(self.homes.door(tenant), tenant, job_id, state)
        self._touch((ids.parse("job", job_id),))
        return moved

    async def grant(self, tenant: str, account: str, amount: int, **options: Any) -> int:
        return await ledger.grant(self.home(tenant), tenant, account, amount, **options)

    async def adjust(self, tenant: str, account: str, amount: int, **options: Any) -> int:
        return await ledger.adjust(self.home(tenant), tenant, account, amount, **options)

    async def refund(
        self,
        tenant: str,
        job_id: UUID | str,
        *,
        amount: int | None = None,
        key: str | None = None,
        reason: str,
        actor: str,
        seen: Seen | None = None,
    ) -> Refund:
        """Give an account back what an ended job has cost it: so much, or all that is left; once, however often sent.

        The job stays as it ended. It is audited in the same commit; where the tenant lives elsewhere, after it.
        """
        return await ledger.refund(self.homes.door(tenant), tenant, job_id, amount, key, reason, actor, seen)

    async def prioritize(self, tenant: str, job_id: UUID | str, priority: int) -> Prioritized:
        """Give a job that waits for its turn another priority: the highest goes first."""
        told = await jobs.prioritize(self.homes.door(tenant), tenant, job_id, priority)
        if told.is_changed:
            self._touch((told.job_id,))
            self.ring_back({told.queue})
        return told

    async def balance(self, tenant: str, account: str) -> Balance:
        return await ledger.balance(self.home(tenant), tenant, account)

    async def entries(self, tenant: str, account: str, **page: Any) -> list[Entry]:
        return await ledger.entries(self.home(tenant), tenant, account, **page)

    async def set_cap(self, tenant: str, account: str, active_max: int | None) -> Balance:
        return await ledger.set_cap(self.home(tenant), tenant, account, active_max)

    async def verify(self, *, newest: timedelta | None = None) -> list[Violation]:
        """What breaks the invariants, in all databases and between them."""
        return await verify.verify_all(self.homes, newest=newest)

    async def pause(self, queue: str) -> None:
        await queues.pause(self.db, queue)

    async def resume(self, queue: str) -> None:
        await queues.resume(self.db, queue)
        self.ring_back({queue})

    # Workers

    def source(self, **options: Any) -> EngineSource:
        """Where a worker in this process gets its jobs from: ``Worker(engine.source(), app)``.

        ``lease`` is how long a silent worker keeps its jobs, ``heartbeat`` how often it says that it lives, and
        ``name`` what it is called. Make the bell first, so that it is heard.
        """
        return EngineSource(self, **options)

    async def claim(self, lanes: Lanes, want: int, *, worker: str, duration: timedelta) -> list[Lease]:
        return await self.claim_for(lanes, [Want(worker, want)], duration)

    async def claim_for(self, lanes: Lanes, wants: Sequence[Want], duration: timedelta) -> list[Lease]:
        """Claim for several workers at once; each lease is under the token of its want."""
        claimed = await leases.claim(self.homes.everywhere, lanes, wants, duration)
        if claimed:
            self._touch(lease.job_id for lease in claimed)
        return claimed

    async def extend(self, held: Sequence[Lease], duration: timedelta) -> Pulse:
        return await leases.extend(self.db, held, duration)

    async def note(self, *notes: Note) -> bool:
        """Write progress, a stage or a line of log; tells whether the job must stop.

        Several of one lease are written all, or none: where they are tried again, none of them has been overtaken.
        """
        must_stop = await self._notes.add(notes)
        self.audience.touch((notes[0].lease.job_id,))
        return must_stop

    async def finish(self, end: End) -> str:
        """End a job as its worker says; one that is to be delivered first, and ended well, goes on to that."""
        kind = self.app.kinds.get(end.lease.kind)
        released = await self._release(kind, end)
        is_withheld, end = released.outcome != end.outcome, released
        if end.outcome == "succeeded" and kind is not None and kind.is_delivered:
            end = msgspec.structs.replace(end, outcome="delivering")
        try:
            state = await self._finishes.add(end)
        except MoveDeniedError as denied:
            denied.details["outcome"] = end.outcome
            if not is_withheld:
                raise
            # Its lifecycle has no arrow for that; every job that runs can fail.
            end = msgspec.structs.replace(end, outcome="failed")
            state = await self._finishes.add(end)
        self.estimates.saw(end)
        await self._ended(kind, end.lease)
        return state

    async def _ended(self, kind: Kind | None, lease: Lease) -> None:
        """Its worker has no more to do with a job; nor has whoever else was at it."""
        if kind is not None and kind.needs:
            await self.providers.hurry(lease.tenant, lease.job_id)
        self._touch((lease.job_id,))

    async def _release(self, kind: Kind | None, end: End) -> End:
        """What its gate lets pass of an output, or of an error."""
        if end.outcome != "succeeded" and end.error is None:
            return end
        kind = kind or await self._declared(end.lease.kind)
        if kind.gate is None:
            return end
        if end.outcome == "succeeded":
            return await self.gates.release(kind, end)
        told = await self.gates.release_error(kind, end.lease.tenant, end.error or {})
        return msgspec.structs.replace(end, error=told)

    async def _declared(self, kind: str) -> Kind:
        """A kind that is not this app's: the database knows its gate."""
        row = await self.db.run(registry.SQL["gate"], kind)
        return Kind(name=kind, gate=None if row is None else row["gate"])

    async def give_back(self, item: Return) -> str:
        """Send a job back into the queue; tells its fate: 'requeued', 'failed' or 'canceled'."""
        kind = self.app.kinds.get(item.lease.kind) or await self._declared(item.lease.kind)
        if kind.gate is not None:
            told = await self.gates.release_error(kind, item.lease.tenant, item.error)
            item = dataclasses.replace(item, error=told)
        fate = await self._returns.add(item)
        if fate != "requeued":
            await self._ended(kind, item.lease)
            return fate
        self._touch((item.lease.job_id,))
        if item.delay is None:
            self.ring_back({item.lease.queue})
        return fate

    async def park(self, lease: Lease, memo: Any = None) -> str:
        """Put a job aside until its answer comes; one whose cancel was asked for ends instead. Tells its state."""
        try:
            state = await leases.park(self.homes.door(lease.tenant), lease, memo, size_max=self._size_max(lease))
        except LeaseLostError:
            if not await leases.is_canceling(self.db, lease):
                raise
            return await self.finish(End(lease, "canceled", error=CanceledError().as_dict()))
        kind = self.app.kinds.get(lease.kind)
        if kind is not None and kind.needs:
            await self.providers.parked(lease.tenant, lease.job_id)
        self._touch((lease.job_id,))
        return state

    async def proceed(self, lease: Lease, answer: Any, memo: Any = None) -> str:
        """Take a job that would wait for an answer on, because that is there; its worker keeps it. Tells the state."""
        door = self.homes.door(lease.tenant)
        state = await leases.proceed(door, lease, memo, answer, size_max=self._size_max(lease))
        self._touch((lease.job_id,))
        return state

    def _size_max(self, lease: Lease) -> int:
        kind = self.app.kinds.get(lease.kind)
        return values.BYTES_MAX if kind is None else kind.size_max

    async def abandon(self, token: UUID) -> None:
        self.ring_back(await leases.abandon(self.homes.everywhere, token))

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        await leases.close(self.db, tokens)
        await self.estimates.learn()

    def _touch(self, job_ids: Iterable[UUID]) -> None:
        """Something has happened to jobs: who watches them may look, and there may be something to tell."""
        self.audience.touch(job_ids)
        self.deliveries.stir()

    def ring_back(self, queues: Iterable[str]) -> None:
        """Ring for jobs that joined the line not at its end: workers must look behind the place they came to."""
        self.bell.ring({f"{BACK_TOPIC}{queue}" for queue in queues})


class Ringer(Protocol):
    """Wakes those who wait for topics: names of queues, or what a prefix above says."""

    def ring(self, topics: set[str], *, carried: bool = False) -> None:
        """Wake this process at once and the others soon, unless a statement has carried it to them."""
        ...

    def carry(self, topics: set[str]) -> str | None:
        """What a statement should ring for on its way; nothing, if the others have only just been woken."""
        ...

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        """Call ``heard`` with the topics whenever it rings."""
        ...


class Audience(Protocol):
    """Those who watch jobs in this process."""

    def touch(self, job_ids: Iterable[UUID]) -> None:
        """Something was written about these jobs."""
        ...


class _Silence:
    def ring(self, topics: set[str], *, carried: bool = False) -> None: ...

    def carry(self, topics: set[str]) -> None: ...

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None: ...


class _Nobody:
    def touch(self, job_ids: Iterable[UUID]) -> None: ...
