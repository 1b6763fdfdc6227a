"""Content: a plan, pictures, and a short film, from what is known of a project.

Its code is called again from the top whenever the provider has made something. All that it does before is the same each
time: the plan comes from the order alone, and what was made is not made twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.blueprints.partner import asking, identifiers, personas, planning
from millpond.blueprints.partner.orders import ContentOrder
from millpond.providers import MODELS, Ask, models

if TYPE_CHECKING:
    from millpond.blueprints.partner.planning import Plan
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.settings import Settings

_DESCRIPTION_MAX: Final = 180
_SEEDS: Final = 2**32


def handler(engine: Engine, settings: Settings) -> Handler:
    chosen = models(settings.models)

    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        order = msgspec.convert(given, ContentOrder)
        await job.stage("planning")
        persona = await personas.find(engine, job, order)
        plan = planning.plan(order, persona)
        await job.progress(0.05)
        await job.stage("generating_visuals")
        pictures = await asking.ask(engine, job, _pictures(order, plan, chosen["static_ad"]))
        await job.progress(0.55)
        await job.stage("assembling")
        film = _film(order, plan, persona, chosen["ugc_video"])
        await job.progress(0.6)
        await job.stage("rendering")
        films = await asking.ask(engine, job, {"video": film})
        await job.progress(0.95)
        return _result(order, plan, await asking.assets(job, [*pictures, *films]))

    return run


def _pictures(order: ContentOrder, plan: Plan, model: str) -> dict[str, Ask]:
    """One for each headline; each with a seed of its own, for all of them are to be seen."""
    return {
        f"image-{number}": Ask(model, _picture(order, plan, headline, number, model))
        for number, headline in enumerate(plan.headlines, 1)
    }


def _picture(order: ContentOrder, plan: Plan, headline: str, number: int, model: str) -> dict[str, Any]:
    seed = (order.seed + number - 1) % _SEEDS
    if model != MODELS["static_ad"]:
        scene = plan.scenes[(number - 1) % len(plan.scenes)].shows
        prompt = f'An advertisement for {plan.product}: {scene}. Style: {plan.style}. The headline reads "{headline}".'
        return {"prompt": f"{prompt} {plan.description}".strip(), "aspect_ratio": plan.aspect_ratio, "seed": seed}
    return {
        "product": plan.product,
        "headline": headline,
        "description": planning.clipped(plan.description, _DESCRIPTION_MAX) if number == 1 else "",
        "call_to_action": plan.call_to_action,
        "style": plan.style,
        "aspect_ratio": plan.aspect_ratio,
        "seed": seed,
    }


def _film(order: ContentOrder, plan: Plan, persona: dict[str, Any] | None, model: str) -> Ask:
    """The pictures and the film are of one plan: the film says what they show."""
    if model != MODELS["ugc_video"]:
        who = "A person" if persona is None else persona["name"]
        shown = "; ".join(scene.shows for scene in plan.scenes)
        prompt = f'{who} talks to the camera about {plan.product}. Scenes: {shown}. They say: "{plan.script}"'
        return Ask(model, {"prompt": prompt, "aspect_ratio": plan.aspect_ratio, "seed": order.seed})
    asked = {
        "product": plan.product,
        "headline": plan.headline,
        "script": plan.script,
        "call_to_action": plan.call_to_action,
        "style": plan.style,
        "aspect_ratio": plan.aspect_ratio,
        "seed": order.seed,
    }
    return Ask(model, asked | ({} if persona is None else {"voice": persona["voice"]}))


def _result(order: ContentOrder, plan: Plan, assets: list[dict[str, Any]]) -> dict[str, Any]:
    told = {
        "projectId": identifiers.text("prj", order.project_id),
        "containerId": identifiers.text("cnt", order.container_id),
        "headline": plan.headline,
        "script": plan.script,
        "plan": msgspec.to_builtins(plan),
        "assets": assets,
    }
    if order.influencer_id is not None:
        told["influencerId"] = identifiers.text("inf", order.influencer_id)
    if order.cloned_from is not None:
        told["clonedFrom"] = identifiers.text("cnt", order.cloned_from)
    return told
