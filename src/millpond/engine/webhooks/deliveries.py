"""Deliveries: the webhooks to be sent, the result of each try, and sending them again.

A delivery is written in the transaction of its lifecycle event. A sender claims it for a while, so that it becomes due
again if the sender dies; the result of a try is stored in one transaction with the next time at which it is due. If the
end of a job waits for a delivery, the job is concluded afterwards; if the process dies before that, another one
concludes it.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from millpond import ids, logs, values, webhooks
from millpond.engine.jobs import jobs
from millpond.errors import ConflictError, InvalidError, NotFoundError, UnknownKindError
from millpond.retry import read_retry_after
from millpond.store.queries import queries
from millpond.webhooks import NATIVE, WebhookData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.engine.tenant_databases.databases import TenantDatabases
    from millpond.engine.webhooks.vault import Vault
    from millpond.kinds import Kind
    from millpond.store.db import Database, Row
    from millpond.webhooks import Hook, Webhook

SQL: Final = queries("millpond.engine.webhooks", "deliveries")

STATES: Final = ("pending", "delivered", "failed", "withdrawn")
SETTLED: Final[Counter[str]] = Counter()
"""The number of tries of this process by result: ``delivered``, ``again`` or ``failed``."""
PATIENCE: Final = timedelta(days=5)
"""An endpoint whose tries have all failed for this long is disabled."""
LEASE: Final = timedelta(seconds=60)
"""For how long deliveries that a listener has pulled are claimed."""
PAGE_MAX: Final = 200
PULL_MAX: Final = 100
BODY_MAX: Final = 1_024
"""How many bytes of a response are stored."""
_HEAD_MAX: Final = 8_192
_ERROR_MAX: Final = 500
_PAUSE_MAX: Final = timedelta(hours=24)
_JITTER: Final = 0.2
_RESEND_SIZE: Final = 1_000
_COUNTED_MAX: Final = 100_000
_WALK: Final = 10_000
"""How many deliveries a page of all tenants reads at most to find those in one state."""
_TENANTS_MAX: Final = 1_000
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
_GONE: Final = 410
_ENDS: Final = {"delivered": "succeeded", "failed": "failed"}
_TIMES: Final = ("created_at", "started_at", "finished_at", "expires_at")


class SealedHook(msgspec.Struct, frozen=True):
    """The webhook URL of a job as it is stored, with its secret encrypted."""

    url: str
    receiver: str
    secret: bytes
    events: tuple[str, ...]
    decides: bool
    digest: str | None = None
    """The digest of a secret that is part of the request; see ``Hook``."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", webhooks.shown_url(self.url)), ("events", self.events), ("decides", self.decides)]

    def __repr__(self) -> str:
        return f"SealedHook({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


@dataclass(frozen=True, slots=True)
class DeliveryTry:
    """A request of a delivery, and its response."""

    number: int
    at: datetime
    seconds: float
    status: int | None
    error: str | None
    url: str | None
    request_headers: dict[str, str]
    response_headers: dict[str, str]
    response_body: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """A delivery; with its tries if it was read alone."""

    delivery_id: UUID
    tenant: str
    endpoint_id: UUID | None
    """None: it goes to the URL that the job was submitted with."""
    job_id: UUID | None
    seq: int | None
    event: str
    at: datetime
    state: str
    tries: int
    due_at: datetime | None
    settled_at: datetime | None
    url: str | None = None
    log: tuple[DeliveryTry, ...] = ()
    data: str | None = field(default=None, repr=False)
    """The data of its body, if it was read alone."""
    is_native: bool = True
    """Whether its body has the format of the native API, or that of its kind."""
    batch_id: UUID | None = None
    """The batch whose end it reports, if it does."""

    @property
    def id(self) -> str:
        """The ``webhook-id``."""
        return ids.text("msg", self.delivery_id)


class Claimed(msgspec.Struct, frozen=True):
    """A delivery that a sender has claimed."""

    delivery_id: UUID
    tenant: str
    endpoint_id: UUID | None
    job_id: UUID | None
    event: str
    receiver: str | None
    at: datetime
    data: str
    decides: bool
    tries: int
    """The earlier tries of the present schedule: a resend begins a new one."""
    due_at: datetime
    """When the claim expires. It is also the fence: only a sender that still has the claim can settle it."""
    url: str | None
    secret: bytes | None
    old_secret: bytes | None
    in_flight_max: int | None
    has_failed: bool
    is_native: bool
    """Whether its body has the format of the native API, or that of its kind."""
    batch_id: UUID | None = None

    @property
    def id(self) -> str:
        return ids.text("msg", self.delivery_id)


class SignedRequest(msgspec.Struct, frozen=True):
    """A delivery as it is sent: signed, and with the same body each time."""

    id: str
    url: str | None
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class TryResult:
    """The response of a receiver or, without a status, why there is none."""

    status: int | None
    error: str | None = None
    seconds: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    request_headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def is_taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300  # noqa: PLR2004 - the codes of success

    @property
    def retry_after(self) -> timedelta | None:
        """The delay that the receiver has requested, up to ``_PAUSE_MAX``."""
        header = next((value for name, value in self.headers.items() if name.lower() == "retry-after"), None)
        delay = None if header is None else read_retry_after(header)
        return None if delay is None else min(delay, _PAUSE_MAX)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of a try."""

    claimed: Claimed
    result: TryResult
    outcome: str
    pause: timedelta


class Deliveries:
    """The deliveries of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listeners: list[Callable[[], None]] = []

    # Senders

    def listen(self, heard: Callable[[], None]) -> None:
        """Call ``heard`` whenever there may be something to send."""
        self._listeners.append(heard)

    def unlisten(self, heard: Callable[[], None]) -> None:
        self._listeners.remove(heard)

    def poll_soon(self) -> None:
        """Wake the senders: there may be something to send."""
        for heard in self._listeners:
            heard()

    # Reads

    async def list(
        self,
        tenant: str,
        *,
        endpoint: UUID | str | None = None,
        job_id: UUID | str | None = None,
        state: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> list[DeliveryRecord]:
        """One page, the newest first; the next one is before the last id of this one."""
        _check_page(limit, state)
        start = _LAST if before is None else ids.parse("msg", before)
        owner = None if endpoint is None else ids.parse("ep", endpoint)
        query, more = SQL["list"], tuple[Any, ...]()
        if job_id is not None:
            query, more = SQL["list_of_job"], (ids.parse("job", job_id), owner)
        elif owner is not None:
            query, more = SQL["list_of_endpoint"], (owner,)
        elif state is not None and state != "delivered":
            query = SQL["list_undelivered"]
        return [
            record(row) for row in await self._engine.database(tenant).run(query, tenant, start, state, limit, *more)
        ]

    async def list_all(
        self,
        *,
        endpoint: UUID | None = None,
        job_id: UUID | None = None,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> tuple[list[DeliveryRecord], UUID | None]:
        """One page of the deliveries of all tenants, the newest first, and the ``before`` of the next page.

        A page may be short, or empty, without being the last: the search for deliveries in one state is bounded.
        """
        _check_page(limit, state)
        start, gather = before or _LAST, self._engine.tenant_databases.gather
        if job_id is not None:
            rows = await gather(SQL["list_of_job"], None, start, state, limit + 1, job_id, endpoint)
        elif endpoint is not None:
            rows = await gather(SQL["list_of_endpoint"], None, start, state, limit + 1, endpoint)
        elif state is not None and state != "delivered":
            rows = await gather(SQL["list_all_undelivered"], start, state, _TENANTS_MAX, limit + 1)
        else:
            rows = await gather(SQL["list_all"], start, state, limit + 1 if state is None else _WALK, limit + 1)
        return _newest(rows, state, limit)

    async def owner(self, delivery: UUID | str) -> str:
        """The tenant of a delivery, for operators of all tenants."""
        row = await self._engine.tenant_databases.find(SQL["owner"], ids.parse("msg", delivery))
        if row is None:
            raise _absent(delivery)
        return row["tenant"]

    async def read(self, tenant: str, delivery: UUID | str) -> DeliveryRecord:
        """A delivery with all its tries."""
        database = self._engine.database(tenant)
        row = await database.run(SQL["read"], tenant, ids.parse("msg", delivery))
        if row is None:
            raise _absent(delivery)
        return record(row, tuple(map(_try, await database.run(SQL["tries"], row["delivery_id"]))))

    async def resend(self, tenant: str, delivery: UUID | str) -> DeliveryRecord:
        """Send a delivery again, now, with a new schedule of tries. One that is being sent is left as it is."""
        found = await self.read(tenant, delivery)
        if found.state == "withdrawn":
            raise ConflictError("The delivery was withdrawn.", hint="The job has another outcome.")
        await self._check_enabled(tenant, found.endpoint_id)
        await self._engine.database(tenant).run(SQL["resend"], [found.delivery_id], tenant)
        self.poll_soon()
        return await self.read(tenant, found.delivery_id)

    async def resend_since(
        self, tenant: str, endpoint: UUID | str, since: datetime, *, only_failed: bool = True
    ) -> int:
        """Send the deliveries since a time again: the failed ones, or all; return how many they are."""
        values.check_time(since, field="since")
        owner = ids.parse("ep", endpoint)
        await self._check_enabled(tenant, owner)
        database, last, count = self._engine.database(tenant), _FIRST, 0
        while rows := await database.run(SQL["since"], owner, tenant, last, since, only_failed, _RESEND_SIZE):
            last = rows[-1]["delivery_id"]
            count += len(await database.run(SQL["resend"], [row["delivery_id"] for row in rows], tenant))
            self.poll_soon()
        return count

    async def _check_enabled(self, tenant: str, endpoint_id: UUID | None) -> None:
        if endpoint_id is not None:
            found = await self._engine.endpoints.read(tenant, endpoint_id)
            if found.disabled_at is not None:
                raise ConflictError(
                    "The endpoint is disabled.", hint="Enable the endpoint to send its pending deliveries."
                )

    # Listeners

    async def pull(self, tenant: str, endpoint: UUID | str, limit: int = PULL_MAX) -> list[SignedRequest]:
        """The due deliveries of a pull endpoint. Those that are not reported within ``LEASE`` become due again."""
        if isinstance(limit, bool) or not 1 <= limit <= PULL_MAX:
            raise InvalidError(f"The value must be a whole number from 1 to {PULL_MAX}.", field="limit")
        found = await self._engine.endpoints.read(tenant, endpoint)
        if found.url is not None:
            raise ConflictError("The endpoint has a URL, so its deliveries cannot be pulled.")
        vault = await self._engine.safe.opened()
        rows = await self._engine.database(tenant).run(SQL["pull"], tenant, found.endpoint_id, limit, LEASE)
        kinds = self._engine.app.kinds
        return [signed_request(vault, one, body_of(kinds, one)[0]) for one in map(claimed, rows)]

    async def report(self, tenant: str, delivery: UUID | str, result: TryResult) -> None:
        """Report the result of a pulled delivery. One that was settled meanwhile stays as it is."""
        _check_result(result)
        database = self._engine.database(tenant)
        row = await database.run(SQL["out"], tenant, ids.parse("msg", delivery))
        if row is not None:
            await settle(self._engine, database, [judged(claimed(row), result, NATIVE)])
        elif (await self.read(tenant, delivery)).endpoint_id is None:
            raise ConflictError("The delivery belongs to an endpoint with a URL and is not pulled.")

    # Jobs with a URL of their own

    async def seal(self, hook: Hook, kind: Kind, tenant: str, job_id: UUID) -> SealedHook:
        """The webhook URL of a job that is being submitted, checked and with its secret encrypted."""
        target = await self._engine.outbound.admit(hook.url, field="webhook.url")
        sealed = self.asked(hook, kind)
        vault = await self._engine.safe.opened()
        return msgspec.structs.replace(
            sealed, receiver=f"{tenant} {target.origin}", secret=vault.seal(hook.secret, about("hook", job_id))
        )

    async def seal_for_batch(self, hook: Hook, tenant: str, batch_id: UUID) -> tuple[str, str, bytes]:
        """The webhook URL of a batch that is being created, its receiver, and its encrypted secret."""
        webhooks.check_secret(hook.secret, field="webhook.secret")
        target = await self._engine.outbound.admit(hook.url, field="webhook.url")
        vault = await self._engine.safe.opened()
        return hook.url, f"{tenant} {target.origin}", vault.seal(hook.secret, about("batch_hook", batch_id))

    def asked(self, hook: Hook, kind: Kind) -> SealedHook:
        """The same without encryption: enough to recognize a repeated request."""
        webhooks.check_secret(hook.secret, field="webhook.secret")
        for event in hook.events or ():
            if event not in webhooks.LIFECYCLE_EVENTS:
                raise InvalidError(
                    f"There is no lifecycle event {str(event)[:60]!r}.",
                    field="webhook.events",
                    hint=f"Events: {', '.join(webhooks.LIFECYCLE_EVENTS)}.",
                )
        events = tuple(kind.webhook.names if hook.events is None else dict.fromkeys(hook.events))
        return SealedHook(
            url=hook.url,
            receiver="",
            secret=b"",
            events=tuple(dict.fromkeys((*events, "delivering"))) if kind.is_delivered else events,
            decides=kind.is_delivered,
            digest=webhooks.secret_digest(hook.secret) if hook.is_secret_chosen else None,
        )

    async def hook_of(self, tenant: str, job_id: UUID) -> Hook | None:
        """The URL that a job was submitted with, and its secret."""
        row = await self._engine.database(tenant).run(SQL["hook"], job_id, tenant)
        if row is None:
            return None
        vault = await self._engine.safe.opened()
        secret = vault.open(row["secret"], about("hook", job_id))
        return webhooks.Hook(url=row["url"], secret=secret, events=tuple(row["events"]))


# Bodies


def body_of(kinds: Mapping[str, Kind], item: Claimed | DeliveryRecord) -> tuple[bytes, Webhook]:
    """The body of a delivery, the same bytes each time, and its format."""
    data: dict[str, Any] = msgspec.json.decode(item.data or "{}")
    if "body" in data and item.job_id is None:
        return msgspec.json.encode(data["body"]), NATIVE
    if item.job_id is None:
        return msgspec.json.encode({"type": data["type"], "timestamp": item.at, "data": data["data"]}), NATIVE
    webhook = NATIVE if item.is_native else _webhook_of(kinds, data["kind"])
    job = data | {name: _time(data[name]) for name in _TIMES}
    name = webhook.names.get(item.event, f"job.{item.event}")
    event = WebhookData(item.job_id, item.event, item.at, job, name)
    return msgspec.json.encode(webhook.body(event)), webhook


def words_of(kinds: Mapping[str, Kind], item: Claimed) -> Webhook:
    """The format of a delivery, also if this process does not know its kind and cannot make its body."""
    kind = "" if item.is_native else str(msgspec.json.decode(item.data).get("kind"))
    return kinds[kind].webhook if kind in kinds else NATIVE


def _webhook_of(kinds: Mapping[str, Kind], kind: str) -> Webhook:
    if kind not in kinds:
        raise UnknownKindError(f"This process does not know the kind {kind!r}.", field="kind")
    return kinds[kind].webhook


def signed_request(vault: Vault, item: Claimed, body: bytes) -> SignedRequest:
    """The request of a delivery, with the present time and signed; during a rotation, with the old secret too."""
    name = _bound_to(item)
    secrets = [vault.open(sealed, name) for sealed in (item.secret, item.old_secret) if sealed is not None]
    headers = {"content-type": "application/json", **webhooks.headers(item.id, int(time.time()), body, secrets)}
    return SignedRequest(item.id, item.url, headers, body)


# Results


async def due(db: Database, after: str, limit: int) -> list[str]:
    """The next ``limit`` receivers with due deliveries, by name, after this one."""
    return [row["receiver"] for row in await db.run(SQL["due"], after, limit)]


async def claim(db: Database, rooms: Mapping[str, int], limit: int, lease: timedelta) -> list[Claimed]:
    """Claim due deliveries of these receivers, in this order: for each as many as it has room for."""
    return [claimed(row) for row in await db.run(SQL["claim"], list(rooms), list(rooms.values()), limit, lease)]


def judged(item: Claimed, result: TryResult, webhook: Webhook) -> Settlement:
    """The outcome of a try: delivered, to be tried again after a pause, or failed."""
    outcome, pause = "again", timedelta(0)
    if result.is_taken:
        outcome = "delivered"
    elif result.status == _GONE or item.tries >= len(webhook.schedule):
        outcome = "failed"
    else:
        jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter
        pause = min(max(webhook.schedule[item.tries] * jitter, result.retry_after or timedelta(0)), _PAUSE_MAX)
    return Settlement(item, result, outcome, pause)


async def settle(engine: Engine, db: Database, settled: Sequence[Settlement]) -> list[str]:
    """Store the outcomes of tries, and conclude the jobs that waited for them; return the state of each delivery."""
    rows: Sequence[Row] = await db.run(SQL["settle"], *_columns(settled), PATIENCE)
    SETTLED.update(item.outcome for item in settled)
    for row in {row["endpoint_id"]: row for row in rows if row["disabled_reason"]}.values():
        await _report_disabled(engine, row)
    await conclude(engine, [row for row in rows if row["decides"] and row["state"] in _ENDS])
    engine.deliveries.poll_soon()
    states = {row["delivery_id"]: str(row["state"]) for row in rows}
    return [states.get(item.claimed.delivery_id, "withdrawn") for item in settled]


async def conclude(engine: Engine, rows: Iterable[Row]) -> int:
    """End the jobs whose end waited for these deliveries; jobs that have ended otherwise stay as they are."""
    groups: dict[tuple[Any, str], list[UUID]] = {}
    for row in rows:
        groups.setdefault((engine.tenant_databases.executor(row["tenant"]), _ENDS[row["state"]]), []).append(
            row["job_id"]
        )
    done = 0
    for (executor, outcome), job_ids in groups.items():
        ended: Sequence[Row] = await executor.run(SQL["conclude"], outcome, job_ids)
        done += len(ended)
        jobs.report_end(outcome, ended, dict.fromkeys(job_ids, _DELIVERY_FAILED) if outcome == "failed" else None)
        engine.audience.touch(job_ids)
        engine.parent_notifier.jobs_ended(ended)
    return done


async def conclude_unfinished(engine: Engine, db: Database, limit: int) -> int:
    """Conclude jobs that other processes have left behind; return how many have ended."""
    return await conclude(engine, await db.run(SQL["undecided"], limit))


async def prune(db: Database, age: timedelta, limit: int) -> int:
    return len(await db.run(SQL["prune"], age, limit))


async def waiting(databases: TenantDatabases) -> tuple[int, int]:
    """How many deliveries are pending, and how many of them have failed before."""
    rows = await databases.gather(SQL["waiting"], _COUNTED_MAX)
    return sum(row["pending"] for row in rows), sum(row["failing"] for row in rows)


async def _report_disabled(engine: Engine, row: Row) -> None:
    subject = ids.text("ep", row["endpoint_id"])
    logs.emit("endpoint.disabled", endpoint=subject, tenant=row["tenant"], reason=row["disabled_reason"])
    data = {"reason": row["disabled_reason"]}
    await engine.access.audit("courier", "endpoint.disabled", tenant=row["tenant"], subject=subject, data=data)


def _columns(settled: Sequence[Settlement]) -> list[list[Any]]:
    results = [item.result for item in settled]
    return [
        [item.claimed.delivery_id for item in settled],
        [item.claimed.due_at for item in settled],
        [item.outcome for item in settled],
        [item.pause for item in settled],
        [result.seconds for result in results],
        [result.status for result in results],
        [None if result.error is None else values.printable(result.error, _ERROR_MAX) for result in results],
        [item.claimed.url for item in settled],
        [_head(result.request_headers) for result in results],
        [_head(result.headers) for result in results],
        [values.printable(result.body[:BODY_MAX].decode(errors="replace"), BODY_MAX) for result in results],
    ]


def _head(headers: Mapping[str, str]) -> str:
    """Headers as JSON, up to ``_HEAD_MAX`` characters."""
    kept: dict[str, str] = {}
    left = _HEAD_MAX
    for name, value in headers.items():
        left -= len(name) + len(value)
        if left < 0:
            break
        kept[values.printable(name, _HEAD_MAX)] = values.printable(value, _HEAD_MAX)
    return msgspec.json.encode(kept).decode()


_DELIVERY_FAILED: Final = {"code": "delivery_failed", "message": "The delivery to the job's webhook URL failed."}


def _check_result(result: TryResult) -> None:
    if result.status is not None and not 100 <= result.status <= 599:  # noqa: PLR2004 - the codes there are
        raise InvalidError("The value must be an HTTP status from 100 to 599.", field="status")
    if not 0 <= result.seconds < 1e6:  # noqa: PLR2004 - more than any request takes
        raise InvalidError("The value must be a number of seconds.", field="seconds")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _bound_to(item: Claimed) -> str:
    """What the secrets of a delivery are bound to."""
    if item.endpoint_id is not None:
        return about("endpoint", item.endpoint_id)
    return about("hook", item.job_id) if item.batch_id is None else about("batch_hook", item.batch_id)


def about(what: str, number: UUID | None) -> str:
    """What a secret is bound to; see ``Vault.seal``."""
    return f"{what}:{number}"


def claimed(row: Row) -> Claimed:
    return Claimed(*row)


def _check_page(limit: int, state: str | None) -> None:
    values.check_limit(limit, PAGE_MAX)
    if state is not None and state not in STATES:
        raise InvalidError(f"The state must be one of {', '.join(STATES)}.", field="state")


def _newest(rows: Iterable[Row], state: str | None, limit: int) -> tuple[list[DeliveryRecord], UUID | None]:
    """Merge the rows of several databases to a page.

    Rows below the highest id at which a walk stopped are left out, because others may be missing there.
    """
    ordered = sorted(map(dict[str, Any], rows), key=lambda row: row["delivery_id"], reverse=True)
    stop = max((row["delivery_id"] for row in ordered if row.pop("is_stop", False)), default=None)
    own = (row for row in ordered if state is None or row["state"] == state)
    found = [DeliveryRecord(**row) for row in own if stop is None or row["delivery_id"] >= stop]
    if len(found) > limit:
        return found[:limit], found[limit - 1].delivery_id
    return found, stop


def record(row: Row, log: tuple[DeliveryTry, ...] = ()) -> DeliveryRecord:
    return DeliveryRecord(**row, log=log)


def _try(row: Row) -> DeliveryTry:
    fields = dict(row)
    for name in ("request_headers", "response_headers"):
        fields[name] = msgspec.json.decode(fields[name])
    return DeliveryTry(**fields)


def _absent(delivery: UUID | str) -> NotFoundError:
    given = delivery if isinstance(delivery, str) else ids.text("msg", delivery)
    return NotFoundError(f"There is no delivery {given[:60]!r}.", field="id")
