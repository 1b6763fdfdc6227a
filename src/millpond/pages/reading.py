"""Small readers of a page: what its tags say, as text of one line that is not endless."""

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
"""One more of a tag, to the letter of the standard: what stands in quotes does not end the tag."""
_TAG: Final = re.compile(r"<(/?)([A-Za-z][^\s/>]{0,30})")
# fmt: off
_FLAT: Final = frozenset({
    "area", "base", "br", "col", "dd", "dt", "embed", "hr", "img", "input", "li", "link", "meta", "option",
    "p", "param", "rp", "rt", "source", "tbody", "td", "tfoot", "th", "thead", "tr", "track", "wbr",
})
"""Tags that have no end, or need none: of those, none stands in another of its kind."""
_STYLES: Final = frozenset({
    "a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u",
})
# fmt: on


def parse(html: str) -> LexborHTMLParser:
    """The tree of a page. One that is made to be read for hours is read as far as that takes about a second."""
    return LexborHTMLParser(tame(html))


def tame(html: str) -> str:
    """A page up to where it begins to cost too much.

    For each tag a parser looks through those that are open; and each style that is open when a paragraph ends is made
    anew in the next. So tags that are never closed cost their square, in time and in memory; and so do the attributes
    of one tag, in time.
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
        if end < tag.end():  # what looks like a tag inside of one was counted with that
            end = html.find(">", tag.end()) % (len(html) + 1)  # where there is none, the last letter
            length, is_crowded = _attributes(html, tag.end())
            steps += length
        if steps > _STEPS_MAX or copies > _COPIES_MAX or is_crowded:
            return html[: tag.start()]
    return html


def _attributes(html: str, start: int) -> tuple[int, bool]:
    """How long those of a tag are, and whether they are too many."""
    end = start
    for _ in range(_ATTRIBUTES_MAX):
        found = _ATTRIBUTE.match(html, end)
        if found is None:
            return end - start, False
        end = found.end()
    return end - start, True


def metas(tree: LexborHTMLParser) -> dict[str, str]:
    """What its meta tags say, by their names in small letters; of a name that comes twice, the first."""
    found: dict[str, str] = {}
    for node in tree.css("meta[content]")[:TAGS_MAX]:
        given = node.attributes
        name = (given.get("property") or given.get("name") or given.get("itemprop") or "").strip().lower()
        text = clean(given.get("content"), TEXT_MAX)
        if name and text:
            found.setdefault(name[:NAME_MAX], text)
    return found


def json_ld(tree: LexborHTMLParser) -> Iterator[dict[str, Any]]:
    """Every thing in all JSON-LD of the page."""
    for script in tree.css("script[type]")[:_SCRIPTS_MAX]:
        if (script.attributes.get("type") or "").strip().lower() == "application/ld+json":
            yield from nodes(_decoded(script.text(deep=True)))


def _decoded(text: str) -> Any:
    """Some put comments around it, or line breaks into its texts."""
    bare = text.strip().removeprefix("<!--").removesuffix("-->").strip().rstrip(";")
    for given in (bare, re.sub(r"[\x00-\x1f]+", " ", bare)):
        try:
            return msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            continue
    return None


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, from the outside in; those of a value without end are not all seen."""
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
    """A URL whole, or nothing where it is none of the web."""
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


def first(most: int, *said: Any) -> str:
    """The first of these that says anything."""
    return next((text for text in (clean(each, most) for each in said) if text), "")


def clean(given: Any, most: int) -> str:
    """One line of text without markup, at most so long."""
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        return ""
    plain = re.sub(r"<[^<>]{0,500}>", " ", unescape(str(given)[: most * 8]))
    text = " ".join(values.printable(plain, most * 8).split())
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def named(given: Any) -> Any:
    """Where a thing is told instead of its name, the name."""
    return cast("dict[str, Any]", given).get("name") if isinstance(given, dict) else given


def member(given: dict[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
