"""Files: uploads of users and outputs of jobs. A file is an artifact of the engine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millpond.errors import InvalidError, NotFoundError
from millpond.product import Reply, owner, reply
from millpond_products.effects import outcomes, wire

if TYPE_CHECKING:
    from datetime import timedelta

    from millpond.product import ArtifactRecord, Call, Engine

_KINDS: Final = ("image/", "video/")


async def make_upload(call: Call) -> Reply:
    """Announce a file. The client uploads its bytes directly to storage."""
    body: wire.MakeUpload = call.body
    if not body.mime_type.lower().startswith(_KINDS):
        raise InvalidError("Only images and videos are supported.", field="mime_type")
    if not re.fullmatch(wire.IMAGE_OR_VIDEO, body.mime_type):
        raise InvalidError("The value is not a valid media type.", field="mime_type", hint="E.g. image/png.")
    if body.size > call.state.settings.upload_max:
        raise InvalidError(f"The limit is {call.state.settings.upload_max:,} bytes.", field="size")
    tenant, account = owner(call)
    lifetime = call.state.settings.upload_lifetime
    record, upload = await call.engine.artifacts.upload(
        tenant,
        account,
        name=body.filename,
        content_type=body.mime_type,
        size=body.size,
        sha256=body.sha256,
        lifetime=lifetime,
    )
    file = to_wire(call.engine, record, call.state.settings.download_lifetime)
    return reply(wire.Uploading(file=file, upload=upload, upload_url=upload.url, upload_headers=upload.headers), 201)


async def read(call: Call) -> Reply:
    tenant, account = owner(call)
    record = await own(call.engine, tenant, account, call.params["file_id"], field="file_id")
    file = to_wire(call.engine, record, call.state.settings.download_lifetime)
    file.metadata = await _metadata(call.engine, record)
    return reply(file)


async def _metadata(engine: Engine, record: ArtifactRecord) -> dict[str, Any] | None:
    """What a worker reported about an output when it completed the job."""
    if record.job_id is None:
        return None
    try:
        view = await engine.views.job(record.tenant, record.account, record.job_id)
    except NotFoundError:  # deleted at the end of its retention period
        return None
    return outcomes.metadata_of(view, record)


async def own(engine: Engine, tenant: str, account: str, file_id: str, *, field: str) -> ArtifactRecord:
    """Return a file, if it belongs to the user."""
    try:
        return await engine.artifacts.read(tenant, file_id, account)
    except NotFoundError:
        raise NotFoundError(f"There is no file {file_id[:60]!r}.", field=field) from None


def url(engine: Engine, record: ArtifactRecord, lifetime: timedelta) -> str | None:
    """A temporary download URL of a stored file."""
    return None if record.stored_at is None else engine.artifacts.sign_get(record, lifetime).url


def to_wire(engine: Engine, record: ArtifactRecord, lifetime: timedelta) -> wire.File:
    return wire.File(
        id=record.id,
        filename=record.name,
        mime_type=record.content_type,
        size=record.size,
        path=record.path,
        sha256=record.sha256,
        is_stored=record.stored_at is not None,
        url=url(engine, record, lifetime),
        created_at=record.created_at,
    )
