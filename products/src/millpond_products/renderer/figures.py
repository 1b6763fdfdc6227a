"""Figures: the features of a person, and how they are drawn in any pose."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond_products.renderer.brush import Brush, DrawingFrame, curve, mirrored, oval, ribbon
from millpond_products.renderer.hair import MEN, WOMEN, Hair
from millpond_products.renderer.palettes import colour, mix, shade

if TYPE_CHECKING:
    from PIL import Image

    from millpond_products.renderer.brush import Point
    from millpond_products.renderer.palettes import Colour

_SKINS: Final = tuple(map(colour, ("fbdcc8", "f4cbb0", "eab897", "d9a07a", "c4875f", "a66b47", "825034", "5f3823")))
_HAIRS: Final = {
    "light": tuple(map(colour, ("e8c98a", "c99a5b", "8a5a35", "5a3a26", "b1552f", "33231c"))),
    "dark": tuple(map(colour, ("1d1614", "2b1d18", "3a261c", "241a1c"))),
}
_GREYS: Final = tuple(map(colour, ("cfcac4", "a9a39d", "8d8781")))
_EYES: Final = tuple(map(colour, ("5a7fa6", "6b8f6a", "7a5a36", "4a3020", "8a7a4a", "3b2a20")))
_DARK: Final = (38, 22, 18)
_WHITE: Final = (252, 249, 246)


@dataclass(frozen=True, slots=True)
class Person:
    """The features of one person."""

    is_woman: bool
    age: int
    skin: Colour
    hair: Hair
    hair_colour: Colour
    eyes: Colour
    width: float
    jaw: float
    chin: float
    eye_gap: float
    eye_size: float
    brow: float
    nose: float
    nose_length: float
    lips: float
    beard: str
    has_glasses: bool
    has_freckles: bool
    has_earrings: bool

    @classmethod
    def born(cls, seed: int, presents: str | None, age: int | None) -> Person:
        """A person with random features, the same for the same seed."""
        chance = random.Random(f"{seed}/person")  # noqa: S311 - for reproducible pictures, not for secrets
        is_woman = chance.random() < 0.5 if presents is None else presents == "woman"  # noqa: PLR2004 - one or the other
        years = chance.choice((22, 28, 33, 40, 48)) if age is None else age
        tone = chance.randrange(len(_SKINS))
        hair_colour = chance.choice(_HAIRS["light" if tone < 3 else "dark"])  # noqa: PLR2004 - the darker tones
        if years > 50 or (years > 44 and chance.random() < 0.4):  # noqa: PLR2004 - when hair turns grey
            hair_colour = mix(hair_colour, chance.choice(_GREYS), 0.75)
        return cls(
            is_woman=is_woman,
            age=years,
            skin=_SKINS[tone],
            hair=Hair(chance.choice(WOMEN if is_woman else MEN), hair_colour, seed),
            hair_colour=hair_colour,
            eyes=chance.choice(_EYES[:4] if tone < 4 else _EYES[2:]),  # noqa: PLR2004 - as above
            width=chance.uniform(0.352, 0.378),
            jaw=chance.uniform(0.255, 0.285) if is_woman else chance.uniform(0.285, 0.325),
            chin=chance.uniform(0.075, 0.11) if is_woman else chance.uniform(0.12, 0.16),
            eye_gap=chance.uniform(0.152, 0.170),
            eye_size=chance.uniform(0.96, 1.12) * (1.08 if is_woman else 0.94),
            brow=chance.uniform(0.030, 0.042) if is_woman else chance.uniform(0.044, 0.060),
            nose=chance.uniform(0.058, 0.080) * (0.95 if is_woman else 1.12),
            nose_length=chance.uniform(0.180, 0.205),
            lips=chance.uniform(0.95, 1.3) if is_woman else chance.uniform(0.65, 0.9),
            beard="" if is_woman else chance.choice(("", "", "stubble", "stubble", "beard")),
            has_glasses=chance.random() < 0.25,  # noqa: PLR2004 - one in four
            has_freckles=tone < 3 and chance.random() < 0.4,  # noqa: PLR2004 - some of the light ones
            has_earrings=is_woman and chance.random() < 0.6,  # noqa: PLR2004 - more than half
        )


@dataclass(frozen=True, slots=True)
class Pose:
    """The pose of a person, and the light."""

    turn: float
    """From -1, to the left, to 1."""
    lean: float
    smile: float
    """From 0 to 1; a wide one shows the teeth."""
    gaze: float = 0.0
    light: float = -1.0
    """The side of the light: -1 is left, 1 is right."""


class Figure:
    """One person in one pose, on a picture."""

    def __init__(
        self, image: Image.Image, person: Person, pose: Pose, frame: DrawingFrame, clothes: tuple[str, Colour]
    ) -> None:
        self._brush = Brush(image)
        self._person = person
        self._pose = pose
        self._body = DrawingFrame(frame.x, frame.y - 0.10 * frame.unit, frame.unit)
        self._head = DrawingFrame(frame.x, frame.y, frame.unit, pose.lean, pivot=0.62)
        self._cut, self._cloth = clothes
        self._shift = pose.turn * 0.062
        self._dark = mix(shade(person.skin, 0.55), (120, 40, 30), 0.25)
        self._light = mix(person.skin, (255, 244, 230), 0.5)

    def draw(self) -> None:
        self._person.hair.behind(self._brush, self._head)
        self._neck()
        self._clothes()
        self._ears()
        self._skull()
        self._features()
        self._person.hair.before(self._brush, self._head)
        if self._person.has_glasses:
            self._glasses()

    # Below the head

    def _neck(self) -> None:
        brush, body, skin = self._brush, self._body, self._person.skin
        half = 0.165 if self._person.is_woman else 0.205
        side = [
            (half, 0.20),
            (half * 0.98, 0.55),
            (half * 1.15, 0.70),
            (0.34, 0.82),
            (0.44, 1.0),
            (0.36, 1.5),
            (0, 1.6),
        ]
        outline = curve(side) + curve(mirrored(side))[::-1]
        within = brush.mask(body, outline)
        brush.lay(body, outline, shade(skin, 0.93))
        under = [(x + 0.02 * -self._pose.light, y + 0.13) for x, y in self._outline()]
        brush.lay(self._head, under, self._dark, strength=0.62, blur=0.035, within=within)
        dim = [(0.02, 0.3), (0.5, 0.3), (0.9, 1.0), (0.1, 1.5)]
        brush.lay(body, self._shaded(dim), self._dark, strength=0.28, blur=0.08, within=within)
        bone = [(0.05, 0.86), (0.20, 0.845), (0.42, 0.87)]
        for line in (bone, mirrored(bone)):
            brush.lay(body, ribbon(line, 0.024), self._dark, strength=0.25, blur=0.012, within=within)

    def _clothes(self) -> None:
        brush, body, cloth = self._brush, self._body, self._cloth
        wide = 0.82 if self._person.is_woman else 0.96
        neckline = {
            "tee": [(0, 0.98), (0.13, 0.94), (0.235, 0.80)],
            "vee": [(0, 1.22), (0.10, 1.04), (0.245, 0.79)],
            "shirt": [(0, 1.10), (0.09, 0.98), (0.215, 0.74)],
            "blazer": [(0, 1.02), (0.12, 0.96), (0.235, 0.79)],
            "hoodie": [(0, 0.93), (0.14, 0.90), (0.25, 0.79)],
            "roll": [(0, 0.60), (0.12, 0.59), (0.20, 0.54)],
        }[self._cut]
        shoulder = [(0.36, 0.80), (wide * 0.78, 0.915), (wide, 1.12), (wide * 1.13, 1.70), (wide * 1.17, 3.2)]
        if self._cut == "roll":
            shoulder = [(0.235, 0.66), *shoulder]
        right = curve([*neckline, *shoulder])
        outline = right + curve(mirrored([*neckline, *shoulder]))[::-1]
        within = brush.mask(body, outline)
        if self._cut == "hoodie":
            self._hood()
        brush.lay(body, outline, cloth)
        self._folds(wide, within)
        trim = curve(neckline)
        _CLOTHES[self._cut](self, trim, within)

    def _folds(self, wide: float, within: Image.Image) -> None:
        brush, body, cloth = self._brush, self._body, self._cloth
        dim, lit = shade(cloth, 0.55), mix(cloth, (255, 255, 255), 0.4)
        side = self._shaded([(0.30, 0.7), (1.5, 0.7), (1.5, 3.2), (0.55, 3.2)])
        brush.lay(body, side, dim, strength=0.42, blur=0.16, within=within)
        glow = self._shaded([(-wide * 0.95, 0.95), (-0.5, 0.85), (-0.55, 1.3), (-wide * 0.9, 1.7)])
        brush.lay(body, glow, lit, strength=0.28, blur=0.12, within=within)
        for line in (
            [(wide * 0.74, 1.34), (wide * 0.66, 1.7), (wide * 0.70, 2.4)],
            [(0.3, 1.5), (0.24, 1.9), (0.34, 2.4)],
        ):
            for fold in (line, mirrored(line)):
                brush.lay(body, ribbon(fold, 0.05), dim, strength=0.4, blur=0.02, within=within)
        under = [(x, y + 0.26) for x, y in self._outline()]
        brush.lay(self._head, under, (0, 0, 0), strength=0.25, blur=0.09, within=within)

    def _hood(self) -> None:
        back = [(0.0, 0.50), (0.26, 0.50), (0.42, 0.66), (0.44, 0.86), (0.2, 1.0)]
        outline = curve(back) + curve(mirrored(back))[::-1]
        self._brush.lay(self._body, outline, shade(self._cloth, 0.62))
        self._neck()  # the neck is in front of the hood

    def collar(self, trim: list[Point], within: Image.Image) -> None:
        """The trim along the neckline."""
        for line in (trim, mirrored(trim)):
            brush_line = ribbon(line[::3], 0.05, ends=(1.0, 1.0))
            self._brush.lay(self._body, brush_line, shade(self._cloth, 0.8), within=within)

    def shirt(self, trim: list[Point], within: Image.Image) -> None:  # noqa: ARG002 - the signature of all clothes
        brush, body, cloth = self._brush, self._body, self._cloth
        brush.lay(
            body, ribbon([(0, 1.08), (0.0, 1.8), (0.0, 3.2)], 0.09, ends=(1, 1)), shade(cloth, 0.9), within=within
        )
        for button in (1.28, 1.62, 1.96):
            brush.lay(body, oval((0, button), 0.018, 0.018), shade(cloth, 0.6))
        flap = [(0.20, 0.66), (0.27, 0.74), (0.33, 0.98), (0.17, 1.10), (0.02, 1.10), (0.10, 0.96)]
        for side in (flap, mirrored(flap)):
            brush.lay(body, [(x, y + 0.03) for x, y in side], (0, 0, 0), strength=0.25, blur=0.02)
            brush.lay(body, side, mix(cloth, (255, 255, 255), 0.16))
            brush.lay(body, ribbon(side[1:5], 0.012, ends=(1, 1)), shade(cloth, 0.75), strength=0.5)

    def blazer(self, trim: list[Point], within: Image.Image) -> None:
        brush, body, cloth = self._brush, self._body, self._cloth
        tee = [*trim, (0.28, 0.80), (0.20, 1.5), (0.0, 2.4)]
        inner = _WHITE if sum(cloth) < 480 else (52, 56, 66)  # noqa: PLR2004 - dark cloth has a light one below
        brush.lay(body, tee + mirrored(tee)[::-1], inner, within=within)
        brush.lay(body, ribbon(trim[::3], 0.03, ends=(1, 1)), shade(inner, 0.85), within=within)
        brush.lay(body, ribbon(mirrored(trim)[::3], 0.03, ends=(1, 1)), shade(inner, 0.85), within=within)
        lapel = [(0.235, 0.72), (0.34, 0.80), (0.50, 1.16), (0.38, 1.20), (0.41, 1.30), (0.05, 2.25), (0.18, 1.4)]
        for side in (lapel, mirrored(lapel)):
            brush.lay(body, [(x * 0.96, y + 0.04) for x, y in side], (0, 0, 0), strength=0.3, blur=0.03)
            brush.lay(body, side, mix(cloth, (255, 255, 255), 0.09))
            brush.lay(body, ribbon(side[1:6], 0.012, ends=(1, 1)), shade(cloth, 0.6), strength=0.7)

    def hoodie(self, trim: list[Point], within: Image.Image) -> None:
        self.collar(trim, within)
        brush, body, cloth = self._brush, self._body, self._cloth
        rim = [(0.05, 1.02), (0.20, 0.98), (0.34, 0.80), (0.37, 0.62)]
        for side in (rim, mirrored(rim)):
            brush.lay(body, ribbon(side, 0.13, ends=(0.5, 0.6)), shade(cloth, 0.85))
            brush.lay(body, ribbon(side, 0.09, ends=(0.5, 0.6)), mix(cloth, (255, 255, 255), 0.10))
        for x in (-0.12, 0.12):
            cord = [(x, 1.02), (x * 1.15, 1.25), (x * 1.05, 1.52)]
            brush.lay(body, ribbon(cord, 0.026, ends=(1, 1)), mix(cloth, (255, 255, 255), 0.7))

    def roll(self, trim: list[Point], within: Image.Image) -> None:  # noqa: ARG002 - the signature of all clothes
        brush, body, cloth = self._brush, self._body, self._cloth
        half = 0.20 if self._person.is_woman else 0.245
        band = [(half * 0.9, 0.53), (half, 0.58), (half * 1.12, 0.80), (0, 0.90)]
        outline = curve([(0, 0.60), *band]) + curve(mirrored([(0, 0.60), *band]))[::-1]
        brush.lay(body, outline, mix(cloth, (255, 255, 255), 0.08))
        clip = brush.mask(body, outline)
        side = self._shaded([(0.04, 0.4), (0.5, 0.4), (0.5, 1.0), (0.08, 1.0)])
        brush.lay(body, side, shade(cloth, 0.5), strength=0.45, blur=0.05, within=clip)
        for x in (-0.15, -0.09, -0.03, 0.03, 0.09, 0.15):
            rib = [(x, 0.55), (x * 1.08, 0.7), (x * 1.15, 0.9)]
            brush.lay(body, ribbon(rib, 0.012, ends=(1, 1)), shade(cloth, 0.7), strength=0.5, within=clip)
        brush.lay(
            body, ribbon([(-half, 0.84), (0, 0.915), (half, 0.84)], 0.03), shade(cloth, 0.6), strength=0.7, blur=0.01
        )

    # The head

    def _shaded(self, points: list[Point]) -> list[Point]:
        """Points for light from the left, mirrored if the light comes from the right."""
        return mirrored(points) if self._pose.light > 0 else points

    def _outline(self) -> list[Point]:
        person, turn = self._person, self._pose.turn
        side = [
            (0.0, -0.515), (0.20, -0.465), (0.320, -0.325), (person.width, -0.10), (person.width * 0.985, 0.09),
            (person.jaw + 0.035, 0.27), (person.jaw * 0.60 + 0.02, 0.425), (person.chin * 0.75, 0.492),
        ]  # fmt: skip
        right = [(x * (1 - 0.085 * turn) + 0.025 * turn, y) for x, y in side]
        left = [(-x * (1 + 0.085 * turn) + 0.025 * turn, y) for x, y in side[1:]]
        return curve([*right, (0.035 * turn, 0.505), *left[::-1]], is_closed=True)

    def _ears(self) -> None:
        if self._person.hair.cut.covers_ears and not self._person.has_earrings:
            return
        brush, head, skin = self._brush, self._head, self._person.skin
        for side in (-1, 1):
            away = 1 + 0.10 * side * self._pose.turn
            x = side * (self._person.width + 0.012) * (2 - away) + 0.02 * self._pose.turn
            if not self._person.hair.cut.covers_ears:
                brush.lay(head, oval((x, 0.055), 0.055 * away, 0.105), shade(skin, 0.90))
                inner = [(x - side * 0.01, -0.01), (x + side * 0.025, 0.03), (x + side * 0.012, 0.10)]
                brush.lay(head, ribbon(inner, 0.022), self._dark, strength=0.5)
            if self._person.has_earrings:
                brush.lay(head, oval((x + side * 0.004, 0.185), 0.021, 0.021), (222, 178, 92))
                brush.lay(head, oval((x - 0.004, 0.179), 0.008, 0.008), (255, 246, 214))

    def _skull(self) -> None:
        brush, head, person = self._brush, self._head, self._person
        outline = self._outline()
        self._within = brush.mask(head, outline)
        brush.lay(head, outline, person.skin)
        dim = self._shaded([(0.16, -0.5), (0.5, -0.5), (0.5, 0.5), (0.06, 0.55), (0.20, 0.25), (0.22, -0.1)])
        brush.lay(head, dim, self._dark, strength=0.34, blur=0.07, within=self._within)
        lit = self._shaded(oval((-0.13 + self._shift, -0.20), 0.20, 0.15))
        brush.lay(head, lit, self._light, strength=0.42, blur=0.07, within=self._within)
        shaved = person.hair.cut.shaved
        if shaved:
            self._shaved_head(shaved)
        for side in (-1, 1):
            cheek = oval((side * 0.215 + self._shift * 1.1, 0.175), 0.085, 0.055)
            blush = mix(person.skin, (214, 70, 70), 0.55)
            brush.lay(head, cheek, blush, strength=0.30 if person.is_woman else 0.18, blur=0.045, within=self._within)
        under = [(-0.16 + self._shift, 0.46), (self._shift, 0.43), (0.16 + self._shift, 0.46), (0, 0.55)]
        brush.lay(head, under, self._dark, strength=0.25, blur=0.03, within=self._within)
        if person.beard:
            self._beard()

    def _shaved_head(self, shaved: float) -> None:
        cap = [(0.42, 0.04), (0.352, -0.03), (0.318, -0.25), (0.19, -0.335), (0.0, -0.325)]
        outline = curve(cap) + curve(mirrored(cap))[::-1] + [(-0.6, -0.7), (0.6, -0.7)]
        self._brush.lay(self._head, outline, self._person.hair_colour, strength=shaved, blur=0.012, within=self._within)

    def _beard(self) -> None:
        brush, head, s = self._brush, self._head, self._shift
        is_full = self._person.beard == "beard"
        edge = [(0.40, 0.05), (0.335, 0.10), (0.265, 0.235), (0.125, 0.262), (0.0, 0.255)]
        outline = [(x + s, y) for x, y in curve(edge) + curve(mirrored(edge))[::-1]] + [(-0.5, 0.6), (0.5, 0.6)]
        strength, blur = (0.86, 0.016) if is_full else (0.30, 0.03)
        brush.lay(head, outline, self._person.hair_colour, strength=strength, blur=blur, within=self._within)
        if is_full:
            chance = random.Random(7)  # noqa: S311 - the same hairs each time
            tone = mix(self._person.hair_colour, (255, 230, 200), 0.3)
            for _ in range(70):
                x, y = chance.uniform(-0.30, 0.30), chance.uniform(0.30, 0.49)
                hair = [(x, y), (x * 1.02, y + 0.02), (x * 1.01, y + 0.045)]
                brush.lay(head, ribbon(hair, 0.006), tone, strength=0.35, within=self._within)

    def _features(self) -> None:
        if self._person.has_freckles:
            self._freckles()
        self._nose()
        self._mouth()
        for side in (-1, 1):
            self._eye(side)
            self._brow(side)
        self._years()

    def _eye(self, side: int) -> None:
        brush, head, person = self._brush, self._head, self._person
        near = 1 + 0.12 * side * -self._pose.turn
        x, y = side * person.eye_gap * (0.5 + near / 2) + self._shift * 1.15, -0.005
        wide, tall = 0.082 * person.eye_size * near, 0.044 * person.eye_size * (1 - 0.22 * self._pose.smile)
        socket = oval((x, y - 0.01), wide * 1.35, tall * 1.9)
        brush.lay(head, socket, self._dark, strength=0.22, blur=0.022, within=self._within)
        upper = [
            (-wide, 0.012),
            (-wide * 0.55, -tall * 0.80),
            (0.0, -tall),
            (wide * 0.60, -tall * 0.72),
            (wide, -0.008),
        ]
        lower = [(wide, -0.008), (wide * 0.45, tall * 0.66), (-wide * 0.2, tall * 0.74), (-wide, 0.012)]
        rim = [(x + side * px, y + py) for px, py in curve(upper) + curve(lower)[1:]]
        lid = [(x + side * px, y + py) for px, py in upper]
        within = brush.mask(head, rim)
        brush.lay(head, rim, _WHITE)
        ix, iy, iris = x + self._pose.gaze * 0.016, y - 0.005, 0.0385 * person.eye_size
        brush.lay(head, oval((ix, iy), iris, iris), shade(person.eyes, 0.55), within=within)
        brush.lay(head, oval((ix, iy + 0.003), iris * 0.86, iris * 0.86), person.eyes, within=within)
        glow = oval((ix, iy + iris * 0.45), iris * 0.6, iris * 0.4)
        brush.lay(head, glow, mix(person.eyes, (255, 255, 255), 0.5), strength=0.7, blur=0.006, within=within)
        brush.lay(head, oval((ix, iy), iris * 0.46, iris * 0.46), (14, 9, 9), within=within)
        shadow = [(px, py + 0.008) for px, py in lid]
        brush.lay(head, ribbon(shadow, 0.026, ends=(0.6, 0.6)), (40, 25, 25), strength=0.4, blur=0.006, within=within)
        spark = self._pose.light * iris * 0.34
        brush.lay(head, oval((ix + spark, iy - iris * 0.36), iris * 0.23, iris * 0.23), (255, 255, 255))
        brush.lay(
            head, oval((ix - spark * 0.8, iy + iris * 0.42), iris * 0.10, iris * 0.10), (255, 255, 255), strength=0.7
        )
        line = 0.020 if person.is_woman else 0.013
        brush.lay(head, ribbon(lid, line, ends=(0.25, 0.7)), _DARK, strength=0.95)
        if person.is_woman:
            wing = [
                (x + side * px, y + py)
                for px, py in ((wide * 0.55, -tall * 0.78), (wide, -0.010), (wide * 1.24, -0.036))
            ]
            brush.lay(head, ribbon(wing, 0.016), _DARK, strength=0.9)
        crease = [(px, py - 0.022) for px, py in lid[:-1]]
        brush.lay(head, ribbon(crease, 0.008), self._dark, strength=0.5)
        below = [(x + side * px, y + py + 0.012) for px, py in lower[1:]]
        brush.lay(head, ribbon(below, 0.008), self._dark, strength=0.35)

    def _brow(self, side: int) -> None:
        person = self._person
        near = 1 + 0.12 * side * -self._pose.turn
        x, lift = side * person.eye_gap * (0.5 + near / 2) + self._shift * 1.15, 0.012 * self._pose.smile
        shape = [(-0.088, -0.088), (-0.03, -0.113), (0.045, -0.118), (0.108, -0.082)]
        line = [(x + side * px * near, py - lift) for px, py in shape]
        tone = mix(shade(person.hair_colour, 0.62), _DARK, 0.3)
        self._brush.lay(self._head, ribbon(line, person.brow, ends=(0.55, 0.05)), tone, strength=0.9, blur=0.003)

    def _nose(self) -> None:
        brush, head, person = self._brush, self._head, self._person
        x, y, half = self._shift * 1.75, person.nose_length - 0.005, person.nose
        side = -self._pose.light if abs(self._pose.turn) < 0.2 else math.copysign(1, self._pose.turn)  # noqa: PLR2004
        bridge = [(self._shift + side * 0.035, -0.06), (x + side * 0.045, 0.05), (x + side * half * 0.75, y - 0.02)]
        brush.lay(
            head, ribbon(bridge, 0.045, ends=(0.4, 0.6)), self._dark, strength=0.26, blur=0.018, within=self._within
        )
        ball = oval((x, y - 0.012), half * 0.95, 0.045)
        brush.lay(head, ball, mix(person.skin, (214, 90, 70), 0.35), strength=0.30, blur=0.022, within=self._within)
        brush.lay(
            head, oval((x + self._pose.light * 0.012, y - 0.035), 0.014, 0.020), self._light, strength=0.75, blur=0.010
        )
        base = [(x - half, y - 0.012), (x - half * 0.72, y + 0.018), (x - half * 0.25, y + 0.014), (x, y + 0.024),
                (x + half * 0.25, y + 0.014), (x + half * 0.72, y + 0.018), (x + half, y - 0.012)]  # fmt: skip
        brush.lay(head, ribbon(base, 0.013, ends=(0.4, 0.4)), self._dark, strength=0.62, blur=0.003)
        for wing in (-1, 1):
            brush.lay(
                head,
                oval((x + wing * half * 0.45, y + 0.012), half * 0.24, 0.0085),
                shade(self._dark, 0.55),
                strength=0.75,
                blur=0.002,
            )
        brush.lay(
            head, oval((x, y + 0.045), half * 0.8, 0.018), self._dark, strength=0.22, blur=0.014, within=self._within
        )

    def _mouth(self) -> None:
        brush, head, person, smile = self._brush, self._head, self._person, self._pose.smile
        x, y = self._shift * 1.35, 0.318
        half, up = 0.108 + 0.032 * smile, 0.012 + 0.034 * smile
        rose = mix(person.skin, (190, 52, 66), 0.62 if person.is_woman else 0.34)
        lip = 0.030 * person.lips
        corners = ((x - half, y - up), (x + half, y - up))
        opening = 0.062 * max(0.0, smile - 0.45) / 0.55
        top = [corners[0], (x - half * 0.48, y - lip * 0.95), (x - half * 0.14, y - lip * 1.35), (x, y - lip * 1.05),
               (x + half * 0.14, y - lip * 1.35), (x + half * 0.48, y - lip * 0.95), corners[1]]  # fmt: skip
        middle = [corners[0], (x - half * 0.5, y + 0.006), (x, y + 0.012), (x + half * 0.5, y + 0.006), corners[1]]
        lower = [corners[0], (x - half * 0.55, y + opening * 0.72 + 0.006), (x, y + opening + 0.012),
                 (x + half * 0.55, y + opening * 0.72 + 0.006), corners[1]]  # fmt: skip
        bottom = [corners[0], (x - half * 0.52, y + opening * 0.72 + lip * 1.25), (x, y + opening + lip * 1.75),
                  (x + half * 0.52, y + opening * 0.72 + lip * 1.25), corners[1]]  # fmt: skip
        if opening > 0:
            inside = curve(middle) + curve(lower)[::-1]
            within = brush.mask(head, inside)
            brush.lay(head, inside, (92, 26, 32))
            teeth = curve(middle) + [(px, py + opening * 0.62) for px, py in curve(middle)][::-1]
            brush.lay(head, teeth, (250, 247, 242), within=within)
            tongue = oval((x, y + opening * 1.05), half * 0.5, opening * 0.38)
            brush.lay(head, tongue, (196, 84, 88), blur=0.006, within=within)
        brush.lay(head, curve(top) + curve(middle)[::-1], shade(rose, 0.88))
        brush.lay(head, curve(lower) + curve(bottom)[::-1], rose)
        shine = oval((x + self._pose.light * 0.02, y + opening + lip * 0.95), half * 0.30, lip * 0.24)
        brush.lay(head, shine, mix(rose, (255, 255, 255), 0.6), strength=0.55, blur=0.007)
        brush.lay(head, ribbon(middle, 0.011, ends=(0.4, 0.4)), shade(rose, 0.42), strength=0.8)
        for side in (-1, 1):
            corner = [(x + side * (half - 0.004), y - up - 0.006), (x + side * (half + 0.012), y - up + 0.006)]
            brush.lay(head, ribbon(corner, 0.022, ends=(0.7, 0.7)), self._dark, strength=0.45 + 0.2 * smile, blur=0.006)
            fold = [(x + side * 0.105, 0.185), (x + side * (half + 0.030), 0.25), (x + side * (half + 0.036), 0.315)]
            strength = 0.16 * smile + max(0, person.age - 26) * 0.010
            brush.lay(
                head, ribbon(fold, 0.020), self._dark, strength=min(0.5, strength), blur=0.009, within=self._within
            )
        brush.lay(head, oval((x, y + opening + lip * 2.5), half * 0.5, 0.014), self._dark, strength=0.24, blur=0.012)

    def _years(self) -> None:
        """Draw wrinkles, from the age of 34."""
        strength = min(0.5, max(0, self._person.age - 33) * 0.018)
        if strength <= 0:
            return
        for side in (-1, 1):
            x = side * (self._person.eye_gap + 0.10) + self._shift
            for n, y in enumerate((-0.012, 0.012, 0.034)):
                line = [(x, y), (x + side * 0.028, y - 0.006 + n * 0.008), (x + side * 0.05, y - 0.014 + n * 0.016)]
                self._brush.lay(self._head, ribbon(line, 0.008), self._dark, strength=strength, within=self._within)
            bag = [
                (side * 0.10 + self._shift, 0.062),
                (side * 0.16 + self._shift, 0.078),
                (side * 0.22 + self._shift, 0.062),
            ]
            self._brush.lay(self._head, ribbon(bag, 0.012), self._dark, strength=strength * 0.7, blur=0.004)
        for y in (-0.235, -0.20):
            line = [(-0.12 + self._shift, y + 0.008), (self._shift, y), (0.12 + self._shift, y + 0.008)]
            self._brush.lay(self._head, ribbon(line, 0.010), self._dark, strength=strength * 0.6, blur=0.003)

    def _freckles(self) -> None:
        chance = random.Random(11)  # noqa: S311 - the same on each picture
        for _ in range(54):
            x, y = chance.gauss(0, 0.13), chance.gauss(0.12, 0.045)
            large = chance.uniform(0.004, 0.0085)
            tone = mix(self._person.skin, (150, 80, 45), 0.7)
            self._brush.lay(
                self._head, oval((x + self._shift, y), large, large), tone, strength=0.5, within=self._within
            )

    def _glasses(self) -> None:
        brush, head, person = self._brush, self._head, self._person
        frame = (34, 28, 30)
        lenses: list[tuple[float, float]] = []
        for side in (-1, 1):
            near = 1 + 0.10 * side * -self._pose.turn
            x = side * (person.eye_gap + 0.004) * (0.5 + near / 2) + self._shift * 1.2
            lens = oval((x, 0.012), 0.132 * near, 0.108)
            lenses.append((x, near))
            brush.lay(head, lens, (220, 232, 240), strength=0.10)
            glare = [(x - 0.07, 0.05), (x - 0.01, -0.07), (x + 0.02, -0.07), (x - 0.04, 0.06)]
            brush.lay(head, glare, (255, 255, 255), strength=0.14, blur=0.008)
            brush.lay(head, ribbon([*lens, lens[0]], 0.019, ends=(1, 1)), frame)
            arm = [(x + side * 0.128 * near, -0.01), (side * person.width * 1.0 + self._shift * 0.3, -0.025)]
            brush.lay(head, ribbon(arm, 0.018, ends=(1, 1)), frame)
        (left, near_left), (right, near_right) = lenses
        bridge = [(left + 0.126 * near_left, 0.0), ((left + right) / 2, -0.022), (right - 0.126 * near_right, 0.0)]
        brush.lay(head, ribbon(bridge, 0.020, ends=(1, 1)), frame)


_CLOTHES: Final = {
    "tee": Figure.collar,
    "vee": Figure.collar,
    "shirt": Figure.shirt,
    "blazer": Figure.blazer,
    "hoodie": Figure.hoodie,
    "roll": Figure.roll,
}
