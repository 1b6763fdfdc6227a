"""Scraping: fetches the page of a product, through the guard of all calls to the outside, and reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from millpond.blueprints.studio import markup
from millpond.errors import OutboundRefusedError, PermanentError
from millpond.pages import fetching

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.outbound.outbound import Outbound


def handler(engine: Engine) -> Handler:
    async def scrape(job: Any, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as all handlers
        html, url = await fetching.fetch(engine.outbound, given["url"])
        page = await asyncio.to_thread(markup.read, html, url)
        if not page.title:
            raise PermanentError("The page has no title: there is no product on it that could be read.", url=url)
        page.images = [image for image in page.images if _is_open(engine.outbound, image)]
        return msgspec.to_builtins(page)

    return scrape


def _is_open(outbound: Outbound, url: str) -> bool:
    """A page may name any address as that of a picture."""
    try:
        outbound.check(url)
    except OutboundRefusedError:
        return False
    return True
