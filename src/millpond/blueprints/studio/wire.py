"""The shapes of the studio contract, in its own words: what comes in and what goes out."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from millpond.blueprints.studio.grammar import Tone  # noqa: TC001 - msgspec reads it
from millpond.blueprints.studio.kinds import Type  # noqa: TC001 - msgspec reads it
from millpond.blueprints.studio.products import Product, Url  # noqa: TC001 - msgspec reads them
from millpond.blueprints.studio.renderings import AspectRatio, Style  # noqa: TC001 - msgspec reads them
from millpond.wire import Answer, Key, Problem, Request, Time

Status = Literal["pending", "queued", "processing", "completed", "failed", "canceled", "expired"]

_ID = Meta(max_length=100, examples=["job_01h455vb4pex5vsknk084sn02q"])
ProductId = Annotated[str, _ID, Meta(description="The id of a scrape job that is completed: the product on its page.")]
CopyId = Annotated[str, _ID, Meta(description="The id of a copy job that is completed: what it wrote.")]
Seed = Annotated[int, Meta(ge=0, le=2**32 - 1, description="The same seed makes the same thing; none: any.")]
Headline = Annotated[str, Meta(max_length=120)]
Script = Annotated[str, Meta(max_length=600)]
Call = Annotated[str, Meta(max_length=32, description="What the button says.")]
Voice = Annotated[
    str, Meta(pattern="^[A-Za-z0-9_.-]{1,60}$", description="A voice of the model.", examples=["en-us-woman"])
]
Speed = Annotated[float, Meta(ge=0.5, le=2.0, description="1 is a usual pace.")]


class Refusal(Problem):
    """A problem; where the credits do not suffice, with what is required and what is there."""

    required: Annotated[int, Meta(description="What the job costs.")] | UnsetType = UNSET
    balance: Annotated[int, Meta(description="What you have.")] | UnsetType = UNSET


# What comes in


class Make(Request):
    """What all jobs have in common."""

    idempotency_key: Annotated[
        Key | None, Meta(description="A second request with it is answered with the job of the first.")
    ] = None


class MakeScrape(Make, kw_only=True):
    """A page to be read."""

    url: Url


class MakeOf(Make):
    """A job about a product, which is named or told."""

    either: ClassVar = ("product", "product_id")
    product_id: ProductId | None = None
    product: Product | None = None


class MakeCopy(MakeOf):
    """Copy to be written."""

    tone: Tone = "friendly"
    headlines: Annotated[int, Meta(ge=1, le=10, description="How many to choose from.")] = 3
    seed: Seed | None = None


class MakeStaticAd(MakeOf):
    """A picture to be made."""

    copy_id: CopyId | None = None
    headline: Headline | None = None
    call_to_action: Call | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "1:1"
    seed: Seed | None = None


class MakeVideo(MakeOf):
    """A film to be made."""

    copy_id: CopyId | None = None
    headline: Headline | None = None
    call_to_action: Call | None = None
    script: Annotated[Script, Meta(description="What is said.")] | None = None
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "9:16"
    voice: Voice | None = None
    speed: Speed | None = None
    seed: Seed | None = None


class MakeSpeech(Make):
    """A text to be spoken: one that is told, or the script of a copy job."""

    either: ClassVar = ("text", "copy_id")
    text: Annotated[str, Meta(min_length=1, max_length=5_000, pattern=r"\w")] | None = None
    copy_id: CopyId | None = None
    voice: Voice | None = None
    speed: Speed | None = None


# What goes out


class Accepted(Answer):
    """A job that was taken in, or the one that was before."""

    job_id: str
    status: Status
    credits_cost: int
    credits_remaining: Annotated[int, Meta(description="What you have left.")]


class Job(Answer):
    """A job as it stands."""

    id: str
    type: Type
    status: Status
    credits_cost: int
    input: dict[str, Any]
    output: Annotated[
        dict[str, Any] | None,
        Meta(description="What came of it; files have a `url` that is good for a while."),
    ]
    error: Annotated[str | None, Meta(description="Why it did not work out.")]
    attempts: Annotated[int, Meta(description="How often it was tried.")]
    created_at: Time
    updated_at: Time
    started_at: Time | None
    completed_at: Annotated[Time | None, Meta(description="When it ended, however.")]


class Jobs(Answer):
    """A page of jobs, the newest first."""

    data: list[Job]
    next_cursor: str | None


class Entry(Answer):
    """A change of your credits. The amounts of all entries add up to the balance."""

    id: str
    type: Literal["hold", "capture", "release", "grant", "adjust"]
    amount: Annotated[int, Meta(description="What it did to the balance.")]
    balance_after: int
    job_id: str | None
    reason: str | None
    created_at: Time


class Credits(Answer):
    """What you have, and a page of what changed it, the newest first."""

    balance: int
    held: Annotated[int, Meta(description="Deducted for jobs that have not ended.")]
    entries: list[Entry]
    next_cursor: str | None
