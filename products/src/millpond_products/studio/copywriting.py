"""Copywriting: the headlines, text and script of an ad, by a language model where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from millpond_products.studio import chat, grammar
from millpond_products.studio.grammar import Tone  # noqa: TC001 - msgspec reads it
from millpond_products.studio.products import ProductFacts  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.settings import ProductSettings


class CopyInput(msgspec.Struct, kw_only=True):
    """The input of a job that writes copy."""

    product: ProductFacts
    product_id: str | None = None
    tone: Tone = "friendly"
    headlines: int = 3
    seed: int = 0


def handler(engine: Engine, settings: ProductSettings) -> Handler:
    async def write(job: Any, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as all handlers
        order = msgspec.convert(given, CopyInput)
        options: Any = {"tone": order.tone, "seed": order.seed, "headlines": order.headlines}
        if settings.chat_url:
            copy, author = await chat.write(engine.outbound, settings, order.product, **options), settings.chat_model
        else:
            copy, author = grammar.write(order.product, **options), "grammar"
        return msgspec.to_builtins(copy) | {"tone": order.tone, "seed": order.seed, "written_by": author}

    return write
