"""Envelopes: a job in the terms of the contract.

The answer about an ended job is made only from data that no longer changes. So it stays the same forever, wherever the
API is served, and is the same in a webhook.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec

from millpond_products.partner import failures, identifiers, wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from millpond.product import JobView
    from millpond.work import Artifact
    from millpond_products.partner.orders import Name

QUEUED: Final = "queued"
"""The stage of a job that has not started."""


class Pointers(msgspec.Struct, kw_only=True):
    """The fields of an order that identify the objects it is about."""

    base: str
    project_id: UUID
    container_id: UUID | None = None
    influencer_id: UUID | None = None


def to_wire(view: JobView) -> wire.Job:
    """The current state of a job."""
    if view.outcome is None:
        return _running(view)
    job = {name: getattr(view, name) for name in ("kind", "state", "created_at", "finished_at", "expires_at")}
    read = {name: _decoded(getattr(view, name)) for name in ("input", "output", "error")}
    return ended(view.job_id, job | read)


def ended(job_id: UUID, job: Mapping[str, Any]) -> wire.Job:
    """A job that has ended, from the engine's row."""
    pointers = msgspec.convert(job["input"], Pointers)
    made = wire.Job(
        job_id=identifiers.job_text(job_id),
        kind=name_in(job["kind"]),
        status=job["state"],
        **_pointed(pointers),
        started_at=timestamp(job["created_at"]),
        finished_at=timestamp(job["finished_at"]),
    )
    if made.status == "completed":
        made.result = result(pointers.base, job["output"] or {})
    elif made.status == "failed":
        made.error = failures.to_wire(job)
    return made


def accepted(view: JobView) -> wire.Accepted:
    """The response to a submission. It is the same at any time after it."""
    pointers = msgspec.json.decode(view.input, type=Pointers)
    return wire.Accepted(
        job_id=identifiers.job_text(view.job_id),
        kind=name_in(view.kind),
        status="running",
        stage=QUEUED,
        **_pointed(pointers),
        location_url=f"{pointers.base}/v1/jobs/{identifiers.job_text(view.job_id)}",
        started_at=timestamp(view.created_at),
    )


def timestamp(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def name_in(kind: str) -> Name:
    """The contract's name of a kind."""
    return cast("Name", kind.partition(".")[2])


def _running(view: JobView) -> wire.Job:
    return wire.Job(
        job_id=identifiers.job_text(view.job_id),
        kind=name_in(view.kind),
        status="running",
        progress=view.progress,
        stage=view.stage or QUEUED,
        **_pointed(msgspec.json.decode(view.input, type=Pointers)),
        started_at=timestamp(view.created_at),
    )


def _pointed(pointers: Pointers) -> dict[str, Any]:
    pointed = {"project_id": identifiers.text("prj", pointers.project_id)}
    if pointers.container_id is not None:
        pointed["container_id"] = identifiers.text("cnt", pointers.container_id)
    if pointers.influencer_id is not None:
        pointed["influencer_id"] = identifiers.text("inf", pointers.influencer_id)
    return pointed


def result(base: str, output: dict[str, Any]) -> dict[str, Any]:
    """The result of a job; each of its files has a URL, which works as long as the file is stored."""
    if "assets" not in output:
        return output
    assets = [asset | {"url": f"{base}/v1/assets/{asset['assetId']}"} for asset in output["assets"]]
    return output | {"assets": assets}


def asset(file: Artifact, what: str) -> dict[str, Any]:
    """A file in the output of a job, without its URL, which is added when the job is read."""
    return {
        "assetId": file.id,
        "type": what,
        "contentType": file.content_type,
        "bytes": file.size,
        "name": file.name,
    }


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
