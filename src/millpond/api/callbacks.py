"""Callbacks of providers over HTTP. They come without a key of ours: their signature is what counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond import wire
from millpond.api.calls import BODY_MAX, reply

if TYPE_CHECKING:
    from millpond.api.calls import Call, Reply


async def hear(call: Call) -> Reply:
    """Whatever a good call is worth, it is answered well: the provider need not send it again."""
    body = await call.read_bytes(BODY_MAX)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in call.headers.items()}
    verdict = await call.engine.providers.callback(call.params["provider"], call.params["token"], headers, body)
    return reply(wire.CallbackHeard(verdict=verdict))
