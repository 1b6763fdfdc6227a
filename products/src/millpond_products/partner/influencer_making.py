"""Influencers: a persona, and images that all show the same person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.providers import Ask
from millpond_products.models import MODELS, models
from millpond_products.partner import asking, identifiers, personas
from millpond_products.partner.orders import InfluencerOrder

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.partner.personas import Persona
    from millpond_products.settings import ProductSettings

_SHOTS: Final = ("in a studio", "in a park, laughing", "at home", "in a street in the evening")


def handler(engine: Engine, settings: ProductSettings) -> Handler:
    model = models(settings.models)["persona"]

    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        order = msgspec.convert(given, InfluencerOrder)
        await job.stage("generating")
        persona = personas.persona(order)
        await job.progress(0.1)
        await job.stage("rendering_references")
        asks = {f"reference-{n}": Ask(model, _shown(order, persona, n, model)) for n in range(1, order.references + 1)}
        references = await asking.ask(engine, job, asks)
        await job.progress(0.95)
        return {
            "projectId": identifiers.text("prj", order.project_id),
            "influencerId": identifiers.text("inf", order.influencer_id),
            "name": persona.name,
            "persona": msgspec.to_builtins(persona),
            "assets": await asking.assets(job, references),
        }

    return run


def _shown(order: InfluencerOrder, persona: Persona, number: int, model: str) -> dict[str, Any]:
    """The input of one image. The seed determines the person, so it is the same for all images."""
    if model != MODELS["persona"]:
        who = f"A portrait of {persona.name}, a {persona.age}-year-old {persona.presents}, {persona.occupation}"
        prompt = f"{who}, {_SHOTS[number - 1]}. Style: {order.style}. The same person in every picture. {order.brief}"
        return {"prompt": prompt.strip(), "aspect_ratio": "4:5", "seed": order.seed}
    return {
        "shot": number,
        "presents": persona.presents,
        "age": persona.age,
        "style": order.style,
        "seed": order.seed,
    }
