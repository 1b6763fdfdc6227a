"""Envelopes: a job in the words of the contract.

What is told of a job that has ended is made from what nothing can change any more: so it is the same for ever, wherever
the API is served, and the same in a webhook.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec

from millpond.blueprints.partner import failures, identifiers, wire

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from millpond.blueprints.partner.orders import Name
    from millpond.engine.views import JobView
    from millpond.work import Artifact

QUEUED: Final = "queued"
"""The stage of a job that nobody has begun."""


class Pointers(msgspec.Struct, kw_only=True):
    """What of an order tells what it is about."""

    base: str
    project_id: UUID
    container_id: UUID | None = None
    influencer_id: UUID | None = None


def told(view: JobView) -> wire.Job:
    """A job as it stands."""
    if view.outcome is None:
        return _running(view)
    job = {name: getattr(view, name) for name in ("kind", "state", "created_at", "finished_at", "expires_at")}
    read = {name: _decoded(getattr(view, name)) for name in ("input", "output", "error")}
    return ended(view.job_id, job | read)


def ended(job_id: UUID, job: Mapping[str, Any]) -> wire.Job:
    """A job that has ended, from its row as the engine keeps it."""
    pointers = msgspec.convert(job["input"], Pointers)
    made = wire.Job(
        job_id=identifiers.job_text(job_id),
        kind=name_in(job["kind"]),
        status=job["state"],
        **_pointed(pointers),
        started_at=moment(job["created_at"]),
        finished_at=moment(job["finished_at"]),
    )
    if made.status == "completed":
        made.result = result(pointers.base, job["output"] or {})
    elif made.status == "failed":
        made.error = failures.told(job)
    return made


def accepted(view: JobView) -> wire.Accepted:
    """The answer to who submits a job. It was the same when the job was new."""
    pointers = msgspec.json.decode(view.input, type=Pointers)
    return wire.Accepted(
        job_id=identifiers.job_text(view.job_id),
        kind=name_in(view.kind),
        status="running",
        stage=QUEUED,
        **_pointed(pointers),
        location_url=f"{pointers.base}/v1/jobs/{identifiers.job_text(view.job_id)}",
        started_at=moment(view.created_at),
    )


def moment(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def name_in(kind: str) -> Name:
    """What the contract calls a kind of ours."""
    return cast("Name", kind.partition(".")[2])


def _running(view: JobView) -> wire.Job:
    return wire.Job(
        job_id=identifiers.job_text(view.job_id),
        kind=name_in(view.kind),
        status="running",
        progress=view.progress,
        stage=view.stage or QUEUED,
        **_pointed(msgspec.json.decode(view.input, type=Pointers)),
        started_at=moment(view.created_at),
    )


def _pointed(pointers: Pointers) -> dict[str, Any]:
    pointed = {"project_id": identifiers.text("prj", pointers.project_id)}
    if pointers.container_id is not None:
        pointed["container_id"] = identifiers.text("cnt", pointers.container_id)
    if pointers.influencer_id is not None:
        pointed["influencer_id"] = identifiers.text("inf", pointers.influencer_id)
    return pointed


def result(base: str, output: dict[str, Any]) -> dict[str, Any]:
    """What came of a job; each of its files with the path where it can be had, as long as it is kept."""
    if "assets" not in output:
        return output
    assets = [asset | {"url": f"{base}/v1/assets/{asset['assetId']}"} for asset in output["assets"]]
    return output | {"assets": assets}


def asset(file: Artifact, what: str) -> dict[str, Any]:
    """A file as the output of a job has it: without its path, which is told with the job."""
    return {
        "assetId": file.id,
        "type": what,
        "contentType": file.content_type,
        "bytes": file.size,
        "name": file.name,
    }


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
