"""Files."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from millpond.wire.shapes import Answer, Name, Request, Time
from millpond.wire.worker import Signed


class MakeArtifact(Request):
    """A file to be uploaded."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=255,
            description="The file name shown to people.",
            examples=["cat.png"],
            extra_json_schema={"pattern": r"^[^\x00-\x1f\x7f-\x9f]*$"},
        ),
    ]
    content_type: Annotated[
        str,
        Meta(
            min_length=3,
            max_length=200,
            examples=["image/png"],
            extra_json_schema={"pattern": r"^[a-z0-9.+-]{1,90}/[a-z0-9.+-]{1,90}$"},
        ),
    ]
    size: Annotated[int, Meta(ge=0, description="The exact size in bytes.")]
    sha256: (
        Annotated[
            str,
            Meta(
                pattern="^[0-9a-f]{64}$",
                description="The SHA-256 of the content; uploads with another one are rejected.",
            ),
        ]
        | None
    ) = None
    account: Annotated[Name | None, Meta(description="The account that owns the file; client keys have their own.")] = (
        None
    )


class Artifact(Answer):
    """A file in storage."""

    id: str
    tenant: str
    account: str
    job_id: Annotated[str | None, Meta(description="The job that created the file or uses it.")]
    name: str
    content_type: str
    size: int
    sha256: str | None
    created_at: Time
    expires_at: Annotated[Time, Meta(description="The time by which the file must be uploaded.")]
    stored_at: Annotated[Time | None, Meta(description="The time at which the complete file was found in storage.")]
    download: Annotated[Signed | None, Meta(description="The download URL, once the file is stored.")]


class NewArtifact(Artifact):
    """An announced file and its upload request."""

    upload: Signed


class Artifacts(Answer):
    """The files of a job: its input files and the files of the last attempt."""

    data: list[Artifact]
