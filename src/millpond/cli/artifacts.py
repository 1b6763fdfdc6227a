"""``millpond artifacts``: files, in and out of storage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Account, JobId, Tenant

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("Files, in and out of storage.")

ArtifactId = Annotated[str, typer.Argument(metavar="ARTIFACT", help="The artifact's id: art_…", show_default=False)]


@command(app, "upload")
async def upload(
    api: Api,
    file: Annotated[Path, typer.Argument(help="The file.", show_default=False)],
    name: Annotated[str | None, typer.Option(help="What to call it.", show_default=False)] = None,
    content_type: Annotated[
        str | None, typer.Option("--type", help="Its media type, e.g. image/png.", show_default=False)
    ] = None,
    tenant: Tenant = None,
    account: Account = None,
) -> wire.Artifact:
    """Put a file into storage; its id may then stand in the input of a job."""
    owner = api.owner(tenant, account)
    return await api.client.upload(
        file, name=name, content_type=content_type, tenant=owner["tenant"], account=owner["account"]
    )


@command(app, "get")
async def get(api: Api, artifact: ArtifactId, tenant: Tenant = None) -> wire.Artifact:
    """Show what is known of a file."""
    return await api.client.artifact(artifact, tenant=tenant or api.tenant)


@command(app, "download")
async def download(
    api: Api,
    artifact: ArtifactId,
    to: Annotated[
        Path | None, typer.Option(help="Where to; its own name here, if left out.", show_default=False)
    ] = None,
    tenant: Tenant = None,
) -> wire.Artifact:
    """Get a file from storage; one that is there already is overwritten only where --to names it."""
    from millpond.cli.output import UsageError

    known = await api.client.artifact(artifact, tenant=tenant or api.tenant)
    place = to or Path(Path(known.name).name or artifact)
    if to is None and place.exists():
        raise UsageError(f"{place} is there already.", field="--to", hint="Name a place with --to.")
    await api.client.download(known, place)
    return known


@command(app, "list")
async def list_(api: Api, job: JobId) -> wire.Artifacts:
    """List the files of a job: what it was given, and what its last attempt has made."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.get(path(job, "artifacts"), wire.Artifacts)
