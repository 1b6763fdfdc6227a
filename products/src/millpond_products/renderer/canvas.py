"""The parts of pictures: gradients, soft edges, shadows, light and grain."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from PIL import Image, ImageChops, ImageDraw, ImageFilter

from millpond_products.renderer.palettes import mix

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from millpond_products.renderer.palettes import Colour

    Box = tuple[float, float, float, float]
    Point = tuple[float, float]

_FINE: Final = 2
"""Shapes are drawn so many times larger and then reduced, because Pillow draws hard edges."""


def ramp(size: tuple[int, int], stops: Sequence[tuple[float, Colour]], *, across: bool = False) -> Image.Image:
    """A gradient from the top to the bottom, or from the left to the right."""
    length = size[0] if across else size[1]
    line = Image.new("RGB", (length, 1))
    line.putdata([_between(stops, place / max(length - 1, 1)) for place in range(length)])
    return line.resize(size) if across else line.transpose(Image.Transpose.ROTATE_270).resize(size)


def _between(stops: Sequence[tuple[float, Colour]], place: float) -> Colour:
    before = stops[0]
    for after in stops:
        if place <= after[0]:
            span = after[0] - before[0]
            return after[1] if span <= 0 else mix(before[1], after[1], (place - before[0]) / span)
        before = after
    return stops[-1][1]


def mask(size: tuple[int, int], draw: Callable[[ImageDraw.ImageDraw, float], Any]) -> Image.Image:
    """A mask with smooth edges; ``draw`` receives the scale in which it draws."""
    large = Image.new("L", (size[0] * _FINE, size[1] * _FINE))
    draw(ImageDraw.Draw(large), float(_FINE))
    return large.reduce(_FINE)


def rounded(size: tuple[int, int], box: Box, radius: float) -> Image.Image:
    return mask(size, lambda draw, k: draw.rounded_rectangle([side * k for side in box], radius * k, fill=255))


def polygon(size: tuple[int, int], points: Sequence[Point]) -> Image.Image:
    return mask(size, lambda draw, k: draw.polygon([(x * k, y * k) for x, y in points], fill=255))


def ellipse(size: tuple[int, int], box: Box) -> Image.Image:
    return mask(size, lambda draw, k: draw.ellipse([side * k for side in box], fill=255))


def fill(image: Image.Image, colour: Colour, through: Image.Image, strength: float = 1.0) -> None:
    """Lay a colour over an image, through a mask."""
    if strength < 1:
        through = through.point([round(value * strength) for value in range(256)])
    image.paste(colour, (0, 0), through)


def soft(through: Image.Image, radius: float) -> Image.Image:
    """Blur a mask. It is reduced first, because a wide blur is slow."""
    factor = max(1, int(radius / 6))
    small = through.resize((max(1, through.width // factor), max(1, through.height // factor)), Image.Resampling.BOX)
    return small.filter(ImageFilter.GaussianBlur(radius / factor)).resize(through.size, Image.Resampling.BICUBIC)


def glow(image: Image.Image, centre: Point, radius: float, colour: Colour, strength: float) -> None:
    """Light that grows weaker from its centre."""
    x, y = centre
    light = Image.radial_gradient("L").point([max(0, 255 - round(value * 1.42)) for value in range(256)])
    light = light.resize((max(2, round(radius * 2)), max(2, round(radius * 2))), Image.Resampling.BICUBIC)
    through = Image.new("L", image.size)
    through.paste(light, (round(x - radius), round(y - radius)))
    fill(image, colour, through, strength)


def shadow(
    image: Image.Image, sprite: Image.Image, at: tuple[int, int], *, drop: float, blur: float, dark: float
) -> None:
    """Draw the shadow of a cut-out on its background."""
    through = Image.new("L", image.size)
    alpha = sprite.getchannel("A")
    through.paste(alpha, (at[0], at[1] + round(drop)), alpha)
    fill(image, (0, 0, 0), soft(through, blur), dark)


def contact(image: Image.Image, centre: Point, width: float, dark: float) -> None:
    """Draw the shadow under an object: a wide one, and a narrow one in it."""
    x, y = centre
    for share, height, strength in ((0.62, 0.085, 0.55), (0.5, 0.035, 0.75)):
        half, tall = width * share, width * height
        through = ellipse(image.size, (x - half, y - tall, x + half, y + tall))
        fill(image, (0, 0, 0), soft(through, width * 0.035), dark * strength)


def grain(image: Image.Image, rng: random.Random, strength: float = 0.035) -> Image.Image:
    """Add a little noise, so that gradients show no steps."""
    size = (512, 512)
    noise = Image.frombytes("L", size, rng.randbytes(size[0] * size[1]))
    tiled = Image.new("L", image.size)
    for x in range(0, image.width, size[0]):
        for y in range(0, image.height, size[1]):
            tiled.paste(noise, (x, y))
    return Image.blend(image, ImageChops.overlay(image, Image.merge("RGB", (tiled, tiled, tiled))), strength)


def tilted(sprite: Image.Image, degrees: float) -> Image.Image:
    return sprite.rotate(degrees, Image.Resampling.BICUBIC, expand=True)


def warp(texture: Image.Image, size: tuple[int, int], corners: Sequence[Point]) -> Image.Image:
    """A picture in perspective: its corners, clockwise from the top left, move to these points."""
    width, height = texture.size
    source = ((0, 0), (width, 0), (width, height), (0, height))
    rows: list[list[float]] = []
    for (x, y), (u, v) in zip(corners, source, strict=True):
        rows.append([x, y, 1, 0, 0, 0, -u * x, -u * y, u])
        rows.append([0, 0, 0, x, y, 1, -v * x, -v * y, v])
    flat = texture.transform(size, Image.Transform.PERSPECTIVE, _solved(rows), Image.Resampling.BICUBIC)
    flat.putalpha(ImageChops.multiply(flat.getchannel("A"), polygon(size, corners)))
    return flat


def _solved(rows: list[list[float]]) -> list[float]:
    """Solve linear equations by elimination."""
    count = len(rows)
    for place in range(count):
        best = max(range(place, count), key=lambda row: abs(rows[row][place]))
        rows[place], rows[best] = rows[best], rows[place]
        for row in range(count):
            if row != place:
                factor = rows[row][place] / rows[place][place]
                rows[row] = [a - factor * b for a, b in zip(rows[row], rows[place], strict=True)]
    return [rows[place][count] / rows[place][place] for place in range(count)]


def star(centre: Point, radius: float, points: int, depth: float = 0.86) -> list[Point]:
    """The outline of a star-shaped sticker."""
    x, y = centre
    return [
        (
            x + radius * (1 if step % 2 == 0 else depth) * math.cos(math.pi * step / points),
            y + radius * (1 if step % 2 == 0 else depth) * math.sin(math.pi * step / points),
        )
        for step in range(points * 2)
    ]
