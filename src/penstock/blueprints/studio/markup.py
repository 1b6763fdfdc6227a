"""Reads what a shop's page says of its product.

Shops say it up to three times: as JSON-LD for search engines, as OpenGraph for social networks, and in plain HTML for
people. They are believed in this order, each fact by itself.
"""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin

import msgspec
from selectolax.lexbor import LexborHTMLParser

from penstock import values
from penstock.blueprints.studio.products import (
    FEATURE_MAX,
    FEATURES_MAX,
    IMAGES_MAX,
    NAME_MAX,
    STARS,
    TEXT_MAX,
    URL_MAX,
    Page,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_SCRIPTS_MAX: Final = 50
_NODES_MAX: Final = 2_000
_TAGS_MAX: Final = 100


def read(html: str, url: str) -> Page:
    """Read a page; what is broken in it is passed over."""
    tree = LexborHTMLParser(html)
    metas = _metas(tree)
    found = _json_ld(tree)
    offer = _offer(found)
    rating = _member(found, "aggregateRating")
    return Page(
        url=url,
        title=_first(NAME_MAX, found.get("name"), metas.get("og:title"), _text(tree, "h1"), _text(tree, "title")),
        description=_first(
            TEXT_MAX,
            found.get("description"),
            metas.get("og:description"),
            metas.get("description"),
            _text(tree, "[itemprop=description]"),
            _text(tree, "main p"),
        ),
        brand=_first(NAME_MAX, _named(found.get("brand")), metas.get("product:brand"), metas.get("og:brand")),
        price=_price(offer, metas, tree),
        currency=_currency(offer, metas, tree),
        features=_features(found, tree),
        rating=_rating(rating),
        reviews=_count(rating.get("reviewCount") or rating.get("ratingCount")),
        images=_images(found, metas, tree, url),
        json_ld=_plain(found) or None,
        open_graph={name: text for name, text in metas.items() if name.startswith(("og:", "product:"))},
    )


# What each part of a page says


def _metas(tree: LexborHTMLParser) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.css("meta[content]")[:_TAGS_MAX]:
        given = node.attributes
        name = (given.get("property") or given.get("name") or given.get("itemprop") or "").strip().lower()
        text = _clean(given.get("content"), TEXT_MAX)
        if name and text:
            found.setdefault(name[:NAME_MAX], text)
    return found


def _json_ld(tree: LexborHTMLParser) -> dict[str, Any]:
    """The first thing in all JSON-LD of the page that calls itself a product."""
    for script in tree.css("script[type]")[:_SCRIPTS_MAX]:
        if (script.attributes.get("type") or "").strip().lower() != "application/ld+json":
            continue
        for node in _nodes(_decoded(script.text(deep=True))):
            if _is_product(node):
                return node
    return {}


def _decoded(text: str) -> Any:
    """Some shops put comments around it, or line breaks into its texts."""
    bare = text.strip().removeprefix("<!--").removesuffix("-->").strip().rstrip(";")
    for given in (bare, re.sub(r"[\x00-\x1f]+", " ", bare)):
        try:
            return msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    pending: list[Any] = [value]
    for _ in range(_NODES_MAX):
        if not pending:
            return
        node = pending.pop(0)
        if isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            yield members
            pending += [part for part in members.values() if isinstance(part, dict | list)]
        elif isinstance(node, list):
            pending += cast("list[Any]", node)


def _is_product(node: dict[str, Any]) -> bool:
    types = node.get("@type")
    named = cast("list[Any]", types) if isinstance(types, list) else [types]
    return any(isinstance(name, str) and name.rpartition("/")[2] in ("Product", "ProductGroup") for name in named)


def _offer(found: dict[str, Any]) -> dict[str, Any]:
    """The first offer that has a price; the lowest where there is a range."""
    for node in _nodes(found.get("offers")):
        if node.get("price") or node.get("lowPrice"):
            return node
    return {}


def _price(offer: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser) -> str:
    said = (
        offer.get("price") or offer.get("lowPrice"),
        metas.get("product:price:amount"),
        metas.get("og:price:amount"),
        metas.get("price"),
        _text(tree, "[itemprop=price]"),
        _text(tree, ".price"),
    )
    return _first(40, *said)


def _currency(offer: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser) -> str:
    node = tree.css_first("[itemprop=priceCurrency]")
    said = (
        offer.get("priceCurrency"),
        metas.get("product:price:currency"),
        metas.get("og:price:currency"),
        None if node is None else node.attributes.get("content"),
    )
    return _first(8, *said).upper()


def _features(found: dict[str, Any], tree: LexborHTMLParser) -> list[str]:
    """What it has: properties of its JSON-LD, or the points of a list that is about it."""
    named = [
        f"{_clean(node.get('name'), 80)}: {_clean(node.get('value'), 80)}"
        for node in _nodes(found.get("additionalProperty"))
        if node.get("name") and node.get("value")
    ]
    if not named:
        lists = (
            "[itemprop=description] li, .features li, #features li, .product-features li, .description li, main ul li"
        )
        named = [_clean(node.text(deep=True, separator=" "), FEATURE_MAX) for node in tree.css(lists)[:_TAGS_MAX]]
    return list(dict.fromkeys(filter(None, named)))[:FEATURES_MAX]


def _rating(given: dict[str, Any]) -> float | None:
    stars, best = _number(given.get("ratingValue")), _number(given.get("bestRating")) or STARS
    return None if stars is None or not 0 <= stars <= best else round(stars * STARS / best, 2)


def _images(found: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser, url: str) -> list[str]:
    said = [
        *_addresses(found.get("image")),
        metas.get("og:image:secure_url"),
        metas.get("og:image"),
        metas.get("twitter:image"),
        *(
            node.attributes.get("src")
            for node in tree.css("[itemprop=image][src], main img[src], img[src]")[:_TAGS_MAX]
        ),
    ]
    whole = (_absolute(url, _clean(text, URL_MAX)) for text in said)
    return list(dict.fromkeys(filter(None, whole)))[:IMAGES_MAX]


def _addresses(given: Any) -> list[Any]:
    if isinstance(given, str):
        return [given]
    if isinstance(given, list):
        return [text for part in cast("list[Any]", given)[:IMAGES_MAX] for text in _addresses(part)]
    if isinstance(given, dict):
        members = cast("dict[str, Any]", given)
        return [members.get("url") or members.get("contentUrl")]
    return []


def _absolute(base: str, text: str) -> str:
    try:
        whole = urljoin(base, text) if text else ""
    except ValueError:
        return ""
    return whole if whole.startswith(("http://", "https://")) and len(whole) <= URL_MAX else ""


# Small readers


def _text(tree: LexborHTMLParser, selector: str) -> str:
    node = tree.css_first(selector)
    if node is None:
        return ""
    return node.attributes.get("content") or node.text(deep=True, separator=" ")


def _first(most: int, *said: Any) -> str:
    """The first of these that says anything."""
    return next((text for text in (_clean(each, most) for each in said) if text), "")


def _clean(given: Any, most: int) -> str:
    """One line of text without markup, at most so long."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return ""
    plain = re.sub(r"<[^<>]{0,500}>", " ", unescape(str(given)[: most * 8]))
    text = " ".join(values.printable(plain, most * 8).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _named(given: Any) -> Any:
    return cast("dict[str, Any]", given).get("name") if isinstance(given, dict) else given


def _member(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _number(given: Any) -> float | None:
    found = re.search(r"\d{1,12}(?:[.,]\d{1,6})?", str(given)[:40]) if isinstance(given, str | int | float) else None
    return None if found is None else float(found[0].replace(",", "."))


def _count(given: Any) -> int | None:
    digits = re.sub(r"\D", "", str(given)[:20]) if isinstance(given, str | int) else ""
    return int(digits[:9]) if digits else None


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """The product's own JSON-LD as far as it is short; reviews and the like are left out."""
    kept = ("@type", "name", "description", "sku", "gtin", "gtin13", "mpn", "category", "color", "material", "brand")
    return {name: text for name in kept if (text := _first(TEXT_MAX, _named(found.get(name))))}
