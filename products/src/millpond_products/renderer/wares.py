"""The product in the picture: cut out of its photograph, framed where it cannot be cut out, or drawn."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageOps, ImageStat, UnidentifiedImageError

from millpond_products.renderer.canvas import ellipse, fill, mask, polygon, ramp, rounded, soft, warp
from millpond_products.renderer.lettering import Face, fit, write
from millpond_products.renderer.orders import UnmakeableError
from millpond_products.renderer.palettes import mix, shade

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from millpond_products.renderer.palettes import Colour, Palette

PIXELS_MAX: Final = 40_000_000
_SIZE: Final = (900, 1_100)
_SMALL: Final = 300
_WHITE: Final = 236
_EVEN: Final = 7.0


@dataclass(frozen=True, slots=True)
class Ware:
    """The product as a cut-out, and whether it stands on something or hangs like a picture."""

    image: Image.Image
    stands: bool


@dataclass(frozen=True, slots=True)
class Label:
    """What is written on a drawn product."""

    product: str
    brand: str
    font: str | None
    palette: Palette

    @property
    def trim(self) -> Colour:
        """The colour of the lid and of small parts: the accent, if it differs enough from the label."""
        apart = sum(abs(a - b) for a, b in zip(self.palette.accent, self.palette.label, strict=True))
        return self.palette.accent if apart > 120 else shade(self.palette.label, 0.62)  # noqa: PLR2004 - of 765


def ware(path: str | None, label: Label, rng: random.Random) -> Ware:
    """The product from its photograph, or drawn if there is none."""
    return _drawn(label, rng) if path is None else _photographed(path)


# From a photograph


def _photographed(path: str) -> Ware:
    photo = _opened(path)
    photo.thumbnail((1_600, 1_600), Image.Resampling.LANCZOS)
    alpha = photo.getchannel("A")
    if any(alpha.histogram()[:200]):  # it has been cut out already
        return Ware(_trimmed(photo), stands=True)
    cut = _cut_out(photo)
    return Ware(_framed(photo), stands=False) if cut is None else Ware(_trimmed(cut), stands=True)


def _opened(path: str) -> Image.Image:
    Image.MAX_IMAGE_PIXELS = None  # the size is checked below, before decoding
    try:
        with Image.open(path, formats=("PNG", "JPEG", "WEBP", "GIF", "BMP")) as file:
            if file.width * file.height > PIXELS_MAX:
                raise UnmakeableError(f"input.image: has more than {PIXELS_MAX:,} pixels.")
            file.draft("RGB", (2_000, 2_000))
            return ImageOps.exif_transpose(file).convert("RGBA")
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError):
        raise UnmakeableError("input.image: not a supported image (PNG, JPEG, WebP, GIF, BMP).") from None


def _cut_out(photo: Image.Image) -> Image.Image | None:
    """The product without its background, if the background is even and light, as in shops."""
    small = photo.convert("RGB")
    small.thumbnail((_SMALL, _SMALL))
    edge = Image.new("L", small.size, 255)
    edge.paste(0, (3, 3, small.width - 3, small.height - 3))
    about = ImageStat.Stat(small, edge)
    if min(about.mean) < _WHITE or max(about.stddev) > _EVEN:
        return None
    framed = ImageOps.expand(small, 2, fill=tuple(round(value) for value in about.mean))
    marker = (255, 0, 255)
    ImageDraw.floodfill(framed, (0, 0), marker, thresh=36)
    apart = ImageChops.difference(framed, Image.new("RGB", framed.size, marker)).convert("L")
    inner = apart.point([0] + [255] * 255).crop((2, 2, framed.width - 2, framed.height - 2))
    share = ImageStat.Stat(inner).mean[0] / 255
    if not 0.04 < share < 0.92:  # noqa: PLR2004 - nearly nothing, or nearly all: it did not work
        return None
    outside = ImageChops.invert(inner).filter(ImageFilter.MaxFilter(5)).resize(photo.size, Image.Resampling.BICUBIC)
    paper = Image.new("RGB", photo.size, tuple(round(value) for value in about.mean))
    apart = ImageChops.difference(photo.convert("RGB"), paper).split()
    unlike = ImageChops.lighter(ImageChops.lighter(apart[0], apart[1]), apart[2])
    unlike = unlike.point([max(0, min(255, (value - 8) * 8)) for value in range(256)])  # the edge in full resolution
    photo.putalpha(ImageChops.lighter(ImageChops.invert(outside), unlike))
    return photo


def _trimmed(cut: Image.Image) -> Image.Image:
    return cut.crop(cut.getchannel("A").point([0] * 24 + [255] * 232).getbbox() or (0, 0, *cut.size))


def _framed(photo: Image.Image) -> Image.Image:
    """The photograph with round corners, cropped if it is too wide or too tall."""
    ratio = max(0.72, min(1.4, photo.width / photo.height))
    width = min(photo.width, round(photo.height * ratio))
    fitted = ImageOps.fit(photo, (width, round(width / ratio)), Image.Resampling.LANCZOS)
    fitted.putalpha(rounded(fitted.size, (0, 0, fitted.width - 1, fitted.height - 1), min(fitted.size) * 0.06))
    return fitted


# Drawn


_WORDS: Final = {
    "pouch": "coffee tea snack granola nuts chips chocolate cocoa bean beans cereal pasta rice treats food protein",
    "bottle": "water bottle wine oil serum shampoo lotion perfume fragrance juice drink beer sauce soap toner gin",
    "jar": "cream balm honey jam butter mask candle salt scrub moisturizer moisturiser jar pomade wax spread",
    "can": "soda can energy cola sparkling paint seltzer kombucha",
    "mug": "mug cup tumbler espresso",
}


def _drawn(label: Label, rng: random.Random) -> Ware:
    words = {word.strip(".,!") for word in label.product.lower().split()}
    form = next((form for form, known in _WORDS.items() if words & set(known.split())), "box")
    drawn = _FORMS[form](label, rng)
    return Ware(_trimmed(drawn), stands=True)


def _body(silhouette: Image.Image, stops: list[tuple[float, Colour]]) -> Image.Image:
    """A round body: light and dark from the left to the right."""
    left, _, right, _ = silhouette.getbbox() or (0, 0, *_SIZE)
    made = Image.new("RGBA", _SIZE)
    made.paste(ramp((right - left, _SIZE[1]), stops, across=True), (left, 0))
    made.putalpha(silhouette)
    return made


def _round(colour: Colour) -> list[tuple[float, Colour]]:
    places = (
        (0, 0.52),
        (0.07, 0.7),
        (0.2, 1.0),
        (0.31, 1.3),
        (0.4, 1.06),
        (0.62, 0.9),
        (0.86, 0.62),
        (0.95, 0.72),
        (1, 0.5),
    )
    return [(place, shade(colour, factor)) for place, factor in places]


def _metal(colour: Colour) -> list[tuple[float, Colour]]:
    places = ((0, 0.5), (0.12, 0.95), (0.22, 1.55), (0.32, 1.0), (0.6, 0.75), (0.78, 1.15), (0.9, 0.7), (1, 0.45))
    return [(place, shade(colour, factor)) for place, factor in places]


def _sticker(on: Image.Image, box: tuple[int, int, int, int], label: Label, *, ground: Colour, ink: Colour) -> None:
    """Draw the label around a round body. Its edges are shaded like the body."""
    left, top, right, bottom = box
    size = (right - left, bottom - top)
    paper = Image.new("RGB", size, ground)
    _words(paper, label, ink, label.trim)
    shaded = ramp(
        size, [(0, (120, 120, 120)), (0.2, (235, 235, 235)), (0.34, (255, 255, 255)), (1, (150, 150, 150))], across=True
    )
    on.paste(ImageChops.multiply(paper, shaded), (left, top))


def _words(paper: Image.Image, label: Label, ink: Colour, accent: Colour) -> None:
    """The name in the middle, the brand above it, a line between them."""
    width, height = paper.size
    name = fit(label.product, Face(round(width * 0.19), 0.022, path=label.font), width * 0.8, height * 0.5, smallest=14)
    top = (height - name.height) / 2 + height * 0.04
    write(paper, name, (width / 2, top), ink, align="centre")
    if label.brand:
        face = Face(round(width * 0.06), 0.01, 0.18, path=label.font)
        brand = fit(label.brand.upper(), face, width * 0.8, height * 0.1, smallest=9, lines_max=1)
        write(paper, brand, (width / 2, top - brand.height - height * 0.09), ink, align="centre")
    draw = ImageDraw.Draw(paper)
    line = top - height * 0.045
    draw.rectangle((width * 0.42, line, width * 0.58, line + max(2, height * 0.008)), fill=accent)
    below = top + name.height + height * 0.06
    for place in (-1, 0, 1):
        x, radius = width / 2 + place * width * 0.05, width * 0.011
        draw.ellipse((x - radius, below - radius, x + radius, below + radius), fill=accent)


def _shine(on: Image.Image, box: tuple[float, float, float, float], strength: float = 0.5) -> None:
    """Draw a bright streak, as the reflection of a window."""
    streak = soft(rounded(on.size, box, (box[2] - box[0]) / 2), 7)
    alpha = on.getchannel("A")
    lit = Image.new("RGB", on.size, (255, 255, 255))
    through = ImageChops.multiply(streak, alpha).point([round(value * strength) for value in range(256)])
    on.paste(lit, (0, 0), through)
    on.putalpha(alpha)


def _bottle(label: Label, rng: random.Random) -> Image.Image:
    left, right = 270, 630
    shoulder = rng.choice((80, 120, 165))

    def outline(draw: ImageDraw.ImageDraw, k: float) -> None:
        draw.rounded_rectangle((left * k, 300 * k, right * k, 900 * k), shoulder * k, fill=255)
        draw.rounded_rectangle((left * k, 620 * k, right * k, 1_080 * k), 46 * k, fill=255)
        draw.rectangle((395 * k, 180 * k, 505 * k, 340 * k), fill=255)

    made = _body(mask(_SIZE, outline), _round(label.palette.ware))
    cap = _body(rounded(_SIZE, (378, 50, 522, 215), 16), _metal(label.trim))
    made.alpha_composite(cap)
    fill_under = polygon(_SIZE, ((385, 215), (515, 215), (515, 232), (385, 232)))
    fill(made, shade(label.palette.ware, 0.45), fill_under, 0.5)
    _sticker(made, (left, 540, right, 940), label, ground=label.palette.label, ink=_readable(label.palette.label))
    _shine(made, (left + 36, 360, left + 58, 1_040))
    return made


def _jar(label: Label, rng: random.Random) -> Image.Image:
    left, right, top = 150, 750, rng.choice((520, 560))
    made = _body(rounded(_SIZE, (left, top, right, 1_060), 78), _round(label.palette.ware))
    lid = _body(rounded(_SIZE, (left - 14, top - 170, right + 14, top + 12), 30), _metal(label.trim))
    made.alpha_composite(lid)
    _sticker(made, (left, top + 90, right, 980), label, ground=label.palette.label, ink=_readable(label.palette.label))
    _shine(made, (left + 60, top + 30, left + 92, 1_030))
    return made


def _can(label: Label, rng: random.Random) -> Image.Image:
    left, right = 240, 660
    colour = label.palette.label
    steel = (196, 202, 210)

    def outline(draw: ImageDraw.ImageDraw, k: float) -> None:
        draw.polygon([(x * k, y * k) for x, y in ((left, 210), (290, 120), (610, 120), (right, 210))], fill=255)
        draw.rectangle((left * k, 210 * k, right * k, 1_000 * k), fill=255)
        draw.polygon([(x * k, y * k) for x, y in ((left, 1_000), (right, 1_000), (620, 1_070), (280, 1_070))], fill=255)

    made = _body(mask(_SIZE, outline), _metal(steel))
    _sticker(made, (left, 215, right, 996), label, ground=colour, ink=_readable(colour))
    wave = rng.uniform(0.5, 1.0)
    band = polygon(_SIZE, ((left, 860), (right, 860 - 120 * wave), (right, 996), (left, 996)))
    fill(made, label.palette.accent, band, 0.85)
    _shine(made, (left + 44, 225, left + 74, 990), 0.6)
    return made


def _pouch(label: Label, rng: random.Random) -> Image.Image:
    lean = rng.uniform(-8, 8)
    corners = [(205, 120), (695, 120), (725, 420), (740, 1_000), (690, 1_075), (210, 1_075), (160, 1_000), (175, 420)]
    outline = soft(polygon(_SIZE, [(x + lean * (1 - y / 1_100), y) for x, y in corners]), 5)
    outline = outline.point([max(0, min(255, (value - 100) * 5)) for value in range(256)])
    ground = label.palette.label
    stops = ((0, 0.62), (0.1, 0.92), (0.24, 1.22), (0.38, 1.02), (0.7, 0.95), (0.88, 0.7), (1, 0.55))
    made = _body(outline, [(place, shade(ground, factor)) for place, factor in stops])
    seal = polygon(_SIZE, ((190, 118), (710, 118), (712, 185), (188, 185)))
    fill(made, shade(ground, 0.7), seal, 0.6)
    paper = Image.new("RGB", (430, 430), label.palette.ware)
    _words(paper, label, _readable(label.palette.ware), label.palette.accent)
    made.paste(paper, (235, 390), rounded(paper.size, (0, 0, 429, 429), 26))
    for place in (250, 470, 640):
        fold = soft(polygon(_SIZE, ((place, 190), (place + 26, 190), (place + 60, 390), (place + 20, 390))), 9)
        fill(made, (255, 255, 255), ImageChops.multiply(fold, outline), 0.18)
    made.putalpha(outline)
    return made


def _mug(label: Label, rng: random.Random) -> Image.Image:
    del rng
    handle = ImageChops.subtract(rounded(_SIZE, (590, 520, 850, 900), 120), rounded(_SIZE, (640, 575, 795, 845), 76))
    made = _body(handle, [(0, shade(label.palette.label, 0.7)), (1, shade(label.palette.label, 1.1))])
    body = ImageChops.lighter(
        rounded(_SIZE, (130, 600, 670, 1_060), 70), polygon(_SIZE, ((130, 408), (670, 408), (670, 800), (130, 800)))
    )
    cup = _body(body, _round(label.palette.label))
    made.alpha_composite(cup)
    inner = ellipse(_SIZE, (130, 345, 670, 470))
    fill(made, shade(label.palette.label, 0.75), inner)
    made.putalpha(ImageChops.lighter(made.getchannel("A"), inner))
    fill(made, (62, 38, 24), ellipse(_SIZE, (160, 362, 640, 462)))
    paper = Image.new("RGB", (400, 380), label.palette.ware)
    _words(paper, label, _readable(label.palette.ware), label.palette.accent)
    made.paste(paper, (200, 560), ellipse(paper.size, (2, 2, 397, 377)))
    _shine(made, (172, 490, 200, 1_000), 0.45)
    return made


def _box(label: Label, rng: random.Random) -> Image.Image:
    """Two sides of a box and a part of its lid, in perspective."""
    ground, trim = label.palette.label, label.palette.ware
    tall = rng.choice((0.0, 60.0, 110.0))
    front = ramp((640, 840), [(0, shade(ground, 1.12)), (1, shade(ground, 0.9))]).convert("RGB")
    disc = rng.choice((0.0, 1.0))
    fill(front, trim, ellipse(front.size, (320, 470, 900, 1_050)), 0.16 + 0.1 * disc)
    fill(front, label.trim, ellipse(front.size, (-180, -220, 200, 160)), 0.85)
    _words(front, label, _readable(ground), _readable(ground))
    side = ramp((260, 840), [(0, shade(ground, 0.72)), (1, shade(ground, 0.5))]).convert("RGB")
    fill(side, label.trim, polygon(side.size, ((0, 700), (260, 700), (260, 760), (0, 760))), 0.75)
    lid = Image.new("RGB", (640, 260), shade(ground, 1.25))
    y = tall
    made = Image.new("RGBA", _SIZE)
    for face, corners in (
        (lid, ((96, 150 + y), (336, 112 + y), (806, 166 + y), (566, 206 + y))),
        (side, ((566, 206 + y), (806, 166 + y), (796, 1_004), (566, 1_080))),
        (front, ((96, 150 + y), (566, 206 + y), (566, 1_080), (104, 1_000))),
    ):
        made.alpha_composite(warp(face.convert("RGBA"), _SIZE, corners))
    edge = soft(polygon(_SIZE, ((562, 206 + y), (570, 206 + y), (570, 1_078), (562, 1_078))), 2)
    fill(made, (255, 255, 255), ImageChops.multiply(edge, made.getchannel("A")), 0.35)
    return made


_FORMS: Final[dict[str, Callable[[Label, random.Random], Image.Image]]] = {
    "bottle": _bottle,
    "box": _box,
    "can": _can,
    "jar": _jar,
    "mug": _mug,
    "pouch": _pouch,
}


def _readable(ground: Colour) -> Colour:
    """A text colour for the ground: dark on light, light on dark."""
    bright = 0.299 * ground[0] + 0.587 * ground[1] + 0.114 * ground[2]
    return mix(ground, (0, 0, 0), 0.82) if bright > 140 else mix(ground, (255, 255, 255), 0.9)  # noqa: PLR2004
