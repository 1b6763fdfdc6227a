"""Files over HTTP: announce one, learn where to put it and where to get it. The bytes themselves never come here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from millpond import wire
from millpond.api import principals
from millpond.api.calls import copied, job_text, reply
from millpond.errors import ArtifactMismatchError, ArtifactMissingError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.artifacts import ArtifactRecord


async def make(call: Call) -> Reply:
    body: wire.MakeArtifact = call.body
    lifetime = call.desk.settings.upload_lifetime
    record, upload = await call.engine.artifacts.upload(
        principals.one_tenant(call, call.query.tenant),
        principals.one_account(call, body.account),
        name=body.name,
        content_type=body.content_type,
        size=body.size,
        sha256=body.sha256,
        lifetime=lifetime,
    )
    return reply(told(call, record, wire.NewArtifact, upload=upload), 201)


async def read(call: Call) -> Reply:
    """What was announced; where it has not been seen in storage yet, it is looked for now."""
    tenant = principals.one_tenant(call, call.query.tenant)
    artifacts = call.engine.artifacts
    record = await artifacts.read(tenant, call.params["id"], call.principal.account)
    if record.stored_at is None:
        with contextlib.suppress(ArtifactMissingError, ArtifactMismatchError):
            record = await artifacts.confirm(tenant, record.artifact_id)
    return reply(told(call, record, wire.Artifact))


async def of_job(call: Call) -> Reply:
    tenant = principals.tenant(call, call.query.tenant)
    job = await call.engine.views.job(tenant, call.principal.account, principals.job_id(call))
    found = await call.engine.artifacts.of_job(job.tenant, job.job_id)
    return reply(wire.Artifacts(data=[told(call, record, wire.Artifact) for record in found]))


def told(call: Call, record: ArtifactRecord, shape: Any, **more: Any) -> Any:
    signed = None
    if record.stored_at is not None:
        signed = call.engine.artifacts.sign_get(record, call.desk.settings.download_lifetime)
    return copied(shape, record, job_id=job_text(record.job_id), download=signed, **more)
