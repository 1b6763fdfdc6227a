"""Outcomes: what a job says of its effect, its file and its failure, read off the engine's own record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.blueprints.effects import effects, wire
from millpond.errors import NotFoundError
from millpond.store.queries import queries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.engine import Engine
    from millpond.engine.views import JobView

SQL: Final = queries("millpond.blueprints.effects", "outcomes")

EXPIRED: Final = "Processing took too long and was given up."
FAILED: Final = "Processing failed."


class Part(msgspec.Struct):
    """What a job's input says beside what ComfyUI needs."""

    id: str
    slug: str
    workflow_id: str
    workflow: str
    content_hash: str
    provider: wire.Provider
    price: int
    video_id: str
    input_file_id: str
    input: dict[str, Any]


class _Input(msgspec.Struct):
    effect: Part


class _File(msgspec.Struct):
    id: str


class _Output(msgspec.Struct):
    file: _File | None = None
    prompt_id: str | None = None


class _Error(msgspec.Struct):
    message: str = ""


_read_input: Final = msgspec.json.Decoder(_Input).decode
_read_output: Final = msgspec.json.Decoder(_Output).decode
_read_error: Final = msgspec.json.Decoder(_Error).decode


async def leased(engine: Engine, tenant: str, job_ids: Sequence[UUID]) -> dict[UUID, tuple[datetime | None, int]]:
    """When each of these jobs was last handed out, and how many attempts that makes."""
    rows = await engine.home(tenant).run(SQL["leased"], list(job_ids))
    return {row["job_id"]: (row["leased_at"], max(0, row["attempts"])) for row in rows}


def part_of(view: JobView) -> Part:
    return _read_input(view.input).effect


def error_of(view: JobView) -> str | None:
    """Why a job did not work out; what happened on the way to something else is not told."""
    if view.state == "expired":
        return EXPIRED
    if view.state != "failed":
        return None
    return (_read_error(view.error).message if view.error else "") or FAILED


def last_error_of(view: JobView) -> str | None:
    """What went wrong last, if only on the way; a job that is done has no error."""
    if view.outcome == "canceled":
        return "Canceled."
    return error_of(view) or (_read_error(view.error).message if view.error else None)


async def output_of(engine: Engine, view: JobView) -> ArtifactRecord | None:
    """The file that a job made, once it is done."""
    if view.outcome != "succeeded" or view.output is None:
        return None
    try:
        made = _read_output(view.output).file
        record = None if made is None else await engine.artifacts.read(view.tenant, made.id, view.account)
        return record if record is not None and record.job_id == view.job_id else None
    except (msgspec.DecodeError, NotFoundError):  # swept meanwhile, or a worker's own idea of an output
        return None


async def estimate(engine: Engine, effect_id: str) -> float | None:
    """How long a job of this effect is likely to take."""
    try:
        return (await effects.find(engine, effect_id)).estimated_seconds
    except NotFoundError:
        return None


def provider_job_id_of(view: JobView) -> str | None:
    """What ComfyUI called the job."""
    try:
        return None if view.output is None else _read_output(view.output).prompt_id
    except msgspec.DecodeError:
        return None
