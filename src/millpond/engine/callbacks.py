"""Callbacks: how a provider's call finds the submission it is about, and what is kept of it.

The URL that a provider is given has a token: the tenant and the submission, signed, so that nobody makes one up and
no table need be searched for it. It is no proof that the provider calls: that is its signature.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond.errors import NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.providers import Callback
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine", "callbacks")

KEPT: Final = timedelta(days=7)
"""For how long a message is remembered. One that is older than some minutes is refused for its age."""
_DOMAIN: Final = b"millpond callback\0"
_ID: Final = 16
_MAC: Final = 16
_LETTERS_MAX: Final = 512


@dataclass(frozen=True, slots=True)
class Address:
    """The submission that a token names."""

    tenant: str
    submission_id: UUID

    def sign(self, secret: bytes) -> str:
        body = self.submission_id.bytes + self.tenant.encode()
        return base64.urlsafe_b64encode(_mac(secret, body) + body).rstrip(b"=").decode()

    @classmethod
    def read(cls, text: str, secret: bytes) -> Address:
        """What a token says, if we have signed it."""
        try:
            if len(text) > _LETTERS_MAX:
                raise ValueError(text[:20])  # noqa: TRY301 - as what cannot be read
            whole = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            raise _unknown() from None
        mac, body = whole[:_MAC], whole[_MAC:]
        if len(body) <= _ID or not hmac.compare_digest(mac, _mac(secret, body)):
            raise _unknown()
        return cls(body[_ID:].decode(), UUID(bytes=body[:_ID]))


async def hear(db: Database, address: Address, provider: str, callback: Callback) -> tuple[str, UUID | None]:
    """Keep a callback that was found to be the provider's own; tells what it is worth, and which job it is about."""
    row = await db.run(
        SQL["hear"],
        address.tenant,
        address.submission_id,
        provider,
        callback.message_id,
        callback.prediction_id,
        callback.status,
    )
    return str(row["verdict"]), row["job_id"]


async def prune(db: Database, most: int) -> int:
    return len(await db.run(SQL["prune"], KEPT, most))


def _mac(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, _DOMAIN + body, "sha256")[:_MAC]


def _unknown() -> NotFoundError:
    return NotFoundError("Nobody waits for a call here.")
