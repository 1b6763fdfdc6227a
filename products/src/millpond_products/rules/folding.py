"""Folding: a text as a person reads it, and the mapping of its positions to those of the original.

Accents, look-alike letters, other widths and styles, and invisible characters do not change what a person reads. So
words are searched in a folded text. Positions are reported in characters of the original.
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

# Letters that look like Latin ones, after case folding. The words of rules go through the same table, so a Russian or
# Greek word is still found, and also when it is written with Latin look-alikes.
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

# Marks on letters of alphabets that can be read without them. The marks of Indic scripts, Thai and Japanese are letters
# of their own and stay.
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
# Invisible characters. Unicode asks to ignore them if they are not supported, and reserves code points for more. So
# these are ranges, not only the characters that are assigned today.
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
"""The invisible characters of ASCII, and rare spaces: a text with one of them has to be cleaned."""
# The first of the letters in black discs, boxes and flags, which Unicode does not classify as letters.
_BOXED: Final = (0x1F150, 0x1F170, 0x1F1E6)
_ALPHABET_SIZE: Final = 26
_ASCII_MAX: Final = 0x7F

DENSE: Final = re.compile(
    r"[\u0900-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no spaces between words, or whose words contain marks that are not letters."""
LEET: Final = str.maketrans("0123456789@$!|+l", "oizeasgtbgasiiti")
"""The letter for which a digit or sign is read; ``l`` and ``i`` become the same, because ``1`` may be either."""
# These are read as letters only before another letter; otherwise they end a sentence.
_ENDING: Final = re.compile(r"[!|+](?![^\W_]|[@$!|+])")


class _Table(dict[int, str]):
    """What each character becomes, computed when it is first needed."""

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
    """The character in its plain width and style; empty if it is invisible."""
    if _is_unseen(letter):
        return ""
    if ord(letter) <= _ASCII_MAX:
        return " " if letter in "\v\f" else letter
    if letter.isspace() or letter == "\u2800":  # a cell of Braille without a dot
        return "\n" if letter in "\x85\u2028\u2029" else " "
    return unicodedata.normalize("NFKC", letter).replace("。", ".").replace("․", ".")


def _bared(letter: str) -> str:
    """The cleaned character; empty for a mark on a letter, because no key contains any."""
    return "" if _is_among(letter, _MARKS) else _cleaned(letter)


def _folded(letter: str) -> str:
    """The character as a person reads it: lower case, without marks, Latin if it looks like Latin."""
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
    """All other signs become a full stop: it matters that there is one between letters, not which one."""
    return part if part.isascii() or part.isalnum() or len(part) > 1 or DENSE.match(part) else "."


CLEAN: Final = _Table(_cleaned)
BARE: Final = _Table(_bared)
FOLD: Final = _Table(_folded)


def fold(text: str) -> str:
    return text.lower() if text.isascii() and text.isprintable() else text.translate(FOLD)


def leet(folded: str) -> str:
    """A folded text with its digits and signs as letters. The length stays the same."""
    return _ENDING.sub(" ", folded).translate(LEET)


class View:
    """A form of a text to which rules are applied: its bytes for RE2, and the mapping to positions in the original."""

    def __init__(self, text: str, original: str | None = None, table: dict[int, str] | None = None) -> None:
        self.text = text
        self._original = text if original is None else original
        self._table = table
        self._is_ascii = text.isascii()
        self._byte = self._char = 0  # the last position asked for: the next one is usually after it

    @cached_property
    def data(self) -> bytes:
        return self.text.encode("utf-8", "replace")

    @cached_property
    def _ends(self) -> list[int]:
        """For each character of the original, where its replacement ends."""
        become = (self._table or FOLD).__getitem__  # computes missing entries
        return list(accumulate(map(len, map(become, map(ord, self._original)))))

    def char(self, byte: int) -> int:
        """The index of the character that begins at this byte."""
        if self._is_ascii:
            return byte
        if byte < self._byte:
            self._byte = self._char = 0
        self._char += len(self.data[self._byte : byte].decode("utf-8", "replace"))
        self._byte = byte
        return self._char

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where these characters are in the original, together with invisible characters that follow them."""
        if self._table is None:
            return start, end
        ends = self._ends
        first = bisect_right(ends, start)
        if end <= start:
            return first, first
        return first, max(bisect_right(ends, end - 1) + 1, min(bisect_right(ends, end), len(self._original)))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where these bytes are in the original, in characters."""
        first = self.char(start)
        return self.origin(first, self.char(end))


class TextViews:
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
        """Whether the text contains only visible characters of ASCII."""
        return self.is_ascii and len(self.plain.data.translate(None, _CONTROLS)) == len(self.text)

    @cached_property
    def clean(self) -> View:
        """The text without invisible characters, in one width and style. Case is kept."""
        return self.plain if self._is_clean else View(self.text.translate(CLEAN), self.text, CLEAN)

    @cached_property
    def bare(self) -> View:
        """The clean text without marks on its letters."""
        return self.clean if self.is_ascii else View(self.text.translate(BARE), self.text, BARE)

    @cached_property
    def folded(self) -> View:
        """The text as a person reads it."""
        return View(self.text.lower()) if self._is_clean else View(self.text.translate(FOLD), self.text, FOLD)
