"""The background of the product: a scene for each style."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageChops

from millpond_products.renderer.canvas import ellipse, fill, glow, grain, mask, polygon, ramp, soft, tilted
from millpond_products.renderer.palettes import mix, shade

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from PIL import ImageDraw

    from millpond_products.renderer.palettes import Palette

    Scene = Callable[["Size", "Stage", Palette, random.Random], Image.Image]

Size = tuple[int, int]
Stage = tuple[float, float, float]
"""The place of the product: the middle of its foot, x and y, and its approximate width."""


def scene(style: str, size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    return _SCENES[style](size, stage, palette, rng)


def backdrop(style: str, size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """A scene with grain. Videos have none, because it would move with the background."""
    return grain(scene(style, size, stage, palette, rng), rng)


def _lifestyle(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """A table in front of a wall, with the light of a window and the shadow of a plant."""
    width, height = size
    foot = stage[1]
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    _window(image, rng)
    _leaves(image, rng, palette)
    edge = foot - stage[2] * 0.12
    table = ramp(
        size,
        [
            (0, shade(palette.ground, 1.12)),
            (edge / height, shade(palette.ground, 1.12)),
            (1, shade(palette.ground, 0.78)),
        ],
    )
    through = soft(polygon(size, ((0, edge), (width, edge), (width, height), (0, height))), max(2.0, width / 400))
    image.paste(table, (0, 0), through)
    fill(
        image,
        (255, 255, 255),
        soft(polygon(size, ((0, edge), (width, edge), (width, edge + 4), (0, edge + 4))), 3),
        0.35,
    )
    glow(image, (stage[0], foot - stage[2] * 0.4), stage[2] * 1.4, (255, 255, 255), 0.35)
    return image


def _window(image: Image.Image, rng: random.Random) -> None:
    width, height = image.size
    start = rng.uniform(-0.1, 0.35) * width
    panes = Image.new("L", image.size)
    for column in range(3):
        for row in range(2):
            x, y = start + column * width * 0.2, height * (-0.05 + row * 0.36)
            slant = width * 0.22
            pane = (
                (x, y),
                (x + width * 0.17, y),
                (x + width * 0.17 + slant, y + height * 0.32),
                (x + slant, y + height * 0.32),
            )
            panes = ImageChops.lighter(panes, polygon(image.size, pane))
    fill(image, (255, 252, 240), soft(panes, width / 60), 0.42)


def _leaves(image: Image.Image, rng: random.Random, palette: Palette) -> None:
    """The shadow of a branch that reaches in from a corner."""
    width, height = image.size
    side = rng.choice((-1, 1))
    long = max(width, height) * 0.3
    branch = Image.new("L", image.size)
    x, y = (width * 0.02 if side > 0 else width * 0.98), -height * 0.02
    leaf = mask((round(long), round(long)), lambda draw, k: _leaf(draw, long / 2 * k))
    for step in range(9):
        degrees = (30 + step * 11 + rng.uniform(-18, 18)) * -side + (180 if side < 0 else 0)
        turned = tilted(leaf, degrees)
        place = (
            round(x + side * step * width * 0.035 - turned.width / 2),
            round(y + step * height * 0.045 - turned.height / 2),
        )
        layer = Image.new("L", image.size)
        layer.paste(turned, place)
        branch = ImageChops.lighter(branch, layer)
    fill(image, shade(palette.ink, 0.9), soft(branch, width / 70), 0.16)


def _leaf(draw: ImageDraw.ImageDraw, half: float) -> None:
    outline = [(half * 2 * t, half + half * 0.26 * math.sin(math.pi * t) * (1.2 - 0.5 * t)) for t in _steps(24)]
    under = [(x, half * 2 - y) for x, y in reversed(outline)]
    draw.polygon(outline + under, fill=255)


def _steps(count: int) -> list[float]:
    return [step / count for step in range(count + 1)]


def _minimal(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """Empty space and one shape."""
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    x, foot, wide = stage
    radius = wide * 0.78
    y = foot - wide * 0.62
    if rng.random() < 0.5:  # noqa: PLR2004 - one or the other
        fill(image, palette.ground, ellipse(size, (x - radius, y - radius, x + radius, y + radius)), 0.9)
    else:
        arch = ImageChops.lighter(
            ellipse(size, (x - radius * 0.85, y - radius, x + radius * 0.85, y + radius * 0.7)),
            polygon(
                size,
                (
                    (x - radius * 0.85, y - radius * 0.15),
                    (x + radius * 0.85, y - radius * 0.15),
                    (x + radius * 0.85, foot + wide * 0.03),
                    (x - radius * 0.85, foot + wide * 0.03),
                ),
            ),
        )
        fill(image, palette.ground, arch, 0.9)
    glow(image, (x, y), radius * 1.1, (255, 255, 255), 0.3)
    return image


def _bold(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """Rays and a slanted field."""
    width, height = size
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    x, foot, wide = stage
    y = foot - wide * 0.55
    count, turn, far = 22, rng.uniform(0, 0.3), max(size) * 1.6
    rays = Image.new("L", size)
    for ray in range(count):
        one, two = (2 * math.pi * (ray + part) / count + turn for part in (0.0, 0.5))
        points = (
            (x, y),
            (x + far * math.cos(one), y + far * math.sin(one)),
            (x + far * math.cos(two), y + far * math.sin(two)),
        )
        rays = ImageChops.lighter(rays, polygon(size, points))
    fill(image, (255, 255, 255), rays, 0.09)
    radius = wide * 0.74
    disc = ellipse(size, (x - radius, y - radius, x + radius, y + radius))
    fill(image, mix(palette.top, (255, 255, 255), 0.3), disc)
    slant = rng.choice((-1, 1)) * height * 0.05
    field = polygon(size, ((0, foot + slant), (width, foot - slant), (width, height), (0, height)))
    fill(image, palette.ground, field)
    return image


def _elegant(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """A light in the dark, a stand, and a fine line around it all."""
    width, height = size
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    x, foot, wide = stage
    glow(image, (x, foot - wide * 0.6), wide * 1.55, mix(palette.top, palette.accent, 0.45), 0.75)
    tall, half = wide * 0.13, wide * 0.72
    side = ImageChops.lighter(
        polygon(
            size, ((x - half, foot), (x + half, foot), (x + half, foot + wide * 0.16), (x - half, foot + wide * 0.16))
        ),
        ellipse(size, (x - half, foot + wide * 0.16 - tall, x + half, foot + wide * 0.16 + tall)),
    )
    light = ramp(
        size,
        [
            (max(0.0, (x - half) / width), shade(palette.ground, 0.6)),
            (x / width - 0.08, shade(palette.ground, 1.22)),
            (min(1.0, (x + half) / width), shade(palette.ground, 0.5)),
        ],
        across=True,
    )
    image.paste(light, (0, 0), side)
    top = ellipse(size, (x - half, foot - tall, x + half, foot + tall))
    fill(image, mix(palette.ground, palette.accent, 0.22), top)
    fill(
        image,
        palette.accent,
        ImageChops.subtract(top, ellipse(size, (x - half, foot - tall + 2, x + half, foot + tall + 2))),
        0.8,
    )
    margin = min(size) * 0.035
    frame = mask(
        size,
        lambda draw, k: draw.rectangle(
            (margin * k, margin * k, (width - margin) * k, (height - margin) * k), outline=255, width=round(2.5 * k)
        ),
    )
    fill(image, palette.accent, frame, 0.7)
    for _ in range(26):
        at = (rng.uniform(0, width), rng.uniform(0, height * 0.8))
        glow(image, at, rng.uniform(3, min(size) * 0.02), palette.accent, rng.uniform(0.1, 0.5))
    return image


def _playful(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """Blobs and confetti."""
    width, height = size
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    x, foot, wide = stage
    for centre, radius, colour, strength in (
        ((x, foot - wide * 0.5), wide * 0.82, palette.ground, 1.0),
        ((width * rng.uniform(0.0, 0.15), height * rng.uniform(0.75, 1.0)), min(size) * 0.3, palette.label, 0.28),
        ((width * rng.uniform(0.88, 1.0), height * rng.uniform(0.02, 0.2)), min(size) * 0.26, palette.accent, 0.2),
    ):
        fill(image, colour, polygon(size, _blob(centre, radius, rng)), strength)
    colours = (palette.accent, palette.label, (255, 255, 255), palette.ink)
    for _ in range(70):
        at = rng.uniform(0, width), rng.uniform(0, height)
        large = min(size) * rng.uniform(0.006, 0.014)
        is_beside = at[0] < width / 2 if width > height else at[1] < foot - wide
        if is_beside and width * 0.06 < at[0] < width * 0.92:
            continue  # the place of the text
        _confetti(image, at, large, rng.choice(colours), rng)
    return image


def _blob(centre: tuple[float, float], radius: float, rng: random.Random) -> list[tuple[float, float]]:
    waves = [(rng.uniform(0.03, 0.09), rng.uniform(0, 6.3), count) for count in (2, 3, 5)]
    angles = [2 * math.pi * step for step in _steps(120)]
    reach = [
        radius * (1 + sum(high * math.sin(count * angle + turn) for high, turn, count in waves)) for angle in angles
    ]
    return [
        (centre[0] + far * math.cos(angle), centre[1] + far * math.sin(angle))
        for angle, far in zip(angles, reach, strict=True)
    ]


def _confetti(
    image: Image.Image, at: tuple[float, float], large: float, colour: tuple[int, int, int], rng: random.Random
) -> None:
    side = round(large * 6)
    piece = (side, side)
    middle = side / 2
    if rng.random() < 0.45:  # noqa: PLR2004 - about half of them are round
        shape = ellipse(piece, (middle - large, middle - large, middle + large, middle + large))
    else:
        shape = polygon(
            piece,
            (
                (middle - large, middle - large * 0.5),
                (middle + large, middle - large * 0.5),
                (middle + large, middle + large * 0.5),
                (middle - large, middle + large * 0.5),
            ),
        )
        shape = shape.rotate(rng.uniform(0, 180), Image.Resampling.BICUBIC)
    image.paste(colour, (round(at[0] - middle), round(at[1] - middle)), shape)


def _tech(size: Size, stage: Stage, palette: Palette, rng: random.Random) -> Image.Image:
    """A floor of light lines that runs to the horizon."""
    width, height = size
    image = ramp(size, [(0, palette.top), (1, palette.bottom)])
    x, foot, wide = stage
    horizon = foot - wide * 0.34
    glow(image, (x, horizon), wide * 1.7, palette.ground, 0.9)
    glow(image, (x, horizon), wide * 0.95, mix(palette.ground, palette.accent, 0.5), 0.55)
    lines = mask(size, lambda draw, k: _floor(draw, k, size, (x, horizon)))
    fade = ramp(
        size,
        [
            (0, (0, 0, 0)),
            (max(0.0, horizon / height), (0, 0, 0)),
            (min(1.0, foot / height + 0.1), (255, 255, 255)),
            (1, (150, 150, 150)),
        ],
    ).getchannel(0)
    fill(image, palette.accent, ImageChops.multiply(lines, fade), 0.55)
    radius = wide * 0.7
    y = foot - wide * 0.58
    ring = ImageChops.subtract(
        ellipse(size, (x - radius, y - radius, x + radius, y + radius)),
        ellipse(size, (x - radius + 5, y - radius + 5, x + radius - 5, y + radius - 5)),
    )
    fill(image, palette.accent, soft(ring, 16), 1.0)
    fill(image, palette.accent, ring, 0.85)
    for _ in range(40):
        at = (rng.uniform(0, width), rng.uniform(0, max(1.0, horizon)))
        glow(image, at, rng.uniform(2, 6), (255, 255, 255), rng.uniform(0.1, 0.6))
    return image


def _floor(draw: ImageDraw.ImageDraw, k: float, size: Size, vanishing: tuple[float, float]) -> None:
    width, height = size
    x, horizon = vanishing
    for line in range(-16, 17):
        draw.line((x * k, horizon * k, (x + line * width * 0.16) * k, height * 1.2 * k), fill=255, width=round(1.6 * k))
    for row in range(1, 12):
        y = horizon + (height - horizon) * (row / 11) ** 2.2
        draw.line((0, y * k, width * k, y * k), fill=255, width=round(1.6 * k))


_SCENES: Final[dict[str, Scene]] = {
    "lifestyle": _lifestyle,
    "minimal": _minimal,
    "bold": _bold,
    "elegant": _elegant,
    "playful": _playful,
    "tech": _tech,
}
