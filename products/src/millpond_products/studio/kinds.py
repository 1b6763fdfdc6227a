"""The studio jobs: the lifecycle of the contract, and the five types with their limits and prices."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, get_args

from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond.providers import Provided
from millpond.retry import Backoff
from millpond_products.studio import renderings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millpond.providers import Ask

Type = Literal["copy", "scrape", "static_ad", "ugc_video", "tts"]

STUDIO = lifecycle(
    "studio",
    """
    *          -> pending     submitted
    pending    -> queued      queued
    pending    -> processing  started
    pending    -> failed      failed expired
    pending    -> canceled    canceled
    queued     -> processing  started
    queued     -> failed      failed expired
    queued     -> canceled    canceled
    processing -> completed   succeeded
    processing -> failed      failed blocked
    processing -> canceled    canceled
    processing -> expired     expired
    failed     -> pending     retried
    expired    -> pending     retried
    """,
    ends="completed=succeeded failed=failed canceled=canceled expired=expired",
)

PRICES: Final[Mapping[Type, int]] = {"copy": 1, "scrape": 1, "tts": 2, "static_ad": 5, "ugc_video": 20}
"""Credits."""
ATTEMPTS_MAX: Final = 3
LIFETIME: Final = timedelta(minutes=15)
"""The time after which a job expires."""
PROVIDER: Final = "replicate"
_BACKOFF: Final = Backoff(first=timedelta(seconds=1), factor=2.0, longest=timedelta(seconds=30))


def _own(kind: Type, summary: str, time_limit: timedelta) -> Kind:
    """A type that runs in a worker, without being queued first."""
    return Kind(
        name=f"{STUDIO.name}.{kind}",
        lifecycle=STUDIO,
        is_open=False,
        price=PRICES[kind],
        attempts_max=ATTEMPTS_MAX,
        backoff=_BACKOFF,
        expires_in=LIFETIME,
        time_limit=time_limit,
        takes_queue_hop=False,
        takes_whole_input=True,
        summary=summary,
    )


def _provided(kind: Type, summary: str, ask: Callable[[object], Ask]) -> Kind:
    """A type that runs at a provider."""
    return Kind(
        name=f"{STUDIO.name}.{kind}",
        lifecycle=STUDIO,
        runs="provider",
        provider=Provided(provider=PROVIDER, ask=ask, output=renderings.output),
        is_open=False,
        price=PRICES[kind],
        attempts_max=ATTEMPTS_MAX,
        backoff=_BACKOFF,
        expires_in=LIFETIME,
        takes_whole_input=True,
        summary=summary,
    )


KINDS: Final[Mapping[Type, Kind]] = {
    "copy": _own("copy", "The headlines, text and script of an ad.", timedelta(seconds=90)),
    "scrape": _own("scrape", "The product found on a page.", timedelta(seconds=150)),
    "static_ad": _provided("static_ad", "An image that advertises a product.", renderings.ask_picture),
    "ugc_video": _provided("ugc_video", "A short video about a product.", renderings.ask_film),
    "tts": _provided("tts", "A spoken text.", renderings.ask_voice),
}
TYPES: Final[tuple[Type, ...]] = get_args(Type)


def type_of(kind: str) -> Type | None:
    """The type of a job of this kind; None for kinds of other products."""
    return next((name for name in TYPES if KINDS[name].name == kind), None)
