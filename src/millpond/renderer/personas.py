"""``millpond/persona``: a person who does not exist, in several shots. The seed is the person, the shot the moment."""

# Pillow's types mention those of numpy, which is not here.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image

from millpond.renderer.brush import Frame
from millpond.renderer.canvas import grain
from millpond.renderer.figures import Figure, Person, Pose
from millpond.renderer.palettes import choose, mix
from millpond.renderer.pictures import SIZES, written
from millpond.renderer.rooms import ROOMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.renderer.models import Persona
    from millpond.renderer.orders import Made, Order
    from millpond.renderer.palettes import Colour, Palette

_FINE: Final = 2
"""Drawn so many times larger, and then made smaller: that is what makes edges smooth."""
_CLOTHS: Final = ("tee", "blazer", "roll", "shirt", "vee", "hoodie")


@dataclass(frozen=True, slots=True)
class Shot:
    """One of the moments in which somebody is seen."""

    room: str
    pose: Pose
    large: float
    """The height of the head, as a share of the picture's shorter side."""
    across: float = 0.5
    down: float = 0.40


SHOTS: Final = (
    Shot("studio", Pose(turn=0.0, lean=1.5, smile=0.35), large=0.47),
    Shot("outdoors", Pose(turn=0.75, lean=-5.0, smile=0.95, gaze=0.3, light=1.0), large=0.43, across=0.47),
    Shot("home", Pose(turn=-0.7, lean=5.5, smile=0.62, gaze=-0.4), large=0.37, across=0.54, down=0.37),
    Shot("evening", Pose(turn=0.4, lean=3.0, smile=0.15, gaze=0.2), large=0.52, across=0.49, down=0.42),
)


def make(given: Persona, order: Order, say: Callable[[str], None]) -> Made:
    image = draw(given, order.seed)
    say(f"Drew {image.width} × {image.height} pixels.")
    return written(image, order.target, given.format)


def draw(given: Persona, seed: int) -> Image.Image:
    """The same for the same seed and shot; for another shot, the same person."""
    shot, size = SHOTS[given.shot - 1], SIZES[given.aspect_ratio]
    chance = random.Random(f"{seed}/{given.shot}")  # noqa: S311 - a seed that makes the same picture again is no secret
    wardrobe = random.Random(f"{seed}/wardrobe")  # noqa: S311 - as above
    palette = choose(given.style, wardrobe)
    image = ROOMS[shot.room](size, palette, chance)
    large = image.resize((size[0] * _FINE, size[1] * _FINE), Image.Resampling.BICUBIC)
    unit = min(size) * shot.large * _FINE
    frame = Frame(large.width * shot.across, large.height * shot.down, unit)
    person = Person.born(seed, given.presents, given.age)
    Figure(large, person, shot.pose, frame, _worn(given.shot, palette, wardrobe)).draw()
    return grain(large.reduce(_FINE), chance, 0.03)


def _worn(shot: int, palette: Palette, wardrobe: random.Random) -> tuple[str, Colour]:
    """Another thing on each picture, all from one wardrobe."""
    cloths = wardrobe.sample(_CLOTHS, len(SHOTS))
    colours = [palette.label, mix(palette.accent, (255, 255, 255), 0.12), mix(palette.ink, palette.ground, 0.35)]
    colours += [mix(palette.ground, (255, 255, 255), 0.2)]
    wardrobe.shuffle(colours)
    return cloths[shot - 1], colours[shot - 1]
