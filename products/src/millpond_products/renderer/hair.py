"""Hair: locks that lie between two lines, from the root to the tip. The strands are the lines in between."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond_products.renderer.brush import curve, mirrored, mixed, oval, ribbon
from millpond_products.renderer.palettes import mix, shade

if TYPE_CHECKING:
    from millpond_products.renderer.brush import Brush, DrawingFrame, Point
    from millpond_products.renderer.palettes import Colour

Polyline = tuple[tuple[float, float], ...]
Tufts = tuple[tuple[float, float, float], ...]
"""Round tufts: their position and size."""


@dataclass(frozen=True, slots=True)
class Lock:
    """Hair between two lines."""

    outer: Polyline
    inner: Polyline
    is_across: bool = False
    """Whether its strands go from the one line to the other, and not along them."""

    def outline(self) -> list[Point]:
        return curve(self.outer) + curve(self.inner)[::-1]

    def fail_stranded(self, share: float, chance: random.Random) -> list[Point]:
        if not self.is_across:
            return mixed(self.outer, self.inner, share)
        outer, inner = curve(self.outer), curve(self.inner)
        last = len(outer) - 1
        root, tip = inner[round(share * last)], outer[min(max(round(share * last + chance.uniform(-3, 3)), 0), last)]
        sway = chance.uniform(-0.03, 0.03)
        return [root, ((root[0] + tip[0]) / 2 + sway, (root[1] + tip[1]) / 2), tip]

    def turned(self) -> Lock:
        return Lock(tuple(mirrored(self.outer)), tuple(mirrored(self.inner)), self.is_across)


@dataclass(frozen=True, slots=True)
class Cut:
    """A hairstyle."""

    behind: tuple[Lock, ...] = ()
    """What lies behind the head and the shoulders."""
    before: tuple[Lock, ...] = ()
    """What lies before the face, or above it."""
    curls: Tufts = ()
    curls_behind: Tufts = ()
    shaved: float = 0.0
    """How dark the skin of the head is where the hair is very short."""
    covers_ears: bool = False


def _ring(count: int, reach: float, large: float, between: tuple[int, int], *, lift: float = 0.0) -> Tufts:
    """Tufts on an arc around the head, from one angle to another; 0 is right, 90 is up."""
    made: list[tuple[float, float, float]] = []
    for step in range(count):
        turn = math.radians(between[0] + (between[1] - between[0]) * step / (count - 1))
        wobble = 1 + 0.05 * math.sin(step * 2.4)
        made.append((reach * math.cos(turn) * wobble, -reach * 1.12 * math.sin(turn) * wobble - lift, large))
    return tuple(made)


def _both(lock: Lock) -> tuple[Lock, Lock]:
    return lock, lock.turned()


_LONG: Final = Lock(
    ((0.0, -0.60), (0.24, -0.575), (0.43, -0.36), (0.475, 0.05), (0.50, 0.48), (0.55, 0.92), (0.42, 1.34)),
    ((0.0, -0.41), (0.15, -0.355), (0.285, -0.21), (0.355, 0.02), (0.345, 0.40), (0.30, 0.82), (0.38, 1.33)),
)
_WAVY: Final = Lock(
    ((0.0, -0.60), (0.25, -0.58), (0.455, -0.35), (0.50, 0.06), (0.59, 0.38), (0.54, 0.72), (0.61, 1.08), (0.42, 1.40)),
    (
        (0.0, -0.41),
        (0.16, -0.35),
        (0.295, -0.20),
        (0.358, 0.04),
        (0.40, 0.30),
        (0.29, 0.58),
        (0.36, 0.94),
        (0.36, 1.39),
    ),
)
_BOB: Final = Lock(
    ((0.0, -0.60), (0.25, -0.575), (0.45, -0.35), (0.49, 0.04), (0.49, 0.30), (0.37, 0.50)),
    ((0.0, -0.41), (0.15, -0.35), (0.285, -0.20), (0.352, 0.04), (0.345, 0.28), (0.31, 0.48)),
)
_BACK_LONG: Final = Lock(
    ((-0.10, -0.50), (-0.46, -0.20), (-0.50, 0.40), (-0.52, 1.20)),
    ((0.10, -0.50), (0.46, -0.20), (0.50, 0.40), (0.52, 1.20)),
)
_BACK_SHORT: Final = Lock(
    ((-0.10, -0.50), (-0.45, -0.20), (-0.47, 0.20), (-0.34, 0.56)),
    ((0.10, -0.50), (0.45, -0.20), (0.47, 0.20), (0.34, 0.56)),
)
_FRINGE: Final = Lock(
    ((-0.36, -0.20), (-0.30, -0.46), (0.0, -0.57), (0.30, -0.46), (0.36, -0.20)),
    ((-0.335, -0.07), (-0.21, -0.15), (0.0, -0.175), (0.21, -0.15), (0.335, -0.07)),
    is_across=True,
)
_SWEPT: Final = Lock(  # from a parting at one side over the forehead
    ((-0.20, -0.54), (0.02, -0.655), (0.29, -0.60), (0.42, -0.34), (0.405, -0.06)),
    ((-0.20, -0.40), (-0.02, -0.345), (0.19, -0.30), (0.315, -0.21), (0.36, -0.04)),
)
_SWEPT_REST: Final = Lock(
    ((-0.20, -0.54), (-0.31, -0.545), (-0.405, -0.36), (-0.41, -0.06)),
    ((-0.20, -0.40), (-0.27, -0.33), (-0.335, -0.21), (-0.365, -0.04)),
)
_SWEPT_LONG: Final = Lock(
    ((-0.20, -0.55), (0.04, -0.66), (0.32, -0.58), (0.46, -0.28), (0.50, 0.20), (0.56, 0.66), (0.43, 1.08)),
    ((-0.20, -0.41), (0.00, -0.33), (0.20, -0.27), (0.335, -0.12), (0.352, 0.22), (0.31, 0.60), (0.38, 1.07)),
)
_SWEPT_LONG_REST: Final = Lock(
    ((-0.20, -0.55), (-0.34, -0.55), (-0.45, -0.30), (-0.485, 0.20), (-0.53, 0.62), (-0.41, 1.02)),
    ((-0.20, -0.41), (-0.28, -0.31), (-0.35, -0.10), (-0.355, 0.20), (-0.31, 0.58), (-0.36, 1.01)),
)
_QUIFF: Final = Lock(
    ((-0.375, -0.10), (-0.40, -0.40), (-0.20, -0.64), (0.10, -0.73), (0.33, -0.56), (0.40, -0.32), (0.378, -0.08)),
    ((-0.352, -0.08), (-0.325, -0.26), (-0.20, -0.355), (0.02, -0.37), (0.22, -0.345), (0.325, -0.24), (0.355, -0.06)),
    is_across=True,
)
_CROP: Final = Lock(
    (
        (-0.372, -0.08),
        (-0.385, -0.33),
        (-0.245, -0.535),
        (0.0, -0.615),
        (0.245, -0.535),
        (0.385, -0.33),
        (0.372, -0.08),
    ),
    ((-0.352, -0.06), (-0.325, -0.24), (-0.19, -0.315), (0.0, -0.30), (0.19, -0.315), (0.325, -0.24), (0.352, -0.06)),
    is_across=True,
)
_PULLED: Final = Lock(
    ((-0.375, 0.02), (-0.405, -0.30), (-0.24, -0.55), (0.0, -0.585), (0.24, -0.55), (0.405, -0.30), (0.375, 0.02)),
    ((-0.36, 0.02), (-0.315, -0.22), (-0.16, -0.365), (0.0, -0.395), (0.16, -0.365), (0.315, -0.22), (0.36, 0.02)),
    is_across=True,
)
_BUN: Final = Lock(
    ((-0.19, -0.62), (-0.20, -0.80), (0.0, -0.88), (0.20, -0.80), (0.19, -0.62)),
    ((-0.19, -0.62), (-0.10, -0.55), (0.0, -0.53), (0.10, -0.55), (0.19, -0.62)),
)
_TAIL: Final = Lock(
    ((0.22, -0.46), (0.47, -0.42), (0.60, 0.02), (0.57, 0.52), (0.58, 0.99)),
    ((0.22, -0.30), (0.36, -0.14), (0.40, 0.16), (0.38, 0.56), (0.53, 1.00)),
)
_MEDIUM: Final = Lock(
    ((0.0, -0.61), (0.24, -0.58), (0.425, -0.36), (0.455, 0.0), (0.43, 0.22), (0.40, 0.40)),
    ((0.0, -0.42), (0.14, -0.36), (0.28, -0.22), (0.35, 0.0), (0.355, 0.18), (0.36, 0.38)),
)

CUTS: Final[dict[str, Cut]] = {
    "long": Cut(behind=(_BACK_LONG,), before=_both(_LONG), covers_ears=True),
    "wavy": Cut(behind=(_BACK_LONG,), before=_both(_WAVY), covers_ears=True),
    "swept": Cut(behind=(_BACK_LONG,), before=(_SWEPT_LONG_REST, _SWEPT_LONG), covers_ears=True),
    "bob": Cut(behind=(_BACK_SHORT,), before=_both(_BOB), covers_ears=True),
    "fringe": Cut(behind=(_BACK_SHORT,), before=(*_both(_BOB), _FRINGE), covers_ears=True),
    "bun": Cut(behind=(_BUN,), before=(_PULLED,)),
    "tail": Cut(behind=(_TAIL,), before=(_PULLED,)),
    "afro": Cut(
        curls_behind=(*_ring(26, 0.58, 0.19, (-42, 222)), *_ring(22, 0.44, 0.20, (-30, 210))),
        curls=_ring(15, 0.425, 0.105, (12, 168), lift=0.03),
        covers_ears=True,
    ),
    "pixie": Cut(before=(_SWEPT_REST, _SWEPT), shaved=0.35),
    "crop": Cut(before=(_CROP,), shaved=0.55),
    "side": Cut(before=(_SWEPT_REST, _SWEPT), shaved=0.5),
    "quiff": Cut(before=(_QUIFF,), shaved=0.5),
    "curly": Cut(
        curls=(*_ring(13, 0.45, 0.13, (24, 156), lift=0.05), *_ring(10, 0.36, 0.12, (32, 148), lift=0.06)), shaved=0.6
    ),
    "buzz": Cut(shaved=0.8),
    "medium": Cut(behind=(_BACK_SHORT,), before=_both(_MEDIUM), covers_ears=True),
}
WOMEN: Final = ("long", "wavy", "swept", "bob", "fringe", "bun", "tail", "afro", "pixie")
MEN: Final = ("crop", "side", "quiff", "curly", "buzz", "medium", "side", "crop")


class Hair:
    """The hair of one person: always the same strands."""

    def __init__(self, cut: str, colour: Colour, seed: int) -> None:
        self.cut = CUTS[cut]
        self._colour = colour
        self._seed = seed

    def behind(self, brush: Brush, frame: DrawingFrame) -> None:
        dark = shade(self._colour, 0.72)
        self._tufts(brush, frame, self.cut.curls_behind, shade(self._colour, 0.9))
        for lock in self.cut.behind:
            self._lock(brush, frame, lock, dark)

    def before(self, brush: Brush, frame: DrawingFrame) -> None:
        for lock in self.cut.before:
            brush.lay(frame, [(x, y + 0.03) for x, y in lock.outline()], (30, 10, 5), strength=0.22, blur=0.03)
        for lock in self.cut.before:
            self._lock(brush, frame, lock, self._colour)
        self._tufts(brush, frame, self.cut.curls, self._colour)

    def _lock(self, brush: Brush, frame: DrawingFrame, lock: Lock, colour: Colour) -> None:
        chance = random.Random(self._seed)  # noqa: S311 - for reproducible pictures, not for secrets
        outline = lock.outline()
        within = brush.mask(frame, outline)
        brush.lay(frame, outline, colour)
        light, dark = mix(colour, (255, 236, 205), 0.30), shade(colour, 0.62)
        count = 60 if lock.is_across else 26
        for fail_stranded in range(count):
            share = min(max((fail_stranded + chance.uniform(-0.4, 0.4)) / (count - 1), 0.0), 1.0)
            line = lock.fail_stranded(share, chance)
            tone, strength = (light, 0.20) if chance.random() < 0.45 else (dark, 0.26)  # noqa: PLR2004 - about half
            brush.lay(frame, ribbon(line, chance.uniform(0.008, 0.026)), tone, strength=strength, within=within)
        sheen = mixed(lock.outer, lock.inner, 0.42)[: max(3, len(lock.outer) - 1)]
        brush.lay(frame, ribbon(sheen, 0.075), light, strength=0.30, blur=0.022, within=within)
        edge = ribbon(lock.inner, 0.035, ends=(0.3, 0.3))
        brush.lay(frame, edge, dark, strength=0.35, blur=0.012, within=within)

    def _tufts(self, brush: Brush, frame: DrawingFrame, tufts: Tufts, colour: Colour) -> None:
        chance = random.Random(self._seed)  # noqa: S311 - as above
        for x, y, large in tufts:
            brush.lay(frame, oval((x, y), large, large), shade(colour, chance.uniform(0.86, 1.0)))
        light, dark = mix(colour, (255, 236, 205), 0.25), shade(colour, 0.6)
        for x, y, large in tufts:
            for _ in range(5):
                turn, reach = chance.uniform(0, 6.28), large * chance.uniform(0.25, 0.8)
                centre = x + math.cos(turn) * large * 0.35, y + math.sin(turn) * large * 0.35
                arc = [
                    (centre[0] + reach * math.cos(turn + step * 0.6), centre[1] + reach * math.sin(turn + step * 0.6))
                    for step in range(5)
                ]
                tone, strength = (light, 0.32) if chance.random() < 0.5 else (dark, 0.4)  # noqa: PLR2004 - half of them
                brush.lay(frame, ribbon(arc, 0.017), tone, strength=strength)
