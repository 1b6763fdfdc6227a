"""The background of a person: a studio, a park, a room, or a street in the evening, out of focus as in a photograph."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from PIL import Image, ImageFilter

from millpond_products.renderer.brush import Brush, DrawingFrame, oval
from millpond_products.renderer.canvas import ellipse, fill, glow, polygon, ramp, rounded
from millpond_products.renderer.palettes import mix, shade

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from millpond_products.renderer.palettes import Colour, Palette

    Room = Callable[["Size", Palette, random.Random], Image.Image]

Size = tuple[int, int]
_COARSE: Final = 3
_NIGHT: Final = (14, 16, 30)


def _studio(size: Size, palette: Palette, chance: random.Random) -> Image.Image:
    """A plain wall with a light on it."""
    width, height = size
    image = ramp(size, [(0, shade(palette.top, 0.92)), (1, shade(palette.bottom, 0.8))])
    reach = min(size)
    glow(image, (width * 0.5, height * 0.38), reach * 0.85, mix(palette.top, (255, 255, 255), 0.55), 0.8)
    ring = reach * 0.43
    x, y = width * 0.5, height * 0.40
    disc = ellipse(size, (x - ring, y - ring, x + ring, y + ring))
    fill(image, mix(palette.ground, palette.accent, chance.uniform(0.1, 0.35)), disc, 0.85)
    glow(image, (x - ring * 0.4, y - ring * 0.5), ring * 1.2, (255, 255, 255), 0.35)
    return image


def _outdoors(size: Size, palette: Palette, chance: random.Random) -> Image.Image:
    """Trees, a meadow and much light."""
    far = _far(size)
    width, height = far
    sky = mix((176, 212, 236), palette.top, 0.25)
    image = ramp(far, [(0, sky), (0.55, mix(sky, (255, 244, 214), 0.6)), (0.62, (206, 214, 150)), (1, (104, 142, 78))])
    for row, tone in enumerate(((128, 164, 112), (92, 138, 84), (66, 112, 66))):
        for _ in range(9):
            x, y = chance.uniform(-0.1, 1.1) * width, height * (0.30 + row * 0.10 + chance.uniform(-0.05, 0.05))
            reach = min(far) * chance.uniform(0.10, 0.22)
            fill(
                image,
                shade(tone, chance.uniform(0.88, 1.12)),
                ellipse(far, (x - reach, y - reach, x + reach, y + reach * 1.3)),
            )
    image = _unfocused(image, size, 42)
    width, height = size
    glow(image, (width * 0.86, height * 0.10), min(size) * 0.9, (255, 238, 196), 0.85)
    _lights(image, chance, ((255, 250, 220), (226, 240, 190)), count=26, between=(0.0, 0.65), strength=0.28)
    return image


def _home(size: Size, palette: Palette, chance: random.Random) -> Image.Image:
    """A wall with a window, a shelf and a plant."""
    far = _far(size)
    width, height = far
    wall = mix(mix(palette.top, palette.ground, 0.35), (236, 224, 208), 0.45)
    image = ramp(far, [(0, shade(wall, 1.04)), (1, shade(wall, 0.78))])
    left = chance.uniform(0.02, 0.08) * width
    _block(image, (left, height * 0.06, left + width * 0.30, height * 0.52), (250, 248, 240))
    for n in range(2):
        for row in range(2):
            x, y = left + width * (0.015 + n * 0.145), height * (0.07 + row * 0.225)
            _block(
                image, (x, y, x + width * 0.125, y + height * 0.21), mix((196, 222, 240), (255, 255, 255), 0.2 * row)
            )
    shelf = height * chance.uniform(0.24, 0.30)
    _block(image, (width * 0.70, shelf, width * 1.02, shelf + height * 0.014), shade(wall, 0.5))
    x = width * 0.72
    while x < width:
        wide = width * chance.uniform(0.018, 0.036)
        tall = height * chance.uniform(0.07, 0.12)
        tone = chance.choice((palette.accent, palette.label, palette.ink, mix(palette.accent, (255, 255, 255), 0.5)))
        _block(image, (x, shelf - tall, x + wide, shelf), tone)
        x += wide + width * 0.004
    pot = (width * 0.86, height * 0.66)
    for n in range(11):
        lean, tall = (n - 5) / 5, height * chance.uniform(0.20, 0.30)
        tip = (pot[0] + lean * width * 0.17, pot[1] - tall * (1 - abs(lean) * 0.45))
        side = width * 0.022
        leaf = (pot, (tip[0] * 0.5 + pot[0] * 0.5 - side, tip[1] * 0.55 + pot[1] * 0.45), tip,
                (tip[0] * 0.5 + pot[0] * 0.5 + side, tip[1] * 0.5 + pot[1] * 0.5))  # fmt: skip
        fill(image, shade((74, 122, 78), chance.uniform(0.8, 1.25)), polygon(far, leaf))
    _block(
        image,
        (pot[0] - width * 0.06, pot[1], pot[0] + width * 0.06, height * 0.80),
        mix(palette.accent, (150, 90, 60), 0.5),
    )
    image = _unfocused(image, size, 110)
    width, height = size
    glow(image, (width * 0.2, height * 0.28), min(size) * 0.75, (255, 246, 222), 0.55)
    return image


def _evening(size: Size, palette: Palette, chance: random.Random) -> Image.Image:
    """The lights of a street."""
    far = _far(size)
    width, height = far
    image = ramp(far, [(0, mix(_NIGHT, palette.accent, 0.18)), (0.6, mix(_NIGHT, (120, 60, 70), 0.35)), (1, _NIGHT)])
    for _ in range(7):
        x, wide = chance.uniform(-0.05, 1.0) * width, chance.uniform(0.10, 0.2) * width
        top = chance.uniform(0.05, 0.35) * height
        _block(image, (x, top, x + wide, height), shade(mix(_NIGHT, palette.accent, 0.10), chance.uniform(0.8, 1.5)))
        for _ in range(9):
            at = (x + chance.uniform(0.1, 0.8) * wide, top + chance.uniform(0.05, 0.5) * height)
            _block(image, (*at, at[0] + wide * 0.14, at[1] + wide * 0.18), (255, 214, 140))
    image = _unfocused(image, size, 46)
    width, height = size
    warm = (
        (255, 190, 104),
        (255, 226, 170),
        (255, 130, 96),
        mix(palette.accent, (255, 255, 255), 0.3),
        (120, 190, 255),
    )
    _lights(image, chance, warm, count=34, between=(0.08, 0.78), strength=0.5)
    glow(image, (width * 0.12, height * 0.3), min(size) * 0.7, (255, 196, 130), 0.4)
    return image


def _far(size: Size) -> Size:
    """The smaller size in which a background that will be out of focus is drawn."""
    return size[0] // _COARSE, size[1] // _COARSE


def _unfocused(image: Image.Image, size: Size, sharp: int) -> Image.Image:
    return image.filter(ImageFilter.GaussianBlur(min(image.size) / sharp)).resize(size, Image.Resampling.BICUBIC)


def _block(image: Image.Image, box: tuple[float, float, float, float], tone: Colour) -> None:
    fill(image, tone, rounded(image.size, box, 1))


def _lights(
    image: Image.Image,
    chance: random.Random,
    tones: tuple[Colour, ...],
    *,
    count: int,
    between: tuple[float, float],
    strength: float,
) -> None:
    """Draw points of light as discs, as an unfocused lens does."""
    width, height = image.size
    brush, frame = Brush(image), DrawingFrame(0, 0, 1)
    for _ in range(count):
        x, y = chance.uniform(0, 1) * width, chance.uniform(*between) * height
        reach = min(width, height) * chance.uniform(0.014, 0.055)
        tone, share = chance.choice(tones), strength * chance.uniform(0.4, 1.0)
        brush.lay(frame, oval((x, y), reach, reach), tone, strength=share, blur=reach * 0.08)


ROOMS: Final[dict[str, Room]] = {"studio": _studio, "outdoors": _outdoors, "home": _home, "evening": _evening}
