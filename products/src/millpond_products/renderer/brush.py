"""A brush: draws smooth shapes and strokes over a picture, in the units of a frame, with soft or hard edges."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageChops, ImageDraw

from millpond_products.renderer.canvas import soft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millpond_products.renderer.palettes import Colour

Point = tuple[float, float]
_STEPS: Final = 10


@dataclass(frozen=True, slots=True)
class DrawingFrame:
    """A coordinate system: its origin in pixels, its unit in pixels, and its rotation."""

    x: float
    y: float
    unit: float
    lean: float = 0.0
    """In degrees, clockwise, around the pivot below the origin."""
    pivot: float = 0.0

    def at(self, point: Point) -> Point:
        turn = math.radians(self.lean)
        x, y = point[0], point[1] - self.pivot
        leaned = x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn) + self.pivot
        return self.x + leaned[0] * self.unit, self.y + leaned[1] * self.unit


def curve(points: Sequence[Point], *, is_closed: bool = False) -> list[Point]:
    """A smooth line through these points."""
    count = len(points)
    spans = count if is_closed else count - 1
    made: list[Point] = []
    for span in range(spans):
        around = [span - 1, span, span + 1, span + 2]
        places = [place % count if is_closed else min(max(place, 0), count - 1) for place in around]
        made += [_between([points[place] for place in places], step / _STEPS) for step in range(_STEPS)]
    return made if is_closed else [*made, points[-1]]


def _between(around: Sequence[Point], t: float) -> Point:
    """A point on the Catmull-Rom spline from the second point to the third."""
    a, b, c, d = around
    weights = (-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, t**3 - t**2)
    x, y = (sum(w * p[axis] for w, p in zip(weights, (a, b, c, d), strict=True)) / 2 for axis in (0, 1))
    return x, y


def oval(centre: Point, wide: float, tall: float) -> list[Point]:
    turns = [2 * math.pi * step / 48 for step in range(48)]
    return [(centre[0] + wide * math.cos(turn), centre[1] + tall * math.sin(turn)) for turn in turns]


def ribbon(points: Sequence[Point], wide: float, *, ends: tuple[float, float] = (0.0, 0.0)) -> list[Point]:
    """A stroke along a smooth line, widest in its middle; ``ends`` are the shares of that width at its two ends."""
    line = curve(points)
    left: list[Point] = []
    right: list[Point] = []
    last = len(line) - 1
    for place, (x, y) in enumerate(line):
        before, after = line[max(place - 1, 0)], line[min(place + 1, last)]
        dx, dy = after[0] - before[0], after[1] - before[1]
        long = math.hypot(dx, dy) or 1.0
        share = place / last
        end = ends[0] + (ends[1] - ends[0]) * share
        half = wide / 2 * (end + (1 - end) * math.sin(math.pi * share))
        left.append((x - dy / long * half, y + dx / long * half))
        right.append((x + dy / long * half, y - dx / long * half))
    return left + right[::-1]


def mixed(one: Sequence[Point], other: Sequence[Point], share: float) -> list[Point]:
    """The line at this share of the way from one line to the other."""
    return [(a + (c - a) * share, b + (d - b) * share) for (a, b), (c, d) in zip(one, other, strict=True)]


def mirrored(points: Sequence[Point]) -> list[Point]:
    return [(-x, y) for x, y in points]


class Brush:
    """Draws shapes over a picture."""

    def __init__(self, image: Image.Image) -> None:
        self.image = image

    def lay(
        self,
        frame: DrawingFrame,
        outline: Sequence[Point],
        colour: Colour,
        *,
        strength: float = 1.0,
        blur: float = 0.0,
        within: Image.Image | None = None,
    ) -> None:
        """Draw one shape. ``blur`` is in units of the frame, and ``within`` is a mask that limits the shape."""
        points, haze = [frame.at(point) for point in outline], blur * frame.unit
        box = self._box(points, haze * 2.5 + 2)
        if box[2] <= box[0] or box[3] <= box[1]:
            return
        through = Image.new("L", (box[2] - box[0], box[3] - box[1]))
        ImageDraw.Draw(through).polygon([(x - box[0], y - box[1]) for x, y in points], fill=255)
        if haze > 0:
            through = soft(through, haze)
        if within is not None:
            through = ImageChops.multiply(through, within.crop(box))
        if strength < 1:
            through = through.point([round(value * strength) for value in range(256)])
        self.image.paste(colour, (box[0], box[1]), through)

    def mask(self, frame: DrawingFrame, *outlines: Sequence[Point]) -> Image.Image:
        """The mask of these shapes."""
        through = Image.new("L", self.image.size)
        for outline in outlines:
            ImageDraw.Draw(through).polygon([frame.at(point) for point in outline], fill=255)
        return through

    def _box(self, points: Sequence[Point], room: float) -> tuple[int, int, int, int]:
        """The part of the picture that a shape touches."""
        across, down = [x for x, _ in points], [y for _, y in points]
        width, height = self.image.size
        return (
            max(0, math.floor(min(across) - room)),
            max(0, math.floor(min(down) - room)),
            min(width, math.ceil(max(across) + room)),
            min(height, math.ceil(max(down) + room)),
        )
