"""Callbacks: how a provider's callback finds its prediction, and what is stored of it.

The callback URL contains a token: the tenant and the prediction, signed, so that it cannot be invented and no table
need be searched for it. It does not prove that the provider is the caller: the signature of the callback does.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from millpond.engine.access import credentials
from millpond.errors import NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from millpond.providers import Callback
    from millpond.store.db import Database

SQL: Final = queries("millpond.engine.providers", "callbacks")

KEPT: Final = timedelta(days=7)
"""For how long messages are stored. Those older than some minutes are rejected for their age."""
_DOMAIN: Final = b"millpond callback\0"
_ID: Final = 16
_MAC: Final = 16


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """The prediction that a token names."""

    tenant: str
    prediction_id: UUID

    def sign(self, secret: bytes) -> str:
        body = self.prediction_id.bytes + self.tenant.encode()
        return credentials.packed(_mac(secret, body) + body)

    @classmethod
    def read(cls, text: str, secret: bytes) -> CallbackTarget:
        """Read a token that this installation has signed."""
        try:
            whole = credentials.unpacked(text)
        except ValueError:
            raise _unknown() from None
        mac, body = whole[:_MAC], whole[_MAC:]
        if len(body) <= _ID or not hmac.compare_digest(mac, _mac(secret, body)):
            raise _unknown()
        return cls(body[_ID:].decode(), UUID(bytes=body[:_ID]))


async def hear(db: Database, address: CallbackTarget, provider: str, callback: Callback) -> tuple[str, UUID | None]:
    """Store a verified callback; return its verdict and its job."""
    row = await db.run(
        SQL["hear"],
        address.tenant,
        address.prediction_id,
        provider,
        callback.message_id,
        callback.external_id,
        callback.status,
    )
    return str(row["verdict"]), row["job_id"]


async def prune(db: Database, limit: int) -> int:
    return len(await db.run(SQL["prune"], KEPT, limit))


def _mac(secret: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, _DOMAIN + body, "sha256")[:_MAC]


def _unknown() -> NotFoundError:
    return NotFoundError("The callback token is unknown.")
