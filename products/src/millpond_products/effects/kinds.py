"""The kind of effects jobs: its lifecycle as defined by the contract, its routes and its price."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final, Literal, cast
from uuid import uuid4

from millpond.kinds import CAP_MAX, Kind
from millpond.lifecycle import lifecycle

Provider = Literal["self_hosted", "cloud"]

_SUFFIX: Final = re.compile("[a-z0-9]{1,8}")

ATTEMPTS_MAX: Final = 3
"""How often a job is leased, not counting leases whose worker gave the job back."""

EFFECTS = lifecycle(
    "effects",
    """
    *          -> queued      submitted
    queued     -> processing  started
    queued     -> failed      failed
    queued     -> canceled    canceled
    queued     -> expired     expired
    processing -> queued      requeued
    processing -> completed   succeeded
    processing -> failed      failed blocked
    processing -> canceled    canceled
    processing -> expired     expired
    """,
    ends="completed=succeeded failed=failed canceled=canceled expired=expired",
)


def route(slug: str, provider: str) -> str:
    """The route of a workflow's jobs; each provider has its own."""
    return f"{KIND.queue}:{slug}" if provider == "self_hosted" else f"{KIND.queue}:{slug}.{provider}"


def workflow_of(route: str) -> tuple[str, Provider]:
    """The workflow and the provider of a route."""
    slug = route.partition(":")[2]
    name, dot, provider = slug.rpartition(".")
    return (name, cast("Provider", provider)) if dot else (slug, "self_hosted")


def _price(given: Any) -> int:
    return given["effect"]["price"]


def _files(given: Any) -> dict[str, str]:
    """The files that all jobs of a workflow share."""
    return {asset["name"]: asset["path"] for asset in given["assets"] if "path" in asset}


def output_path(folder: str, job_id: str, name: str) -> str:
    """The storage path of an output, unique to each attempt."""
    ending = name.rpartition(".")[2].lower()
    suffix = ending if ending != name.lower() and _SUFFIX.fullmatch(ending) else "bin"
    return f"{folder}ai-jobs/{job_id}/output-{uuid4()}.{suffix}"


def _output_files(given: Any) -> tuple[str, ...]:
    match given:
        case {"file": {"id": str(named)}}:
            return (named,)
        case _:
            return ()


KIND: Final = Kind(
    name="effects",
    lifecycle=EFFECTS,
    runs="fleet",
    is_open=False,
    price=_price,
    files=_files,
    output_path=output_path,
    output_files=_output_files,
    attempts_max=ATTEMPTS_MAX,
    lapses_max=ATTEMPTS_MAX,
    interruptions_max=CAP_MAX,  # in effect no limit: what a worker gives back does not count
    time_limit=timedelta(hours=1),
    expires_in=timedelta(days=1),
    summary="An effect on a video or an image, by ComfyUI.",
)
