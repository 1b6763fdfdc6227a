"""Batches: many jobs under one handle."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, UnsetType

from millpond.wire.jobs import Job
from millpond.wire.shapes import (
    BULK_MAX,
    Answer,
    Duration,
    Key,
    Name,
    Priority,
    Request,
    Tags,
    Time,
    WebhookSecret,
    WebhookUrl,
)

BATCH_MAX: Final = 100_000
BatchState = Literal["open", "running", "canceling", "completed", "canceled"]


class BatchWebhook(Request):
    """A webhook for the end of one batch, in addition to the endpoints of its tenant."""

    url: WebhookUrl
    secret: WebhookSecret | None = None


class BatchJob(Request):
    """A job of a batch. The batch has the account, and tags that all its jobs inherit."""

    kind: Name
    input: dict[str, Any] = {}
    priority: Priority | None = None
    run_at: Annotated[Time, Meta(description="The earliest start time.")] | None = None
    expires_in: Duration | None = None
    tags: Tags | None = None


class MakeBatch(Request):
    """A batch to create, with its first jobs."""

    jobs: Annotated[
        list[BatchJob], Meta(max_length=BULK_MAX, description="The first jobs; others are added with further requests.")
    ] = []
    total: (
        Annotated[
            int,
            Meta(ge=1, le=BATCH_MAX, description="How many jobs the batch is to have; if omitted, those of `jobs`."),
        ]
        | None
    ) = None
    name: (
        # The pattern is for readers of the schema: other printable characters are accepted too.
        Annotated[
            str,
            Meta(min_length=1, max_length=200, examples=["catalogue"], extra_json_schema={"pattern": "^[ -~]{1,200}$"}),
        ]
        | None
    ) = None
    account: Annotated[Name | None, Meta(description="The account that pays; client keys have their own.")] = None
    idempotency_key: Annotated[Key | None, Meta(description="Alternative to the Idempotency-Key header.")] = None
    tags: Annotated[Tags, Meta(description="Tags of the batch, which its jobs inherit.")] | None = None
    webhook: BatchWebhook | None = None


class AddJobs(Request):
    """Jobs to add to a batch: all of them or none."""

    first: Annotated[
        int,
        Meta(ge=0, lt=BATCH_MAX, description="The position of the first one: how many jobs the batch has before."),
    ]
    jobs: Annotated[list[BatchJob], Meta(min_length=1, max_length=BULK_MAX)]


class Batch(Answer):
    """A batch: how many jobs it has, how many of them have ended, and how."""

    id: str
    tenant: str
    account: str
    name: str | None
    state: Annotated[
        BatchState,
        Meta(
            description="open: not all jobs are added; running: not all have ended; canceling: it was canceled, and "
            "not all have ended; completed or canceled: all have ended."
        ),
    ]
    total: Annotated[
        int, Meta(description="How many jobs it is to have. A cancel reduces it to those that were added.")
    ]
    submitted: Annotated[int, Meta(description="How many jobs were added.")]
    ended: int
    succeeded: int
    failed: Annotated[int, Meta(description="How many jobs failed, expired or were blocked.")]
    canceled: int
    progress: Annotated[float, Meta(ge=0, le=1, description="The share of its jobs that have ended.")]
    price: Annotated[int | None, Meta(description="What its jobs may cost. Null: they are the children of a job.")]
    captured: Annotated[int | None, Meta(description="What its ended jobs have cost. Null as for `price`.")]
    tags: dict[str, str]
    parent_id: Annotated[str | None, Meta(description="The job whose children they are.")]
    created_at: Time
    canceled_at: Time | None
    ended_at: Time | None


class NewBatch(Batch):
    """A batch that was just created."""

    webhook_secret: Annotated[
        str | UnsetType, Meta(description="The secret that signs the batch's webhook, if it was generated.")
    ] = UNSET


class Batches(Answer):
    """A page of batches, newest first."""

    data: list[Batch]
    next_cursor: str | None


class BatchJobs(Answer):
    """A page of the jobs of a batch, in the order of their positions."""

    data: list[Job]
    next_cursor: str | None


class CanceledBatch(Answer):
    """Whether the cancellation was accepted, and the batch."""

    is_accepted: Annotated[bool, Meta(description="False if the batch had already ended.")]
    batch: Batch
