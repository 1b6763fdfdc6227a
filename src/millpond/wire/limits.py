"""Limits and their keys."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from millpond.wire.shapes import Answer, Duration, Request, Time

Value = Annotated[
    str,
    Meta(
        description="The value of the key. For a key from the input, it is a digest. Empty if the limit has no key, or "
        "the job no value.",
        extra_json_schema={"maxLength": 1000},
    ),
]
Reason = Literal["at_once", "starts", "closed"]


class LimitWait(Answer):
    """The limit that a job waits for."""

    limit: str
    reason: Annotated[
        Reason, Meta(description="Enough jobs are running, enough have started in the period, or the key is closed.")
    ]
    since: Time
    more_at: Annotated[Time | None, Meta(description="When more jobs may start, if that depends on time alone.")]


class LimitInfo(Answer):
    """A limit, with the jobs under all its keys."""

    name: str
    at_once: Annotated[int | None, Meta(description="How many jobs may run at once.")]
    starts: Annotated[int | None, Meta(description="How many jobs may start in a period.")]
    per_seconds: Annotated[float | None, Meta(description="The length of the period.")]
    key: Annotated[list[str], Meta(description="What the limit counts apart: tenant, account, tags.NAME, input.FIELD.")]
    kinds: Annotated[list[str], Meta(description="The kinds of the jobs.")]
    running: Annotated[int, Meta(description="10000 means that many or more.")]
    waiting: Annotated[int, Meta(description="10000 means that many or more.")]
    is_changed: Annotated[bool, Meta(description="Whether an operator has changed the numbers that the app declares.")]
    changed_at: Time | None
    changed_by: str | None


class Limits(Answer):
    """All limits, by name."""

    data: list[LimitInfo]


class LimitKey(Answer):
    """A key of a limit: a value that it counts apart."""

    value: Value
    running: int
    waiting: int
    started: Annotated[int | None, Meta(description="How many jobs have started in the last period.")]
    closed_until: Time | None
    more_at: Annotated[Time | None, Meta(description="When more jobs may start, if that depends on time alone.")]


class LimitKeys(Answer):
    """A page of the keys of a limit that were used lately, by value."""

    data: list[LimitKey]
    next_cursor: str | None


class ChangeLimit(Request):
    """The numbers that apply from now on, in place of those that the app declares. What is left out has no limit."""

    at_once: Annotated[int | None, Meta(extra_json_schema={"minimum": 1, "maximum": 1_000_000})] = None
    starts: Annotated[int | None, Meta(extra_json_schema={"minimum": 1, "maximum": 1_000_000})] = None
    per: Duration | None = None


class CloseLimit(Request):
    """A key to close, and for how long."""

    duration: Duration
    value: Value = ""


class OpenLimit(Request):
    """A closed key to open."""

    value: Value = ""
