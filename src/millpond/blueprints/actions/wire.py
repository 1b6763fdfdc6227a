"""The shapes of the actions contract, in its own words: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from millpond.wire import Answer, Name, Request, Time

State = Literal["pending", "running", "success", "failed", "cancelled"]


class Submit(Request):
    """An action to be done."""

    action: Annotated[Name, Meta(examples=["http-request"], description="One that `GET /api/actions` lists.")]
    input: Annotated[
        dict[str, Any],
        Meta(examples=[{"url": "https://example.com/"}], description="What it takes: see its `inputSchema`."),
    ] = field(default_factory=dict[str, Any])


class Accepted(Answer, rename="camel"):
    """A job that was taken in."""

    id: str
    state: State
    created_at: Time


class Job(Answer, rename="camel"):
    """A job as it stands."""

    id: str
    action: str
    state: State
    input: dict[str, Any]
    output: Annotated[Any, Meta(description="What came of it, once it has succeeded.")]
    error: Annotated[dict[str, Any] | None, Meta(description="Why it failed: a stable `code`, a `message`, and more.")]
    created_at: Time
    started_at: Annotated[Time | None, Meta(description="When a worker took it.")]
    completed_at: Annotated[Time | None, Meta(description="When it ended, however.")]
    retry_of: Annotated[str, Meta(description="The job that this one repeats.")] | UnsetType = UNSET


class Jobs(Answer, rename="camel"):
    """A page of jobs, the newest first."""

    data: list[Job]
    next_cursor: str | None


class Line(Answer):
    """A line of a job's log."""

    seq: Annotated[int, Meta(description="Its number among all that happened to the job: it grows, with gaps.")]
    at: Time
    level: str
    text: str


class Logs(Answer):
    """A page of a log, the oldest line first."""

    data: list[Line]
    next: Annotated[int | None, Meta(description="Send it as `after` for the next page; null: there is none yet.")]


class Status(Answer):
    """How a job ended."""

    state: State
    output: Any


class Action(Answer, rename="camel"):
    """Something that can be done."""

    name: str
    summary: str
    input_schema: dict[str, Any]


class Actions(Answer):
    """All of them."""

    data: list[Action]
