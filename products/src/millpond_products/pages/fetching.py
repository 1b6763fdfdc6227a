"""Fetches a page: follows redirects through the outbound guard, decompresses, and decodes the charset."""

from __future__ import annotations

import asyncio
import codecs
import re
import zlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from millpond.errors import OutboundFailedError, OutboundRefusedError, PermanentError, TransientError
from millpond.retry import read_pause

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millpond.product import Outbound, OutboundResponse

SIZE_MAX: Final = 2 * 1024 * 1024
"""Bytes of a page that are read; the rest is ignored."""
REDIRECTS_MAX: Final = 5
SECONDS_MAX: Final = 20.0
_ACCEPT: Final = {"accept": "text/html, application/xhtml+xml", "accept-language": "en, *;q=0.5"}
_MOVED: Final = frozenset({301, 302, 303, 307, 308})
_RETRYABLE: Final = frozenset({408, 425, 429})
_OK: Final = range(200, 300)
_SERVER_ERROR: Final = 500
_PAGES: Final = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_COMPRESSED: Final = ("gzip", "x-gzip", "deflate")
_ANY_WINDOW: Final = 47  # zlib detects whether it is gzip or deflate
_CHARSET: Final = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_HEAD: Final = 4_096
_PIECE: Final = 64 * 1024
_CODECS: Final[Mapping[str, str]] = {
    label: codec
    for codec, labels in {
        "utf-8": "utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
        "utf-16-le": "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2 csunicode unicodefeff",
        "utf-16-be": "utf-16be unicodefffe",
        "cp1252": "windows-1252 cp1252 x-cp1252 iso-8859-1 iso8859-1 iso88591 iso_8859-1 latin1 l1 ascii us-ascii"
        " ansi_x3.4-1968 cp819 ibm819",
        "cp1250": "windows-1250 cp1250 x-cp1250",
        "cp1251": "windows-1251 cp1251 x-cp1251",
        "cp1253": "windows-1253 cp1253 x-cp1253",
        "cp1254": "windows-1254 cp1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 latin5 l5",
        "cp1255": "windows-1255 cp1255 x-cp1255",
        "cp1256": "windows-1256 cp1256 x-cp1256",
        "cp1257": "windows-1257 cp1257 x-cp1257",
        "cp1258": "windows-1258 cp1258 x-cp1258",
        "cp874": "windows-874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
        "cp866": "ibm866 cp866 866 csibm866",
        "iso8859-2": "iso-8859-2 iso8859-2 iso88592 iso_8859-2 latin2 l2",
        "iso8859-3": "iso-8859-3 iso8859-3 iso88593 iso_8859-3 latin3 l3",
        "iso8859-4": "iso-8859-4 iso8859-4 iso88594 iso_8859-4 latin4 l4",
        "iso8859-5": "iso-8859-5 iso8859-5 iso88595 iso_8859-5 cyrillic",
        "iso8859-6": "iso-8859-6 iso8859-6 iso88596 iso_8859-6 arabic ecma-114",
        "iso8859-7": "iso-8859-7 iso8859-7 iso88597 iso_8859-7 greek greek8 ecma-118",
        "iso8859-8": "iso-8859-8 iso8859-8 iso88598 iso_8859-8 iso-8859-8-i iso-8859-8-e logical visual hebrew",
        "iso8859-10": "iso-8859-10 iso8859-10 iso885910 latin6 l6",
        "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
        "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
        "iso8859-15": "iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
        "iso8859-16": "iso-8859-16",
        "koi8-r": "koi8-r koi8 koi koi8_r cskoi8r",
        "koi8-u": "koi8-u koi8-ru",
        "mac-roman": "macintosh mac x-mac-roman csmacintosh",
        "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
        "gb18030": "gb18030 gbk x-gbk gb2312 gb_2312 gb_2312-80 chinese csgb2312 iso-ir-58",
        "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
        "euc_jp": "euc-jp x-euc-jp cseucpkdfmtjapanese",
        "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji ms932 windows-31j csshiftjis",
        "iso2022_jp": "iso-2022-jp csiso2022jp",
        "cp949": "euc-kr euckr windows-949 ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 korean cseuckr iso-ir-149",
    }.items()
    for label in labels.split()
}
"""Python's codecs by the web's names of charsets. Python has many more codecs, but some of them take hours."""
_MARKS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


async def fetch(outbound: Outbound, url: str) -> tuple[str, str]:
    """The text of a page, and its URL after redirects. The outbound guard checks each redirect as a new URL.

    The ``reason`` of an error is a status, why the request failed, or what is wrong with the page.
    """
    for _ in range(REDIRECTS_MAX + 1):
        try:
            answer = await outbound.send("GET", url, headers=_ACCEPT, seconds=SECONDS_MAX, size_max=SIZE_MAX)
        except OutboundRefusedError as error:
            raise PermanentError(f"The page cannot be fetched: {error.message}", url=url, reason="refused") from error
        except OutboundFailedError as error:
            raise TransientError(
                f"The page could not be fetched: {error.message}", url=url, reason=error.reason
            ) from error
        place = answer.headers.get("location", "")
        if answer.status not in _MOVED or not place:
            return await asyncio.to_thread(_text, answer, url), url
        url = _next(url, place)
    raise PermanentError(f"The page was redirected more than {REDIRECTS_MAX} times.", url=url, reason="redirect")


def _next(url: str, place: str) -> str:
    try:
        return urljoin(url, place)
    except ValueError as error:
        raise PermanentError("The page redirects to an invalid URL.", url=url, reason="redirect") from error


def _text(answer: OutboundResponse, url: str) -> str:
    _check_status(answer, url)
    media, _, parameters = answer.headers.get("content-type", "").lower().partition(";")
    if media.strip() and media.strip() not in _PAGES:
        raise PermanentError(f"The URL is not an HTML page but {media.strip()[:80]}.", url=url, reason="type")
    body = _plain(answer, url)
    if not body.strip():
        if answer.is_cut:
            raise TransientError("The connection closed before any content was received.", url=url, reason="cut")
        raise PermanentError("The page is empty.", url=url, reason="empty")
    if not media.strip() and b"<" not in body[:_HEAD]:
        raise PermanentError("The URL is not an HTML page.", url=url, reason="type")
    return decoded(body, parameters)


def _check_status(answer: OutboundResponse, url: str) -> None:
    if answer.status in _OK:
        return
    message, reason = f"The page answered {answer.status}.", str(answer.status)
    if answer.status in _RETRYABLE or answer.status >= _SERVER_ERROR:
        after = read_pause(answer.headers.get("retry-after", ""))
        raise TransientError(message, retry_after=after, url=url, reason=reason)
    raise PermanentError(message, url=url, reason=reason)


def _plain(answer: OutboundResponse, url: str) -> bytes:
    """The decompressed body: some servers compress although the request does not ask for it."""
    coding = answer.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity"):
        return answer.body
    if coding not in _COMPRESSED:
        raise PermanentError(f"The page has an unsupported content encoding: {coding[:40]}.", url=url, reason="coding")
    try:
        return zlib.decompressobj(_ANY_WINDOW).decompress(answer.body, SIZE_MAX)
    except zlib.error as error:
        raise TransientError("The compressed content of the page is corrupted.", url=url, reason="coding") from error


def decoded(body: bytes, parameters: str = "") -> str:
    """Decode by the byte order mark, the HTTP header, the meta tag, as UTF-8, or as Windows-1252, like old pages."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return _read(body, name)
    charset = re.search(r"""charset\s*=\s*["']?([a-z0-9_:.-]{1,40})""", parameters.lower())
    if codec := _CODECS.get(charset[1] if charset else ""):
        return _read(body, codec)
    meta = _CHARSET.search(body[:_HEAD])
    codec = _CODECS.get(meta[1].decode().lower() if meta else "")
    if codec and not codec.startswith("utf-16"):  # the tag would not be readable in UTF-16
        return _read(body, codec)
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        is_cut = error.start >= len(body) - 4  # inside the last character
        return _read(body, "utf-8" if is_cut else "cp1252")


def _read(body: bytes, codec: str) -> str:
    """Decode in pieces: a codec blocks all other threads, and is slow if most of the bytes are invalid."""
    decoder = codecs.getincrementaldecoder(codec)("replace")
    pieces = (body[start : start + _PIECE] for start in range(0, len(body), _PIECE))
    return "".join(decoder.decode(piece) for piece in pieces) + decoder.decode(b"", final=True)
