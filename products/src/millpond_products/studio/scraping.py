"""Scraping: fetches the page of a product through the outbound guard, and reads it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from millpond.errors import OutboundRefusedError, PermanentError
from millpond_products.pages import fetching
from millpond_products.studio import markup

if TYPE_CHECKING:
    from millpond.kinds import Handler
    from millpond.product import Engine, Outbound


def handler(engine: Engine) -> Handler:
    async def scrape(job: Any, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as all handlers
        html, url = await fetching.fetch(engine.outbound, given["url"])
        page = await asyncio.to_thread(markup.read, html, url)
        if not page.title:
            raise PermanentError("The page has no title, so no product was found.", url=url)
        page.images = [image for image in page.images if _is_open(engine.outbound, image)]
        return msgspec.to_builtins(page)

    return scrape


def _is_open(outbound: Outbound, url: str) -> bool:
    """Whether an image may be fetched: a page may name any address."""
    try:
        outbound.check(url)
    except OutboundRefusedError:
        return False
    return True
