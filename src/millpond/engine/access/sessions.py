"""Sessions: operators who have signed in to the dashboard.

A browser holds a random secret in a cookie; the database has its digest and the key of the sign-in. Each request reads
the present state of that key, so revoking a key ends its sessions with their next request.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from millpond import ids
from millpond.engine.access import access, credentials
from millpond.errors import SessionExpiredError, SessionMissingError
from millpond.store.db import fetch
from millpond.store.queries import queries

if TYPE_CHECKING:
    from datetime import datetime

    from millpond.engine.access.access import Principal
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.access", "sessions")

TOUCH: Final = timedelta(minutes=1)
_DOMAIN: Final = b"millpond csrf\0"
_AGAIN: Final = "Sign in again."


@dataclass(frozen=True, slots=True)
class Session:
    """A sign-in, with the present state of its key."""

    principal: Principal
    name: str | None
    """The name of the key."""
    expires_at: datetime
    csrf: str
    """What requests of the dashboard must send beside the cookie, which a browser sends by itself."""


async def open_session(db: Database, principal: Principal, *, address: str, lifetime: timedelta) -> str:
    """Sign in the holder of a key; return the secret of the cookie, which is not stored."""
    secret = secrets.token_urlsafe(credentials.SECRET_BYTES)
    key_id = ids.parse("key", principal.actor)
    async with db.transaction() as tx:
        await fetch(tx, SQL["open"], credentials.digest(secret), key_id, address, lifetime)
        await access.write_audit(
            tx,
            principal.actor,
            "session.opened",
            tenant=principal.tenant,
            subject=principal.actor,
            data={"address": address},
        )
    return secret


async def find_session(db: Database, secret: str | None, *, idle: timedelta) -> Session:
    """The session of a cookie. It ends after ``idle`` without a request."""
    row = None if secret is None else await db.run(SQL["find"], credentials.digest(secret), idle, TOUCH)
    if secret is None or row is None:
        raise SessionMissingError(hint="Sign in with a key of scope viewer, operator or admin.")
    if row["is_over"]:
        raise SessionExpiredError(hint=_AGAIN)
    if refusal := access.refusal(row):
        raise SessionExpiredError(refusal[0], hint=refusal[1])
    if row["is_stale"]:
        await db.run(SQL["touch"], credentials.digest(secret), TOUCH)
    return Session(access.principal(row), row["name"], row["ends_at"], csrf(secret))


async def close_session(db: Database, secret: str, *, actor: str, tenant: str | None) -> None:
    """End a session. Repeating it changes nothing."""
    async with db.transaction() as tx:
        if await fetch(tx, SQL["close"], credentials.digest(secret)) is not None:
            await access.write_audit(tx, actor, "session.closed", tenant=tenant, subject=actor)


async def prune(db: Database, limit: int) -> int:
    """Delete sessions that are over."""
    return len(await db.run(SQL["prune"], limit))


def csrf(secret: str) -> str:
    """The CSRF token of this cookie and no other; it does not reveal the cookie."""
    mac = hmac.digest(secret.encode("utf-8", "replace"), _DOMAIN, "sha256")
    return base64.urlsafe_b64encode(mac).rstrip(b"=").decode()


def is_csrf(session: Session, shown: str | None) -> bool:
    return shown is not None and hmac.compare_digest(session.csrf.encode(), shown.encode("utf-8", "replace"))
