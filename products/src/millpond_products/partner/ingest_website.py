"""The ingest of a website: the facts about the project on its page."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from millpond.errors import PermanentError, TransientError
from millpond_products.pages import fetching, reading
from millpond_products.partner import findings, identifiers, outside, projects
from millpond_products.partner.orders import WebsiteOrder

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.settings import ProductSettings

PLATFORM: Final = "website"
_HEADINGS_MAX: Final = 20
_LINKS_MAX: Final = 20
_KEYWORDS_MAX: Final = 20
_EXCERPT_MAX: Final = 4_000
_COLOR_MAX: Final = 40
_ICONS: Final = "link[rel~=icon][href], link[rel='shortcut icon'][href], link[rel=apple-touch-icon][href]"
_SILENT: Final = ("script", "style", "noscript", "template", "svg", "iframe", "nav", "header", "footer", "form")
"""Parts of a page that are not its main text."""
_MAIN: Final = ("main", "article", "[role=main]", "body")
_ENOUGH: Final = 80
_GRAPH: Final = (
    "audio",
    "description",
    "determiner",
    "image",
    "image:alt",
    "image:secure_url",
    "locale",
    "site_name",
    "title",
    "type",
    "url",
    "video",
)
"""The names of Open Graph that are read. A page may make up any number of others."""
_CONTACTS: Final = (
    "facebook.com",
    "github.com",
    "instagram.com",
    "linkedin.com",
    "tiktok.com",
    "twitter.com",
    "x.com",
    "youtube.com",
)


def handler(engine: Engine, settings: ProductSettings) -> Handler:  # noqa: ARG001 - as all handlers of the product
    async def run(job: Any, given: dict[str, Any]) -> dict[str, Any]:
        order = msgspec.convert(given, WebsiteOrder)
        await job.stage("fetching")
        await job.progress(0.05)
        try:
            html, url = await fetching.fetch(engine.outbound, order.url)
        except (PermanentError, TransientError) as error:
            raise _translated(error) from error
        await job.stage("parsing")
        await job.progress(0.5)
        facts = findings.bounded(await asyncio.to_thread(read, html, url), field=PLATFORM)
        await job.stage("merging_context")
        await job.progress(0.9)
        await projects.merge(engine, job, order.project_id, "website", facts)
        return {
            "projectId": identifiers.text("prj", order.project_id),
            "source": "website",
            "facts": facts,
            "assets": [],
        }

    return run


_INVALID: Final = frozenset({"refused", "redirect", "type", "empty", "coding"})
"""The reasons that are errors of the given URL, and not of the server that answers."""


def _translated(error: PermanentError | TransientError) -> PermanentError | TransientError:
    """The same error in the terms of the contract."""
    reason = str(error.details.get("reason", ""))
    if isinstance(error, PermanentError) and reason in _INVALID:
        return PermanentError(error.message, code="VALIDATION", field="url")
    return outside.trouble(error, PLATFORM, reason)


def read(html: str, url: str) -> dict[str, Any]:
    """The facts on a page; broken parts of it are skipped."""
    tree = reading.parse(html)
    metas = reading.metas(tree)
    graph = {name: text for name in _GRAPH if (text := reading.clean(metas.get(f"og:{name}"), reading.URL_MAX))}
    facts = {
        "url": url,
        "title": reading.first(reading.NAME_MAX, reading.text_of(tree, "title"), graph.get("title")),
        "name": reading.first(
            reading.NAME_MAX, graph.get("site_name"), metas.get("application-name"), graph.get("title")
        ),
        "description": reading.first(
            reading.TEXT_MAX, metas.get("description"), graph.get("description"), metas.get("twitter:description")
        ),
        "language": _attribute(tree, "html[lang]", "lang", 20),
        "canonicalUrl": reading.absolute(url, _attribute(tree, "link[rel=canonical][href]", "href", reading.URL_MAX)),
        "icon": reading.absolute(url, _attribute(tree, _ICONS, "href", reading.URL_MAX) or "/favicon.ico"),
        "image": reading.absolute(url, graph.get("image", "")),
        "themeColor": reading.clean(metas.get("theme-color"), _COLOR_MAX),
        "keywords": _keywords(metas.get("keywords", "")),
        "openGraph": graph,
        "headings": _headings(tree),
        "contacts": _contacts(tree, url),
        "excerpt": _excerpt(tree),
    }
    facts["name"] = facts["name"] or facts["title"] or urlsplit(url).hostname or ""
    return {name: value for name, value in facts.items() if value not in ("", None, [], {})}


def _attribute(tree: LexborHTMLParser, selector: str, name: str, limit: int) -> str:
    node = tree.css_first(selector)
    return "" if node is None else reading.clean(node.attributes.get(name), limit)


def _keywords(text: str) -> list[str]:
    words = (reading.clean(word, 60) for word in text.split(","))
    return list(dict.fromkeys(word for word in words if word))[:_KEYWORDS_MAX]


def _headings(tree: LexborHTMLParser) -> list[str]:
    found = tree.css("h1, h2, h3")[: reading.TAGS_MAX]
    texts = (reading.clean(node.text(deep=True, separator=" "), reading.NAME_MAX) for node in found)
    return list(dict.fromkeys(text for text in texts if text))[:_HEADINGS_MAX]


def _contacts(tree: LexborHTMLParser, url: str) -> list[str]:
    """Links for contacts: by e-mail, by telephone, on the usual networks."""
    found: list[str] = []
    for node in tree.css("a[href]")[:2_000]:
        link = reading.clean(node.attributes.get("href"), reading.URL_MAX)
        if link.lower().startswith(("mailto:", "tel:")):
            found.append(link.partition("?")[0])
        elif _is_network(whole := reading.absolute(url, link)):
            found.append(whole)
    return list(dict.fromkeys(found))[:_LINKS_MAX]


def _is_network(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    return any(host in (name, f"www.{name}") for name in _CONTACTS)


def _excerpt(tree: LexborHTMLParser) -> str:
    """The main text of the page, shortened."""
    tree.strip_tags(list(_SILENT))
    texts = (reading.clean(reading.text_of(tree, selector), _EXCERPT_MAX) for selector in _MAIN)
    found = [text for text in texts if text]
    return next((text for text in found if len(text) >= _ENOUGH), found[-1] if found else "")
