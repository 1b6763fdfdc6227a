"""Influencers: a persona, and pictures of one and the same person for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.blueprints.partner import asking, identifiers, personas
from millpond.blueprints.partner.orders import InfluencerOrder
from millpond.providers import MODELS, Ask, models

if TYPE_CHECKING:
    from millpond.blueprints.partner.personas import Persona
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.settings import Settings

_SHOTS: Final = ("in a studio", "in a park, laughing", "at home", "in a street in the evening")


def handler(engine: Engine, settings: Settings) -> Handler:
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
    """One shot. The seed is the person: it is the same in all of them."""
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
