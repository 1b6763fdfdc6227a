"""Files: what users upload and what comes of it. A file is an artifact of the engine, in the contract's words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from millpond.api.calls import Reply, reply
from millpond.api.principals import owner
from millpond.blueprints.effects import wire
from millpond.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from datetime import timedelta

    from millpond.api.calls import Call
    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.engine import Engine

_KINDS: Final = ("image/", "video/")


async def make_upload(call: Call) -> Reply:
    """Announce a file; its bytes go straight to storage."""
    body: wire.MakeUpload = call.body
    if not body.mime_type.lower().startswith(_KINDS):
        raise InvalidError("Only images and videos can be worked on.", field="mime_type")
    if not re.fullmatch(wire.IMAGE_OR_VIDEO, body.mime_type):
        raise InvalidError("It is no media type.", field="mime_type", hint="E.g. image/png.")
    if body.size > call.desk.settings.upload_max:
        raise InvalidError(f"A file may have {call.desk.settings.upload_max:,} bytes.", field="size")
    tenant, account = owner(call)
    lifetime = call.desk.settings.upload_lifetime
    record, upload = await call.engine.artifacts.upload(
        tenant,
        account,
        name=body.filename,
        content_type=body.mime_type,
        size=body.size,
        sha256=body.sha256,
        lifetime=lifetime,
    )
    file = told(call.engine, record, call.desk.settings.download_lifetime)
    return reply(wire.Uploading(file=file, upload=upload, upload_url=upload.url, upload_headers=upload.headers), 201)


async def read(call: Call) -> Reply:
    tenant, account = owner(call)
    record = await own(call.engine, tenant, account, call.params["file_id"], field="file_id")
    return reply(told(call.engine, record, call.desk.settings.download_lifetime))


async def own(engine: Engine, tenant: str, account: str, file_id: str, *, field: str) -> ArtifactRecord:
    """A file, if it is this user's."""
    try:
        return await engine.artifacts.read(tenant, file_id, account)
    except NotFoundError:
        raise NotFoundError(f"There is no file {file_id[:60]!r}.", field=field) from None


def url(engine: Engine, record: ArtifactRecord, lifetime: timedelta) -> str | None:
    """Where a file can be read for a while, once it is there."""
    return None if record.stored_at is None else engine.artifacts.sign_get(record, lifetime).url


def told(engine: Engine, record: ArtifactRecord, lifetime: timedelta) -> wire.File:
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
