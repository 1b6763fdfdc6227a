"""Colours, by style. Each style has several sets of them; the seed chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

Colour = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Palette:
    """One set of colours."""

    top: Colour
    """The background, at its top."""
    bottom: Colour
    ground: Colour
    """What the product stands on, and the larger shapes behind it."""
    ink: Colour
    """Headlines."""
    soft: Colour
    """Smaller words."""
    accent: Colour
    """The button and other accents."""
    on_accent: Colour
    ware: Colour
    """The product, where it is drawn."""
    label: Colour


def colour(text: str) -> Colour:
    return int(text[0:2], 16), int(text[2:4], 16), int(text[4:6], 16)


def _palette(text: str) -> Palette:
    return Palette(*(colour(word) for word in text.split()))


# Each line: top, bottom, ground, ink, soft, accent, on accent, ware, label.
PALETTES: Final = {
    "lifestyle": (
        _palette("f6e9d9 e9cfb2 d3ab83 3a2417 7a5c47 c4562f fff8f0 f4efe6 b2512c"),
        _palette("e9efe4 cfdcc6 b3c0a0 233124 586a58 3f6b4a f7fbf4 f8f5ec 3f6b4a"),
        _palette("f7e6e4 eccac8 d9a6a2 43201f 84595a b04a55 fff6f5 fbf3ef b04a55"),
        _palette("e6eef4 c9d9e6 d9c7ae 1d2b3a 536679 2f5f8f f5faff f6f3ec 2f5f8f"),
    ),
    "minimal": (
        _palette("fbfaf8 f0eeea e4e0d8 1b1b1d 6d6c6a 1b1b1d ffffff ffffff 2a2a2c"),
        _palette("f7f9fb e9eef3 d3deea 14202e 617080 1f5eff ffffff ffffff 1f5eff"),
        _palette("fbf8f6 f3ebe6 f0d5c6 2a1c17 7d6a61 d9572b ffffff ffffff d9572b"),
        _palette("f6faf7 e7f0ea cfe4d6 15261c 5f7367 15794a ffffff ffffff 15794a"),
    ),
    "bold": (
        _palette("ff5a36 ff2e63 ffc93c fffaf0 ffe6dc 1a1330 ffffff 1a1330 ffc93c"),
        _palette("3a1cff 6a11cb 00e5ff ffffff dcd6ff ffe600 1a0d4a ffffff 3a1cff"),
        _palette("ffd400 ffb300 ff5722 1a1400 4d3f00 1a1400 ffd400 1a1400 ff5722"),
        _palette("00b894 00806b ffeaa7 ffffff d5fff4 ff3d68 ffffff fffdf5 00806b"),
    ),
    "elegant": (
        _palette("1c2b27 0b1412 13201c f4ead6 b9b09d d2ae6d 16201c 0f1a17 d2ae6d"),
        _palette("262238 0f0d18 1a1728 f5eee6 b5adbc d8b48a 1a1626 14111f d8b48a"),
        _palette("2b1a1c 120a0b 1f1214 f8ebe4 c0a8a3 d9a58b 241416 1b0f11 d9a58b"),
        _palette("1d242e 0a0e14 141a22 eef2f6 a7b2be c9d3de 141a22 10151c c9d3de"),
    ),
    "playful": (
        _palette("ffe3ef ffd0e4 ffb3d1 4a1a5c 83508f 7b2ff7 ffffff ffffff ff5fa2"),
        _palette("d9f4ff b9e8ff ffe08a 123a5e 46708f ff6b35 ffffff fffef8 0fa3e0"),
        _palette("fff1c9 ffe39a ff9f80 5b2a10 8f6040 ef476f ffffff fffef8 06b58a"),
        _palette("e4f9dd c9f2c0 9be3b0 174a36 4f7d69 ff5d8f ffffff fffef8 1fae75"),
    ),
    "tech": (
        _palette("10162b 070912 1b2a5c f2f6ff 9aa9cf 37d5ff 04121c 151c33 37d5ff"),
        _palette("1a1030 0a0614 3b1d78 f7f2ff b3a4d6 b06bff 12061f 1c1434 b06bff"),
        _palette("0d1f1c 050d0b 11463c effffa 93bdb2 2ff3b1 03150f 12241f 2ff3b1"),
        _palette("1d1414 0a0606 5a1f16 fff4f0 cfa89e ff6a3d 1c0803 241816 ff6a3d"),
    ),
}


def choose(style: str, rng: random.Random) -> Palette:
    return rng.choice(PALETTES[style])


def mix(one: Colour, other: Colour, share: float) -> Colour:
    """Mix two colours; ``share`` is the share of the second."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(one, other, strict=True))
    return red, green, blue


def shade(given: Colour, factor: float) -> Colour:
    """A darker colour for a factor below 1, a lighter one above."""
    return mix(given, (0, 0, 0), 1 - factor) if factor <= 1 else mix(given, (255, 255, 255), factor - 1)
