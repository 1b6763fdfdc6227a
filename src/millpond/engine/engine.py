"""The engine: every verb in one place. Each is one transaction; frequent ones are combined by batchers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, Protocol, Unpack, cast
from uuid import UUID

import msgspec

from millpond import ids, kinds, logs, values
from millpond.app import Millpond
from millpond.engine import verify
from millpond.engine.access.access import Access
from millpond.engine.batcher import Batcher
from millpond.engine.bulk.operations import BulkOperations
from millpond.engine.composition import batches, budgets, steps
from millpond.engine.composition.client_batches import ClientBatches
from millpond.engine.composition.parents import ParentNotifier
from millpond.engine.credits import ledger
from millpond.engine.fleet.scaling import RouteLoads
from millpond.engine.fleet.source import HEARTBEAT, LEASE, EngineSource
from millpond.engine.fleet.workers import Workers
from millpond.engine.jobs import chunks, events, gates, jobs, tracebacks, transactions
from millpond.engine.jobs.artifacts import Artifacts
from millpond.engine.jobs.gates import Gates
from millpond.engine.jobs.jobs import Submission, Submitted
from millpond.engine.providers.providers import Providers
from millpond.engine.queue import leases, queues, registry
from millpond.engine.queue.dispatches import BACK_TOPIC, CANCEL_TOPIC
from millpond.engine.queue.fires import Fires
from millpond.engine.queue.leases import ClaimRequest, End
from millpond.engine.queue.limits import Limits
from millpond.engine.queue.schedules import Schedules
from millpond.engine.reads import health
from millpond.engine.reads.counters import Counters
from millpond.engine.reads.estimates import Estimates
from millpond.engine.reads.summaries import JobSummaries
from millpond.engine.reads.views import Views
from millpond.engine.tenant_databases.databases import TenantDatabases
from millpond.engine.webhooks.deliveries import Deliveries
from millpond.engine.webhooks.endpoints import Endpoints
from millpond.engine.webhooks.vault import Safe, Vault
from millpond.errors import (
    CanceledError,
    ConflictError,
    InvalidError,
    LeaseLostError,
    MillpondError,
    NotFoundError,
    OutboundRefusedError,
    TransitionDeniedError,
)
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.store.callers_transaction import adopt
from millpond.store.db import Database, new_id
from millpond.store.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
    from datetime import timedelta

    from millpond.engine.composition.batches import Batch, ChildCounts, ChildPage
    from millpond.engine.composition.budgets import Budget
    from millpond.engine.composition.steps import Question
    from millpond.engine.credits.ledger import Balance, Entry, Refund, RefundTarget
    from millpond.engine.jobs.events import Event, JobHistory
    from millpond.engine.jobs.jobs import (
        CancelAnswer,
        JobRecord,
        KeyedRequest,
        Prioritized,
        SubmitOptions,
        SubmitRequest,
    )
    from millpond.engine.queue.dispatches import Lanes
    from millpond.engine.queue.leases import HeartbeatAnswer, Lease, LeasedJob, Note, Return
    from millpond.engine.reads.health import QueueFlow, QueueHealth
    from millpond.engine.verify import Violation
    from millpond.engine.webhooks.deliveries import SealedHook
    from millpond.errors import IdempotencyConflictError
    from millpond.lifecycle import Lifecycle
    from millpond.providers import Provider
    from millpond.storage import Storage
    from millpond.store.callers_transaction import CallersTransaction
    from millpond.webhooks import Hook
    from millpond.work import BatchResults, ChildRequest, Chunk, SpawnRequest, Step, StepRequest

BULK_MAX: Final = 10_000
_BULK_SIZE: Final = 1_000
_NO_ID: Final = UUID(int=0)
_CLOCK_PAUSE: Final = 0.002
_BULK_LANES: Final = 4  # some are prepared here, or wait for the disk, while the database works on the others


class Engine:
    """The jobs of an app in one database, and those of tenants with databases of their own."""

    def __init__(
        self,
        db: Database,
        app: Millpond | None = None,
        *,
        storage: Storage | None = None,
        tenant_databases: TenantDatabases | None = None,
        outbound: Outbound | None = None,
        providers: Iterable[Provider] = (),
        vault: Vault | Callable[[], Vault] | None = None,
    ) -> None:
        self.db = db
        self.outbound = outbound or Outbound()
        """Sends requests to user-supplied URLs; by default none to private addresses."""
        self.safe = Safe(vault, db)
        """Encrypts the secrets of webhooks."""
        self.tenant_databases = tenant_databases or TenantDatabases(db)
        self.app = app or Millpond()
        self.notifier: NotifierProtocol = _NoNotifier()
        """Wakes waiting processes. A notifier replaces it when it is attached."""
        self.access = Access(db, lambda topics: self.notifier.notify(topics), self.database)  # noqa: PLW0108 - the notifier is attached later
        self.views = Views(self.tenant_databases)
        self.summaries = JobSummaries(self.tenant_databases)
        self.bulk_operations = BulkOperations(self)
        self.batches = ClientBatches(self)
        self.schedules = Schedules(self)
        self.fires = Fires(self)
        self.limits = Limits(self)
        self.audience: Audience = _NoAudience()
        """Is called with the jobs that have just changed; the hub replaces it."""
        self.estimates = Estimates(db, self.tenant_databases, self.limits)
        self.counters = Counters(self.tenant_databases)
        self.artifacts = Artifacts(self.database, self.databases, storage)
        self.workers = Workers(self)
        self.scaling = RouteLoads(self)
        self.endpoints = Endpoints(self)
        self.deliveries = Deliveries(self)
        self.providers = Providers(self, providers)
        self.parent_notifier = ParentNotifier(self, self._start)
        self.gates = Gates(self.app.gates)
        """The gates by name: those of the app, and those that products add."""
        executor = self.tenant_databases.executor
        self._submits: Batcher[Submission, Submitted] = Batcher(
            self._submit_batch, apart=lambda item: executor(item.tenant)
        )
        self._finishes: Batcher[End, str] = Batcher(
            lambda batch: leases.finish(executor(batch[0].lease.tenant), batch),
            lanes=2,
            apart=lambda end: (end.outcome, executor(end.lease.tenant)),
        )
        self._returns: Batcher[Return, str] = Batcher(
            lambda batch: leases.give_back(executor(batch[0].lease.tenant), batch),
            apart=lambda item: (item.cause, executor(item.lease.tenant)),
        )
        self._notes: Batcher[Sequence[Note], bool] = Batcher(
            lambda batch: leases.note_groups(executor(batch[0][0].lease.tenant), batch),
            apart=lambda notes: executor(notes[0].lease.tenant),
            weigh=len,
        )
        self._steps: Batcher[StepRequest, Step] = Batcher(
            lambda batch: steps.record(executor(batch[0].lease.tenant), batch),
            apart=lambda item: executor(item.lease.tenant),
        )
        self._stops = 0
        """How many reasons there were to look at waiting jobs again since that was last done."""
        self._emits: Batcher[Sequence[Chunk], bool] = Batcher(
            self._emit_batch, apart=lambda group: executor(group[0].lease.tenant), weigh=len
        )
        self._watchers: set[asyncio.Task[None]] = set()
        self._is_shared = False
        """Whether everything but the connections belongs to another engine."""

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
        """Connect, migrate the schema and register the app's kinds and schedules. Without storage it accepts no files.

        ``tenant_databases`` maps each tenant that has a database of its own to its address. Without a vault, which
        encrypts their secrets, there are no webhooks.
        """
        app = app or Millpond()
        declared = list(lifecycles)

        async def prepare(address: str) -> None:
            if applied := await migrate(address):
                logs.emit("db.migrated", applied=applied)
            db = await Database.open(address, size=1)
            try:
                await registry.register(db, app.kinds.values(), declared)
            finally:
                await db.close()

        if applied := await migrate(dsn):
            logs.emit("db.migrated", applied=applied)
        db = await Database.open(dsn, size=pool_size)
        databases = await TenantDatabases.open(db, tenant_databases or {}, size=pool_size, step=prepare)
        engine = cls(
            db, app, storage=storage, tenant_databases=databases, outbound=outbound, providers=providers, vault=vault
        )
        await registry.register(engine.db, engine.app.kinds.values(), declared)
        await engine.schedules.declare()
        return engine

    async def beside(self, *, pool_size: int, cut: timedelta) -> Engine:
        """The same engine on a few connections of its own, where statements that take longer than ``cut`` are canceled.

        For callers that must not slow down the others. It behaves like another process: each of the two learns through
        the notifier what the other does. Closing it closes only its own connections. Attach the notifier first.
        """
        db = await Database.open(self.db.dsn, size=pool_size, cut=cut)
        made = Engine(
            db,
            self.app,
            storage=self.artifacts.store if self.artifacts.has_store else None,
            tenant_databases=await self.tenant_databases.beside(db, size=pool_size, cut=cut),
            outbound=self.outbound,
            vault=self.safe.vault,
        )
        made._is_shared = True
        made.providers = self.providers.beside(made)
        made.gates, made.notifier, made.audience = self.gates, self.notifier, self.audience
        made.workers.settings = self.workers.settings
        made.deliveries.listen(self.deliveries.poll_soon)
        for listener in (made.access.hear, made.workers.hear):
            self.notifier.listen(listener)
        return made

    async def expedite(self) -> None:
        """Fail calls at once while a database does not respond, until this is canceled; for a process that stops."""
        await asyncio.gather(*(db.expedite() for db in self.databases()))

    async def close(self) -> None:
        for watcher in self._watchers:
            watcher.cancel()
        await self.workers.close()
        if not self._is_shared:
            await self.providers.close()
            await self.outbound.close()
        await self.access.close()
        await self.tenant_databases.close()
        await self.db.close()

    def database(self, tenant: str) -> Database:
        """The database with the tables of a tenant."""
        return self.tenant_databases.of(tenant)

    def databases(self) -> Iterable[Database]:
        """All databases with tables of tenants."""
        return self.tenant_databases.all

    # Clients

    async def submit(
        self,
        kind: str,
        input: Any = None,
        *,
        tx: Any = None,
        hook: Hook | None = None,
        **options: Unpack[SubmitOptions],
    ) -> Submitted:
        """Submit a job: its key, cap, hold, row, place in the queue and first events commit together.

        With ``tx``, a connection or session of asyncpg, psycopg or SQLAlchemy, they commit with the caller's own rows.
        With ``hook``, webhooks about the job are sent to a URL of its own, signed with a secret of its own.
        """
        item = await self._item(kind, input, hook, **options)
        passed = item if isinstance(item, Submitted) else await self._admit_one(item)
        if isinstance(passed, Submitted):
            return passed
        return await (self._submits.add(passed) if tx is None else self._submit_in(adopt(tx), passed))

    async def _item(
        self, kind: str, input: Any = None, hook: Hook | None = None, **options: Unpack[SubmitOptions]
    ) -> Submission | Submitted:
        """A validated and priced request for a job, or the stored answer to its key."""
        if hook is None:
            item = jobs.prepare(self.app.kinds, kind, input, **options)
        else:
            item = await self._with_hook(kind, input, hook, options)
        if isinstance(item, Submission):
            self.providers.check(self.app.kinds[item.kind])
        return item

    async def _admit_one(self, item: Submission) -> Submission | Submitted:
        """The request as the gate of its kind, if any, lets it pass; or the stored answer to its key."""
        if self.app.kinds[item.kind].gate is None:
            return item
        (passed,) = await self._admit([item])
        if isinstance(passed, Exception):
            raise passed
        return passed

    async def replay(
        self,
        kind: str,
        input: Any = None,
        *,
        tenant: str,
        account: str,
        idempotency_key: str,
        scope: str | None = None,
        request: Any = None,
        tags: Mapping[str, str] | None = None,
    ) -> Submitted | None:
        """The stored answer to a submit with this key, or None if the key is new; for callers that check this first.

        A replay does not depend on later changes: what the input was made from need not exist any more.
        """
        item = jobs.keyed(
            self.app.kinds,
            kind,
            input,
            tenant=tenant,
            account=account,
            idempotency_key=idempotency_key,
            scope=scope,
            request=request,
            tags=tags,
        )
        known = await self._answered(item)
        if isinstance(known, Exception):
            raise known
        return known

    async def _answered(self, item: Submission | KeyedRequest) -> Submitted | IdempotencyConflictError | None:
        """The stored answer to the key of an item. Its kind may have had a gate then and none now, or vice versa."""
        digested = gates.digested(item)
        likely, other = (item, digested) if self.app.kinds[item.kind].gate is None else (digested, item)
        return (await self._replayed([other], [likely])).get(item.job_id)

    async def _admit(self, items: Sequence[Submission]) -> list[Submission | Submitted | Exception]:
        """Check jobs of kinds with gates: each result is the job as it may pass, a stored answer or a refusal.

        A key that has an answer is replayed: its gate is not asked again, whatever it would decide today.
        """
        digested = [gates.digested(item) for item in items]
        replayed = await self._replayed(items, digested)
        return await asyncio.gather(*(self._admit_or_replay(item, replayed.get(item.job_id)) for item in digested))

    async def _replayed(
        self, items: Sequence[Submission | KeyedRequest], digested: Sequence[Submission | KeyedRequest]
    ) -> dict[UUID, Submitted | IdempotencyConflictError]:
        """The stored answers to the keys of these items, by their requests and by the digests of these."""
        replayed: dict[UUID, Submitted | IdempotencyConflictError] = {}
        for database in {self.database(item.tenant) for item in digested if item.key is not None}:
            own = [
                n for n, item in enumerate(digested) if item.key is not None and self.database(item.tenant) is database
            ]
            replayed |= await jobs.replays(database, [digested[n] for n in own])
            conflicting = [n for n in own if isinstance(replayed.get(digested[n].job_id), Exception)]
            if conflicting:  # Its kind may have had no gate at that time.
                replayed |= await jobs.replays(database, [items[n] for n in conflicting])
        return replayed

    async def _admit_or_replay(
        self, item: Submission, known: Submitted | Exception | None
    ) -> Submission | Submitted | Exception:
        if known is not None:
            return known
        try:
            return await self.gates.admit(self.app.kinds[item.kind], item)
        except MillpondError as error:
            return error

    async def _with_hook(self, kind: str, input: Any, hook: Hook, options: SubmitOptions) -> Submission | Submitted:
        """A validated request for a job with its own webhook, whose encrypted secret is bound to the id of the job.

        A key that has an answer is replayed, even if the URL is no longer accepted.
        """
        tenant, job_id = values.check_name(options.get("tenant"), field="tenant"), options.get("job_id") or new_id()
        options = {**options, "job_id": job_id}
        found = kinds.find(self.app.kinds, kind)
        try:
            sealed = await self.deliveries.seal(hook, found, tenant, job_id)
        except OutboundRefusedError:
            if options.get("idempotency_key") is None:
                raise
            asked = self.deliveries.asked(hook, found)
            item = jobs.prepare(self.app.kinds, kind, input, hook=asked, **options)
            known = await self._answered(item)
            if known is None:
                raise
            if isinstance(known, Exception):
                raise known from None
            return known
        return jobs.prepare(self.app.kinds, kind, input, hook=sealed, **options)

    async def hook_secret(self, tenant: str, job_id: UUID | str) -> str:
        """The secret of a job's own webhook: a replay returns it like the first answer."""
        hook = await self.deliveries.hook_of(tenant, ids.parse("job", job_id))
        if hook is None:
            raise NotFoundError("The job was submitted without a webhook URL.", field="id")
        return hook.secret

    async def _submit_in(self, tx: CallersTransaction, item: Submission) -> Submitted:
        if self.database(item.tenant) is not self.db:
            raise transactions.remote_tenant()
        submitted = await transactions.submit(tx, item)
        if not isinstance(self.notifier, _NoNotifier):
            self._start(self._notify_after(tx, item.queue))
        return submitted

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run something in the background."""
        watcher = asyncio.create_task(work)
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return watcher

    async def _notify_after(self, tx: CallersTransaction, queue: str) -> None:
        """Notify workers after the commit. By then they may have passed the job's position in the queue."""
        await transactions.ended(tx)
        self.notify_requeued({queue})
        self.deliveries.poll_soon()

    async def submit_many(self, requests: Sequence[SubmitRequest]) -> list[Submitted | Exception]:
        """Submit many jobs; each is accepted or rejected separately. :class:`SubmitRequest` has their fields.

        They are sent in parts. If an account cannot pay for all its jobs, the first ones of each part are accepted.
        """
        if len(requests) > BULK_MAX:
            raise InvalidError(f"At most {BULK_MAX:,} jobs can be submitted at once.", field="jobs")
        lanes = asyncio.Semaphore(_BULK_LANES)

        async def send(chunk: Sequence[SubmitRequest]) -> list[Submitted | Exception]:
            async with lanes:
                return await self._submit_chunk(chunk)

        chunks = [requests[n : n + _BULK_SIZE] for n in range(0, len(requests), _BULK_SIZE)]
        return [answer for answers in await asyncio.gather(*map(send, chunks)) for answer in answers]

    async def prepare_many(self, requests: Sequence[SubmitRequest]) -> list[Submission]:
        """Validate and price jobs that are to be submitted together, or raise for the first one that is refused."""
        prepared = [self._prepared(request) for request in requests]
        _check_all(prepared)
        passed = await self._admit_some(prepared)
        _check_all(passed)
        return [item for item in passed if isinstance(item, Submission)]

    async def _submit_chunk(self, requests: Sequence[SubmitRequest]) -> list[Submitted | Exception]:
        if any(request.get("hook") is not None for request in requests):
            ready = await asyncio.gather(*map(self._prepared_with_hook, requests))
        else:
            ready = [self._prepared(request) for request in requests]
        prepared = await self._admit_some(ready)
        items = [item for item in prepared if isinstance(item, Submission)]
        submitted: dict[int, Submitted | Exception] = {}
        for executor in {self.tenant_databases.executor(item.tenant) for item in items}:
            own = [item for item in items if self.tenant_databases.executor(item.tenant) is executor]
            try:
                answers: Iterable[Submitted | Exception] = await self._submit_batch(own)
            except MillpondError as error:
                answers = repeat(error, len(own))
            submitted.update(zip(map(id, own), answers, strict=True))
        return [submitted[id(item)] if isinstance(item, Submission) else item for item in prepared]

    async def _admit_some(
        self, prepared: Sequence[Submission | Submitted | Exception]
    ) -> Sequence[Submission | Submitted | Exception]:
        """Check the items whose kinds have gates."""
        kinds = self.app.kinds
        gated = [item for item in prepared if isinstance(item, Submission) and kinds[item.kind].gate is not None]
        if not gated:
            return prepared
        passed = dict(zip(map(id, gated), await self._admit(gated), strict=True))
        return [passed.get(id(item), item) for item in prepared]

    async def _submit_batch(self, items: Sequence[Submission]) -> list[Submitted | Exception]:
        """Submit jobs of tenants that share a database."""
        submitted = await self.tenant_databases.submit(items, self.notifier)
        self.deliveries.poll_soon()
        return submitted

    async def _prepared_with_hook(self, request: SubmitRequest) -> Submission | Submitted | Exception:
        try:
            return await self._item(**request)
        except Exception as error:  # noqa: BLE001 - each item has its own outcome
            return error

    def _prepared(self, request: SubmitRequest) -> Submission | Exception:
        try:
            item = jobs.prepare(self.app.kinds, **request)  # pyright: ignore[reportArgumentType] - none has a hook
            self.providers.check(self.app.kinds[item.kind])
            return item
        except Exception as error:  # noqa: BLE001 - each item has its own outcome
            return error

    async def read(self, tenant: str, job_id: UUID | str) -> JobRecord:
        return await jobs.read(self.database(tenant), tenant, job_id)

    async def list_jobs(
        self,
        tenant: str,
        account: str,
        *,
        before: UUID | None = None,
        kind: str | None = None,
        state: str | None = None,
        phase: str | None = None,
        limit: int = 50,
    ) -> list[JobRecord]:
        return await jobs.list_jobs(
            self.database(tenant), tenant, account, before=before, kind=kind, state=state, phase=phase, limit=limit
        )

    async def memo(self, tenant: str, job_id: UUID | str) -> str | None:
        """The memo that the handler has stored, as JSON."""
        return await jobs.memo(self.database(tenant), tenant, job_id)

    async def histories(self, tenant: str, job_ids: Sequence[UUID]) -> dict[UUID, JobHistory]:
        """Summaries of the events of these jobs: when they changed, and how often they were tried."""
        return await events.histories(self.database(tenant), tenant, job_ids)

    async def held(self, job_ids: Sequence[UUID]) -> dict[UUID, LeasedJob]:
        """Those of these jobs that are leased, with their leases."""
        return await leases.held(self.db, job_ids)

    async def cancel(self, tenant: str, job_id: UUID | str, *, grace: timedelta = jobs.GRACE) -> CancelAnswer:
        """End a job that has not started, or ask the worker of a started one to stop it."""
        answer = await jobs.cancel(self.tenant_databases.executor(tenant), tenant, job_id, grace=grace)
        if answer.is_accepted:
            self.notifier.notify({f"{CANCEL_TOPIC}{answer.job_id}"})
            await self.providers.poll_soon(tenant, answer.job_id)
            self._touch((answer.job_id,))
        if answer.is_ended:
            self.parent_notifier.job_ended(tenant, answer.job_id)
        return answer

    async def canceled(self, tenant: str, kinds: Mapping[UUID, str]) -> None:
        """Notify the watchers of jobs that were canceled together, by their kinds, and the providers that they need."""
        for job_id, name in kinds.items():
            kind = self.app.kinds.get(name)
            if kind is None or kind.needs:
                await self.providers.poll_soon(tenant, job_id)
        self._touch(kinds)

    async def answer(self, tenant: str, job_id: UUID | str, answer: Any, *, size_max: int = values.BYTES_MAX) -> str:
        """Answer a parked job, and return its state."""
        state, queue = await jobs.answer(
            self.tenant_databases.executor(tenant), tenant, job_id, answer, size_max=size_max
        )
        self._touch((ids.parse("job", job_id),))
        self.notify_requeued({queue})
        return state

    async def restore_dispatch(self, tenant: str, job_id: UUID) -> None:
        """Queue a job that was accepted but not queued, because its process died between the two.

        This can happen only to tenants with a database of their own. The ensurer does the same after two seconds.
        """
        self.notify_requeued(await self.tenant_databases.restore(tenant, job_id))

    async def retry(
        self,
        tenant: str,
        job_id: UUID | str,
        *,
        even_if_succeeded: bool = False,
        idempotency_key: str | None = None,
        operation: str | None = None,
    ) -> Submitted:
        """Run an ended job again: in place if its lifecycle has a transition for it, otherwise as a new job.

        A job that succeeded is retried only ``even_if_succeeded``: it would be paid for, and take effect, twice.

        With a key the new job is made only once. A retry in place refuses a key, because there is no new job to store
        it with. It can be repeated safely while the job runs: a job that has started again has not ended, and is
        refused. The bulk operation is part of the request that a key stands for: if another one has used the key, that
        is a conflict.
        """
        job = await self.read(tenant, job_id)
        kind = self.app.kinds.get(job.kind)
        if kind is not None:
            self.providers.check(kind)
        if kind is not None and any(m.event == "retried" for m in kind.lifecycle.transitions):
            if idempotency_key is not None:
                raise InvalidError(
                    f"Jobs of kind {kind.name!r} are retried in place, which does not support an idempotency key.",
                    field="idempotency_key",
                    hint="Omit the key. If the job may have been retried already, read it first.",
                )
            if any(m.event == "retried" and m.source == job.state for m in kind.lifecycle.transitions):
                jobs.check_success(job, even_if_succeeded=even_if_succeeded)
            if kind.gate is not None:
                await self.gates.check_retry(kind, job)
            with jobs.denied_as(job.job_id, kind.lifecycle.initial):
                submitted = await jobs.revive(self.tenant_databases.executor(tenant), job, kind.expires_in)
            jobs.report_path(job.job_id, job.kind, job.state, kind.lifecycle.initial, submitted.state)
        else:
            jobs.check_success(job, even_if_succeeded=even_if_succeeded)
            job_id, hook = await self._same_hook(job)
            item = jobs.again(
                self.app.kinds, job, idempotency_key=idempotency_key, operation=operation, job_id=job_id, hook=hook
            )
            passed = await self._admit_one(item)
            submitted = passed if isinstance(passed, Submitted) else await self._submits.add(passed)
        self.notify_requeued({job.queue})
        self._touch((job.job_id,))
        return submitted

    async def _same_hook(self, job: JobRecord) -> tuple[UUID, SealedHook | None]:
        """The id of the retry of a job, and the webhook of the job, if it has one, with its secret bound to that id."""
        job_id = new_id()
        hook = await self.deliveries.hook_of(job.tenant, job.job_id)
        kind = kinds.find(self.app.kinds, job.kind)
        return job_id, None if hook is None else await self.deliveries.seal(hook, kind, job.tenant, job_id)

    async def events(self, tenant: str, job_id: UUID | str, after: int = 0, *, limit: int = 500) -> list[Event]:
        """The events of a job after this number, in order."""
        found = await events.after(self.database(tenant), tenant, ids.parse("job", job_id), after, limit=limit)
        if not found:  # either nothing new, or no such job
            await self.read(tenant, job_id)
        return found

    # Operators

    async def transition(self, tenant: str, job_id: UUID | str, state: str) -> str:
        """Move a job to a state by a transition of its lifecycle."""
        transitioned = await jobs.transition(self.tenant_databases.executor(tenant), tenant, job_id, state)
        number = ids.parse("job", job_id)
        self._touch((number,))
        self.parent_notifier.job_ended(tenant, number)
        return transitioned

    async def grant(
        self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str | None = None
    ) -> int:
        return await ledger.grant(self.database(tenant), tenant, account, amount, reference=reference, reason=reason)

    async def adjust(self, tenant: str, account: str, amount: int, *, reference: str | None = None, reason: str) -> int:
        return await ledger.adjust(self.database(tenant), tenant, account, amount, reference=reference, reason=reason)

    async def refund(
        self,
        tenant: str,
        job_id: UUID | str,
        *,
        amount: int | None = None,
        key: str | None = None,
        reason: str,
        actor: str,
        seen: RefundTarget | None = None,
    ) -> Refund:
        """Refund an amount of what an ended job cost, or all that remains. Repeated calls refund once.

        The job does not change. The refund is audited in the same commit, or after it if the tenant has a database of
        its own.
        """
        return await ledger.refund(
            self.tenant_databases.executor(tenant), tenant, job_id, amount, key, reason, actor, seen
        )

    async def prioritize(self, tenant: str, job_id: UUID | str, priority: int) -> Prioritized:
        """Change the priority of a job that has not started; higher runs first."""
        prioritized = await jobs.prioritize(self.tenant_databases.executor(tenant), tenant, job_id, priority)
        if prioritized.is_changed:
            self._touch((prioritized.job_id,))
            self.notify_requeued({prioritized.queue})
        return prioritized

    async def balance(self, tenant: str, account: str) -> Balance:
        return await ledger.balance(self.database(tenant), tenant, account)

    async def entries(self, tenant: str, account: str, *, before: int | None = None, limit: int = 50) -> list[Entry]:
        return await ledger.entries(self.database(tenant), tenant, account, before=before, limit=limit)

    async def set_cap(self, tenant: str, account: str, active_max: int | None) -> Balance:
        return await ledger.set_cap(self.database(tenant), tenant, account, active_max)

    async def verify(self, *, newest: timedelta | None = None) -> list[Violation]:
        """All violations of invariants, in all databases and between them."""
        return await verify.verify_all(self.tenant_databases, newest=newest)

    async def pause(self, queue: str) -> None:
        await queues.pause(self.db, queue)

    async def resume(self, queue: str) -> None:
        await queues.resume(self.db, queue)
        self.notify_requeued({queue})

    async def queue_health(self) -> list[QueueHealth]:
        """The health of all queues, by name."""
        return await health.queues(self.db, self.tenant_databases, self.workers.settings.silence)

    async def queue_flow(self, first: UUID, limit: int) -> list[QueueFlow]:
        """The flow of each queue in each database, among the newest ``limit`` jobs from the id ``first`` on."""
        return await health.flow(self.tenant_databases, first, limit)

    # Workers

    def source(
        self,
        *,
        name: str = "",
        lease: timedelta = LEASE,
        heartbeat: timedelta = HEARTBEAT,
        with_fleet: bool = False,
    ) -> EngineSource:
        """The source of jobs for a worker in this process: ``Worker(engine.source(), app)``.

        ``lease`` is how long a worker that stops responding keeps its jobs, ``heartbeat`` how often it extends its
        leases, and ``name`` its name. Attach the notifier first, so that its notifications arrive.
        """
        return EngineSource(self, name, lease, heartbeat, with_fleet)

    async def claim(self, lanes: Lanes, want: int, *, worker: str, duration: timedelta) -> list[Lease]:
        return await self.claim_for(lanes, [ClaimRequest(worker, want)], duration)

    async def claim_for(self, lanes: Lanes, wants: Sequence[ClaimRequest], duration: timedelta) -> list[Lease]:
        """Claim jobs for several workers at once. Each lease has the token of the worker's request."""
        claimed = await leases.claim(self.tenant_databases.executor_for_all, lanes, wants, duration)
        if claimed:
            self._touch(lease.job_id for lease in claimed)
        return claimed

    async def extend(self, held: Sequence[Lease], duration: timedelta) -> HeartbeatAnswer:
        return await leases.extend(self.db, held, duration)

    async def note(self, *notes: Note) -> bool:
        """Write progress, a stage or a log line, and return whether the job must stop.

        Several notes of one lease are all written, or none: when they are sent again, no later note has overtaken them.
        """
        must_stop = await self._notes.add(notes)
        self.audience.touch((notes[0].lease.job_id,))
        return must_stop

    async def emit(self, *groups: Sequence[Chunk]) -> list[bool | Exception]:
        """Write text that running jobs emit. Each group has the chunks of one lease, which are all written, or none.

        Each result is whether the job must stop, or why its text was refused.
        """
        emitted = await asyncio.gather(*map(self._emits.add, groups), return_exceptions=True)
        return cast("list[bool | Exception]", emitted)

    async def _emit_batch(self, groups: Sequence[Sequence[Chunk]]) -> list[bool | Exception]:
        written = await chunks.emit(self.tenant_databases.executor(groups[0][0].lease.tenant), groups)
        self.audience.emitted(
            group[0].lease.job_id for group, result in zip(groups, written, strict=True) if isinstance(result, bool)
        )
        return written

    async def keep_traceback(self, lease: Lease, text: str) -> None:
        """Store where the handler raised the error of this attempt, for operators."""
        await tracebacks.keep(self.tenant_databases.executor(lease.tenant), lease, text)

    async def finish(self, end: End) -> str:
        """End a job as its worker reports. If it succeeded and its kind requires a delivery, it is delivered first."""
        kind = self.app.kinds.get(end.lease.kind)
        released = await self._release(kind, end)
        is_withheld, end = released.outcome != end.outcome, released
        if end.outcome == "succeeded" and kind is not None and kind.is_delivered:
            end = msgspec.structs.replace(end, outcome="delivering")
        try:
            state = await self._finishes.add(end)
        except TransitionDeniedError as denied:
            denied.details["outcome"] = end.outcome
            if not is_withheld:
                raise
            # Its lifecycle has no transition for 'blocked'; every running job can fail.
            end = msgspec.structs.replace(end, outcome="failed")
            state = await self._finishes.add(end)
        self.estimates.saw(end)
        await self._ended(kind, end.lease)
        return state

    async def _ended(self, kind: Kind | None, lease: Lease) -> None:
        """Notify the watchers, and the providers if the kind needs any, that a worker is done with a job."""
        if kind is not None and kind.needs:
            await self.providers.poll_soon(lease.tenant, lease.job_id)
        self._touch((lease.job_id,))
        self._leave_limits(lease)
        if lease.parent_id is not None:
            self.parent_notifier.child_ended(lease.tenant, lease.parent_id)

    def _leave_limits(self, lease: Lease) -> None:
        """Soon, let jobs start that waited for this one to stop. Otherwise, the scheduler does it."""
        kind = self.app.kinds.get(lease.kind)
        if kind is not None and kind.limits:
            self.look_again_soon()

    def look_again_soon(self) -> None:
        """Look at waiting jobs again, in the background."""
        self._stops += 1
        if self._stops == 1:
            self._start(self._look_until_done())

    async def _look_until_done(self) -> None:
        while (stops := self._stops) > 0:
            with contextlib.suppress(MillpondError):
                await self.limits.look_again()
            self._stops -= stops

    async def _release(self, kind: Kind | None, end: End) -> End:
        """Check the output or the error of a job with its gate."""
        if end.outcome != "succeeded" and end.error is None:
            return end
        kind = kind or await self._undeclared(end.lease.kind)
        if kind.gate is None:
            return end
        if end.outcome == "succeeded":
            return await self.gates.release(kind, end)
        error = await self.gates.release_error(kind, end.lease.tenant, end.error or {})
        return msgspec.structs.replace(end, error=error)

    async def _undeclared(self, kind: str) -> Kind:
        """A kind that this app does not declare, with the gate that the database has for it."""
        row = await self.db.run(registry.SQL["gate"], kind)
        return Kind(name=kind, gate=None if row is None else row["gate"])

    async def give_back(self, item: Return) -> str:
        """Return a job to the queue, or end it; returns its fate: 'requeued', 'failed' or 'canceled'."""
        kind = self.app.kinds.get(item.lease.kind) or await self._undeclared(item.lease.kind)
        if kind.gate is not None:
            error = await self.gates.release_error(kind, item.lease.tenant, item.error)
            item = dataclasses.replace(item, error=error)
        await self._close_limit(kind, item)
        fate = await self._returns.add(item)
        if fate != "requeued":
            await self._ended(kind, item.lease)
            return fate
        self._touch((item.lease.job_id,))
        self._leave_limits(item.lease)
        if item.delay is None:
            self.notify_requeued({item.lease.queue})
        return fate

    async def _close_limit(self, kind: Kind, item: Return) -> None:
        """Let no other job start under a limit for as long as a job waits that was refused because of it."""
        name = item.error.get("limit")
        if item.delay and name in {limit.name for limit in kind.limits}:
            with contextlib.suppress(MillpondError):  # without it, the next job is refused too
                await self.limits.close_for(item.lease.job_id, name, item.delay)

    async def park(self, lease: Lease, memo: Any = None) -> str:
        """Park a job until it is answered, and return its state. A job whose cancel was requested ends instead."""
        executor = self.tenant_databases.executor(lease.tenant)
        state = await self._park(lease, leases.park(executor, lease, memo, size_max=self._size_max(lease)))
        kind = self.app.kinds.get(lease.kind)
        if kind is not None and kind.needs:
            await self.providers.parked(lease.tenant, lease.job_id)
        return state

    async def proceed(self, lease: Lease, answer: Any, memo: Any = None) -> str:
        """Answer a job as if its worker had parked it, and return its state. The worker keeps the job."""
        executor = self.tenant_databases.executor(lease.tenant)
        state = await leases.proceed(executor, lease, memo, answer, size_max=self._size_max(lease))
        self._touch((lease.job_id,))
        return state

    # Steps and children

    async def record(self, item: StepRequest) -> Step:
        """Record a step of a leased job, and return it as it is recorded: an earlier attempt may have been first."""
        if item.details is not None:
            steps.check_question(item.details)
        return await self._steps.add(item)

    async def recall(self, lease: Lease, after: str = "") -> list[Step]:
        """Some of what the current run of a leased job has recorded, by name, after a name; none at the end."""
        return await steps.recall(self.tenant_databases.executor(lease.tenant), lease, after)

    async def spawn(self, request: SpawnRequest) -> Step:
        """Submit children of a leased job, all or none; return the step that waits for them."""
        lease = request.lease
        executor = self.tenant_databases.executor(lease.tenant)
        last = _NO_ID
        if request.first:
            row = await executor.run(batches.SQL["last"], lease.job_id, request.name)
            last = _NO_ID if row is None or row["job_id"] is None else row["job_id"]
        items = [await self._child(lease, child, last) for child in request.children]
        passed = await self._admit_some(items)
        if refused := next((item for item in passed if isinstance(item, Exception)), None):
            raise refused
        admitted = [item for item in passed if isinstance(item, Submission)]
        answers = await batches.spawn(executor, request, admitted)
        if answers:
            await self.tenant_databases.enqueue(admitted, answers, self.notifier)
            self._touch((lease.job_id,))
        step = await steps.find(executor, lease.job_id, request.name)
        if step is None:
            raise LeaseLostError
        return step

    async def _child(self, lease: Lease, child: ChildRequest, last: UUID) -> Submission:
        """A validated and priced child. The ids of children are in order, even if the clocks of machines differ."""
        while (job_id := new_id()) <= last:  # noqa: ASYNC110 - it waits for time to pass
            await asyncio.sleep(_CLOCK_PAUSE)
        item = await self._item(
            child.kind,
            child.input,
            tenant=lease.tenant,
            account=lease.account,
            tags=child.tags,
            priority=child.priority,
            run_at=child.run_at,
            expires_in=child.expires_in,
            route=child.route,
            job_id=job_id,
        )
        if not isinstance(item, Submission):
            raise TypeError("A child has no idempotency key.")
        return item

    async def results(self, lease: Lease, batch_id: UUID, after: UUID | None = None) -> BatchResults:
        """Some children of a leased job in order, after an id, once it need not wait for them."""
        executor = self.tenant_databases.executor(lease.tenant)
        return await batches.results(executor, lease, batch_id, after, batches.PAGE_MAX)

    async def suspend(self, lease: Lease, name: str) -> str:
        """Park a job until what a step waits for has come. A job whose cancel was requested ends instead."""
        executor = self.tenant_databases.executor(lease.tenant)
        step = await steps.find(executor, lease.job_id, name)
        if step is None or step.type == "call":
            raise InvalidError(f"The job has no step {name[:80]!r} to wait for.", field="name")
        return await self._park(lease, steps.suspend(executor, lease, step))

    async def _park(self, lease: Lease, parking: Awaitable[str]) -> str:
        try:
            state = await parking
        except LeaseLostError:
            if not await leases.is_canceling(self.db, lease):
                raise
            return await self.finish(End(lease, "canceled", error=CanceledError().as_dict()))
        self._touch((lease.job_id,))
        self._leave_limits(lease)
        return state

    async def questions(self, tenant: str, job_id: UUID | str) -> list[Question]:
        """The questions of the current run of a job, the oldest first."""
        job = await self.read(tenant, job_id)
        return await steps.questions(self.database(tenant), tenant, job.job_id)

    async def answer_question(self, tenant: str, job_id: UUID | str, name: str, answer: Any, *, actor: str) -> str:
        """Answer a question of a job, and return the job's state. Repeating the same answer has no effect."""
        number = ids.parse("job", job_id)
        state, queue = await steps.answer(self.database(tenant), tenant, number, name, answer, actor=actor)
        self.notify_requeued({queue} | await self.tenant_databases.restore(tenant, number))
        self._touch((number,))
        return state

    async def batches_of(
        self, tenant: str, job_id: UUID | str, *, after: UUID | None = None, limit: int = 50
    ) -> list[Batch]:
        """The batches of a job's children, the oldest first."""
        return await batches.of_parent(self.database(tenant), tenant, ids.parse("job", job_id), after, limit)

    async def children(
        self, tenant: str, job_id: UUID | str, *, after: UUID | None = None, limit: int = 50
    ) -> ChildPage:
        """A page of the ids of a job's children, the oldest first, after one of them."""
        values.check_limit(limit, jobs.PAGE_MAX)
        return await batches.children(self.database(tenant), tenant, ids.parse("job", job_id), after, limit)

    async def parents(self, tenant: str, job_ids: Sequence[UUID]) -> set[UUID]:
        """Those of these jobs that have children."""
        return await batches.parents(self.database(tenant), tenant, job_ids)

    async def child_counts(self, tenant: str, job_id: UUID) -> ChildCounts:
        """How many children a job has, and how they ended."""
        return await batches.counts(self.database(tenant), tenant, job_id)

    async def budget(self, tenant: str, job_id: UUID, run: int) -> Budget | None:
        """The budget of a run of a job, if it has one."""
        return await budgets.read(self.database(tenant), tenant, job_id, run)

    async def batch(self, tenant: str, batch_id: UUID | str) -> Batch:
        return await batches.read(self.database(tenant), tenant, ids.parse("batch", batch_id))

    async def members(
        self, tenant: str, batch_id: UUID, *, after: UUID | None = None, limit: int = 50
    ) -> list[JobRecord]:
        """Some jobs of a batch, in order, after an id."""
        values.check_limit(limit, jobs.PAGE_MAX)
        return await batches.members(self.database(tenant), tenant, batch_id, after, limit)

    async def cancel_orphans(self, limit: int) -> int:
        """Cancel the children of jobs that ended before them; return how many."""
        return sum(await self.tenant_databases.each(lambda db: self._cancel_orphans(db, limit)))

    async def _cancel_orphans(self, db: Database, limit: int) -> int:
        canceled = 0
        orphans = await batches.orphans(db, limit)
        for job_id, tenant in orphans:
            for child in await batches.open_children(db, job_id, limit):
                with contextlib.suppress(ConflictError, NotFoundError):  # it cannot be canceled now, or has ended
                    await self.cancel(tenant, child)
                    canceled += 1
        if orphans:
            await batches.drop_orphans(db, [job_id for job_id, _ in orphans])
        return canceled

    def _size_max(self, lease: Lease) -> int:
        kind = self.app.kinds.get(lease.kind)
        return values.BYTES_MAX if kind is None else kind.size_max

    async def abandon(self, token: UUID) -> None:
        on_end = self.parent_notifier.jobs_ended
        self.notify_requeued(await leases.abandon(self.tenant_databases.executor_for_all, token, on_end))

    async def close_leases(self, tokens: Iterable[UUID]) -> None:
        await leases.close(self.db, tokens)
        await self.estimates.learn()

    def _touch(self, job_ids: Iterable[UUID]) -> None:
        """Wake the watchers of jobs that have changed, and the sending of webhooks."""
        self.audience.touch(job_ids)
        self.deliveries.poll_soon()

    def notify_requeued(self, queues: Iterable[str]) -> None:
        """Notify workers of jobs that joined a queue elsewhere than at its end: they must scan the whole queue."""
        self.notifier.notify({f"{BACK_TOPIC}{queue}" for queue in queues})


def _check_all(prepared: Sequence[Submission | Submitted | Exception]) -> None:
    """Raise the first refusal, which names the position of its job."""
    for position, item in enumerate(prepared):
        if isinstance(item, MillpondError):
            item.field = f"jobs[{position}]" if item.field is None else f"jobs[{position}].{item.field}"
        if isinstance(item, Exception):
            raise item


class NotifierProtocol(Protocol):
    """Wakes tasks and processes that wait for topics: names of queues, or topics with a prefix from ``dispatches``."""

    def notify(self, topics: set[str], *, is_sent: bool = False) -> None:
        """Wake this process at once and the others soon, unless a statement has notified them already."""
        ...

    def payload_for_statement(self, topics: set[str]) -> str | None:
        """The payload that a statement should send itself; none if the others were notified just now."""
        ...

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None:
        """Call ``heard`` with the topics of each notification."""
        ...


class Audience(Protocol):
    """The watchers of jobs in this process."""

    def touch(self, job_ids: Iterable[UUID]) -> None:
        """These jobs have changed."""
        ...

    def emitted(self, job_ids: Iterable[UUID]) -> None:
        """These jobs have emitted text."""
        ...


class _NoNotifier:
    def notify(self, topics: set[str], *, is_sent: bool = False) -> None: ...

    def payload_for_statement(self, topics: set[str]) -> None: ...

    def listen(self, heard: Callable[[frozenset[str]], None]) -> None: ...


class _NoAudience:
    def touch(self, job_ids: Iterable[UUID]) -> None: ...

    def emitted(self, job_ids: Iterable[UUID]) -> None: ...
