"""The partner jobs: the lifecycle of the contract, and the five kinds with their stages, limits and prices."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond.retry import Backoff
from millpond.webhooks import Webhook
from millpond_products.partner import asking, envelopes
from millpond_products.partner.orders import Name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.webhooks import WebhookData

NAMES: Final[tuple[Name, ...]] = get_args(Name)

PARTNER = lifecycle(
    "partner",
    """
    *       -> running    submitted
    running -> completed  succeeded
    running -> failed     failed expired blocked
    running -> canceled   canceled
    """,
    ends="completed=succeeded failed=failed canceled=canceled",
)

EVENTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "succeeded": "job.completed",
        "failed": "job.failed",
        "expired": "job.failed",
        "blocked": "job.failed",
        "canceled": "job.canceled",
    }
)
"""The contract's webhook events for the ends of a job."""
_BACKOFF: Final = Backoff(first=timedelta(seconds=1), factor=2.0, longest=timedelta(seconds=30))


def _body(event: WebhookData) -> dict[str, Any]:
    """The same object that is returned for the job."""
    return msgspec.to_builtins(envelopes.ended(event.job_id, event.job))


def _kind(
    name: Name,
    summary: str,
    stages: str,
    *,
    price: int,
    minutes: int,
    attempt: timedelta,
    firm: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
) -> Kind:
    return Kind(
        name=f"{PARTNER.name}.{name}",
        lifecycle=PARTNER,
        is_open=False,
        takes_whole_input=True,
        price=price,
        stages=tuple(stages.split()),
        firm_stages=firm,
        attempts_max=3,
        backoff=_BACKOFF,
        expires_in=timedelta(minutes=minutes),
        time_limit=attempt,
        webhook=Webhook(names=EVENTS, body=_body),
        needs=needs,
        summary=summary,
    )


KINDS: Final[Mapping[Name, Kind]] = MappingProxyType(
    {
        "project_ingest_github": _kind(
            "project_ingest_github",
            "Reads a repository and opens a pull request that adds the SDK.",
            "cloning analyzing generating_sdk_patch opening_pr finalizing",
            firm=("opening_pr",),
            price=1,
            minutes=15,
            attempt=timedelta(minutes=6),
        ),
        "project_ingest_website": _kind(
            "project_ingest_website",
            "Reads the project's website.",
            "fetching parsing merging_context",
            firm=("merging_context",),
            price=1,
            minutes=5,
            attempt=timedelta(seconds=90),
        ),
        "appstore_ingest": _kind(
            "appstore_ingest",
            "Reads an app's App Store entry.",
            "fetching parsing merging_context",
            firm=("merging_context",),
            price=1,
            minutes=5,
            attempt=timedelta(seconds=90),
        ),
        "content_generate": _kind(
            "content_generate",
            "Creates images and a short video from the project's context.",
            "planning generating_visuals assembling rendering",
            needs=(asking.PROVIDER,),
            price=10,
            minutes=20,
            attempt=timedelta(minutes=10),
        ),
        "influencer_create": _kind(
            "influencer_create",
            "Creates a persona and reference images.",
            "generating rendering_references",
            needs=(asking.PROVIDER,),
            price=5,
            minutes=15,
            attempt=timedelta(minutes=8),
        ),
    }
)


def name_of(kind: str) -> Name | None:
    """The contract's name of a kind; None for kinds of other products."""
    return next((name for name in NAMES if KINDS[name].name == kind), None)
