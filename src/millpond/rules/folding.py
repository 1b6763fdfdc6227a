"""Folding: the text as it reads, whatever it is written with, and the way back to the places of the original.

Accents, look-alike letters, other widths and styles, and what cannot be seen at all: none of it changes what a person
reads. So words are looked for in a folded text. Where something was found is told in characters of the original.
"""

# ruff: noqa: RUF001 - letters that look alike are the point
from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

# Letters that look like Latin ones, after their case was folded. Words of the rules go through the same table, so a
# Russian or Greek word is still found: it is only found in Latin disguise too.
_LOOK_ALIKES: Final = {
    "a": "аαɑᴀᎪꓮ",
    "b": "вβʙƅьᏼᏏꓐ",
    "c": "сϲᴄƈᏟꓚ",
    "d": "ԁᴅđɗᎠꓓ",
    "e": "еεᴇєɛҽᎬꓰ",
    "f": "ꜰƒꓝ",
    "g": "ɡɢցᏀᏻꓖ",
    "h": "нһհʜħᎻᏂꓧ",
    "i": "іιıɪɩӏᎥꓲ",
    "j": "јϳᴊᎫꓙ",
    "k": "кκᴋᏦꓗ",
    "l": "ʟłⅼᏞꓡ",
    "m": "мμᴍᎷꓟ",
    "n": "ηɴոպꓠ",
    "o": "оοօᴏøɵσꓳ",
    "p": "рρᴘᏢꓑ",
    "q": "ԛգ",
    "r": "гʀᴦɾᎡᏒꓣ",
    "s": "ѕꜱʂꞩᏚꓢ",
    "t": "тτᴛŧᎢꓔ",
    "u": "υսᴜʋꓴ",
    "v": "νᴠѵᏙꓦ",
    "w": "ԝωᴡɯᎳꓪ",
    "x": "хχꓫ",
    "y": "уγʏүყᎽꓬ",
    "z": "ζᴢʐᏃꓜ",
    "ae": "æ",
    "oe": "œ",
    "th": "þ",
    ".": "。․",
    "'": "`´‘’‛ʼʹ′",
    '"': "“”„‟″«»",
    "/": "∕⁄",
    ":": "։ː∶",
}
_ALIKE: Final = {mark: letter for letter, marks in _LOOK_ALIKES.items() for mark in marks}

# Marks that stand on letters of alphabets which are read without them. Those of Indic scripts, Thai or Japanese are
# letters of their own and stay.
_MARKS: Final = (
    (0x0300, 0x036F),
    (0x0483, 0x0489),
    (0x0591, 0x05C7),
    (0x0610, 0x061A),
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06ED),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20FF),
    (0xFE20, 0xFE2F),
)
# What takes no room, or shows nothing in it: Unicode asks that it be ignored where it is not known, and keeps places
# free for more of it. So these are ranges, and not those that have a name today.
_UNSEEN: Final = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0xE0000, 0xE0FFF),
)
_CONTROLS: Final = bytes(code for code in (*range(0x20), 0x7F) if chr(code) not in "\t\n\r")
"""Those of ASCII that show nothing, or a gap: a text with one of them is not yet as it reads."""
# Letters in boxes, black discs and flags, which Unicode does not take for letters.
_BOXED: Final = (0x1F150, 0x1F170, 0x1F1E6)
_ALPHABET_SIZE: Final = 26
_ASCII_MAX: Final = 0x7F

DENSE: Final = re.compile(
    r"[\u0900-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no spaces between words, or whose words hold marks that are no letters."""
LEET: Final = str.maketrans("0123456789@$!|+l", "oizeasgtbgasiiti")
"""As which letter a digit or sign is read; ``l`` and ``i`` become one, for ``1`` may be either."""
# These are letters only before another letter: else they end a sentence.
_ENDING: Final = re.compile(r"[!|+](?![^\W_]|[@$!|+])")


class _Table(dict[int, str]):
    """What each character becomes. It is worked out when it is first met."""

    def __init__(self, become: Callable[[str], str]) -> None:
        super().__init__()
        self._become = become

    def __missing__(self, code: int) -> str:
        made = self[code] = self._become(chr(code))
        return made


def _is_among(letter: str, ranges: tuple[tuple[int, int], ...]) -> bool:
    code = ord(letter)
    return any(first <= code <= last for first, last in ranges)


def _is_unseen(letter: str) -> bool:
    if letter in "\t\n\v\f\r\x85":  # a gap
        return False
    return unicodedata.category(letter) in ("Cc", "Cf") or _is_among(letter, _UNSEEN)


def _cleaned(letter: str) -> str:
    """The character in its plain width and style; nothing, where nothing can be seen of it."""
    if _is_unseen(letter):
        return ""
    if ord(letter) <= _ASCII_MAX:
        return " " if letter in "\v\f" else letter
    if letter.isspace() or letter == "\u2800":  # a cell of Braille without a dot
        return "\n" if letter in "\x85\u2028\u2029" else " "
    return unicodedata.normalize("NFKC", letter).replace("。", ".").replace("․", ".")


def _bared(letter: str) -> str:
    """As it is cleaned, but for marks on letters: no key has any."""
    return "" if _is_among(letter, _MARKS) else _cleaned(letter)


def _folded(letter: str) -> str:
    """The character as it is read: a small letter without marks, Latin where it looks so."""
    if ord(letter) <= _ASCII_MAX:
        return _cleaned(letter).lower()
    boxed = next((ord(letter) - first for first in _BOXED if 0 <= ord(letter) - first < _ALPHABET_SIZE), None)
    if boxed is not None:
        return chr(ord("a") + boxed)
    digit = unicodedata.decimal(letter, None)
    if digit is not None:
        return str(digit)
    category = unicodedata.category(letter)
    if category == "Pd" or letter == "−":
        return "-"
    parts = unicodedata.normalize("NFKD", _cleaned(letter))
    parts = unicodedata.normalize("NFKD", parts.casefold())
    return "".join(map(_plain, (_ALIKE.get(part, part) for part in parts if not _is_among(part, _MARKS))))


def _plain(part: str) -> str:
    """Signs of every kind are a full stop: what stands between letters matters, not what it looks like."""
    return part if part.isascii() or part.isalnum() or len(part) > 1 or DENSE.match(part) else "."


CLEAN: Final = _Table(_cleaned)
BARE: Final = _Table(_bared)
FOLD: Final = _Table(_folded)


def fold(text: str) -> str:
    return text.lower() if text.isascii() and text.isprintable() else text.translate(FOLD)


def leet(folded: str) -> str:
    """A folded text with its digits and signs as letters; each character stays one."""
    return _ENDING.sub(" ", folded).translate(LEET)


class View:
    """A text as rules see it: bytes for RE2, and the way from its places to those of the original."""

    def __init__(self, text: str, original: str | None = None, table: dict[int, str] | None = None) -> None:
        self.text = text
        self._original = text if original is None else original
        self._table = table
        self._is_ascii = text.isascii()
        self._byte = self._char = 0  # the place that was asked for last: the next one is mostly behind it

    @cached_property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    @cached_property
    def _ends(self) -> list[int]:
        """For each character of the original, where what became of it ends."""
        become = (self._table or FOLD).__getitem__  # which works out what it lacks
        return list(accumulate(map(len, map(become, map(ord, self._original)))))

    def char(self, byte: int) -> int:
        """Which character begins at this byte."""
        if self._is_ascii:
            return byte
        if byte < self._byte:
            self._byte = self._char = 0
        self._char += len(self.data[self._byte : byte].decode("utf-8", "replace"))
        self._byte = byte
        return self._char

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where these characters come from. What follows them unseen goes with them."""
        if self._table is None:
            return start, end
        ends = self._ends
        first = bisect_right(ends, start)
        if end <= start:
            return first, first
        return first, max(bisect_right(ends, end - 1) + 1, min(bisect_right(ends, end), len(self._original)))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where these bytes come from, in characters of the original."""
        first = self.char(start)
        return self.origin(first, self.char(end))


class Views:
    """All views of one text, each made when it is first needed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.is_ascii = text.isascii()

    @cached_property
    def plain(self) -> View:
        """The text as it is."""
        return View(self.text)

    @cached_property
    def _is_clean(self) -> bool:
        """Whether there is nothing in it but signs of ASCII that can be seen."""
        return self.is_ascii and len(self.plain.data.translate(None, _CONTROLS)) == len(self.text)

    @cached_property
    def clean(self) -> View:
        """Without what cannot be seen, and in one width and style. Case matters."""
        return self.plain if self._is_clean else View(self.text.translate(CLEAN), self.text, CLEAN)

    @cached_property
    def bare(self) -> View:
        """The clean text without marks on its letters."""
        return self.clean if self.is_ascii else View(self.text.translate(BARE), self.text, BARE)

    @cached_property
    def folded(self) -> View:
        """As it reads."""
        return View(self.text.lower()) if self._is_clean else View(self.text.translate(FOLD), self.text, FOLD)
