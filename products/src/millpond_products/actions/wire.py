"""The types of the actions contract."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, field

from millpond.wire import Answer, Name, Request, Time

State = Literal["pending", "running", "success", "failed", "cancelled"]


class Submit(Request):
    """An action to start."""

    action: Annotated[Name, Meta(examples=["http-request"], description="An action listed by `GET /api/actions`.")]
    input: Annotated[
        dict[str, Any],
        Meta(examples=[{"url": "https://example.com/"}], description="The input, as described by its `inputSchema`."),
    ] = field(default_factory=dict[str, Any])


class Accepted(Answer, rename="camel"):
    """An accepted job."""

    id: str
    state: State
    created_at: Time


class Job(Answer, rename="camel"):
    """The current state of a job."""

    id: str
    action: str
    state: State
    input: dict[str, Any]
    output: Annotated[Any, Meta(description="The output of a successful job.")]
    error: Annotated[
        dict[str, Any] | None, Meta(description="The error of a failed job: a stable `code`, a `message`, and details.")
    ]
    created_at: Time
    started_at: Annotated[Time | None, Meta(description="When a worker started the job.")]
    completed_at: Annotated[Time | None, Meta(description="When the job ended, with any state.")]
    retry_of: Annotated[str, Meta(description="The job that this one retries.")] | UnsetType = UNSET


class Jobs(Answer, rename="camel"):
    """A page of jobs, newest first."""

    data: list[Job]
    next_cursor: str | None


class OutputLine(Answer):
    """A line of a job's log."""

    seq: Annotated[int, Meta(description="Its number among the events of the job: increasing, with gaps.")]
    at: Time
    level: str
    text: str


class Logs(Answer):
    """A page of a log, oldest line first."""

    data: list[OutputLine]
    next: Annotated[int | None, Meta(description="Send it as `after` to get the next page; null if there is none yet.")]


class Status(Answer):
    """The end of a job."""

    state: State
    output: Any


class Action(Answer, rename="camel"):
    """An action."""

    name: str
    summary: str
    input_schema: dict[str, Any]


class Actions(Answer):
    """All actions."""

    data: list[Action]
