"""Access: keys, browser tokens, tenants, and the audit of what operators did.

Only the digest of a key is stored. A key that was used is cached, so that a request costs no query; it is looked up
again every few seconds in the background, and dropped at once if the notifier reports a change.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from uuid import UUID

import msgspec

from millpond import ids, values
from millpond.engine.access import credentials
from millpond.engine.access.credentials import Scope, Token
from millpond.engine.batcher import Batcher
from millpond.engine.credits import ledger
from millpond.engine.credits.ledger import Balance
from millpond.errors import ConflictError, InvalidError, MillpondError, NotFoundError, StoreError, UnauthorizedError
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence

    from millpond.store.db import Connection, Database, Row

SQL: Final = queries("millpond.engine.access", "access")

KEY_TOPIC: Final = "key:"
PAGE_MAX: Final = 1_000
AUDIT_WALK: Final = 10_000
"""How many audit records a page reads at most to find those that match its filters."""
RATE_LIMIT_MAX: Final = 1_000_000
TOKEN_SECONDS_MAX: Final = 24 * 3600

_NAME_MAX: Final = 200
_FORM: Final = f"A key begins with mp_ and its scope: {', '.join(get_args(Scope))}."
_LAST: Final = UUID(int=2**128 - 1)

KEEP: Final = 3.0
"""For how many seconds a cached key is valid: so long may a process that was not notified accept a revoked key."""
RENEW: Final = 1.5
"""After how many seconds it is looked up again in the background."""
_KEEP_BAD: Final = 5.0
_KNOWN_MAX: Final = 10_000
_BAD_MAX: Final = 1_000
_TOUCH: Final = timedelta(minutes=1)
_TOUCH_PAUSE: Final = 1.0
_SECRET_KEEP: Final = 60.0


class Principal(msgspec.Struct, frozen=True):
    """The authenticated caller, and what it may see."""

    scope: Literal["client", "worker", "viewer", "operator", "admin", "job", "fleet"]
    """``job``: a browser, for one job. ``fleet``: a worker that has registered."""
    tenant: str | None
    """None: every tenant."""
    account: str | None
    actor: str
    """Its name in the audit."""
    rate_limit: int | None = None
    job_id: UUID | None = None
    may: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A key without its secret."""

    key_id: UUID
    hint: str
    scope: Scope
    tenant: str | None
    account: str | None
    name: str | None
    rate_limit: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    @property
    def id(self) -> str:
        return ids.text("key", self.key_id)


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """A tenant, and when it was made."""

    tenant: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A record of the audit."""

    audit_id: UUID
    at: datetime
    actor: str
    action: str
    tenant: str | None
    subject: str | None
    data: Any

    @property
    def id(self) -> str:
        return ids.text("audit", self.audit_id)


@dataclass(frozen=True, slots=True)
class AuditPage:
    """A page of audit records, the newest first, and the ``before`` of the next page, which is None on the last page.

    If the page ended because its walk reached its limit, ``searched_to`` is the time down to which it searched.
    """

    data: list[AuditRecord]
    before: UUID | None
    searched_to: datetime | None


@dataclass(slots=True)
class _Known:
    """The cache entry of a valid key."""

    principal: Principal
    key_id: UUID
    renew_at: float
    good_until: float
    touch_at: float
    ends_at: float
    """When the key expires."""


@dataclass(frozen=True, slots=True)
class _Bad:
    """The cache entry of an invalid key."""

    message: str
    hint: str
    good_until: float


class Access:
    """Keys, tokens, tenants and the audit of one database."""

    def __init__(
        self, db: Database, notify: Callable[[set[str]], None], database: Callable[[str], Database] | None = None
    ) -> None:
        self._db = db
        self._notify = notify
        self._database = database
        self._known: dict[bytes, _Known] = {}
        self._bad: dict[bytes, _Bad] = {}
        self._changes = 0
        """The number of changes to keys so far: a lookup during which it grows may be out of date."""
        self._lookups: Batcher[bytes, _Known | _Bad] = Batcher(self._look_up)
        self._used: set[UUID] = set()
        self._touching: asyncio.Task[None] | None = None
        self._signing: tuple[bytes, float, float] | None = None

    async def close(self) -> None:
        """Store which keys were used last."""
        if self._touching is not None:
            self._touching.cancel()
        await self._touch()

    # Authentication

    async def authenticate(self, secret: str) -> Principal:
        """The caller that has this key or token. A cached key costs no query.

        The cache is searched by digest: the time that it takes reveals nothing about any secret.
        """
        if secret.startswith(credentials.TOKEN_PREFIX):
            return await self._read_token(secret)
        digest = credentials.digest(secret)
        known = self._known.get(digest)
        now = time.monotonic()
        if known is None or now >= known.good_until:
            try:
                known = await self._admit(secret, digest, now)
            except StoreError:
                if known is None or now < known.ends_at:
                    raise
                # That is certain without the database.
                raise UnauthorizedError("The key has expired.", hint="Ask your operator for a new one.") from None
        elif now >= known.renew_at:
            known.renew_at = known.good_until
            forget_failure(self._lookups.add(digest))
        if now >= known.touch_at:
            known.touch_at = now + _TOUCH.total_seconds()
            self._use(known.key_id)
        return known.principal

    def recall(self, secret: str) -> Principal | None:
        """The caller whose key this process has accepted before, unless it has expired or is known to be revoked."""
        known = self._known.get(credentials.digest(secret))
        return None if known is None or time.monotonic() >= known.ends_at else known.principal

    def is_known(self, secret: str) -> bool:
        """Whether this process has accepted this key, and has not noticed that it became invalid."""
        return credentials.digest(secret) in self._known

    def hear(self, topics: frozenset[str]) -> None:
        """Called by the notifier: drop changed keys from the cache."""
        changed = {topic for topic in topics if topic.startswith(KEY_TOPIC)}
        if changed:
            self._changes += 1
            for digest, known in list(self._known.items()):
                if f"{KEY_TOPIC}{known.key_id}" in changed:
                    del self._known[digest]

    async def _admit(self, secret: str, digest: bytes, now: float) -> _Known:
        if not credentials.is_key(secret):
            raise UnauthorizedError("The key is malformed or incomplete.", hint=_FORM)
        found: _Known | _Bad | None = self._bad.get(digest)
        if found is None or now >= found.good_until:
            found = await self._lookups.add(digest)
        if isinstance(found, _Bad):
            raise UnauthorizedError(found.message, hint=found.hint)
        return found

    async def _look_up(self, digests: Sequence[bytes]) -> list[_Known | _Bad | Exception]:
        changes = self._changes
        rows = {row["digest"]: row for row in await self._db.run(SQL["find_keys"], list(set(digests)))}
        found = {digest: self._judge(digest, rows.get(digest)) for digest in set(digests)}
        if changes == self._changes:
            for digest, entry in found.items():
                self._remember(digest, entry)
        return [found[digest] for digest in digests]

    def _judge(self, digest: bytes, row: Row | None) -> _Known | _Bad:
        now = time.monotonic()
        if row is None:
            return _Bad("The key does not exist.", "Ask an operator for a key.", now + _KEEP_BAD)
        if reason := refusal(row):
            return _Bad(*reason, now + _KEEP_BAD)
        left = math.inf if row["seconds_left"] is None else row["seconds_left"]
        before = self._known.get(digest)
        touch_at = 0.0 if before is None else before.touch_at
        return _Known(principal(row), row["id"], now + RENEW, now + min(KEEP, left), touch_at, now + left)

    def _remember(self, digest: bytes, entry: _Known | _Bad) -> None:
        if isinstance(entry, _Known):
            keep(self._known, digest, entry, _KNOWN_MAX)
        else:
            self._known.pop(digest, None)
            keep(self._bad, digest, entry, _BAD_MAX)

    def _use(self, key_id: UUID) -> None:
        self._used.add(key_id)
        if self._touching is None or self._touching.done():
            self._touching = asyncio.create_task(self._touch_soon())

    async def _touch_soon(self) -> None:
        await asyncio.sleep(_TOUCH_PAUSE)  # so that many keys are written at once
        await self._touch()

    async def _touch(self) -> None:
        used, self._used = self._used, set()
        if used:
            with contextlib.suppress(MillpondError):  # Nothing depends on it.
                await self._db.run(SQL["touch_keys"], list(used), _TOUCH)

    # Browser tokens

    async def make_token(
        self, tenant: str, job_id: UUID | str, scopes: Iterable[str], expires_in: timedelta | str | float
    ) -> tuple[str, datetime]:
        """A token that gives a browser these scopes for one job. It is signed, and not stored."""
        values.check_name(tenant, field="tenant")
        lifetime = values.duration(expires_in, field="expires_in").total_seconds()
        if not 1 <= lifetime <= TOKEN_SECONDS_MAX:
            raise InvalidError("The lifetime must be from 1s to 24h.", field="expires_in")
        granted, named = credentials.check_scopes(scopes), ids.parse("job", job_id)
        secret, offset = await self._secret()
        ends = round(time.monotonic() + offset + lifetime, 3)
        return Token(tenant, named, granted, ends).sign(secret), datetime.fromtimestamp(ends, UTC)

    async def _read_token(self, text: str) -> Principal:
        secret, offset = await self._secret()
        token = Token.read(text, secret)
        if token.ends <= time.monotonic() + offset:
            raise UnauthorizedError("The token has expired.", hint="Request a new token.")
        return Principal("job", token.tenant, None, "token", job_id=token.job_id, may=token.scopes)

    async def signing_secret(self) -> bytes:
        """The secret with which this installation signs. Each use signs with a prefix of its own."""
        return (await self._secret())[0]

    async def _secret(self) -> tuple[bytes, float]:
        """The secret that signs tokens, and the difference between the database's clock and the monotonic clock."""
        now = time.monotonic()
        if self._signing is None or now >= self._signing[2]:
            try:
                row = await self._db.run(SQL["secret"], "token")
            except StoreError:  # whether a token has expired is certain without the database
                if self._signing is None:
                    raise
                return self._signing[:2]
            if row is None:
                await self._db.run(SQL["make_secret"], "token", secrets.token_bytes(credentials.SECRET_BYTES))
                row = await self._db.run(SQL["secret"], "token")
            now = time.monotonic()
            self._signing = row["secret"], row["present"] - now, now + _SECRET_KEEP
        return self._signing[0], self._signing[1]

    # Keys

    async def make_key(
        self,
        *,
        scope: str,
        tenant: str | None = None,
        account: str | None = None,
        name: str | None = None,
        expires_in: timedelta | str | float | None = None,
        rate_limit: int | None = None,
        actor: str,
    ) -> tuple[KeyRecord, str]:
        """Make a key; return it with its secret, which is shown only once. Missing tenants and accounts are made."""
        traits = _traits(scope, tenant, account, name=name, expires_in=expires_in, rate_limit=rate_limit)
        async with self._db.transaction() as tx:
            if tenant is not None:
                await self._open_tenant(tx, tenant, actor)
            if tenant is not None and account is not None:
                async with self._at_database(tx, tenant) as own:
                    await fetch(own, ledger.SQL["open_accounts"], [tenant], [account])
            made, secret = await _make_key(tx, traits)
            data = {"scope": scope, "account": account, "name": name, "hint": made.hint}
            await write_audit(tx, actor, "key.made", tenant=tenant, subject=made.id, data=data)
        return made, secret

    async def rotate_key(
        self,
        key_id: UUID | str,
        *,
        overlap: timedelta | str | float = "24h",
        tenant: str | None = None,
        account: str | None = None,
        actor: str,
    ) -> tuple[KeyRecord, str]:
        """Make a key that replaces this one, which stays valid during the overlap.

        A caller that is limited to a tenant or an account passes them, and can reach no other key.
        """
        stays = values.duration(overlap, field="overlap")
        async with self._db.transaction() as tx:
            old = await _lock_key(tx, key_id, tenant, account)
            if old["is_revoked"] or old["is_expired"]:
                raise ConflictError("The key was revoked or has expired.", field="id", hint="Create a new key.")
            made, secret = await _make_key(tx, old)
            retired = KeyRecord(*await fetch(tx, SQL["retire_key"], old["id"], stays))
            data = {"replaced_by": made.id, "expires_at": retired.expires_at}
            await write_audit(tx, actor, "key.rotated", tenant=old["tenant"], subject=retired.id, data=data)
        self._change(retired.key_id)
        return made, secret

    async def revoke_key(
        self, key_id: UUID | str, *, tenant: str | None = None, account: str | None = None, actor: str
    ) -> KeyRecord:
        """Revoke a key at once. Repeating it changes nothing."""
        async with self._db.transaction() as tx:
            old = await _lock_key(tx, key_id, tenant, account)
            revoked = KeyRecord(*await fetch(tx, SQL["revoke_key"], old["id"]))
            if not old["is_revoked"]:
                data = {"hint": revoked.hint}
                await write_audit(tx, actor, "key.revoked", tenant=old["tenant"], subject=revoked.id, data=data)
        self._change(revoked.key_id)
        return revoked

    async def read_key(self, key_id: UUID | str, *, tenant: str | None = None) -> KeyRecord:
        """A key without its secret. A caller that is limited to a tenant passes it, and sees no other key."""
        found = await self._db.run(SQL["key"], ids.parse("key", key_id), tenant)
        if found is None:
            raise NotFoundError("There is no such key.", field="id")
        return KeyRecord(*found)

    async def list_keys(
        self, *, tenant: str | None = None, before: UUID | str | None = None, limit: int = 50
    ) -> list[KeyRecord]:
        """One page, the newest first; the next one is before the last id of this one."""
        values.check_limit(limit, PAGE_MAX)
        start = _LAST if before is None else ids.parse("key", before)
        return [KeyRecord(*row) for row in await self._db.run(SQL["list_keys"], tenant, start, limit)]

    def _change(self, key_id: UUID) -> None:
        topic = f"{KEY_TOPIC}{key_id}"
        self.hear(frozenset((topic,)))
        self._notify({topic})

    # Tenants and accounts

    async def make_tenant(self, tenant: str, *, actor: str) -> TenantRecord:
        """Make a tenant. Repeating it changes nothing."""
        values.check_name(tenant, field="tenant")
        async with self._db.transaction() as tx:
            await self._open_tenant(tx, tenant, actor)
            return TenantRecord(*await fetch(tx, SQL["tenant"], tenant))

    async def list_tenants(
        self, *, tenant: str | None = None, after: str | None = None, limit: int = 50
    ) -> list[TenantRecord]:
        """One page by name; the next one is after the last name of this one. With a tenant, only that one."""
        values.check_limit(limit, PAGE_MAX)
        return [TenantRecord(*row) for row in await self._db.run(SQL["list_tenants"], after or "", tenant, limit)]

    async def read_tenant(self, tenant: str, *, own: str | None = None) -> TenantRecord:
        """A tenant by its name. A caller that is limited to a tenant passes it as ``own``, and sees no other."""
        found = await self._db.run(SQL["tenant"], tenant) if own in (None, tenant) else None
        if found is None:
            raise NotFoundError(f"There is no tenant {tenant[:60]!r}.", field="tenant")
        return TenantRecord(*found)

    async def check_tenant(self, tenant: str) -> None:
        """Reject the name of a tenant that was never made and has no account."""
        if not await self.list_tenants(tenant=tenant, limit=1) and not await self.list_accounts(tenant, limit=1):
            raise NotFoundError(f"There is no tenant {tenant[:60]!r}.", field="tenant")

    async def make_account(self, tenant: str, account: str, *, active_max: int | None = None, actor: str) -> Balance:
        """Make an account, and its tenant if it is missing. Of an existing account, only a given cap is changed."""
        values.check_name(tenant, field="tenant")
        values.check_name(account, field="account")
        ledger.check_cap(active_max)
        async with self._db.transaction() as tx:
            await self._open_tenant(tx, tenant, actor)
            data = {"active_max": active_max}
            await write_audit(tx, actor, "account.made", tenant=tenant, subject=account, data=data)
            async with self._at_database(tx, tenant) as own:
                await fetch(own, ledger.SQL["open_accounts"], [tenant], [account])
                if active_max is not None:
                    await fetch(own, ledger.SQL["set_cap"], tenant, account, active_max)
                return Balance(**await fetch(own, ledger.SQL["balance"], tenant, account))

    async def list_accounts(self, tenant: str, *, after: str | None = None, limit: int = 50) -> list[Balance]:
        """One page by name; the next one is after the last name of this one."""
        values.check_limit(limit, PAGE_MAX)
        database = self._db if self._database is None else self._database(tenant)
        return [Balance(**row) for row in await database.run(SQL["list_accounts"], tenant, after or "", limit)]

    @contextlib.asynccontextmanager
    async def _at_database(self, tx: Connection, tenant: str) -> AsyncGenerator[Connection]:
        """A transaction in the database of a tenant's accounts: this one, or one that commits before it."""
        database = self._db if self._database is None else self._database(tenant)
        if database is self._db:
            yield tx
        else:
            async with database.transaction() as own:
                yield own

    async def _open_tenant(self, tx: Connection, tenant: str, actor: str) -> None:
        if (await fetch(tx, SQL["make_tenant"], tenant))["is_new"]:
            await write_audit(tx, actor, "tenant.made", tenant=tenant, subject=tenant)

    # Audit

    async def audit(
        self, actor: str, action: str, *, tenant: str | None = None, subject: str | None = None, data: Any = None
    ) -> None:
        """Write an audit record. Verbs of this class write theirs by themselves, in the same transaction."""
        async with self._db.transaction() as tx:
            await write_audit(tx, actor, action, tenant=tenant, subject=subject, data=data)

    async def list_audit(
        self, *, tenant: str | None = None, before: UUID | str | None = None, limit: int = 50
    ) -> list[AuditRecord]:
        """One page, the newest first; the next one is before the last id of this one."""
        return (await self.search_audit(tenant=tenant, before=before, limit=limit)).data

    async def search_audit(
        self,
        *,
        tenant: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        subject: str | None = None,
        since: datetime | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> AuditPage:
        """One page, the newest first, by tenant, actor, subject, or the beginning of the action.

        A page may be short, or empty, without being the last: matches may be rare, and the walk is bounded.
        """
        values.check_limit(limit, PAGE_MAX)
        start = _LAST if before is None else ids.parse("audit", before)
        filters = tenant, actor, action, subject, start, since
        rows: Sequence[Row] = await self._db.run(SQL["list_audit"], *filters, limit + 1, AUDIT_WALK)
        found = [_audited(row) for row in rows if row["is_match"]]
        if len(found) > limit:
            return AuditPage(found[:limit], found[limit - 1].audit_id, None)
        stop = rows[-1] if rows and rows[-1]["is_stop"] else None
        return AuditPage(found, *((None, None) if stop is None else (stop["id"], stop["at"])))


_TRAITS: Final = ("scope", "tenant", "account", "name", "rate_limit", "lifetime")
"""The fields that a key passes on to the one that replaces it."""


def refusal(row: Row) -> tuple[str, str] | None:
    """Why a key is rejected, and a hint: its owner may know both. None if it is valid."""
    if row["is_revoked"]:
        return "The key was revoked.", "Ask your operator for a new one."
    if row["seconds_left"] is not None and row["seconds_left"] <= 0:
        return f"The key expired on {row['expires_at']:%Y-%m-%d}.", "Ask your operator for a new one."
    return None


def principal(row: Row) -> Principal:
    return Principal(row["scope"], row["tenant"], row["account"], ids.text("key", row["id"]), row["rate_limit"])


def keep(cache: dict[bytes, Any], digest: bytes, value: object, limit: int) -> None:
    """Put an entry at the end of a cache, and remove the oldest one if the cache is full."""
    cache.pop(digest, None)
    cache[digest] = value
    if len(cache) > limit:
        del cache[next(iter(cache))]


def forget_failure(renewal: asyncio.Future[Any]) -> None:
    """Ignore the error of a renewal, which nothing awaits: the next request that needs a lookup reports it."""
    renewal.add_done_callback(lambda done: done.cancelled() or done.exception())


def _traits(
    scope: str, tenant: str | None, account: str | None, *, name: str | None, expires_in: Any, rate_limit: int | None
) -> dict[str, Any]:
    """The fields of a key, checked."""
    if scope not in get_args(Scope):
        raise InvalidError(f"The scope must be one of {', '.join(get_args(Scope))}.", field="scope")
    if tenant is not None:
        values.check_name(tenant, field="tenant")
    elif account is not None or scope == "client":
        raise InvalidError("A key for an account requires a tenant.", field="tenant")
    if account is not None:
        values.check_name(account, field="account")
    elif scope == "client":
        raise InvalidError("A key of scope client requires an account.", field="account")
    if account is not None and scope in ("viewer", "operator"):
        raise InvalidError(f"A key of scope {scope} cannot have an account.", field="account")
    if name is not None:
        values.check(name, field="name")
        if len(name) > _NAME_MAX:
            raise InvalidError(f"The name has {len(name)} characters; the limit is {_NAME_MAX}.", field="name")
    if rate_limit is not None and (isinstance(rate_limit, bool) or not 1 <= rate_limit <= RATE_LIMIT_MAX):
        raise InvalidError(f"The limit must be a whole number from 1 to {RATE_LIMIT_MAX:,}.", field="rate_limit")
    lifetime = None if expires_in is None else values.duration(expires_in, field="expires_in")
    return dict(zip(_TRAITS, (scope, tenant, account, name, rate_limit, lifetime), strict=True))


async def _make_key(tx: Connection, traits: Row | Mapping[str, Any]) -> tuple[KeyRecord, str]:
    secret = credentials.new_key(traits["scope"])
    known_by = credentials.digest(secret), credentials.hint(secret)
    row = await fetch(tx, SQL["make_key"], *known_by, *(traits[word] for word in _TRAITS))
    return KeyRecord(*row), secret


async def _lock_key(tx: Connection, key_id: UUID | str, tenant: str | None, account: str | None) -> Row:
    found = await fetch(tx, SQL["lock_key"], ids.parse("key", key_id), tenant, account)
    if found is None:
        raise NotFoundError("The key does not exist.", field="id")
    return found


async def write_audit(
    tx: Connection,
    actor: str,
    action: str,
    *,
    tenant: str | None = None,
    subject: str | None = None,
    data: Any = None,
) -> None:
    text = None if data is None else values.encode(data, field="data")
    await fetch(tx, SQL["write_audit"], actor, action, tenant, subject, text)


def _audited(row: Row) -> AuditRecord:
    fields = {name: value for name, value in row.items() if not name.startswith("is_")}
    data = fields.pop("data")
    return AuditRecord(fields.pop("id"), **fields, data=None if data is None else msgspec.json.decode(data))
