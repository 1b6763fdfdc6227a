"""What a partner job may do, in the words of its contract; its five kinds with their stages, limits and prices."""

from __future__ import annotations

from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec

from millpond.blueprints.partner import asking, envelopes
from millpond.blueprints.partner.orders import Name
from millpond.kinds import Kind
from millpond.lifecycle import lifecycle
from millpond.retry import Backoff
from millpond.webhooks import Webhook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.webhooks import Told

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
"""What the contract calls each end of a job, where it is told by a webhook."""
_BACKOFF: Final = Backoff(first=timedelta(seconds=1), factor=2.0, longest=timedelta(seconds=30))


def _body(told: Told) -> dict[str, Any]:
    """The very object that is answered to who asks for the job."""
    return msgspec.to_builtins(envelopes.ended(told.job_id, told.job))


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
            "What a repository says of its project, and a pull request that adds the SDK.",
            "cloning analyzing generating_sdk_patch opening_pr finalizing",
            firm=("opening_pr",),
            price=1,
            minutes=15,
            attempt=timedelta(minutes=6),
        ),
        "project_ingest_website": _kind(
            "project_ingest_website",
            "What a page says of its project.",
            "fetching parsing merging_context",
            firm=("merging_context",),
            price=1,
            minutes=5,
            attempt=timedelta(seconds=90),
        ),
        "appstore_ingest": _kind(
            "appstore_ingest",
            "What the App Store says of an app.",
            "fetching parsing merging_context",
            firm=("merging_context",),
            price=1,
            minutes=5,
            attempt=timedelta(seconds=90),
        ),
        "content_generate": _kind(
            "content_generate",
            "Pictures and a short film, from what is known of a project.",
            "planning generating_visuals assembling rendering",
            needs=(asking.PROVIDER,),
            price=10,
            minutes=20,
            attempt=timedelta(minutes=10),
        ),
        "influencer_create": _kind(
            "influencer_create",
            "A persona, and pictures of it.",
            "generating rendering_references",
            needs=(asking.PROVIDER,),
            price=5,
            minutes=15,
            attempt=timedelta(minutes=8),
        ),
    }
)


def name_of(kind: str) -> Name | None:
    """What the contract calls a kind of the engine; none where it is none of ours."""
    return next((name for name in NAMES if KINDS[name].name == kind), None)
