"""Deliveries: what is to be told to which URL, what became of each try, and telling it once more.

A delivery is written with the moment it tells of. Whoever sends it takes it in hand for a while, so that it comes due
again if he dies; what became of it is settled in one transaction with the next time it is due. Where the end of a job
waits for a delivery, that is concluded afterwards, and found again by whoever comes next if nobody did.
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
from millpond.engine import jobs
from millpond.errors import ConflictError, InvalidError, NotFoundError, UnknownKindError
from millpond.retry import read_retry_after
from millpond.store.queries import queries
from millpond.webhooks import NATIVE, Told

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.engine.homes import Homes
    from millpond.engine.vault import Vault
    from millpond.kinds import Kind
    from millpond.store.db import Database, Row
    from millpond.webhooks import Hook, Webhook

SQL: Final = queries("millpond.engine", "deliveries")

STATES: Final = ("pending", "delivered", "failed", "withdrawn")
SETTLED: Final[Counter[str]] = Counter()
"""How many tries this process has made since it began, by what became of them: delivered, again or failed."""
PATIENCE: Final = timedelta(days=5)
"""For how long an endpoint may do nothing but fail before it is disabled."""
LEASE: Final = timedelta(seconds=60)
"""For how long a listener has what it came for in hand."""
PAGE_MAX: Final = 200
PULL_MAX: Final = 100
BODY_MAX: Final = 1_024
"""How much of an answer is kept."""
_HEAD_MAX: Final = 8_192
_ERROR_MAX: Final = 500
_PAUSE_MAX: Final = timedelta(hours=24)
_JITTER: Final = 0.2
_RESEND_SIZE: Final = 1_000
_COUNTED_MAX: Final = 100_000
_WALK: Final = 10_000
"""How many deliveries of all tenants a page walks over in search of those in one state."""
_TENANTS_MAX: Final = 1_000
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
_GONE: Final = 410
_ENDS: Final = {"delivered": "succeeded", "failed": "failed"}
_TIMES: Final = ("created_at", "started_at", "finished_at", "expires_at")


class SealedHook(msgspec.Struct, frozen=True):
    """The URL of a job on its way into the database."""

    url: str
    receiver: str
    secret: bytes
    moments: tuple[str, ...]
    decides: bool
    digest: str | None = None
    """Of a secret that belongs to the request."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", webhooks.shown_url(self.url)), ("moments", self.moments), ("decides", self.decides)]

    def __repr__(self) -> str:
        return f"SealedHook({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"


@dataclass(frozen=True, slots=True)
class DeliveryTry:
    """What was sent, and what was answered."""

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
    """A delivery as it stands; with its tries where one is read."""

    delivery_id: UUID
    tenant: str
    endpoint_id: UUID | None
    """None: it goes to the URL that the job was submitted with."""
    job_id: UUID | None
    seq: int | None
    moment: str
    at: datetime
    state: str
    tries: int
    due_at: datetime | None
    settled_at: datetime | None
    url: str | None = None
    log: tuple[DeliveryTry, ...] = ()
    data: str | None = field(default=None, repr=False)
    """What its body is made of, where one is read."""
    is_native: bool = True
    """Whether its body is in the words of the native API, or in those of its kind."""

    @property
    def id(self) -> str:
        """The ``webhook-id``."""
        return ids.text("msg", self.delivery_id)


class Claimed(msgspec.Struct, frozen=True):
    """A delivery in somebody's hand."""

    delivery_id: UUID
    tenant: str
    endpoint_id: UUID | None
    job_id: UUID | None
    moment: str
    receiver: str | None
    at: datetime
    data: str
    decides: bool
    tries: int
    """Those that count: the present one is the next of its schedule."""
    due_at: datetime
    """When it comes due again; by this who settles it is known to have it still."""
    url: str | None
    secret: bytes | None
    old_secret: bytes | None
    in_flight_max: int | None
    has_failed: bool
    is_native: bool
    """Whether it is told in the words of the native API, or in those of its kind."""

    @property
    def id(self) -> str:
        return ids.text("msg", self.delivery_id)


class Parcel(msgspec.Struct, frozen=True):
    """A delivery as it goes out: signed, and the same bytes each time."""

    id: str
    url: str | None
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """What a receiver answered; or, without a status, why there is no answer."""

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
        """How long the receiver wants to be left alone."""
        said = next((value for name, value in self.headers.items() if name.lower() == "retry-after"), None)
        asked = None if said is None else read_retry_after(said)
        return None if asked is None else min(asked, _PAUSE_MAX)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of a try."""

    claimed: Claimed
    result: Result
    outcome: str
    pause: timedelta


class Deliveries:
    """The deliveries of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._ears: list[Callable[[], None]] = []

    # Who sends

    def listen(self, heard: Callable[[], None]) -> None:
        """Have this called whenever there may be something to send."""
        self._ears.append(heard)

    def unlisten(self, heard: Callable[[], None]) -> None:
        self._ears.remove(heard)

    def stir(self) -> None:
        """There may be something to send."""
        for heard in self._ears:
            heard()

    # Who reads

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
        whose = None if endpoint is None else ids.parse("ep", endpoint)
        query, more = SQL["list"], tuple[Any, ...]()
        if job_id is not None:
            query, more = SQL["list_of_job"], (ids.parse("job", job_id), whose)
        elif whose is not None:
            query, more = SQL["list_of_endpoint"], (whose,)
        elif state is not None and state != "delivered":
            query = SQL["list_undelivered"]
        return [record(row) for row in await self._engine.home(tenant).run(query, tenant, start, state, limit, *more)]

    async def list_all(
        self,
        *,
        endpoint: UUID | None = None,
        job_id: UUID | None = None,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
    ) -> tuple[list[DeliveryRecord], UUID | None]:
        """One page of those of every tenant, the newest first, and the id that the next page is before.

        It may be short, or empty, and not be the last: those in one state are looked for among so many.
        """
        _check_page(limit, state)
        start, gather = before or _LAST, self._engine.homes.gather
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
        """The tenant whose it is, for an operator of all."""
        row = await self._engine.homes.find(SQL["owner"], ids.parse("msg", delivery))
        if row is None:
            raise _absent(delivery)
        return row["tenant"]

    async def read(self, tenant: str, delivery: UUID | str) -> DeliveryRecord:
        """With all its tries."""
        home = self._engine.home(tenant)
        row = await home.run(SQL["read"], tenant, ids.parse("msg", delivery))
        if row is None:
            raise _absent(delivery)
        return record(row, tuple(map(_try, await home.run(SQL["tries"], row["delivery_id"]))))

    async def resend(self, tenant: str, delivery: UUID | str) -> DeliveryRecord:
        """Send it once more, now, with all its tries before it. What is under way just now is left to that."""
        found = await self.read(tenant, delivery)
        if found.state == "withdrawn":
            raise ConflictError("The delivery was withdrawn.", hint="Its job has ended otherwise.")
        await self._check_enabled(tenant, found.endpoint_id)
        await self._engine.home(tenant).run(SQL["resend"], [found.delivery_id], tenant)
        self.stir()
        return await self.read(tenant, found.delivery_id)

    async def resend_since(
        self, tenant: str, endpoint: UUID | str, since: datetime, *, only_failed: bool = True
    ) -> int:
        """Send once more what was given up since then, or all; tells how many that are."""
        values.check_moment(since, field="since")
        whose = ids.parse("ep", endpoint)
        await self._check_enabled(tenant, whose)
        home, last, count = self._engine.home(tenant), _FIRST, 0
        while rows := await home.run(SQL["since"], whose, tenant, last, since, only_failed, _RESEND_SIZE):
            last = rows[-1]["delivery_id"]
            count += len(await home.run(SQL["resend"], [row["delivery_id"] for row in rows], tenant))
            self.stir()
        return count

    async def _check_enabled(self, tenant: str, endpoint_id: UUID | None) -> None:
        if endpoint_id is not None:
            found = await self._engine.endpoints.read(tenant, endpoint_id)
            if found.disabled_at is not None:
                raise ConflictError("The endpoint is disabled.", hint="Enable it: then what waits for it is sent.")

    # Listeners

    async def pull(self, tenant: str, endpoint: UUID | str, most: int = PULL_MAX) -> list[Parcel]:
        """What is due at an endpoint whose listener comes for it; what is not reported soon comes again."""
        if isinstance(most, bool) or not 1 <= most <= PULL_MAX:
            raise InvalidError(f"It must be a whole number from 1 to {PULL_MAX}.", field="most")
        found = await self._engine.endpoints.read(tenant, endpoint)
        if found.url is not None:
            raise ConflictError("The endpoint has a URL: what it is to be told is sent there.")
        vault = await self._engine.safe.opened()
        rows = await self._engine.home(tenant).run(SQL["pull"], tenant, found.endpoint_id, most, LEASE)
        kinds = self._engine.app.kinds
        return [parcel(vault, one, body_of(kinds, one)[0]) for one in map(claimed, rows)]

    async def report(self, tenant: str, delivery: UUID | str, result: Result) -> None:
        """What became of a delivery that was pulled. One that was settled meanwhile stays as it is."""
        _check_result(result)
        home = self._engine.home(tenant)
        row = await home.run(SQL["out"], tenant, ids.parse("msg", delivery))
        if row is not None:
            await settle(self._engine, home, [judged(claimed(row), result, NATIVE)])
        elif (await self.read(tenant, delivery)).endpoint_id is None:
            raise ConflictError("The delivery is not one that is pulled.")

    # Jobs with a URL of their own

    async def seal(self, hook: Hook, kind: Kind, tenant: str, job_id: UUID) -> SealedHook:
        """The URL of a job to be: it may be called, and its secret is good."""
        target = await self._engine.outbound.admit(hook.url, field="webhook.url")
        sealed = self.asked(hook, kind)
        vault = await self._engine.safe.opened()
        return msgspec.structs.replace(
            sealed, receiver=f"{tenant} {target.origin}", secret=vault.seal(hook.secret, about("hook", job_id))
        )

    def asked(self, hook: Hook, kind: Kind) -> SealedHook:
        """What of it belongs to the request, with nothing sealed: enough to know a request again."""
        webhooks.check_secret(hook.secret, field="webhook.secret")
        for moment in hook.moments or ():
            if moment not in webhooks.MOMENTS:
                raise InvalidError(
                    f"There is no moment {str(moment)[:60]!r}.",
                    field="webhook.moments",
                    hint=f"Moments: {', '.join(webhooks.MOMENTS)}.",
                )
        moments = tuple(kind.webhook.names if hook.moments is None else dict.fromkeys(hook.moments))
        return SealedHook(
            url=hook.url,
            receiver="",
            secret=b"",
            moments=tuple(dict.fromkeys((*moments, "delivering"))) if kind.is_delivered else moments,
            decides=kind.is_delivered,
            digest=webhooks.secret_digest(hook.secret) if hook.is_secret_chosen else None,
        )

    async def hook_of(self, tenant: str, job_id: UUID) -> Hook | None:
        """The URL that a job was submitted with, and its secret."""
        row = await self._engine.home(tenant).run(SQL["hook"], job_id, tenant)
        if row is None:
            return None
        vault = await self._engine.safe.opened()
        secret = vault.open(row["secret"], about("hook", job_id))
        return webhooks.Hook(url=row["url"], secret=secret, moments=tuple(row["moments"]))


# Bodies


def body_of(kinds: Mapping[str, Kind], item: Claimed | DeliveryRecord) -> tuple[bytes, Webhook]:
    """The body of a delivery, the same bytes each time, and the words it is in."""
    data: dict[str, Any] = msgspec.json.decode(item.data or "{}")
    if "body" in data and item.job_id is None:
        return msgspec.json.encode(data["body"]), NATIVE
    if item.job_id is None:
        return msgspec.json.encode({"type": data["type"], "timestamp": item.at, "data": data["data"]}), NATIVE
    words = NATIVE if item.is_native else _words(kinds, data["kind"])
    job = data | {name: _time(data[name]) for name in _TIMES}
    name = words.names.get(item.moment, f"job.{item.moment}")
    told = Told(item.job_id, item.moment, item.at, job, name)
    return msgspec.json.encode(words.body(told)), words


def words_of(kinds: Mapping[str, Kind], item: Claimed) -> Webhook:
    """The words of a delivery, also where no body can be made of it."""
    kind = "" if item.is_native else str(msgspec.json.decode(item.data).get("kind"))
    return kinds[kind].webhook if kind in kinds else NATIVE


def _words(kinds: Mapping[str, Kind], kind: str) -> Webhook:
    if kind not in kinds:
        raise UnknownKindError(f"This process does not know the words of kind {kind!r}.", field="kind")
    return kinds[kind].webhook


def parcel(vault: Vault, item: Claimed, body: bytes) -> Parcel:
    """What goes out: with the time of now, signed with the secret, and while it is being changed with the old one."""
    name = about("hook", item.job_id) if item.endpoint_id is None else about("endpoint", item.endpoint_id)
    secrets = [vault.open(sealed, name) for sealed in (item.secret, item.old_secret) if sealed is not None]
    headers = {"content-type": "application/json", **webhooks.headers(item.id, int(time.time()), body, secrets)}
    return Parcel(item.id, item.url, headers, body)


# What becomes of them


async def due(db: Database, after: str, most: int) -> list[str]:
    """For whom something is due: the next so many receivers whose names come after this one."""
    return [row["receiver"] for row in await db.run(SQL["due"], after, most)]


async def claim(db: Database, rooms: Mapping[str, int], most: int, lease: timedelta) -> list[Claimed]:
    """Take in hand what is due at these receivers, in their order: as many for each as it has room."""
    return [claimed(row) for row in await db.run(SQL["claim"], list(rooms), list(rooms.values()), most, lease)]


def judged(item: Claimed, result: Result, words: Webhook) -> Settlement:
    """What a try means: taken; to be tried again, and when; or given up."""
    outcome, pause = "again", timedelta(0)
    if result.is_taken:
        outcome = "delivered"
    elif result.status == _GONE or item.tries >= len(words.schedule):
        outcome = "failed"
    else:
        jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - jitter
        pause = min(max(words.schedule[item.tries] * jitter, result.retry_after or timedelta(0)), _PAUSE_MAX)
    return Settlement(item, result, outcome, pause)


async def settle(engine: Engine, db: Database, settled: Sequence[Settlement]) -> list[str]:
    """Write down what became of tries, and conclude the jobs whose end waited for them; tells where each stands."""
    rows: Sequence[Row] = await db.run(SQL["settle"], *_columns(settled), PATIENCE)
    SETTLED.update(item.outcome for item in settled)
    for row in {row["endpoint_id"]: row for row in rows if row["disabled_reason"]}.values():
        await _tell_disabled(engine, row)
    await conclude(engine, [row for row in rows if row["decides"] and row["state"] in _ENDS])
    engine.deliveries.stir()
    states = {row["delivery_id"]: str(row["state"]) for row in rows}
    return [states.get(item.claimed.delivery_id, "withdrawn") for item in settled]


async def conclude(engine: Engine, rows: Iterable[Row]) -> int:
    """End the jobs whose end waited for these deliveries; those that have ended otherwise stay as they are."""
    groups: dict[tuple[Any, str], list[UUID]] = {}
    for row in rows:
        groups.setdefault((engine.homes.door(row["tenant"]), _ENDS[row["state"]]), []).append(row["job_id"])
    done = 0
    for (door, outcome), job_ids in groups.items():
        ended: Sequence[Row] = await door.run(SQL["conclude"], outcome, job_ids)
        done += len(ended)
        jobs.report_end(outcome, ended, dict.fromkeys(job_ids, _UNTOLD) if outcome == "failed" else None)
        engine.audience.touch(job_ids)
    return done


async def conclude_left(engine: Engine, db: Database, most: int) -> int:
    """Conclude what others have left behind; tells how many jobs have ended by it."""
    return await conclude(engine, await db.run(SQL["undecided"], most))


async def prune(db: Database, age: timedelta, most: int) -> int:
    return len(await db.run(SQL["prune"], age, most))


async def waiting(everywhere: Homes) -> tuple[int, int]:
    """How many deliveries are pending, and how many of them have failed before."""
    rows = await everywhere.gather(SQL["waiting"], _COUNTED_MAX)
    return sum(row["pending"] for row in rows), sum(row["failing"] for row in rows)


async def _tell_disabled(engine: Engine, row: Row) -> None:
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
    """The headers as JSON, as many as there is room for."""
    kept: dict[str, str] = {}
    left = _HEAD_MAX
    for name, value in headers.items():
        left -= len(name) + len(value)
        if left < 0:
            break
        kept[values.printable(name, _HEAD_MAX)] = values.printable(value, _HEAD_MAX)
    return msgspec.json.encode(kept).decode()


_UNTOLD: Final = {"code": "delivery_failed", "message": "The URL of the job did not take the news of it."}


def _check_result(result: Result) -> None:
    if result.status is not None and not 100 <= result.status <= 599:  # noqa: PLR2004 - the codes there are
        raise InvalidError("It must be a status of HTTP, from 100 to 599.", field="status")
    if not 0 <= result.seconds < 1e6:  # noqa: PLR2004 - more than any request takes
        raise InvalidError("It must be a number of seconds.", field="seconds")


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def about(what: str, number: UUID | None) -> str:
    """What a secret is bound to."""
    return f"{what}:{number}"


def claimed(row: Row) -> Claimed:
    return Claimed(*row)


def _check_page(limit: int, state: str | None) -> None:
    values.check_limit(limit, PAGE_MAX)
    if state is not None and state not in STATES:
        raise InvalidError(f"It must be one of {', '.join(STATES)}.", field="state")


def _newest(rows: Iterable[Row], state: str | None, limit: int) -> tuple[list[DeliveryRecord], UUID | None]:
    """A page of several databases' rows. Below where one of them had to stop, nothing is known of it."""
    told = sorted(map(dict[str, Any], rows), key=lambda row: row["delivery_id"], reverse=True)
    stop = max((row["delivery_id"] for row in told if row.pop("is_stop", False)), default=None)
    own = (row for row in told if state is None or row["state"] == state)
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
