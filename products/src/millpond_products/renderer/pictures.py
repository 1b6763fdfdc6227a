"""``millpond/static-ad``: a picture with a product, words that sell it, a price and a button."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image

from millpond_products.renderer.backdrops import backdrop
from millpond_products.renderer.canvas import contact, fill, polygon, rounded, shadow, soft, star, tilted
from millpond_products.renderer.lettering import Block, Face, face_for, fit, writable, write
from millpond_products.renderer.orders import Rendered, UnmakeableError
from millpond_products.renderer.palettes import Palette, choose
from millpond_products.renderer.wares import Label, Ware, ware

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond_products.renderer.models import StaticAd, UgcVideo
    from millpond_products.renderer.orders import RenderOrder

SIZES: Final = {"1:1": (1_080, 1_080), "4:5": (1_080, 1_350), "9:16": (1_080, 1_920), "16:9": (1_920, 1_080)}
_HEADLINES: Final = (
    "Meet {product}",
    "{product}, and your day is made",
    "Say hello to {product}",
    "You will love {product}",
    "Made for you: {product}",
    "The one you were looking for",
)


@dataclass(frozen=True, slots=True)
class Manner:
    """The typography of a style."""

    weight: float
    is_upper: bool = False
    tracking: float = 0.0
    price: str = "plain"
    """plain, round or star."""
    pill: float = 0.5
    """The corners of the button, as a share of its height."""
    marks_last: bool = False
    """Whether the last line of the headline has the colour of the accent."""


MANNERS: Final = {
    "lifestyle": Manner(0.022, price="round"),
    "minimal": Manner(0.012, price="plain", pill=0.12),
    "bold": Manner(0.042, is_upper=True, tracking=0.012, price="star", pill=0.2),
    "elegant": Manner(0.0, tracking=0.015, price="plain", pill=0.0, marks_last=True),
    "playful": Manner(0.036, tracking=0.01, price="star"),
    "tech": Manner(0.018, price="plain", pill=0.25, marks_last=True),
}


@dataclass(frozen=True, slots=True)
class Words:
    """All texts of a picture, without characters that the font lacks."""

    product: str
    headline: str
    description: str
    price: str
    call: str
    brand: str
    font: str | None


def words_of(given: StaticAd | UgcVideo, rng: random.Random) -> Words:
    headline = given.headline or rng.choice(_HEADLINES).format(product=given.product)
    description = getattr(given, "description", "")
    texts = (given.product, headline, description, given.price, given.call_to_action, given.brand)
    font = face_for(texts)
    product, headline, description, price, call, brand = (writable(text, font) for text in texts)
    if not product or not headline:
        raise UnmakeableError("The installed fonts have no glyphs for input.product or input.headline.")
    return Words(product, headline, description, price, call, brand, font)


def make(given: StaticAd, order: RenderOrder, log: Callable[[str], None]) -> Rendered:
    image = draw(given, order.image, order.seed)
    log(f"Drew {image.width} × {image.height} pixels.")
    return written(image, order.target, given.format)


def written(image: Image.Image, target: str, ending: str) -> Rendered:
    path = f"{target}.{ending}"
    if ending == "jpg":
        image.save(path, "JPEG", quality=92, subsampling=0, optimize=True)
        return Rendered(path=path, content_type="image/jpeg")
    image.save(path, "PNG", compress_level=6)
    return Rendered(path=path, content_type="image/png")


def draw(given: StaticAd, image_path: str | None, seed: int) -> Image.Image:
    """Draw a picture, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 - for reproducible pictures, not for secrets
    return Sheet(SIZES[given.aspect_ratio], look_of(given, image_path, rng), rng).drawn()


@dataclass(frozen=True, slots=True)
class Look:
    """The parts of a picture or a video."""

    style: str
    palette: Palette
    words: Words
    ware: Ware


def look_of(given: StaticAd | UgcVideo, image_path: str | None, rng: random.Random) -> Look:
    palette = choose(given.style, rng)
    words = words_of(given, rng)
    label = Label(words.product, words.brand, words.font, palette)
    return Look(given.style, palette, words, ware(image_path, label, rng))


@dataclass(frozen=True, slots=True)
class Area:
    """A part of the sheet."""

    left: float
    top: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        return self.top + self.height


class Sheet:
    """One picture: its layout and its parts."""

    def __init__(self, size: tuple[int, int], look: Look, rng: random.Random) -> None:
        self._size = size
        self._style = look.style
        self._manner = MANNERS[look.style]
        self._palette = look.palette
        self._words = look.words
        self._ware = look.ware
        self._rng = rng
        self._unit = min(size) / 1_080
        self._is_wide = size[0] > size[1]

    def drawn(self) -> Image.Image:
        text, stage, foot = self._areas()
        headline, description, brand = self._set(text)
        block = self._gap(brand) + headline.height + self._gap(description, 0.4)
        if not self._is_wide:  # the product takes the space that the text leaves
            used = text.top + block + 24 * self._unit
            stage = Area(stage.left, used, stage.width, stage.bottom - used)
        sprite, at = self._placed(stage)
        width = sprite.width
        ground = (at[0] + width / 2, at[1] + sprite.height, min(stage.width, sprite.height * 0.8))
        image = backdrop(self._style, self._size, ground, self._palette, self._rng)
        self._put_ware(image, sprite, at)
        top = text.top + (text.height - block) / 2 if self._is_wide else text.top
        self._put_words(image, text, top, (brand, headline, description))
        self._put_foot(image, foot, sprite, at)
        return image

    # Layout

    def _areas(self) -> tuple[Area, Area, Area]:
        """The areas for the text, for the product, and for price and button."""
        width, height = self._size
        margin = (64 if width == height else 84) * self._unit
        bar = (100 if width == height else 118) * self._unit
        if self._is_wide:
            half = width * 0.5
            text = Area(margin, margin, half - margin * 1.2, height - margin * 2.4 - bar)
            stage = Area(half, margin, half - margin, height - margin * 2.2)
            return text, stage, Area(margin, height - margin - bar, half - margin * 1.2, bar)
        tall = {1.0: 0.32, 1.25: 0.33}.get(round(height / width, 2), 0.36)
        inset = margin if height / width < 1.5 else margin * 1.7  # noqa: PLR2004 - apps cover the top and bottom of tall pictures
        text = Area(margin, inset, width - margin * 2, height * tall - inset * 0.4)
        foot = Area(margin, height - inset - bar, width - margin * 2, bar)
        lift = (112 if self._style == "elegant" else 42) * self._unit  # the stand of this style has a front
        return text, Area(margin, text.bottom, width - margin * 2, foot.top - text.bottom - lift), foot

    def _set(self, area: Area) -> tuple[Block, Block, Block]:
        manner, words, unit = self._manner, self._words, self._unit
        text = words.headline.upper() if manner.is_upper else words.headline
        face = Face(round(132 * unit), manner.weight, manner.tracking, words.font)
        share = 0.62 if words.description else 0.84
        headline = fit(
            text, face, area.width, area.height * share, smallest=round(44 * unit), lines_max=5, leading=1.06
        )
        left = area.height - headline.height - 90 * unit
        face = Face(round(min(42 * unit, headline.face.size * 0.5)), 0.004, path=words.font)
        description = fit(
            words.description,
            face,
            area.width * 0.94,
            max(left, 60 * unit),
            smallest=round(26 * unit),
            lines_max=3,
            leading=1.3,
        )
        face = Face(round(27 * unit), 0.012, 0.2, words.font)
        brand = fit(words.brand.upper(), face, area.width, 40 * unit, smallest=round(16 * unit), lines_max=1)
        return headline, description, brand

    def _gap(self, block: Block, share: float = 0.9) -> float:
        """The height of a block with the gap to the next one; 0 for an empty block."""
        return block.height + block.face.size * share + 14 * self._unit if block.lines else 0

    def _placed(self, stage: Area) -> tuple[Image.Image, tuple[int, int]]:
        sprite = self._ware.image
        lift = 0.0 if self._ware.stands else stage.height * 0.03
        room = (stage.width * 0.92, stage.height * (0.98 if self._ware.stands else 0.94))
        factor = min(room[0] / sprite.width, room[1] / sprite.height, 1.6)
        size = (max(1, round(sprite.width * factor)), max(1, round(sprite.height * factor)))
        scaled = sprite.resize(size, Image.Resampling.LANCZOS)
        return scaled, (round(stage.middle - size[0] / 2), round(stage.bottom - lift - size[1]))

    # Drawing

    def _put_ware(self, image: Image.Image, sprite: Image.Image, at: tuple[int, int]) -> None:
        unit = self._unit
        if self._ware.stands:
            contact(image, (at[0] + sprite.width / 2, at[1] + sprite.height - 6 * unit), sprite.width * 0.98, 0.75)
            shadow(image, sprite, (at[0] + round(14 * unit), at[1]), drop=10 * unit, blur=26 * unit, dark=0.22)
        else:
            shadow(image, sprite, at, drop=26 * unit, blur=38 * unit, dark=0.38)
        image.paste(sprite, at, sprite)

    def _put_words(self, image: Image.Image, area: Area, top: float, blocks: tuple[Block, Block, Block]) -> None:
        brand, headline, description = blocks
        is_centred = not self._is_wide and self._style not in ("bold", "tech")
        x = area.middle if is_centred else area.left
        align = "centre" if is_centred else "left"
        write(image, brand, (x, top), self._palette.soft, align=align)
        top += self._gap(brand)
        last = self._palette.accent if self._manner.marks_last and len(headline.lines) > 1 else None
        write(image, headline, (x, top), self._palette.ink, align=align, last=last)
        top += headline.height + headline.face.size * 0.22 + 14 * self._unit
        write(image, description, (x, top), self._palette.soft, align=align)

    def _put_foot(self, image: Image.Image, area: Area, sprite: Image.Image, at: tuple[int, int]) -> None:
        """Draw price and button in one line. A sticker with the price is placed on the product."""
        price = self._words.price
        is_sticker = bool(price) and self._manner.price != "plain"
        if is_sticker:
            self._put_sticker(image, sprite, at)
        label = self._price_block(area) if price and not is_sticker else None
        button = self._button_block(area)
        gap = 40 * self._unit
        widths = [label.width if label else 0, self._button_width(button)]
        total = sum(widths) + (gap if label and button.lines else 0)
        x = area.left if self._is_wide or self._style in ("bold", "tech") else area.middle - total / 2
        if label is not None:
            write(image, label, (x, area.top + (area.height - label.height) / 2), self._palette.ink)
            x += label.width + gap
        if button.lines:
            self._put_button(image, button, Area(x, area.top + area.height * 0.08, widths[1], area.height * 0.84))

    def _price_block(self, area: Area) -> Block:
        face = Face(round(72 * self._unit), self._manner.weight, path=self._words.font)
        return fit(self._words.price, face, area.width * 0.45, area.height, smallest=20, lines_max=1)

    def _button_block(self, area: Area) -> Block:
        is_spaced = self._style == "elegant"
        text = self._words.call.upper() if self._manner.is_upper or is_spaced else self._words.call
        face = Face(round(40 * self._unit), 0.018, 0.12 if is_spaced else 0.0, self._words.font)
        return fit(text, face, area.width * 0.5, area.height * 0.6, smallest=16, lines_max=1)

    def _button_width(self, block: Block) -> float:
        return block.width + 110 * self._unit if block.lines else 0

    def _put_button(self, image: Image.Image, block: Block, area: Area) -> None:
        box = (area.left, area.top, area.left + area.width, area.bottom)
        shape = rounded(image.size, box, area.height * self._manner.pill)
        lower = rounded(
            image.size,
            (box[0], box[1] + 8 * self._unit, box[2], box[3] + 8 * self._unit),
            area.height * self._manner.pill,
        )
        fill(image, (0, 0, 0), soft(lower, 12 * self._unit), 0.28)
        fill(image, self._palette.accent, shape)
        top = area.top + (area.height - block.height) / 2 - block.face.size * 0.02
        write(image, block, (area.middle, top), self._palette.on_accent, align="centre")

    def _put_sticker(self, image: Image.Image, sprite: Image.Image, at: tuple[int, int]) -> None:
        """Draw the price, on a round or star-shaped sticker, at the top right of the product."""
        side = round(max(210 * self._unit, min(300 * self._unit, sprite.width * 0.4)))
        seal = Image.new("RGBA", (side, side))
        middle = side / 2
        if self._manner.price == "star":
            shape = polygon((side, side), star((middle, middle), middle - 2, 18, 0.9))
        else:
            shape = rounded((side, side), (2, 2, side - 2, side - 2), middle)
        seal.paste(self._palette.accent, (0, 0), shape)
        seal.putalpha(shape)
        face = Face(round(side * 0.3), 0.03, path=self._words.font)
        block = fit(self._words.price, face, side * 0.74, side * 0.5, smallest=12, lines_max=2)
        write(seal, block, (middle, (side - block.height) / 2), self._palette.on_accent, align="centre")
        seal = tilted(seal, self._rng.uniform(6, 12))
        width, height = self._size
        x = min(width - side * 1.08 - 30 * self._unit, at[0] + sprite.width - side * 0.22)
        y = max(at[1] - side * 0.06, 0)
        place = (round(x), round(min(y, height - side)))
        shadow(image, seal, place, drop=8 * self._unit, blur=12 * self._unit, dark=0.3)
        image.paste(seal, place, seal)
