"""Orders: the inputs of partner jobs. What a job needs is in its order: what is changed later changes no job."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID  # noqa: TC003 - msgspec reads it

import msgspec

Name = Literal[
    "project_ingest_github", "project_ingest_website", "appstore_ingest", "content_generate", "influencer_create"
]
"""What the contract calls the kinds."""
Style = Literal["lifestyle", "minimal", "bold", "elegant", "playful", "tech"]
AspectRatio = Literal["1:1", "4:5", "9:16", "16:9"]


class Order(msgspec.Struct, kw_only=True):
    """What all orders have in common."""

    base: str
    """The path under which the API was asked. What is told of a job stays the same, also where that is moved."""
    project_id: UUID


class GithubOrder(Order, kw_only=True):
    """A repository to be read, and to be given a pull request."""

    repo_url: str
    branch: str | None = None


class WebsiteOrder(Order, kw_only=True):
    """A page to be read."""

    url: str


class AppstoreOrder(Order, kw_only=True):
    """An app to be looked up."""

    app_id: str
    country: str


class ContentOrder(Order, kw_only=True):
    """Pictures and a film to be made."""

    container_id: UUID
    brief: str
    style: Style
    aspect_ratio: AspectRatio
    images: int
    seed: int
    influencer_id: UUID | None = None
    cloned_from: UUID | None = None
    """The container whose plan is used again."""
    context: dict[str, Any]
    """What was known of the project then, in short."""
    plan: dict[str, Any] | None = None
    """The plan of the container that is cloned."""


class InfluencerOrder(Order, kw_only=True):
    """A persona to be made up, and shown."""

    influencer_id: UUID
    name: str | None = None
    brief: str
    style: Style
    references: int
    seed: int
    context: dict[str, Any]
