"""Scraping: fetches the page of a product, through the guard of all calls to the outside, and reads it."""

from __future__ import annotations

import asyncio
import re
import zlib
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import msgspec

from penstock.blueprints.studio import markup
from penstock.errors import OutboundFailedError, OutboundRefusedError, PermanentError, TransientError
from penstock.retry import read_retry_after

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.kinds import Handler
    from penstock.outbound.outbound import Answer, Outbound

SIZE_MAX: Final = 2 * 1024 * 1024
"""Bytes of a page that are read; what comes after them is not looked at."""
REDIRECTS_MAX: Final = 5
SECONDS_MAX: Final = 20.0
_ACCEPT: Final = {"accept": "text/html, application/xhtml+xml", "accept-language": "en, *;q=0.5"}
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_LATER: Final = frozenset({408, 425, 429})
_OK: Final = range(200, 300)
_OURS: Final = 500
_PAGES: Final = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_COMPRESSED: Final = ("gzip", "x-gzip", "deflate")
_ANY_WINDOW: Final = 47  # zlib finds out by itself whether it is gzip or deflate
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_HEAD: Final = 4_096
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_LONGEST: Final = timedelta(hours=1)
"""More than that nobody is left alone, whatever it asks for."""


def handler(engine: Engine) -> Handler:
    async def scrape(job: Any, given: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG001 - as all handlers
        html, url = await fetch(engine.outbound, given["url"])
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


async def fetch(outbound: Outbound, url: str) -> tuple[str, str]:
    """The text of a page, and the URL at which it was found in the end. Each redirect is a new URL to be guarded."""
    for _ in range(REDIRECTS_MAX + 1):
        try:
            answer = await outbound.send("GET", url, headers=_ACCEPT, seconds=SECONDS_MAX, size_max=SIZE_MAX)
        except OutboundRefusedError as error:
            raise PermanentError(f"The page may not be fetched: {error.message}", url=url) from error
        except OutboundFailedError as error:
            raise TransientError(f"The page could not be fetched: {error.message}", url=url) from error
        place = answer.headers.get("location", "")
        if answer.status not in _MOVED or not place:
            return _text(answer, url), url
        url = _next(url, place)
    raise PermanentError(f"The page was redirected more than {REDIRECTS_MAX} times.", url=url)


def _next(url: str, place: str) -> str:
    try:
        return urljoin(url, place)
    except ValueError as error:
        raise PermanentError("The page is redirected to something that is no URL.", url=url) from error


def _text(answer: Answer, url: str) -> str:
    _check_status(answer, url)
    media, _, parameters = answer.headers.get("content-type", "").lower().partition(";")
    if media.strip() and media.strip() not in _PAGES:
        raise PermanentError(f"The URL is no HTML page, but {media.strip()[:80]}.", url=url)
    body = _plain(answer, url)
    if not body.strip():
        if answer.is_cut:
            raise TransientError("The page broke off before anything of it came.", url=url)
        raise PermanentError("The page is empty.", url=url)
    if not media.strip() and b"<" not in body[:_HEAD]:
        raise PermanentError("The URL is no HTML page.", url=url)
    return decoded(body, parameters)


def _check_status(answer: Answer, url: str) -> None:
    if answer.status in _OK:
        return
    told = f"The page answered {answer.status}."
    if answer.status in _LATER or answer.status >= _OURS:
        raise TransientError(told, retry_after=_pause(answer.headers.get("retry-after", "")), url=url)
    raise PermanentError(told, url=url)


def _pause(given: str) -> timedelta | None:
    asked = read_retry_after(given)
    return None if asked is None else min(asked, _LONGEST)


def _plain(answer: Answer, url: str) -> bytes:
    """Nothing compressed was asked for; some send it all the same."""
    coding = answer.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return answer.body
    if coding not in _COMPRESSED:
        raise PermanentError(f"The page is compressed in a way that cannot be read: {coding[:40]}.", url=url)
    try:
        return zlib.decompressobj(_ANY_WINDOW).decompress(answer.body, SIZE_MAX)
    except zlib.error as error:
        raise TransientError("The page is compressed, and broken.", url=url) from error


def decoded(body: bytes, parameters: str = "") -> str:
    """By its mark, by what the header says, by what it says itself, as UTF-8, and at last as what old pages are."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    said = re.search(r"""charset\s*=\s*["']?([a-z0-9_:.-]{1,40})""", parameters)
    meta = _CHARSET.search(body[:_HEAD])
    for name in (said and said[1], meta and meta[1].decode()):
        try:
            if name:
                return body.decode("cp1252" if name.lower() in ("iso-8859-1", "latin1") else name, "replace")
        except (LookupError, ValueError):  # it names none, or one that is not for text
            continue
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(body) - 4  # in the middle of a letter
        return body.decode("utf-8" if is_cut else "cp1252", "replace")
