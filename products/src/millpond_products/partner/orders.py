"""Orders: the inputs of partner jobs. An order contains all that its job needs, so later changes do not affect it."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec

Name = Literal[
    "project_ingest_github", "project_ingest_website", "appstore_ingest", "content_generate", "influencer_create"
]
"""The contract's names of the kinds."""
Style = Literal["lifestyle", "minimal", "bold", "elegant", "playful", "tech"]
AspectRatio = Literal["1:1", "4:5", "9:16", "16:9"]


class PartnerOrder(msgspec.Struct, kw_only=True):
    """The common fields of all orders."""

    base: str
    """The path of the API at the submission. Answers about the job keep it, even if the API is moved later."""
    project_id: UUID


class GithubOrder(PartnerOrder, kw_only=True):
    """A repository to read, and to open a pull request in."""

    repo_url: str
    branch: str | None = None


class WebsiteOrder(PartnerOrder, kw_only=True):
    """A page to read."""

    url: str


class AppstoreOrder(PartnerOrder, kw_only=True):
    """An app to look up."""

    app_id: str
    country: str


class ContentOrder(PartnerOrder, kw_only=True):
    """Images and a video to make."""

    container_id: UUID
    brief: str
    style: Style
    aspect_ratio: AspectRatio
    images: int
    seed: int
    influencer_id: UUID | None = None
    cloned_from: UUID | None = None
    """The container whose plan is reused."""
    context: dict[str, Any]
    """The summary of the project at the submission."""
    plan: dict[str, Any] | None = None
    """The plan of the container that is cloned."""


class InfluencerOrder(PartnerOrder, kw_only=True):
    """A persona to invent, and to show."""

    influencer_id: UUID
    name: str | None = None
    brief: str
    style: Style
    references: int
    seed: int
    context: dict[str, Any]
