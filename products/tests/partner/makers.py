"""The kinds that a provider helps with, run for real: with the renderer, or with a double that can be told to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import msgspec

from millpond.app import Millpond
from millpond_products.partner import routes
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import ContentOrder, InfluencerOrder
from tests.factories import TENANT

if TYPE_CHECKING:
    from millpond_products.partner.orders import Name, PartnerOrder
    from tests.providers.deployments import Deployment

CONTEXT = {
    "summary": {
        "name": "Lumen - Focus Timer",
        "description": "Lumen is a focus timer that blocks distractions. Plan your day in minutes.",
        "category": "Productivity",
        "keywords": ["focus", "deep work"],
    }
}
PROJECT = uuid4()


def content(**said: Any) -> ContentOrder:
    given = {"brief": "A launch post for busy students", "style": "bold", "aspect_ratio": "1:1", "images": 2, "seed": 7}
    given |= {"base": "/partner", "project_id": PROJECT, "container_id": uuid4(), "context": CONTEXT}
    return ContentOrder(**dict[str, Any](given, **said))


def influencer(**said: Any) -> InfluencerOrder:
    given = {"brief": "", "style": "lifestyle", "references": 2, "seed": 7}
    given |= {"base": "/partner", "project_id": PROJECT, "influencer_id": uuid4(), "context": CONTEXT}
    return InfluencerOrder(**dict[str, Any](given, **said))


def app() -> Millpond:
    made = Millpond()
    for kind in routes.PRODUCT.kinds:
        made.add(kind)
    return made


async def submit(here: Deployment, order: PartnerOrder) -> UUID:
    """A job that is paid for."""
    name: Name = "content_generate" if isinstance(order, ContentOrder) else "influencer_create"
    kind = KINDS[name]
    assert isinstance(kind.price, int)
    await here.engine.grant(TENANT, here.account, kind.price)
    return await here.give(kind.name, msgspec.to_builtins(order))


async def stages(here: Deployment, job_id: UUID) -> list[str]:
    events = await here.engine.events(TENANT, job_id)
    return [event.data["stage"] for event in events if event.type == "stage"]
