"""Outcomes: the effect, the output file and the error of a job, read from the engine's record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.errors import NotFoundError
from millpond_products.effects import effects, wire

if TYPE_CHECKING:
    from uuid import UUID

    from millpond.product import ArtifactRecord, Engine, JobView

EXPIRED: Final = "Processing took too long and was stopped."
FAILED: Final = "Processing failed."


class InputFields(msgspec.Struct):
    """The part of a job's input that ComfyUI does not need."""

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
    effect: InputFields


class _File(msgspec.Struct):
    id: str


class _Output(msgspec.Struct):
    file: _File | None = None
    prompt_id: str | None = None
    metadata: dict[str, Any] | None = None


class _Error(msgspec.Struct):
    message: str = ""


_read_input: Final = msgspec.json.Decoder(_Input).decode
_read_output: Final = msgspec.json.Decoder(_Output).decode
_read_error: Final = msgspec.json.Decoder(_Error).decode


async def attempts(engine: Engine, tenant: str, job_id: UUID) -> int:
    """How often a job was leased, not counting leases whose worker gave the job back."""
    history = (await engine.histories(tenant, [job_id])).get(job_id)
    return 0 if history is None else history.attempts


def part_of(view: JobView) -> InputFields:
    return _read_input(view.input).effect


def error_of(view: JobView) -> str | None:
    """The error of a failed or expired job. For other states, errors of earlier attempts are not reported."""
    if view.state == "expired":
        return EXPIRED
    if view.state != "failed":
        return None
    return (_read_error(view.error).message if view.error else "") or FAILED


def last_error_of(view: JobView) -> str | None:
    """The last error of a job, including one of an earlier attempt. A completed job has none."""
    if view.outcome == "canceled":
        return "Canceled."
    return error_of(view) or (_read_error(view.error).message if view.error else None)


async def output_of(engine: Engine, view: JobView) -> ArtifactRecord | None:
    """The output file of a completed job."""
    if view.outcome != "succeeded" or view.output is None:
        return None
    try:
        made = _read_output(view.output).file
        record = None if made is None else await engine.artifacts.read(view.tenant, made.id, view.account)
        return record if record is not None and record.job_id == view.job_id else None
    except (msgspec.DecodeError, NotFoundError):  # deleted meanwhile, or the worker has reported another kind of output
        return None


def metadata_of(view: JobView, record: ArtifactRecord) -> dict[str, Any] | None:
    """What the worker reported about the output file of a job."""
    try:
        made = None if view.output is None else _read_output(view.output)
    except msgspec.DecodeError:  # the worker has reported another kind of output
        return None
    return None if made is None or made.file is None or made.file.id != record.id else made.metadata


async def estimate(engine: Engine, effect_id: str) -> float | None:
    """The expected duration of a job of this effect."""
    try:
        return (await effects.find(engine, effect_id)).estimated_seconds
    except NotFoundError:
        return None


def provider_job_id_of(view: JobView) -> str | None:
    """ComfyUI's id of the job."""
    try:
        return None if view.output is None else _read_output(view.output).prompt_id
    except msgspec.DecodeError:
        return None
