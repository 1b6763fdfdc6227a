"""``millpond artifacts``: upload and download files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, group
from millpond.cli.options import Account, ArtifactId, Tenant, optional

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Upload and download files.")


@command(app, "list")
async def list_(
    api: ApiConnection,
    job: Annotated[str, typer.Option("--job", help="The ID of the job: job_…", show_default=False)],
) -> wire.Artifacts:
    """List the files of a job: its input, and the output of its last attempt."""
    from millpond import wire
    from millpond.cli.follow import path

    return await api.get(path(job, "artifacts"), wire.Artifacts)


@command(app, "get")
async def get(api: ApiConnection, artifact: ArtifactId, tenant: Tenant = None) -> wire.Artifact:
    """Show the metadata of a file."""
    return await api.client.artifact(artifact, tenant=tenant or api.tenant)


@command(app, "upload")
async def upload(
    api: ApiConnection,
    file: Annotated[Path, typer.Argument(help="The file to upload.", show_default=False)],
    name: Annotated[str | None, optional("--name", text="The name to store.", default="the name of the file")] = None,
    content_type: Annotated[
        str | None, optional("--type", text="The media type.", metavar="TYPE", default="by the name of the file")
    ] = None,
    tenant: Tenant = None,
    account: Account = None,
) -> wire.Artifact:
    """Upload a file, for use in the input of a job."""
    owner = api.owner(tenant, account)
    return await api.client.upload(
        file, name=name, content_type=content_type, tenant=owner["tenant"], account=owner["account"]
    )


@command(app, "download")
async def download(
    api: ApiConnection,
    artifact: ArtifactId,
    to: Annotated[
        Path | None,
        optional("--to", text="The path to write to.", metavar="PATH", default="the name of the file, in this folder"),
    ] = None,
    tenant: Tenant = None,
) -> wire.Artifact:
    """Download a file.

    An existing file is overwritten only if --to names it.
    """
    from millpond.cli.output import UsageError

    known = await api.client.artifact(artifact, tenant=tenant or api.tenant)
    place = to or Path(Path(known.name).name or artifact)
    if to is None and place.exists():
        raise UsageError(f"{place} already exists.", field="--to", hint="Name a path with --to.")
    await api.client.download(known, place)
    return known
