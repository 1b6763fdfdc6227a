"""A shop on the web, with pages of every quality; and a language model that says what it is told to."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

KEY = "sk-chat-0123456789"

GOOD = """<!doctype html><html><head><title>Lumen Desk Lamp | Ohm</title>
<meta name="description" content="From the meta."><meta property="og:title" content="From OpenGraph">
<meta property="og:image" content="/lamp.png"><meta property="product:price:amount" content="1">
<script type="application/ld+json">{"@graph": [{"@type": "WebPage"}, {"@type": ["Product"], "name": "Lumen Desk Lamp",
"description": "A lamp that follows the sun. It dims by itself when evening comes.", "brand": {"name": "Ohm"},
"image": [{"url": "lamp-2.png"}, "http://10.1.2.3/inside.png"],
"offers": [{"price": 89.5, "priceCurrency": "EUR"}],
"aggregateRating": {"ratingValue": "9.2", "bestRating": "10", "ratingCount": "1,204"}}]}</script></head>
<body><main><h1>H1</h1><ul class="features"><li>Dims by itself</li><li>Ten <b>years</b> of light</li></ul></main>"""

OPEN_GRAPH = """<title>T</title><meta property="og:title" content="Plain Mug">
<meta property="og:description" content="A mug.">
<meta property="og:price:amount" content="12.00"><meta property="og:price:currency" content="gbp"><img src="m.jpg">"""

PLAIN = """<title>Shop</title><main><h1>Oak Stool</h1><p>Stands by itself.</p><span class="price">€ 120</span>"""

BROKEN = (
    '<<html><head><title>Torn &amp; Mended</ti<script type="application/ld+json">{"@type": "Product", "name": </script>'
    "<body><p>Half a <b>sentence<div><ul><li>One<li>Two" + "<div>" * 3_000
)


class Shop:
    """Answers by path; what it was asked is kept."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.troubles: dict[str, deque[Response]] = {}
        """What the next calls of a path are answered instead."""
        self.prompts: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.answers_with: Callable[[], Response] = lambda: self.completion(
            json.dumps({"headlines": ["Said by a model"]})
        )
        self._app = Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/round/{left:int}", self._round),
                Route("/to-inside", lambda _: RedirectResponse("http://169.254.169.254/latest/meta-data")),
                Route("/{name}", self._page),
            ]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.asked.append(path)
        waiting = self.troubles.get(path)
        answer = waiting.popleft() if waiting else self._app
        await answer(scope, receive, send)

    async def _round(self, request: Request) -> Response:
        left = request.path_params["left"]
        return RedirectResponse(f"/round/{left - 1}" if left > 1 else "/good", 302)

    async def _page(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "slow":
            await asyncio.sleep(3)
        return PAGES[name]() if name in PAGES else Response(status_code=404)

    async def _chat(self, request: Request) -> Response:
        self.prompts.append((dict(request.headers), await request.json()))
        return self.answers_with()

    @staticmethod
    def completion(text: str) -> Response:
        return JSONResponse({"choices": [{"message": {"role": "assistant", "content": text}}]})


def _html(text: str | bytes, **headers: str) -> Callable[[], Response]:
    return lambda: Response(text, headers={"content-type": "text/html", **headers})


PAGES: dict[str, Callable[[], Response]] = {
    "good": _html(GOOD),
    "slow": _html(GOOD),
    "open-graph": _html(OPEN_GRAPH),
    "plain": _html(PLAIN),
    "broken": _html(BROKEN),
    "latin": _html("<title>Café crème</title>".encode("latin-1"), **{"content-type": "text/html; charset=iso-8859-1"}),
    "undeclared": _html('<meta charset="shift_jis"><title>急須</title>'.encode("shift_jis")),
    "compressed": _html(gzip.compress(GOOD.encode()), **{"content-encoding": "gzip"}),
    "huge": _html(GOOD + "<p>more</p>" * 400_000),
    "empty": _html(""),
    "untitled": _html("<p>nothing here</p>"),
    "pdf": lambda: Response(b"%PDF-1.7", media_type="application/pdf"),
}
