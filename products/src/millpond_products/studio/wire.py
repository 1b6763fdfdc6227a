"""The types of the studio contract."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from millpond.wire import Answer, Key, Problem, Request, Time
from millpond_products.studio.grammar import Tone  # noqa: TC001 - msgspec reads it
from millpond_products.studio.kinds import Type  # noqa: TC001 - msgspec reads it
from millpond_products.studio.products import (  # noqa: TC001 - msgspec reads them
    ProductFacts,
    Url,
)
from millpond_products.studio.renderings import (  # noqa: TC001 - msgspec reads them
    AspectRatio,
    Style,
)

Status = Literal["pending", "queued", "processing", "completed", "failed", "canceled", "expired"]

_ID = Meta(max_length=100, examples=["job_01h455vb4pex5vsknk084sn02q"])
ProductId = Annotated[str, _ID, Meta(description="The id of a completed scrape job, which provides the product.")]
CopyId = Annotated[str, _ID, Meta(description="The id of a completed copy job, which provides the copy.")]
Seed = Annotated[
    int, Meta(ge=0, le=2**32 - 1, description="The same seed produces the same result; if omitted, it is random.")
]
Headline = Annotated[str, Meta(max_length=120)]
Script = Annotated[str, Meta(max_length=600)]
Call = Annotated[str, Meta(max_length=32, description="The label of the button.")]
Voice = Annotated[
    str, Meta(pattern="^[A-Za-z0-9_.-]{1,60}$", description="A voice of the model.", examples=["en-us-woman"])
]
Speed = Annotated[float, Meta(ge=0.5, le=2.0, description="The speed; 1 is normal.")]


class ErrorBody(Problem):
    """A problem; if there are not enough credits, with the required and the available amount."""

    required: Annotated[int, Meta(description="The price of the job.")] | UnsetType = UNSET
    balance: Annotated[int, Meta(description="Your balance.")] | UnsetType = UNSET


# What comes in


class Make(Request):
    """The common fields of all jobs."""

    idempotency_key: Annotated[
        Key | None, Meta(description="A second request with the same key returns the existing job.")
    ] = None


class MakeScrape(Make, kw_only=True):
    """A page to scrape."""

    url: Url


class MakeOf(Make):
    """A job about a product, given by id or inline."""

    either: ClassVar = ("product", "product_id")
    product_id: ProductId | None = None
    product: ProductFacts | None = None


class MakeCopy(MakeOf):
    """Copy to write."""

    tone: Tone = "friendly"
    headlines: Annotated[int, Meta(ge=1, le=10, description="The number of variants.")] = 3
    seed: Seed | None = None


class MakeStaticAd(MakeOf):
    """An image to create."""

    copy_id: CopyId | None = None
    headline: Headline | None = None
    call_to_action: Call | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "1:1"
    seed: Seed | None = None


class MakeVideo(MakeOf):
    """A video to create."""

    copy_id: CopyId | None = None
    headline: Headline | None = None
    call_to_action: Call | None = None
    script: Annotated[Script, Meta(description="The script.")] | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "9:16"
    voice: Voice | None = None
    speed: Speed | None = None
    seed: Seed | None = None


class MakeSpeech(Make):
    """A text to speak: given inline, or the script of a copy job."""

    either: ClassVar = ("text", "copy_id")
    text: Annotated[str, Meta(min_length=1, max_length=5_000, pattern=r"\w")] | None = None
    copy_id: CopyId | None = None
    voice: Voice | None = None
    speed: Speed | None = None


# What goes out


class Accepted(Answer):
    """An accepted job, or the existing one."""

    job_id: str
    status: Status
    credits_cost: int
    credits_remaining: Annotated[int, Meta(description="Your remaining credits.")]


class Job(Answer):
    """The current state of a job."""

    id: str
    type: Type
    status: Status
    credits_cost: int
    input: dict[str, Any]
    output: Annotated[
        dict[str, Any] | None,
        Meta(description="The output; files have a temporary `url`."),
    ]
    error: Annotated[str | None, Meta(description="The reason of the failure.")]
    attempts: Annotated[int, Meta(description="The number of attempts.")]
    created_at: Time
    updated_at: Time
    started_at: Time | None
    completed_at: Annotated[Time | None, Meta(description="When the job ended, with any status.")]


class Jobs(Answer):
    """A page of jobs, newest first."""

    data: list[Job]
    next_cursor: str | None


class Entry(Answer):
    """An entry of your credits. The amounts of all entries add up to the balance."""

    id: str
    type: Literal["hold", "capture", "release", "grant", "adjust"]
    amount: Annotated[int, Meta(description="The change of the balance.")]
    balance_after: int
    job_id: str | None
    reason: str | None
    created_at: Time


class Credits(Answer):
    """Your balance, and a page of its entries, newest first."""

    balance: int
    held: Annotated[int, Meta(description="Credits deducted for unfinished jobs.")]
    entries: list[Entry]
    next_cursor: str | None
