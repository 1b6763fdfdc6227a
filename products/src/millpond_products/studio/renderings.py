"""Renderings: images, videos and speech that a provider makes: its input, and the output that is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from millpond.providers import Ask, Prediction
from millpond_products.models import MODELS
from millpond_products.studio.grammar import money, short_name
from millpond_products.studio.products import ProductFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond.work import Artifact

Style = Literal["lifestyle", "minimal", "bold", "elegant", "playful", "tech"]
AspectRatio = Literal["1:1", "4:5", "9:16", "16:9"]

_NAME_MAX: Final = 80
_HEADLINE_MAX: Final = 120
_TEXT_MAX: Final = 400
_CALL_MAX: Final = 32
_BRAND_MAX: Final = 40
_SCRIPT_MAX: Final = 600


class RenderingInput(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The input of a job that runs at a provider. Only the fields of its type are set."""

    model: str
    product: ProductFacts | None = None
    product_id: str | None = None
    copy_id: str | None = None
    headline: str = ""
    text: str = ""
    call_to_action: str = ""
    style: Style = "lifestyle"
    aspect_ratio: AspectRatio = "1:1"
    voice: str | None = None
    speed: float | None = None
    seed: int | None = None


def ask_picture(given: Any) -> Ask:
    order = msgspec.convert(given, RenderingInput)
    if order.model != MODELS["static_ad"]:
        return Ask(model=order.model, input=_prompted(order, "A photograph for an advertisement of"))
    return Ask(model=order.model, input=_shown(order) | {"description": _clip(order.text, _TEXT_MAX)})


def ask_film(given: Any) -> Ask:
    order = msgspec.convert(given, RenderingInput)
    if order.model != MODELS["ugc_video"]:
        return Ask(model=order.model, input=_prompted(order, "A person talks to the camera about"))
    return Ask(model=order.model, input=_shown(order) | {"script": _clip(order.text, _SCRIPT_MAX)} | _voice(order))


def ask_voice(given: Any) -> Ask:
    order = msgspec.convert(given, RenderingInput)
    return Ask(model=order.model, input={"text": order.text} | _voice(order))


def output(given: Any, prediction: Prediction, files: Sequence[Artifact]) -> dict[str, Any]:
    """The output of a job. Its files are in storage by now; their URLs are added whenever the job is read."""
    return {
        "model": msgspec.convert(given, RenderingInput).model,
        "prediction_id": prediction.id,
        "files": [
            {"id": file.id, "name": file.name, "content_type": file.content_type, "size": file.size} for file in files
        ],
    }


def _shown(order: RenderingInput) -> dict[str, Any]:
    """The input of the local renderer's models that show a product."""
    product = order.product or ProductFacts(name="?")
    fields = {
        "product": _clip(short_name(product.name), _NAME_MAX),
        "headline": _clip(order.headline, _HEADLINE_MAX),
        "price": money(product.price, product.currency),
        "call_to_action": _clip(order.call_to_action, _CALL_MAX),
        "brand": _clip(product.brand, _BRAND_MAX),
        "image": product.image,
        "style": order.style,
        "aspect_ratio": order.aspect_ratio,
        "seed": order.seed,
    }
    return {name: value for name, value in fields.items() if value not in ("", None)}


def _prompted(order: RenderingInput, scene: str) -> dict[str, Any]:
    """The input of other models, most of which take the same as a prompt."""
    product = order.product or ProductFacts(name="?")
    sentences = [
        f"{scene} {short_name(product.name)}" + (f" by {product.brand}" if product.brand else "") + ".",
        _clip(product.description, _TEXT_MAX),
        f"Style: {order.style}.",
        f'The headline reads "{_clip(order.headline, _HEADLINE_MAX)}".' if order.headline else "",
        f'They say: "{_clip(order.text, _SCRIPT_MAX)}"' if order.text else "",
    ]
    fields = {
        "prompt": " ".join(filter(None, sentences)),
        "aspect_ratio": order.aspect_ratio,
        "seed": order.seed,
        "image": product.image,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _voice(order: RenderingInput) -> dict[str, Any]:
    fields = {"voice": order.voice, "speed": order.speed}
    return {name: value for name, value in fields.items() if value is not None}


def _clip(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1].rsplit(' ', 1)[0]}…"
