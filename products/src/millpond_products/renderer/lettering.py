"""Text in pictures, with the scalable font that comes with Pillow.

That font has a single weight and only the letters of English. Heavier weights are drawn with a stroke; accents, umlauts
and currency signs are composed of its characters. For other scripts, a system font is used if there is one. Characters
that no font has are left out.
"""

# ruff: noqa: RUF001 - the similar characters are intended
# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from PIL import Image, ImageDraw, ImageFont

if TYPE_CHECKING:
    from collections.abc import Iterable

    from PIL.ImageFont import FreeTypeFont

    from millpond_products.renderer.palettes import Colour

LEADING: Final = 1.12
_OWN: Final = frozenset(
    " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~©«°±´·»‘’“”…‹›⁄™"
)
_SPELT: Final = str.maketrans(
    {
        "–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-", "•": "·", "×": "x", "®": "", "ß": "ss", "æ": "ae", "Æ": "Ae",
        "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ı": "i", "þ": "th", "ð": "d",
        "\u00a0": " ", "\u202f": " ", "‚": ",", "„": "“", "′": "'", "″": '"', "½": "1/2", "¼": "1/4", "¾": "3/4",
        "\t": " ", "\n": " ", "\r": " ", "¿": "", "¡": "",
    }
)  # fmt: skip
_CURRENCIES: Final = {"€": ("C", "="), "£": ("L", "-"), "¥": ("Y", "=")}
_MARKS: Final = {
    "\u0300": "`",
    "\u0301": "´",
    "\u0302": "^",
    "\u0303": "~",
    "\u0308": "..",
    "\u030a": "°",
    "\u0327": ",",
}
_ELSEWHERE: Final = (
    "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/System/Library/Fonts/Supplemental/Arial Unicode.ttf",
)

Align = Literal["left", "centre"]


@dataclass(frozen=True, slots=True)
class Face:
    """A font in a size and a weight."""

    size: int
    weight: float = 0.0
    """The stroke, as a share of the size."""
    tracking: float = 0.0
    """Additional space between letters, as a share of the size."""
    path: str | None = None

    @property
    def font(self) -> FreeTypeFont:
        return _font(self.path, self.size)

    @property
    def stroke(self) -> float:
        return self.size * self.weight

    def width(self, text: str) -> float:
        plain = "".join(base for base, _ in _clusters(text, self.path))
        return self.font.getlength(plain) + self.size * self.tracking * max(len(plain) - 1, 0) + self.stroke * 2


@dataclass(frozen=True, slots=True)
class Block:
    """Text in lines, at a size that fits."""

    lines: tuple[str, ...]
    face: Face
    leading: float = LEADING

    @property
    def width(self) -> int:
        return round(max((self.face.width(line) for line in self.lines), default=0))

    @property
    def height(self) -> int:
        if not self.lines:
            return 0
        return round(self.face.size * (self.leading * (len(self.lines) - 1) + 1.0))


@lru_cache(maxsize=256)
def _font(path: str | None, size: int) -> FreeTypeFont:
    font = ImageFont.load_default(size) if path is None else ImageFont.truetype(path, size)
    assert isinstance(font, ImageFont.FreeTypeFont)  # noqa: S101 - Pillow was built with FreeType
    return font


# Available characters


def face_for(texts: Iterable[str]) -> str | None:
    """The font for these texts: None for Pillow's own, unless it lacks letters that another font has."""
    letters = {letter for text in texts for letter in clean(text) if not _has(letter) and letter.isalnum()}
    if not letters:
        return None
    found = [(sum(_is_in(path, letter) for letter in letters), path) for path in _ELSEWHERE if Path(path).exists()]
    best = max(found, default=(0, None), key=lambda pair: pair[0])
    return best[1] if best[0] else None


def clean(text: str) -> str:
    """The text in one line, with unavailable characters replaced where possible."""
    spelt = unicodedata.normalize("NFC", text).translate(_SPELT)
    return " ".join("".join(letter for letter in spelt if unicodedata.category(letter)[0] != "C").split())


def writable(text: str, path: str | None) -> str:
    """The text without the characters that the font lacks."""
    cleaned = clean(text)
    return " ".join("".join(letter for letter in cleaned if _has(letter) or _is_in(path, letter)).split())


def _has(letter: str) -> bool:
    return letter in _OWN or letter in _CURRENCIES or _parts(letter) is not None


def _parts(letter: str) -> tuple[str, str] | None:
    """A character as a letter of the font and a mark, if it can be composed so."""
    parts = unicodedata.normalize("NFD", letter)
    if len(parts) < 2 or parts[0] not in _OWN:  # noqa: PLR2004 - a letter and a mark
        return None
    return parts[0], "" if parts[0] in "ij" else _MARKS.get(parts[1], "")


@lru_cache(maxsize=4096)
def _is_in(path: str | None, letter: str) -> bool:
    if path is None:
        return False
    return letter.isspace() or _drawn(path, letter) != _drawn(path, "\U0010fffd")  # which no font has


@lru_cache(maxsize=4096)
def _drawn(path: str, letter: str) -> bytes:
    image = Image.new("L", (64, 64))
    ImageDraw.Draw(image).text((8, 48), letter, 255, _font(path, 32), anchor="ls")
    return image.tobytes()


def _clusters(text: str, path: str | None) -> list[tuple[str, str]]:
    """Each character as a letter of the font and the mark that is drawn over it."""
    if path is not None:
        return [(letter, "") for letter in text]
    return [_cluster(letter) for letter in text]


def _cluster(letter: str) -> tuple[str, str]:
    if letter in _OWN:
        return letter, ""
    return _CURRENCIES.get(letter) or _parts(letter) or (" ", "")


# Fitting


def fit(
    text: str, face: Face, width: float, height: float, *, smallest: int, lines_max: int = 9, leading: float = LEADING
) -> Block:
    """The text in the largest size that fits into a box, in lines of similar length."""
    words = text.split()
    size = face.size
    while True:
        tried = Face(size, face.weight, face.tracking, face.path)
        # Words are broken only at the smallest size.
        if size <= smallest or all(tried.width(word) <= width for word in words):
            block = Block(tuple(_wrapped(words, tried, width)), tried, leading)
            if size <= smallest or (len(block.lines) <= lines_max and block.height <= height):
                break
        size = max(smallest, round(size * 0.94) if size > smallest + 8 else size - 1)
    room = sum(Block(block.lines[: count + 1], block.face, leading).height <= height for count in range(lines_max))
    kept = block.lines[: max(1, room)]
    if len(kept) < len(block.lines):
        return Block((*kept[:-1], _cut(kept[-1], block.face, width)), block.face, leading)
    return Block(tuple(_balanced(words, block, width)), block.face, leading)


def _wrapped(words: list[str], face: Face, width: float) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and face.width(f"{lines[-1]} {word}") <= width:
            lines[-1] = f"{lines[-1]} {word}"
        else:
            lines += _broken(word, face, width)
    return lines


def _broken(word: str, face: Face, width: float) -> list[str]:
    """Break a word that is longer than a line."""
    parts = [word]
    while face.width(parts[-1]) > width and len(parts[-1]) > 1:
        last = parts.pop()
        end = max(1, bisect_right(range(len(last)), width, key=lambda end: face.width(last[:end])) - 1)
        parts += [last[:end], last[end:]]
    return parts


def _balanced(words: list[str], block: Block, width: float) -> list[str]:
    """The lines in the narrowest box with the same number of lines."""
    widest = max((block.face.width(word) for word in words), default=0.0)
    minimum, maximum = min(width, max(width * 0.4, widest)), width
    best = list(block.lines)
    for _ in range(7):
        middle = (minimum + maximum) / 2
        lines = _wrapped(words, block.face, middle)
        if len(lines) == len(block.lines) and all(block.face.width(line) <= middle for line in lines):
            best, maximum = lines, middle
        else:
            minimum = middle
    return best


def _cut(line: str, face: Face, width: float) -> str:
    while line and face.width(f"{line}…") > width:
        line = line[:-1]
    return f"{line.rstrip(' .,;:-')}…"


# Drawing


def write(
    image: Image.Image,
    block: Block,
    at: tuple[float, float],
    colour: Colour,
    *,
    align: Align = "left",
    last: Colour | None = None,
) -> None:
    """Draw a block; ``at`` is its top left corner, or the middle of its top. The last line may have its own colour."""
    draw = ImageDraw.Draw(image)
    x, y = at
    for place, line in enumerate(block.lines):
        chosen = last if last is not None and place == len(block.lines) - 1 else colour
        left = x if align == "left" else x - block.face.width(line) / 2
        _line(draw, line, block.face, (left + block.face.stroke, y), chosen)
        y += block.face.size * block.leading


def _line(draw: ImageDraw.ImageDraw, text: str, face: Face, at: tuple[float, float], colour: Colour) -> None:
    x, top = at
    baseline = top + face.size * 0.83
    clusters = _clusters(text, face.path)
    plain = "".join(base for base, _ in clusters)
    put = draw.text
    if face.tracking:
        for place, letter in enumerate(plain):
            left = x + face.font.getlength(plain[:place]) + face.size * face.tracking * place
            put((left, baseline), letter, colour, face.font, anchor="ls", stroke_width=face.stroke)
    else:
        put((x, baseline), plain, colour, face.font, anchor="ls", stroke_width=face.stroke)
    for place, (base, marks) in enumerate(clusters):
        if marks:
            left = x + face.font.getlength(plain[:place]) + face.size * face.tracking * place
            _mark(draw, face, (left, baseline), (base, marks), colour)


def _mark(
    draw: ImageDraw.ImageDraw, face: Face, at: tuple[float, float], cluster: tuple[str, str], colour: Colour
) -> None:
    """Draw the mark of a letter: a stroke through its middle, or a mark above or below it."""
    x, baseline = at
    base, marks = cluster
    left, top, right, bottom = _ink(face.font, base)
    font = _font(face.path, max(4, round(face.size * (0.62 if marks == "^" else 0.86))))
    mark_left, mark_top, mark_right, mark_bottom = _ink(font, marks)
    middle = x + (left + right) / 2 - (mark_left + mark_right) / 2
    if marks in ("=", "-"):
        middle -= (right - left) * (0.2 if base == "C" else 0.0 if base == "Y" else 0.16)
        height = baseline + (top + bottom) / 2 - (mark_top + mark_bottom) / 2
    elif marks == ",":
        height = baseline + face.size * 0.1
    else:
        height = baseline + top - face.size * 0.07 - mark_bottom
    draw.text((middle, height), marks, colour, font, anchor="ls", stroke_width=face.stroke * 0.7)


def _ink(font: FreeTypeFont, text: str) -> tuple[int, int, int, int]:
    """The box of the drawn pixels, relative to the start of the baseline. Pillow's own box extends to the baseline."""
    drawn, (x, y) = font.getmask2(text, anchor="ls")
    left, top, right, bottom = drawn.getbbox() or (0, 0, 0, 0)
    return left + x, top + y, right + x, bottom + y
