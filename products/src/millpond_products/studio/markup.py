"""Extracts the product from a shop's page.

A page describes it up to three times: as JSON-LD for search engines, as OpenGraph for social networks, and in plain
HTML for people. Each fact is taken from the first of these that has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from millpond_products.pages import reading
from millpond_products.studio.products import (
    FEATURE_MAX,
    FEATURES_MAX,
    IMAGES_MAX,
    NAME_MAX,
    STARS,
    TEXT_MAX,
    URL_MAX,
    PageFacts,
)

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser


def read(html: str, url: str) -> PageFacts:
    """Read a page; broken parts of it are skipped."""
    tree = reading.parse(html)
    metas = reading.metas(tree)
    found = _json_ld(tree)
    offer = _offer(found)
    rating = reading.member(found, "aggregateRating")
    return PageFacts(
        url=url,
        title=reading.first(
            NAME_MAX,
            found.get("name"),
            metas.get("og:title"),
            reading.text_of(tree, "h1"),
            reading.text_of(tree, "title"),
        ),
        description=reading.first(
            TEXT_MAX,
            found.get("description"),
            metas.get("og:description"),
            metas.get("description"),
            reading.text_of(tree, "[itemprop=description]"),
            reading.text_of(tree, "main p"),
        ),
        brand=reading.first(
            NAME_MAX, reading.named(found.get("brand")), metas.get("product:brand"), metas.get("og:brand")
        ),
        price=_price(offer, metas, tree),
        currency=_currency(offer, metas, tree),
        features=_features(found, tree),
        rating=_rating(rating),
        reviews=_count(rating.get("reviewCount") or rating.get("ratingCount")),
        images=_images(found, metas, tree, url),
        json_ld=_plain(found) or None,
        open_graph={name: text for name, text in metas.items() if name.startswith(("og:", "product:"))},
    )


# The parts of a page


def _json_ld(tree: LexborHTMLParser) -> dict[str, Any]:
    """The first product in the JSON-LD of the page."""
    return next(filter(_is_product, reading.json_ld(tree)), dict[str, Any]())


def _is_product(node: dict[str, Any]) -> bool:
    types = node.get("@type")
    named = cast("list[Any]", types) if isinstance(types, list) else [types]
    return any(isinstance(name, str) and name.rpartition("/")[2] in ("Product", "ProductGroup") for name in named)


def _offer(found: dict[str, Any]) -> dict[str, Any]:
    """The first offer that has a price, or a range of prices."""
    for node in reading.nodes(found.get("offers")):
        if node.get("price") or node.get("lowPrice"):
            return node
    return {}


def _price(offer: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser) -> str:
    candidates = (
        offer.get("price") or offer.get("lowPrice"),
        metas.get("product:price:amount"),
        metas.get("og:price:amount"),
        metas.get("price"),
        reading.text_of(tree, "[itemprop=price]"),
        reading.text_of(tree, ".price"),
    )
    return reading.first(40, *candidates)


def _currency(offer: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser) -> str:
    node = tree.css_first("[itemprop=priceCurrency]")
    candidates = (
        offer.get("priceCurrency"),
        metas.get("product:price:currency"),
        metas.get("og:price:currency"),
        None if node is None else node.attributes.get("content"),
    )
    return reading.first(8, *candidates).upper()


def _features(found: dict[str, Any], tree: LexborHTMLParser) -> list[str]:
    """The features of the product: properties of its JSON-LD, or the items of a list that describes it."""
    named = [
        f"{reading.clean(node.get('name'), 80)}: {reading.clean(node.get('value'), 80)}"
        for node in reading.nodes(found.get("additionalProperty"))
        if node.get("name") and node.get("value")
    ]
    if not named:
        lists = (
            "[itemprop=description] li, .features li, #features li, .product-features li, .description li, main ul li"
        )
        named = [
            reading.clean(node.text(deep=True, separator=" "), FEATURE_MAX)
            for node in tree.css(lists)[: reading.TAGS_MAX]
        ]
    return list(dict.fromkeys(filter(None, named)))[:FEATURES_MAX]


def _rating(given: dict[str, Any]) -> float | None:
    stars, best = _number(given.get("ratingValue")), _number(given.get("bestRating")) or STARS
    return None if stars is None or not 0 <= stars <= best else round(stars * STARS / best, 2)


def _images(found: dict[str, Any], metas: dict[str, str], tree: LexborHTMLParser, url: str) -> list[str]:
    candidates = [
        *_addresses(found.get("image")),
        metas.get("og:image:secure_url"),
        metas.get("og:image"),
        metas.get("twitter:image"),
        *(
            node.attributes.get("src")
            for node in tree.css("[itemprop=image][src], main img[src], img[src]")[: reading.TAGS_MAX]
        ),
    ]
    whole = (reading.absolute(url, reading.clean(text, URL_MAX)) for text in candidates)
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


# Small readers


def _number(given: Any) -> float | None:
    found = re.search(r"\d{1,12}(?:[.,]\d{1,6})?", str(given)[:40]) if isinstance(given, str | int | float) else None
    return None if found is None else float(found[0].replace(",", "."))


def _count(given: Any) -> int | None:
    digits = re.sub(r"\D", "", str(given)[:20]) if isinstance(given, str | int) else ""
    return int(digits[:9]) if digits else None


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """The short parts of the product's JSON-LD, without reviews and the like."""
    kept = ("@type", "name", "description", "sku", "gtin", "gtin13", "mpn", "category", "color", "material", "brand")
    return {name: text for name in kept if (text := reading.first(TEXT_MAX, reading.named(found.get(name))))}
