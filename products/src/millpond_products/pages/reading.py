"""Small readers of a page: the contents of its tags, as single lines of limited length."""

from __future__ import annotations

import re
from collections import deque
from html import unescape
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urljoin

import msgspec
from selectolax.lexbor import LexborHTMLParser

from millpond import values

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME_MAX: Final = 200
TEXT_MAX: Final = 5_000
URL_MAX: Final = 2_048
TAGS_MAX: Final = 100
_SCRIPTS_MAX: Final = 50
_NODES_MAX: Final = 2_000
_STEPS_MAX: Final = 100_000_000
_COPIES_MAX: Final = 500_000
_ATTRIBUTES_MAX: Final = 4_096
_ATTRIBUTE: Final = re.compile(
    r"""[ \t\n\f\r/]*[^ \t\n\f\r/>][^ \t\n\f\r/>=]*"""
    r"""(?:[ \t\n\f\r]*=[ \t\n\f\r]*(?:"[^"]*"|'[^']*'|(?!["'])[^ \t\n\f\r>]*))?"""
)
"""One attribute of a tag, exactly as in the standard: a quoted ``>`` does not end the tag."""
_TAG: Final = re.compile(r"<(/?)([A-Za-z][^\s/>]{0,30})")
# fmt: off
_FLAT: Final = frozenset({
    "area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta", "option",
    "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
})
"""Tags without an end tag, or with an optional one: none of them is nested in another of the same name."""
_STYLES: Final = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})
# fmt: on


def parse(html: str) -> LexborHTMLParser:
    """The tree of a page. A page that is built to take hours is cut so that parsing takes about a second."""
    return LexborHTMLParser(tame(html))


def tame(html: str) -> str:
    """Cut a page where parsing would begin to cost too much.

    For each tag, the parser searches the open ones, and it reopens each open style tag after the end of a paragraph. So
    tags that are never closed take quadratic time and memory, and the attributes of one tag take quadratic time.
    """
    opened: list[str] = []
    steps = copies = styles = end = 0
    for tag in _TAG.finditer(html):
        is_end, name = tag[1], tag[2].lower()
        if name not in _FLAT and not is_end:
            opened.append(name)
            styles += name in _STYLES
        elif opened and opened[-1] == name:
            opened.pop()
            styles -= name in _STYLES
        steps += len(opened)
        copies += styles
        is_crowded = False
        if end < tag.end():  # a tag inside another one was counted with that one
            end = html.find(">", tag.end()) % (len(html) + 1)  # without one, the end of the page
            length, is_crowded = _attributes(html, tag.end())
            steps += length
        if steps > _STEPS_MAX or copies > _COPIES_MAX or is_crowded:
            return html[: tag.start()]
    return html


def _attributes(html: str, start: int) -> tuple[int, bool]:
    """The length of a tag's attributes, and whether there are too many of them."""
    end = start
    for _ in range(_ATTRIBUTES_MAX):
        found = _ATTRIBUTE.match(html, end)
        if found is None:
            return end - start, False
        end = found.end()
    return end - start, True


def metas(tree: LexborHTMLParser) -> dict[str, str]:
    """The contents of the meta tags by lower-case name; if a name occurs twice, the first one counts."""
    found: dict[str, str] = {}
    for node in tree.css("meta[content]")[:TAGS_MAX]:
        given = node.attributes
        name = (given.get("property") or given.get("name") or given.get("itemprop") or "").strip().lower()
        text = clean(given.get("content"), TEXT_MAX)
        if name and text:
            found.setdefault(name[:NAME_MAX], text)
    return found


def json_ld(tree: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """Every object in the JSON-LD of the page."""
    for script in tree.css("script[type]")[:_SCRIPTS_MAX]:
        if (script.attributes.get("type") or "").strip().lower() == "application/ld+json":
            yield from nodes(_decoded(script.text(deep=True)))


def _decoded(text: str) -> Any:
    """The decoded JSON-LD; some pages put a comment around it, or line breaks into its strings."""
    bare = text.strip().removeprefix("<!--").removesuffix("-->").strip().rstrip(";")
    for given in (bare, re.sub(r"[\x00-\x1f]+", " ", bare)):
        try:
            return msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a JSON value, from the outside in, up to a limit."""
    pending: deque[Any] = deque([value])
    for _ in range(_NODES_MAX):
        if not pending:
            return
        node = pending.popleft()
        if isinstance(node, dict):
            members = cast("dict[str, Any]", node)
            yield members
            pending += [part for part in members.values() if isinstance(part, dict | list)]
        elif isinstance(node, list):
            pending += cast("list[Any]", node)


def absolute(base: str, text: str) -> str:
    """The absolute URL; empty if it is not an http or https URL, or too long."""
    try:
        whole = urljoin(base, text) if text else ""
    except ValueError:
        return ""
    return whole if whole.startswith(("http://", "https://")) and len(whole) <= URL_MAX else ""


def text_of(tree: LexborHTMLParser, selector: str) -> str:
    node = tree.css_first(selector)
    if node is None:
        return ""
    return node.attributes.get("content") or node.text(deep=True, separator=" ")


def first(limit: int, *candidates: Any) -> str:
    """The first of these that is not empty once cleaned."""
    return next((text for text in (clean(each, limit) for each in candidates) if text), "")


def clean(given: Any, limit: int) -> str:
    """One line of text without markup, cut to ``limit`` characters."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return ""
    plain = re.sub(r"<[^<>]{0,500}>", " ", unescape(str(given)[: limit * 8]))
    text = " ".join(values.printable(plain, limit * 8).split())
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def named(given: Any) -> Any:
    """The name of an object, where the name itself may be given instead."""
    return cast("dict[str, Any]", given).get("name") if isinstance(given, dict) else given


def member(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
