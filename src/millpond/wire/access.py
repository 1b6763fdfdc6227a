"""Tenants, keys, audit log and verification."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from millpond.wire.credits import Wallet
from millpond.wire.shapes import Answer, Duration, Name, Request, Scope, Time


class MakeTenant(Request):
    """A customer."""

    tenant: Name


class TenantInfo(Answer):
    """A customer."""

    tenant: str
    created_at: Time


class Tenants(Answer):
    """A page of tenants, by name."""

    data: list[TenantInfo]
    next_cursor: str | None


class MakeAccount(Request):
    """An account of a tenant, which has a wallet."""

    account: Name
    active_max: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None


class Wallets(Answer):
    """A page of accounts, by name."""

    data: list[Wallet]
    next_cursor: str | None


class MakeKey(Request):
    """A key for a client account, a worker or an operator. Tenant and account are created if they do not exist."""

    scope: Scope
    tenant: Name | None = None
    account: Name | None = None
    name: Annotated[str, Meta(max_length=200)] | None = None
    expires_in: Duration | None = None
    rate_limit: (
        Annotated[int, Meta(ge=1, le=1_000_000, description="Requests per second; null for the server's limit.")] | None
    ) = None


class RotateKey(Request):
    """How long the old key stays valid after the rotation."""

    overlap: Duration = "24h"


class KeyInfo(Answer):
    """A key without its secret."""

    id: str
    hint: Annotated[str, Meta(description="The first and last characters of the key.")]
    scope: Scope
    tenant: str | None
    account: str | None
    name: str | None
    rate_limit: int | None
    created_at: Time
    expires_at: Time | None
    revoked_at: Time | None
    last_used_at: Time | None


class NewKey(KeyInfo):
    """A new key. The secret is returned only once and is not stored."""

    key: str


class Keys(Answer):
    """A page of keys, newest first."""

    data: list[KeyInfo]
    next_cursor: str | None


class AuditEntry(Answer):
    """An operator action."""

    id: str
    at: Time
    actor: str
    action: str
    tenant: str | None
    subject: str | None
    data: Any


class Audit(Answer):
    """A page of operator actions, newest first. A page can be short or empty and still have a next page."""

    data: list[AuditEntry]
    next_cursor: str | None
    searched_to: Annotated[
        Time | None, Meta(description="Set if the page ended because the search limit was reached.")
    ] = None


class Violation(Answer):
    """A row that breaks an invariant."""

    invariant: str
    subject: str
    job_id: str | None
    detail: str


class Verification(Answer):
    """The result of checking every invariant."""

    ok: bool
    violations: list[Violation]


class Health(Answer):
    """The readiness of the process."""

    status: Literal["ok", "unavailable"]
    version: str
    checks: dict[str, str]
