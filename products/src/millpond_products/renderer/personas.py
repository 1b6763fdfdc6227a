"""``millpond/persona``: a fictitious person in several shots. The seed determines the person, the shot the scene."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image

from millpond_products.renderer.brush import DrawingFrame
from millpond_products.renderer.canvas import grain
from millpond_products.renderer.figures import Figure, Person, Pose
from millpond_products.renderer.palettes import choose, mix
from millpond_products.renderer.pictures import SIZES, written
from millpond_products.renderer.rooms import ROOMS

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond_products.renderer.models import PersonaInput
    from millpond_products.renderer.orders import Rendered, RenderOrder
    from millpond_products.renderer.palettes import Colour, Palette

_FINE: Final = 2
"""The drawing is so many times larger and is then reduced, which makes edges smooth."""
_CLOTHS: Final = ("tee", "blazer", "roll", "shirt", "vee", "hoodie")


@dataclass(frozen=True, slots=True)
class Shot:
    """A scene, with the pose and the framing of the person."""

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


def make(given: PersonaInput, order: RenderOrder, log: Callable[[str], None]) -> Rendered:
    image = draw(given, order.seed)
    log(f"Drew {image.width} × {image.height} pixels.")
    return written(image, order.target, given.format)


def draw(given: PersonaInput, seed: int) -> Image.Image:
    """Draw a shot. The same seed and shot give the same picture; another shot shows the same person."""
    shot, size = SHOTS[given.shot - 1], SIZES[given.aspect_ratio]
    chance = random.Random(f"{seed}/{given.shot}")  # noqa: S311 - for reproducible pictures, not for secrets
    wardrobe = random.Random(f"{seed}/wardrobe")  # noqa: S311 - as above
    palette = choose(given.style, wardrobe)
    image = ROOMS[shot.room](size, palette, chance)
    large = image.resize((size[0] * _FINE, size[1] * _FINE), Image.Resampling.BICUBIC)
    unit = min(size) * shot.large * _FINE
    frame = DrawingFrame(large.width * shot.across, large.height * shot.down, unit)
    person = Person.born(seed, given.presents, given.age)
    Figure(large, person, shot.pose, frame, _worn(given.shot, palette, wardrobe)).draw()
    return grain(large.reduce(_FINE), chance, 0.03)


def _worn(shot: int, palette: Palette, wardrobe: random.Random) -> tuple[str, Colour]:
    """The clothes of a shot: different in each shot, from one wardrobe."""
    cloths = wardrobe.sample(_CLOTHS, len(SHOTS))
    colours = [palette.label, mix(palette.accent, (255, 255, 255), 0.12), mix(palette.ink, palette.ground, 0.35)]
    colours += [mix(palette.ground, (255, 255, 255), 0.2)]
    wardrobe.shuffle(colours)
    return cloths[shot - 1], colours[shot - 1]
