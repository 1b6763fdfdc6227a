"""Dashboard sessions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from millpond.wire.shapes import Answer, Request, Scope, Time


class SignIn(Request):
    """A key of scope viewer, operator or admin that signs in to the dashboard."""

    key: Annotated[str, Meta(min_length=1, max_length=200)]


class ProductPage(Answer):
    """A product with a playground page."""

    name: str
    title: str
    path: str
    scope: Annotated[Scope, Meta(description="The scope of the key that the page needs.")]


class Session(Answer):
    """The signed-in user, and what the dashboard needs to know."""

    scope: Scope
    tenant: Annotated[str | None, Meta(description="Null for all tenants.")]
    actor: Annotated[str, Meta(description="The actor in the audit log.")]
    name: Annotated[str | None, Meta(description="The name of the key.")]
    expires_at: Time
    csrf: Annotated[str, Meta(description="Send it as Millpond-Csrf with every request that changes something.")]
    is_development: bool
    version: str
    refresh: Annotated[float, Meta(description="Seconds between two refreshes; 0 for manual refresh.")]
    products: list[ProductPage]
