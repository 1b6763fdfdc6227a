"""Endpoints: URLs that receive events of a tenant's jobs, or pull endpoints, whose listener fetches the events."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from millpond import ids, values, webhooks
from millpond.engine.webhooks import deliveries
from millpond.errors import ConflictError, InvalidError, NotFoundError
from millpond.store.db import fetch, new_id
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.engine.engine import Engine
    from millpond.engine.webhooks.deliveries import DeliveryRecord
    from millpond.store.db import Connection, Database, Row

SQL: Final = queries("millpond.engine.webhooks", "endpoints")

EVERYTHING: Final = "*"
DISABLED: Final = "endpoint.disabled"
BATCH_COMPLETED: Final = "batch.completed"
LIFECYCLE_EVENTS: Final = (*webhooks.LIFECYCLE_EVENTS, BATCH_COMPLETED, DISABLED)
"""All events that an endpoint can receive."""
ENDPOINTS_MAX: Final = 100
KINDS_MAX: Final = 100
LIMIT_MAX: Final = 100
PAGE_MAX: Final = 200
OVERLAP: Final = timedelta(hours=24)
OVERLAP_MAX: Final = timedelta(days=30)
FOLLOW_MAX: Final = 2_000
"""How many deliveries one statement updates to follow their endpoint."""
_TEXT_MAX: Final = 500
_CHANGES: Final = frozenset({"url", "events", "kinds", "description", "limit"})
_NO_JOB: Final = UUID(int=0)
_FIRST: Final = UUID(int=0)
"""No endpoint has a lower id."""


@dataclass(frozen=True, slots=True)
class EndpointRecord:
    """An endpoint. Its secret is shown only when it is made or rotated."""

    endpoint_id: UUID
    tenant: str
    url: str | None
    """None: a pull endpoint, whose listener fetches its deliveries."""
    events: tuple[str, ...]
    kinds: tuple[str, ...]
    """Empty: all."""
    description: str
    limit: int | None
    """How many concurrent requests each courier may make to it."""
    created_at: datetime
    rotated_until: datetime | None
    """Until when its deliveries are signed with the previous secret too."""
    pulled_at: datetime | None
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_reason: str | None
    account: str | None
    """The account whose events it receives; None: all accounts of the tenant."""
    is_native: bool
    """Whether its deliveries have the format of the native API; if not, that of each job's kind."""

    @property
    def id(self) -> str:
        return ids.text("ep", self.endpoint_id)


@dataclass(frozen=True, slots=True)
class EndpointStats:
    """The number of an endpoint's deliveries in each state, and its response times."""

    pending: int
    delivered: int
    failed: int
    withdrawn: int
    tries: int
    seconds_p50: float | None
    """The median duration of its successful responses."""
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
        events: Iterable[str] = webhooks.ENDS,
        kinds: Iterable[str] = (),
        description: str = "",
        secret: str | None = None,
        limit: int | None = None,
        account: str | None = None,
        is_native: bool = True,
    ) -> tuple[EndpointRecord, str]:
        """Make an endpoint, which receives events of a tenant's jobs; without a URL, a pull endpoint.

        Its secret is returned only here. With an account, it receives the events of that account only. If it is not
        native, its deliveries have the format of each job's kind.
        """
        values.check_name(tenant, field="tenant")
        if account is not None:
            values.check_name(account, field="account")
        secret = webhooks.new_secret() if secret is None else webhooks.check_secret(secret, field="secret")
        traits = await self._checked(
            {"url": url, "events": events, "kinds": kinds, "description": description, "limit": limit}
        )
        vault = await self._engine.safe.opened()
        endpoint_id = new_id()
        sealed = vault.seal(secret, deliveries.about("endpoint", endpoint_id))

        async def work(tx: Connection) -> EndpointRecord:
            query = SQL["count"] if account is None else SQL["count_of_account"]
            if (await fetch(tx, query, *_owner(tenant, account)))["endpoints"] >= ENDPOINTS_MAX:
                owner = "tenant" if account is None else "account"
                raise ConflictError(f"The {owner} has {ENDPOINTS_MAX} webhook endpoints, which is the limit.")
            row = await fetch(tx, SQL["make"], endpoint_id, tenant, *traits.values(), sealed, account, is_native)
            self._check_format(row)
            await _subscribe(tx, row)
            return _record(row)

        return await self._engine.database(tenant).transact(work), secret

    async def list(
        self, tenant: str, *, account: str | None = None, after: UUID | None = None, limit: int = PAGE_MAX
    ) -> list[EndpointRecord]:
        """One page, the oldest first: all endpoints of a tenant, or those of one account."""
        values.check_limit(limit, PAGE_MAX)
        query = SQL["list"] if account is None else SQL["list_of_account"]
        rows = await self._engine.database(tenant).run(query, *_owner(tenant, account), after or _FIRST, limit)
        return [_record(row) for row in rows]

    async def list_all(self, *, after: UUID | None = None, limit: int = PAGE_MAX) -> list[EndpointRecord]:
        """One page of the endpoints of all tenants, the oldest first."""
        values.check_limit(limit, PAGE_MAX)
        rows = await self._engine.tenant_databases.gather(SQL["list_all"], after or _FIRST, limit)
        return sorted(map(_record, rows), key=lambda endpoint: endpoint.endpoint_id)[:limit]

    async def owner(self, endpoint: UUID | str) -> str:
        """The tenant of an endpoint, for operators of all tenants."""
        row = await self._engine.tenant_databases.find(SQL["owner"], ids.parse("ep", endpoint))
        if row is None:
            raise _absent(endpoint)
        return row["tenant"]

    async def read(self, tenant: str, endpoint: UUID | str) -> EndpointRecord:
        row = await self._engine.database(tenant).run(SQL["read"], tenant, ids.parse("ep", endpoint))
        if row is None:
            raise _absent(endpoint)
        return _record(row)

    async def change(self, tenant: str, endpoint: UUID | str, **changes: Any) -> EndpointRecord:
        """Change the URL, events, kinds, description or limit of an endpoint; pending deliveries go to the new URL."""
        if unknown := sorted(changes.keys() - _CHANGES):
            raise InvalidError(
                "The field cannot be changed.",
                field=unknown[0],
                hint=f"Fields that can be changed: {', '.join(sorted(_CHANGES))}.",
            )
        before = await self.read(tenant, endpoint)
        if "url" in changes and (changes["url"] is None) != (before.url is None):
            raise ConflictError(
                "An endpoint with a URL cannot become a pull endpoint, or the other way round.",
                field="url",
                hint="Create another endpoint.",
            )
        checked = await self._checked(changes)

        async def work(tx: Connection) -> EndpointRecord:
            row = dict(await _locked(tx, tenant, endpoint)) | checked
            self._check_format(row)
            names = ("url", "events", "kinds", "description", "in_flight_max")
            await fetch(tx, SQL["change"], row["endpoint_id"], *(row[name] for name in names))
            await _subscribe(tx, row)
            return _record(row)

        return await self._engine.database(tenant).transact(work)

    async def rotate(
        self, tenant: str, endpoint: UUID | str, overlap: timedelta = OVERLAP, *, secret: str | None = None
    ) -> str:
        """Sign with a new secret, which is returned only here, and during the overlap with the present one too."""
        if not timedelta(0) <= overlap <= OVERLAP_MAX:
            raise InvalidError(f"The overlap must be at most {OVERLAP_MAX.days} days.", field="overlap")
        secret = webhooks.new_secret() if secret is None else webhooks.check_secret(secret, field="secret")
        found = await self.read(tenant, endpoint)
        vault = await self._engine.safe.opened()
        sealed = vault.seal(secret, deliveries.about("endpoint", found.endpoint_id))
        await self._engine.database(tenant).run(SQL["rotate"], found.endpoint_id, sealed, overlap)
        return secret

    async def disable(self, tenant: str, endpoint: UUID | str, reason: str = "") -> EndpointRecord:
        """Disable an endpoint. Its pending deliveries wait until it is enabled."""
        reason = _text(reason, field="reason") or "Disabled by an operator."
        found = await self.read(tenant, endpoint)
        await self._engine.database(tenant).run(SQL["disable"], found.endpoint_id, reason)
        return await self.read(tenant, endpoint)

    async def enable(self, tenant: str, endpoint: UUID | str) -> EndpointRecord:
        """Enable an endpoint: it receives new events, and the deliveries that waited for it."""

        async def work(tx: Connection) -> EndpointRecord:
            row = await _locked(tx, tenant, endpoint)
            await fetch(tx, SQL["enable"], row["endpoint_id"])
            await fetch(tx, SQL["follow"], [row["endpoint_id"]], FOLLOW_MAX)
            await _subscribe(tx, row)
            return _record(await _locked(tx, tenant, endpoint))

        enabled = await self._engine.database(tenant).transact(work)
        self._engine.deliveries.poll_soon()
        return enabled

    async def delete(self, tenant: str, endpoint: UUID | str) -> None:
        """Delete an endpoint; its pending deliveries are withdrawn."""

        async def work(tx: Connection) -> None:
            row = await _locked(tx, tenant, endpoint)
            for step in (SQL["unsubscribe"], SQL["delete"]):
                await fetch(tx, step, row["endpoint_id"])
            await fetch(tx, SQL["follow"], [row["endpoint_id"]], FOLLOW_MAX)

        await self._engine.database(tenant).transact(work)

    async def test(
        self, tenant: str, endpoint: UUID | str, event: str | None = None, *, body: Any = None
    ) -> DeliveryRecord:
        """Send a test delivery: a lifecycle event of an invented job or, without an event, a plain test.

        With a body, exactly that is sent.
        """
        if event is not None and event not in LIFECYCLE_EVENTS:
            raise InvalidError(
                f"There is no lifecycle event {str(event)[:60]!r}.",
                field="event",
                hint=f"Events: {', '.join(LIFECYCLE_EVENTS)}.",
            )
        found = await self.read(tenant, endpoint)
        if found.disabled_at is not None:
            raise ConflictError("The endpoint is disabled.", hint="Enable it first.")
        data = _example(found, event) if body is None else {"body": body}
        encoded = values.encode(data, field="body")
        row = await self._engine.database(tenant).run(SQL["test"], found.endpoint_id, event or "test", encoded)
        self._engine.deliveries.poll_soon()
        return deliveries.record(row)

    async def stats(self, tenant: str, endpoint: UUID | str, since: datetime) -> EndpointStats:
        found = await self.read(tenant, endpoint)
        values.check_time(since, field="since")
        return EndpointStats(**await self._engine.database(tenant).run(SQL["stats"], found.endpoint_id, since))

    async def delete_silent(self, silence: timedelta, limit: int) -> int:
        """Delete pull endpoints whose listener has not pulled for this long; return how many."""
        done = 0
        for row in await self._engine.tenant_databases.gather(SQL["silent"], silence, limit):
            with contextlib.suppress(NotFoundError):  # another process was quicker
                await self.delete(row["tenant"], row["endpoint_id"])
                done += 1
        return done

    def _check_format(self, row: Any) -> None:
        """Reject events that the format of the kinds lacks.

        An endpoint that is not native can receive only events that have a name in each of its kinds.
        """
        if row["is_native"]:
            return
        declared = self._engine.app.kinds
        unknown = next((kind for kind in row["kinds"] if kind not in declared), None)
        if unknown is not None:
            raise InvalidError(
                f"The endpoint uses the event format of its kinds, but {unknown!r} is not a known kind.", field="kinds"
            )
        names = [declared[kind].webhook.names for kind in row["kinds"] or declared]
        defined = [event for event in LIFECYCLE_EVENTS if all(event in each for each in names)]
        wanted = LIFECYCLE_EVENTS if EVERYTHING in row["events"] else row["events"]
        missing = next((event for event in wanted if event not in defined), None)
        if missing is not None:
            raise InvalidError(
                f"The endpoint uses the event format of its kinds, which does not define {missing!r}.",
                field="events",
                hint=f"Defined events: {', '.join(defined)}.",
            )

    async def _checked(self, traits: dict[str, Any]) -> dict[str, Any]:
        """Check the fields of an endpoint, and return them by column."""
        checked: dict[str, Any] = {}
        if "url" in traits:
            checked["url"] = traits["url"]
            if traits["url"] is not None:
                await self._engine.outbound.admit(traits["url"], field="url")
        if "events" in traits:
            checked["events"] = _lifecycle_events(traits["events"])
        if "kinds" in traits:
            checked["kinds"] = _kinds(traits["kinds"])
        if "description" in traits:
            checked["description"] = _text(traits["description"], field="description")
        if "limit" in traits:
            limit = traits["limit"]
            checked["in_flight_max"] = None if limit is None else values.check_limit(limit, LIMIT_MAX)
        return checked


async def follow(db: Database, limit: int) -> int:
    """Apply the state of endpoints to up to ``limit`` of their deliveries; return how many.

    There may be very many. A request that changes an endpoint does this for some of them, and the courier for the rest,
    bit by bit.
    """
    return (await db.run(SQL["follow"], None, limit))["followed"]


async def _locked(tx: Connection, tenant: str, endpoint: UUID | str) -> Row:
    row = await fetch(tx, SQL["lock"], tenant, ids.parse("ep", endpoint))
    if row is None:
        raise _absent(endpoint)
    return row


async def _subscribe(tx: Connection, row: Any) -> None:
    events = LIFECYCLE_EVENTS if EVERYTHING in row["events"] else row["events"]
    await fetch(tx, SQL["subscribe"], row["endpoint_id"], list(events))


def _owner(tenant: str, account: str | None) -> tuple[str, ...]:
    return (tenant,) if account is None else (tenant, account)


def _lifecycle_events(given: Iterable[str]) -> list[str]:
    events = list(dict.fromkeys(given))
    if not events:
        raise InvalidError("At least one event is required.", field="events")
    for event in events:
        if event not in (*LIFECYCLE_EVENTS, EVERYTHING):
            raise InvalidError(
                f"There is no lifecycle event {str(event)[:60]!r}.",
                field="events",
                hint=f"Events: {', '.join(LIFECYCLE_EVENTS)}; * for all.",
            )
    return events


def _kinds(given: Iterable[str]) -> list[str]:
    kinds = list(dict.fromkeys(given))
    if len(kinds) > KINDS_MAX:
        raise InvalidError(f"The endpoint has {len(kinds)} kinds; the limit is {KINDS_MAX}.", field="kinds")
    return [values.check_name(kind, field="kinds") for kind in kinds]


def _text(given: Any, *, field: str) -> str:
    if not isinstance(given, str):
        raise InvalidError("The value must be text.", field=field)
    values.check(given, field=field)
    if len(given) > _TEXT_MAX:
        raise InvalidError(f"The text has {len(given)} characters; the limit is {_TEXT_MAX}.", field=field)
    return given


def _example(endpoint: EndpointRecord, event: str | None) -> dict[str, Any]:
    """The data of a test delivery."""
    if event is None:
        return {"type": "endpoint.test", "data": {"id": endpoint.id, "url": endpoint.url}}
    if event == DISABLED:
        data = {"id": endpoint.id, "url": endpoint.url, "reason": "This is a test.", "failing_since": None}
        return {"type": DISABLED, "data": data}
    if event == BATCH_COMPLETED:
        return {"type": BATCH_COMPLETED, "data": _EXAMPLE_BATCH}
    job = {
        "kind": endpoint.kinds[0] if endpoint.kinds else "example",
        "account": "example",
        "state": event,
        "phase": "ended" if event in webhooks.ENDS else "ready",
        "outcome": event if event in webhooks.ENDS else None,
        "progress": 1.0 if event == "succeeded" else 0.0,
        "attempts": 0,
        "price": 0,
        "input": {"is_test": True},
        "tags": {},
    }
    body = webhooks.NATIVE.body(webhooks.WebhookData(_NO_JOB, event, endpoint.created_at, job))
    return {"type": body["type"], "data": body["data"]}


_EXAMPLE_BATCH: Final[dict[str, Any]] = {
    "id": ids.text("batch", _NO_JOB),
    "account": "example",
    "name": "example",
    "state": "completed",
    **dict.fromkeys(("total", "submitted", "ended", "succeeded"), 1),
    **dict.fromkeys(("failed", "canceled", "price", "captured"), 0),
    "tags": {},
    **dict.fromkeys(("created_at", "canceled_at", "ended_at")),
}


def _record(row: Any) -> EndpointRecord:
    return EndpointRecord(
        row["endpoint_id"],
        row["tenant"],
        row["url"],
        tuple(row["events"]),
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
