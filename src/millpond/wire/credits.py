"""Prices, wallets and ledger entries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from millpond.wire.shapes import Answer, Credits, Name, Request, Time


class AskPrice(Request):
    """A job whose price is requested."""

    kind: Name
    input: dict[str, Any] = {}
    account: Name | None = None


class Quote(Answer):
    """The price of a job, and whether the account has enough credits."""

    kind: str
    price: Credits
    available: int
    can_pay: bool


class Wallet(Answer):
    """The balances of an account and its number of active jobs."""

    tenant: str
    account: str
    available: int
    held: int
    active: int
    active_max: int | None


class Entry(Answer):
    """An entry of the ledger."""

    seq: int
    at: Time
    type: Literal["grant", "adjust", "hold", "capture", "release"]
    available: int
    held: int
    outside: int
    available_after: int
    held_after: int
    job_id: str | None
    run: int | None
    reference: str | None
    reason: str | None


class Entries(Answer):
    """A page of ledger entries, newest first."""

    data: list[Entry]
    next_cursor: str | None


class Post(Request):
    """A grant of credits to an account."""

    tenant: Name
    account: Name
    amount: Annotated[int, Meta(ge=1, le=10**12)]
    reference: Annotated[str, Meta(max_length=255, description="Each reference is posted only once.")] | None = None
    reason: Annotated[str, Meta(max_length=255)] | None = None


class Adjust(Request):
    """An adjustment of an account's credits up or down, with a reason."""

    tenant: Name
    account: Name
    amount: Annotated[int, Meta(ge=-(10**12), le=10**12, extra_json_schema={"not": {"const": 0}})]
    reason: Annotated[str, Meta(min_length=1, max_length=255)]
    reference: Annotated[str, Meta(max_length=255, description="Each reference is posted only once.")] | None = None


class SetCap(Request):
    """The limit of active jobs of an account; null for no limit."""

    active_max: Annotated[int, Meta(ge=0, le=1_000_000)] | None
