"""Content: a plan, images and a short video, from the context of a project.

The handler is called again from the top whenever the provider has made something. All steps before that have the same
result each time: the plan depends on the order alone, and files that exist are not made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond.providers import Ask
from millpond_products.models import MODELS, models
from millpond_products.partner import asking, identifiers, personas, planning
from millpond_products.partner.orders import ContentOrder

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.partner.planning import Plan
    from millpond_products.settings import ProductSettings

_DESCRIPTION_MAX: Final = 180
_SEEDS: Final = 2**32


def handler(engine: Engine, settings: ProductSettings) -> Handler:
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
    """An image for each headline, each with its own seed, so that they differ."""
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
    """The video. It has the same plan as the images, and says what they show."""
    if model != MODELS["ugc_video"]:
        who = "A person" if persona is None else persona["name"]
        shown = "; ".join(scene.shows for scene in plan.scenes)
        prompt = f'{who} talks to the camera about {plan.product}. Scenes: {shown}. They say: "{plan.script}"'
        return Ask(model, {"prompt": prompt, "aspect_ratio": plan.aspect_ratio, "seed": order.seed})
    fields = {
        "product": plan.product,
        "headline": plan.headline,
        "script": plan.script,
        "call_to_action": plan.call_to_action,
        "style": plan.style,
        "aspect_ratio": plan.aspect_ratio,
        "seed": order.seed,
    }
    return Ask(model, fields | ({} if persona is None else {"voice": persona["voice"]}))


def _result(order: ContentOrder, plan: Plan, assets: list[dict[str, Any]]) -> dict[str, Any]:
    result = {
        "projectId": identifiers.text("prj", order.project_id),
        "containerId": identifiers.text("cnt", order.container_id),
        "headline": plan.headline,
        "script": plan.script,
        "plan": msgspec.to_builtins(plan),
        "assets": assets,
    }
    if order.influencer_id is not None:
        result["influencerId"] = identifiers.text("inf", order.influencer_id)
    if order.cloned_from is not None:
        result["clonedFrom"] = identifiers.text("cnt", order.cloned_from)
    return result
