"""Files over HTTP: announce a file, get its upload and download URLs. The bytes are never sent to this server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from millpond import errors, wire
from millpond.api import parameters, principals
from millpond.api.calls import copied, job_text, reply
from millpond.api.routes import Route
from millpond.api.scopes import CLIENTS, READERS
from millpond.errors import ArtifactMismatchError, ArtifactMissingError

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply
    from millpond.engine.jobs.artifacts import ArtifactRecord


async def make(call: Call) -> Reply:
    body: wire.MakeArtifact = call.body
    lifetime = call.state.settings.upload_lifetime
    record, upload = await call.engine.artifacts.upload(
        principals.one_tenant(call, call.query.tenant),
        principals.one_account(call, body.account),
        name=body.name,
        content_type=body.content_type,
        size=body.size,
        sha256=body.sha256,
        lifetime=lifetime,
    )
    return reply(to_wire(call, record, wire.NewArtifact, upload=upload), 201)


async def read(call: Call) -> Reply:
    """The announced file; if it was not found in storage before, storage is checked now."""
    tenant = principals.one_tenant(call, call.query.tenant)
    artifacts = call.engine.artifacts
    record = await artifacts.read(tenant, call.params["id"], call.principal.account)
    if record.stored_at is None:
        with contextlib.suppress(ArtifactMissingError, ArtifactMismatchError):
            record = await artifacts.confirm(tenant, record.artifact_id)
    return reply(to_wire(call, record, wire.Artifact))


async def of_job(call: Call) -> Reply:
    tenant = principals.tenant(call, call.query.tenant)
    job = await call.engine.views.job(tenant, call.principal.account, principals.job_id(call))
    found = await call.engine.artifacts.of_job(job.tenant, job.job_id)
    return reply(wire.Artifacts(data=[to_wire(call, record, wire.Artifact) for record in found]))


def to_wire(call: Call, record: ArtifactRecord, shape: Any, **more: Any) -> Any:
    signed = None
    if record.stored_at is not None:
        signed = call.engine.artifacts.sign_get(record, call.state.settings.download_lifetime)
    return copied(shape, record, job_id=job_text(record.job_id), download=signed, **more)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/jobs/{id}/artifacts",
        handle=of_job,
        summary="List the files of a job.",
        description="Returns the input files and the files of the last attempt, each with a signed download URL.",
        who=CLIENTS | READERS,
        token="read",  # noqa: S106 - a permission, not a secret
        query=parameters.OfTenant,
        answers={200: wire.Artifacts},
        errors=(errors.NotFoundError, errors.StorageUnavailableError),
    ),
    Route(
        method="POST",
        path="/v1/artifacts",
        handle=make,
        summary="Announce a file and get its upload request.",
        description="Send the bytes directly to storage as described in `upload`. The id can then be used in "
        "the input of a job.",
        query=parameters.OfTenant,
        body=wire.MakeArtifact,
        answers={201: wire.NewArtifact},
        errors=(errors.StorageUnavailableError,),
    ),
    Route(
        method="GET",
        path="/v1/artifacts/{id}",
        handle=read,
        summary="Get the record of a file with a signed download URL.",
        description="If the file was not found in storage before, storage is checked now. `download` is null as "
        "long as the file is missing.",
        who=CLIENTS | READERS,
        query=parameters.OfTenant,
        answers={200: wire.Artifact},
        errors=(errors.NotFoundError, errors.StorageUnavailableError),
    ),
)
