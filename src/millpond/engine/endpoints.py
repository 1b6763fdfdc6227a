"""Endpoints: the URLs at which a tenant is told of its jobs, or a listener that comes for what is to be told."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from millpond import ids, values, webhooks
from millpond.engine import deliveries
from millpond.errors import ConflictError, InvalidError, NotFoundError, StoreError
from millpond.store.db import AgainError, fetch, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from millpond.engine.deliveries import DeliveryRecord
    from millpond.engine.engine import Engine
    from millpond.store.db import Connection, Database, Row

SQL: Final = queries("millpond.engine", "endpoints")

EVERYTHING: Final = "*"
DISABLED: Final = "endpoint.disabled"
MOMENTS: Final = (*webhooks.MOMENTS, DISABLED)
"""All that an endpoint can be told of."""
ENDPOINTS_MAX: Final = 100
KINDS_MAX: Final = 100
LIMIT_MAX: Final = 100
PAGE_MAX: Final = 200
OVERLAP: Final = timedelta(hours=24)
OVERLAP_MAX: Final = timedelta(days=30)
FOLLOW_MAX: Final = 2_000
"""How many deliveries follow their endpoint in one statement."""
_TEXT_MAX: Final = 500
_CHANGES: Final = frozenset({"url", "moments", "kinds", "description", "limit"})
_NO_JOB: Final = UUID(int=0)
_FIRST: Final = UUID(int=0)
"""No endpoint comes before it."""
_TRIES: Final = 5

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint as it stands. Its secret is told when it is made, and never again."""

    endpoint_id: UUID
    tenant: str
    url: str | None
    """None: a listener comes for what it is to be told."""
    moments: tuple[str, ...]
    kinds: tuple[str, ...]
    """None: all."""
    description: str
    limit: int | None
    """How many requests each courier may have under way to it."""
    created_at: datetime
    rotated_until: datetime | None
    """Until when what it is told is signed with the secret before, too."""
    pulled_at: datetime | None
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    account: str | None
    """The account whose jobs it is told of; none: all of the tenant."""
    is_native: bool
    """Whether it is told in the words of the native API; if not, in those of each job's kind."""

    @property
    def id(self) -> str:
        return ids.text("ep", self.endpoint_id)


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """What became of what an endpoint was to be told."""

    pending: int
    delivered: int
    failed: int
    withdrawn: int
    tries: int
    seconds_p50: float | None
    """How long it took to answer when it took something: half of the answers were quicker."""
    seconds_p90: float | None


class Endpoints:
    """The endpoints of all tenants."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def make(
        self,
        tenant: str,
        *,
        url: str | None = None,
        moments: Iterable[str] = webhooks.ENDS,
        kinds: Iterable[str] = (),
        description: str = "",
        secret: str | None = None,
        limit: int | None = None,
        account: str | None = None,
        is_native: bool = True,
    ) -> tuple[EndpointRecord, str]:
        """Have a URL told of a tenant's jobs; with none, a listener comes for it. The secret is told this once.

        With an account, of that one's alone. One that is not native is told in the words of each job's kind.
        """
        values.check_name(tenant, field="tenant")
        if account is not None:
            values.check_name(account, field="account")
        secret = webhooks.new_secret() if secret is None else webhooks.check_secret(secret, field="secret")
        traits = await self._checked(
            {"url": url, "moments": moments, "kinds": kinds, "description": description, "limit": limit}
        )
        vault = await self._engine.safe.opened()
        endpoint_id = new_id()
        sealed = vault.seal(secret, deliveries.about("endpoint", endpoint_id))

        async def work(tx: Connection) -> EndpointRecord:
            query = SQL["count"] if account is None else SQL["count_of_account"]
            if (await fetch(tx, query, *_whose(tenant, account)))["endpoints"] >= ENDPOINTS_MAX:
                whose = "tenant" if account is None else "account"
                raise ConflictError(f"The {whose} has {ENDPOINTS_MAX} endpoints, which is the limit.")
            row = await fetch(tx, SQL["make"], endpoint_id, tenant, *traits.values(), sealed, account, is_native)
            self._check_words(row)
            await _subscribe(tx, row)
            return _record(row)

        return await self._whole(tenant, work), secret

    async def list(
        self, tenant: str, *, account: str | None = None, after: UUID | None = None, limit: int = PAGE_MAX
    ) -> list[EndpointRecord]:
        """One page, the oldest first: of all that a tenant has, or of those about one account alone."""
        values.check_limit(limit, PAGE_MAX)
        query = SQL["list"] if account is None else SQL["list_of_account"]
        rows = await self._engine.home(tenant).run(query, *_whose(tenant, account), after or _FIRST, limit)
        return [_record(row) for row in rows]

    async def list_all(self, *, after: UUID | None = None, limit: int = PAGE_MAX) -> list[EndpointRecord]:
        """One page of those of every tenant, the oldest first."""
        values.check_limit(limit, PAGE_MAX)
        rows = await self._engine.homes.gather(SQL["list_all"], after or _FIRST, limit)
        return sorted(map(_record, rows), key=lambda endpoint: endpoint.endpoint_id)[:limit]

    async def owner(self, endpoint: UUID | str) -> str:
        """The tenant whose it is, for an operator of all."""
        row = await self._engine.homes.find(SQL["owner"], ids.parse("ep", endpoint))
        if row is None:
            raise _absent(endpoint)
        return row["tenant"]

    async def read(self, tenant: str, endpoint: UUID | str) -> EndpointRecord:
        row = await self._engine.home(tenant).run(SQL["read"], tenant, ids.parse("ep", endpoint))
        if row is None:
            raise _absent(endpoint)
        return _record(row)

    async def change(self, tenant: str, endpoint: UUID | str, **changes: Any) -> EndpointRecord:
        """Change its url, moments, kinds, description or limit; what was not sent yet goes to the new URL."""
        if strange := sorted(changes.keys() - _CHANGES):
            raise InvalidError("It cannot be changed.", field=strange[0], hint=f"Of: {', '.join(sorted(_CHANGES))}.")
        before = await self.read(tenant, endpoint)
        if "url" in changes and (changes["url"] is None) != (before.url is None):
            raise ConflictError(
                "An endpoint that is called does not become one whose listener comes, nor the other way.",
                field="url",
                hint="Make another one.",
            )
        checked = await self._checked(changes)

        async def work(tx: Connection) -> EndpointRecord:
            row = dict(await _locked(tx, tenant, endpoint)) | checked
            self._check_words(row)
            names = ("url", "moments", "kinds", "description", "in_flight_max")
            await fetch(tx, SQL["change"], row["endpoint_id"], *(row[name] for name in names))
            await _subscribe(tx, row)
            return _record(row)

        return await self._whole(tenant, work)

    async def rotate(
        self, tenant: str, endpoint: UUID | str, overlap: timedelta = OVERLAP, *, secret: str | None = None
    ) -> str:
        """Sign with a new secret, and for the overlap with the present one too. Tells the new one, this once."""
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            raise InvalidError(f"It must be at most {OVERLAP_MAX.days} days.", field="overlap")
        secret = webhooks.new_secret() if secret is None else webhooks.check_secret(secret, field="secret")
        found = await self.read(tenant, endpoint)
        vault = await self._engine.safe.opened()
        sealed = vault.seal(secret, deliveries.about("endpoint", found.endpoint_id))
        await self._engine.home(tenant).run(SQL["rotate"], found.endpoint_id, sealed, overlap)
        return secret

    async def disable(self, tenant: str, endpoint: UUID | str, reason: str = "") -> EndpointRecord:
        """Tell it nothing more. What it has not taken yet waits until it is enabled."""
        reason = _text(reason, field="reason") or "An operator disabled it."
        found = await self.read(tenant, endpoint)
        await self._engine.home(tenant).run(SQL["disable"], found.endpoint_id, reason)
        return await self.read(tenant, endpoint)

    async def enable(self, tenant: str, endpoint: UUID | str) -> EndpointRecord:
        """Tell it of what happens from now on, and of what waited for it."""

        async def work(tx: Connection) -> EndpointRecord:
            row = await _locked(tx, tenant, endpoint)
            await fetch(tx, SQL["enable"], row["endpoint_id"])
            await fetch(tx, SQL["follow"], [row["endpoint_id"]], FOLLOW_MAX)
            await _subscribe(tx, row)
            return _record(await _locked(tx, tenant, endpoint))

        enabled = await self._whole(tenant, work)
        self._engine.deliveries.stir()
        return enabled

    async def delete(self, tenant: str, endpoint: UUID | str) -> None:
        """Forget it; what it has not taken yet is withdrawn."""

        async def work(tx: Connection) -> None:
            row = await _locked(tx, tenant, endpoint)
            for step in (SQL["unsubscribe"], SQL["delete"]):
                await fetch(tx, step, row["endpoint_id"])
            await fetch(tx, SQL["follow"], [row["endpoint_id"]], FOLLOW_MAX)

        await self._whole(tenant, work)

    async def test(
        self, tenant: str, endpoint: UUID | str, moment: str | None = None, *, body: Any = None
    ) -> DeliveryRecord:
        """Tell it of something that has not happened: a moment of a made-up job, or just that this is a test.

        With a body, in these very words.
        """
        if moment is not None and moment not in MOMENTS:
            raise InvalidError(
                f"There is no moment {str(moment)[:60]!r}.", field="moment", hint=f"Moments: {', '.join(MOMENTS)}."
            )
        found = await self.read(tenant, endpoint)
        if found.disabled_at is not None:
            raise ConflictError("The endpoint is disabled.", hint="Enable it first.")
        said = _example(found, moment) if body is None else {"body": body}
        told = values.encode(said, field="body")
        row = await self._engine.home(tenant).run(SQL["test"], found.endpoint_id, moment or "test", told)
        self._engine.deliveries.stir()
        return deliveries.record(row)

    async def stats(self, tenant: str, endpoint: UUID | str, since: datetime) -> EndpointStats:
        found = await self.read(tenant, endpoint)
        values.check_moment(since, field="since")
        return EndpointStats(**await self._engine.home(tenant).run(SQL["stats"], found.endpoint_id, since))

    async def forget_silent(self, silence: timedelta, most: int) -> int:
        """Forget the endpoints whose listeners have not come for so long; tells how many."""
        done = 0
        for row in await self._engine.homes.gather(SQL["silent"], silence, most):
            with contextlib.suppress(NotFoundError):  # another process was quicker
                await self.delete(row["tenant"], row["endpoint_id"])
                done += 1
        return done

    def _check_words(self, row: Any) -> None:
        """Refuse what could not be said: who is told in the words of kinds hears of what each has a word for."""
        if row["is_native"]:
            return
        declared = self._engine.app.kinds
        strange = next((kind for kind in row["kinds"] if kind not in declared), None)
        if strange is not None:
            raise InvalidError(f"It is told in the words of its kinds; {strange!r} is not known here.", field="kinds")
        names = [declared[kind].webhook.names for kind in row["kinds"] or declared]
        sayable = [moment for moment in MOMENTS if all(moment in each for each in names)]
        wanted = MOMENTS if EVERYTHING in row["moments"] else row["moments"]
        mute = next((moment for moment in wanted if moment not in sayable), None)
        if mute is not None:
            raise InvalidError(
                f"It is told in the words of its kinds, which have none for {mute!r}.",
                field="moments",
                hint=f"They have some for: {', '.join(sayable)}.",
            )

    async def _whole(self, tenant: str, work: Callable[[Connection], Awaitable[Made]]) -> Made:
        """Do this in one transaction; again, where the database says to: whoever settles deliveries is often there."""
        for left in reversed(range(_TRIES)):
            try:
                async with self._engine.home(tenant).transaction() as tx:
                    return await work(tx)
            except AgainError as again:
                if not left:
                    raise StoreError(str(again)) from again
        raise AssertionError

    async def _checked(self, traits: dict[str, Any]) -> dict[str, Any]:
        """What an endpoint is made of, as its table has it; or what is wrong with it."""
        checked: dict[str, Any] = {}
        if "url" in traits:
            checked["url"] = traits["url"]
            if traits["url"] is not None:
                await self._engine.outbound.admit(traits["url"], field="url")
        if "moments" in traits:
            checked["moments"] = _moments(traits["moments"])
        if "kinds" in traits:
            checked["kinds"] = _kinds(traits["kinds"])
        if "description" in traits:
            checked["description"] = _text(traits["description"], field="description")
        if "limit" in traits:
            limit = traits["limit"]
            checked["in_flight_max"] = None if limit is None else values.check_limit(limit, LIMIT_MAX)
        return checked


async def follow(db: Database, most: int) -> int:
    """Have so many deliveries follow what became of their endpoint; tells how many it were.

    There may be very many. Who changes an endpoint does this for some, and the courier for the rest, bit by bit.
    """
    return (await db.run(SQL["follow"], None, most))["followed"]


async def _locked(tx: Connection, tenant: str, endpoint: UUID | str) -> Row:
    row = await fetch(tx, SQL["lock"], tenant, ids.parse("ep", endpoint))
    if row is None:
        raise _absent(endpoint)
    return row


async def _subscribe(tx: Connection, row: Any) -> None:
    moments = MOMENTS if EVERYTHING in row["moments"] else row["moments"]
    await fetch(tx, SQL["subscribe"], row["endpoint_id"], list(moments))


def _whose(tenant: str, account: str | None) -> tuple[str, ...]:
    return (tenant,) if account is None else (tenant, account)


def _moments(given: Iterable[str]) -> list[str]:
    moments = list(dict.fromkeys(given))
    if not moments:
        raise InvalidError("It must name one moment at least.", field="moments")
    for moment in moments:
        if moment not in (*MOMENTS, EVERYTHING):
            raise InvalidError(
                f"There is no moment {str(moment)[:60]!r}.",
                field="moments",
                hint=f"Moments: {', '.join(MOMENTS)}; * for all.",
            )
    return moments


def _kinds(given: Iterable[str]) -> list[str]:
    kinds = list(dict.fromkeys(given))
    if len(kinds) > KINDS_MAX:
        raise InvalidError(f"It names {len(kinds)} kinds; the limit is {KINDS_MAX}.", field="kinds")
    return [values.check_name(kind, field="kinds") for kind in kinds]


def _text(given: Any, *, field: str) -> str:
    if not isinstance(given, str):
        raise InvalidError("It must be text.", field=field)
    values.check(given, field=field)
    if len(given) > _TEXT_MAX:
        raise InvalidError(f"It has {len(given)} characters; the limit is {_TEXT_MAX}.", field=field)
    return given


def _example(endpoint: EndpointRecord, moment: str | None) -> dict[str, Any]:
    """What an endpoint is told that is being tried."""
    if moment is None:
        return {"type": "endpoint.test", "data": {"id": endpoint.id, "url": endpoint.url}}
    if moment == DISABLED:
        said = {"id": endpoint.id, "url": endpoint.url, "reason": "This is a test.", "failing_since": None}
        return {"type": DISABLED, "data": said}
    job = {
        "kind": endpoint.kinds[0] if endpoint.kinds else "example",
        "account": "example",
        "state": moment,
        "phase": "ended" if moment in webhooks.ENDS else "ready",
        "outcome": moment if moment in webhooks.ENDS else None,
        "progress": 1.0 if moment == "succeeded" else 0.0,
        "attempts": 0,
        "price": 0,
        "input": {"is_test": True},
    }
    body = webhooks.NATIVE.body(webhooks.Told(_NO_JOB, moment, endpoint.created_at, job))
    return {"type": body["type"], "data": body["data"]}


def _record(row: Any) -> EndpointRecord:
    return EndpointRecord(
        row["endpoint_id"],
        row["tenant"],
        row["url"],
        tuple(row["moments"]),
        tuple(row["kinds"]),
        row["description"],
        row["in_flight_max"],
        row["created_at"],
        row["old_until"],
        row["pulled_at"],
        row["failing_since"],
        row["disabled_at"],
        row["disabled_reason"],
        row["account"],
        row["is_native"],
    )


def _absent(endpoint: UUID | str) -> NotFoundError:
    given = endpoint if isinstance(endpoint, str) else ids.text("ep", endpoint)
    return NotFoundError(f"There is no endpoint {given[:60]!r}.", field="id")
