"""``millpond/ugc-video``: a short video about a product, with a voice, captions and quiet chords."""

# Pillow's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import math
import random
from array import array
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import av
from PIL import Image

from millpond_products.renderer import captions
from millpond_products.renderer.backdrops import scene
from millpond_products.renderer.canvas import contact, polygon, rounded, star, tilted
from millpond_products.renderer.lettering import Block, Face, clean, fit, writable, write
from millpond_products.renderer.orders import Rendered, UnmakeableError
from millpond_products.renderer.palettes import mix
from millpond_products.renderer.pictures import MANNERS, look_of
from millpond_products.renderer.sounds import encoded
from millpond_products.renderer.speech import speak

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from millpond_products.renderer.models import UgcVideo
    from millpond_products.renderer.orders import RenderOrder
    from millpond_products.renderer.palettes import Colour
    from millpond_products.renderer.pictures import Look, Words
    from millpond_products.renderer.speech import Spoken
    from millpond_products.renderer.wares import Ware

SIZES: Final = {"1:1": (720, 720), "4:5": (720, 900), "9:16": (720, 1_280), "16:9": (1_280, 720)}
RATE: Final = 24
SECONDS_MAX: Final = 60.0
_LEAD: Final = 0.45
"""Seconds before the voice begins."""
_TAIL: Final = 2.2
"""Seconds after the voice has ended, for the button."""
_SOUND_RATE: Final = 44_100
_ZOOM: Final = 1.14
_SCRIPTS: Final = (
    "{headline}. {product} is here{price}. {call}!",
    "Okay, you need to see this. {headline}. It is {product}{price}. {call}!",
    "{headline}. I tried {product}, and I am not going back{price}. {call}!",
)


def make(given: UgcVideo, order: RenderOrder, log: Callable[[str], None]) -> Rendered:
    rng = random.Random(order.seed)  # noqa: S311 - for reproducible videos, not for secrets
    look = look_of(given, order.image, rng)
    script = given.script or _script(look.words, rng)
    spoken = speak(script, given.voice, order.seed, speed=given.speed)
    if spoken.seconds > SECONDS_MAX:
        raise UnmakeableError(
            f"input.script: takes {spoken.seconds:.0f} seconds to speak; the limit is {SECONDS_MAX:.0f}."
        )
    log(f"Spoke {spoken.seconds:.1f} seconds.")
    lines = captions.captions(script, spoken)
    film = Film(SIZES[given.aspect_ratio], look, lines, spoken.seconds, rng)
    path = f"{order.target}.mp4"
    _encode(film, _mixed(spoken, film.seconds, rng), path, log)
    return Rendered(path=path, content_type="video/mp4")


def _script(words: Words, rng: random.Random) -> str:
    """A script in the tone of a friend's recommendation."""
    price = f", for only {words.price}" if words.price else ""
    headline = words.headline.rstrip(" .!")
    call = (words.call or "Have a look").rstrip(" .!")
    return rng.choice(_SCRIPTS).format(headline=headline, product=words.product, price=price, call=call)


# The picture


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the headline as a cut-out, with its position and the time at which it appears."""

    sprite: Image.Image
    x: float
    y: float
    appears_at: float


class Film:
    """The parts of a video. Each is drawn once; a frame places them for its time."""

    def __init__(
        self,
        size: tuple[int, int],
        look: Look,
        lines: list[captions.Caption],
        seconds: float,
        rng: random.Random,
    ) -> None:
        self._size = size
        self._style = look.style
        self._palette = look.palette
        self._words = look.words
        self._lines = lines
        self._unit = min(size) / 720
        self._is_wide = size[0] > size[1]
        self.seconds = round((_LEAD + seconds + _TAIL) * RATE) / RATE
        self._end = _LEAD + seconds + 0.15
        self._stage = self._placed(look.ware)
        self._dark = 0.8 if look.ware.stands else 0.4  # a picture that hangs throws less of a shadow on the ground
        self._shadow = self._shade()
        self._back = self._backdrop(rng)
        self._headline = self._heading()
        self._sticker = self._seal() if look.words.price else None
        self._button = self._pressed()
        self._turn = rng.choice((-1, 1))
        self._caption = lru_cache(maxsize=4)(self._drawn_caption)
        self._background = lru_cache(maxsize=1)(self._drawn_background)

    def frames(self) -> Generator[Image.Image]:
        for number in range(round(self.seconds * RATE)):
            yield self.frame(number / RATE)

    def frame(self, at: float) -> Image.Image:
        image = self._background(
            round(at * RATE) // 2 * 2 / RATE
        ).copy()  # it moves so slowly that every second frame can reuse it
        self._put_ware(image, at)
        for word in self._headline:
            self._pop(image, word.sprite, (word.x, word.y), at - word.appears_at)
        if self._sticker is not None:
            sprite, x, y = self._sticker
            self._pop(image, sprite, (x, y), at - self.seconds * 0.4, overshoot=2.2)
        caption = captions.at(self._lines, at - _LEAD)
        if caption is not None:
            sprite = self._caption(caption, caption.spoken_at(at - _LEAD))
            self._paste(image, sprite, (self._middle, self._low), 1.0)
        if at >= self._end:
            since = at - self._end
            pulse = 1 + 0.03 * math.sin(since * 7) if since > 0.4 else 1.0  # noqa: PLR2004 - once it has come to rest
            slide = (1 - _eased(since / 0.4)) * self._size[1] * 0.25
            self._paste(image, self._button, (self._middle, self._low + slide), pulse)
        return image

    @property
    def _middle(self) -> float:
        return self._size[0] / 2

    @property
    def _low(self) -> float:
        """The vertical position of captions and of the button."""
        return self._size[1] * (0.875 if self._is_wide else 0.84)

    # What is drawn once

    def _placed(self, shown: Ware) -> tuple[Image.Image, float, float]:
        """The product, and the middle of its foot."""
        width, height = self._size
        room = (width * 0.42, height * 0.62) if self._is_wide else (width * 0.78, height * 0.42)
        factor = min(room[0] / shown.image.width, room[1] / shown.image.height)
        size = (max(1, round(shown.image.width * factor)), max(1, round(shown.image.height * factor)))
        x = width * 0.72 if self._is_wide else width / 2
        return shown.image.resize(size, Image.Resampling.LANCZOS), x, height * (0.77 if self._is_wide else 0.755)

    def _shade(self) -> Image.Image:
        sprite = self._stage[0]
        wide, tall = round(sprite.width * 1.5), round(sprite.width * 0.4)
        dark = Image.new("RGB", (wide, tall), (255, 255, 255))
        contact(dark, (wide / 2, tall / 2), sprite.width * 0.95, self._dark)
        return dark.convert("L").point([255 - value for value in range(256)])

    def _backdrop(self, rng: random.Random) -> Image.Image:
        width, height = (round(side * _ZOOM) for side in self._size)
        sprite, x, foot = self._stage
        stage = (x * _ZOOM, foot * _ZOOM, sprite.height * 0.8 * _ZOOM)
        return scene(self._style, (width, height), stage, self._palette, rng)

    def _heading(self) -> list[Word]:
        manner, words, unit = MANNERS[self._style], self._words, self._unit
        width, height = self._size
        text = words.headline.upper() if manner.is_upper else words.headline
        room = (width * 0.42, height * 0.5) if self._is_wide else (width * 0.86, height * 0.19)
        face = Face(round(92 * unit), max(manner.weight, 0.016), manner.tracking, words.font)
        block = fit(text, face, *room, smallest=round(26 * unit), lines_max=4, leading=1.1)
        top = height * (0.12 if self._is_wide else 0.085) + (room[1] - block.height) / 2
        made: list[Word] = []
        for row, line in enumerate(block.lines):
            left = width * 0.06 if self._is_wide else (width - block.face.width(line)) / 2
            for place, word in enumerate(line.split()):
                before = " ".join(line.split()[:place]) + (" " if place else "")
                x = left + (block.face.width(before) if before else 0)
                colour = (
                    self._palette.accent if manner.marks_last and row == len(block.lines) - 1 else self._palette.ink
                )
                sprite = _lettered(word, block.face, colour)
                y = top + row * block.face.size * block.leading
                made.append(
                    Word(sprite, x + block.face.width(word) / 2, y + block.face.size / 2, len(made) * 0.13 - 0.2)
                )
        return made

    def _seal(self) -> tuple[Image.Image, float, float]:
        side = round(178 * self._unit)
        shape = polygon((side, side), star((side / 2, side / 2), side / 2 - 2, 18, 0.9))
        seal = Image.new("RGBA", (side, side), (*self._palette.accent, 255))
        block = fit(
            self._words.price,
            Face(round(side * 0.3), 0.03, path=self._words.font),
            side * 0.72,
            side * 0.5,
            smallest=9,
            lines_max=2,
        )
        write(seal, block, (side / 2, (side - block.height) / 2), self._palette.on_accent, align="centre")
        seal.putalpha(shape)
        sprite, x, foot = self._stage
        right = min(x + sprite.width / 2 + side * 0.2, self._size[0] - side * 0.6)
        return tilted(seal, 10), right, foot - sprite.height + side * 0.25

    def _pressed(self) -> Image.Image:
        """The button. It shows the name of the product if there is no call to action."""
        text = self._words.call or self._words.product
        face = Face(round(40 * self._unit), 0.022, path=self._words.font)
        block = fit(text, face, self._size[0] * 0.6, 80 * self._unit, smallest=14, lines_max=1)
        inset, rise, pill = 46 * self._unit, 22 * self._unit, MANNERS[self._style].pill
        return _panel(block, self._palette.accent, self._palette.on_accent, inset=inset, rise=rise, pill=pill)

    def _drawn_caption(self, caption: captions.Caption, spoken: int) -> Image.Image:
        """The words in a dark panel, with the spoken one highlighted."""
        unit = self._unit
        texts = [writable(clean(word), self._words.font) for word in caption.words]
        line = " ".join(filter(None, texts))
        if not line:
            return Image.new("RGBA", (1, 1))
        face = Face(round(46 * unit), 0.02, path=self._words.font)
        block = fit(line, face, self._size[0] * 0.84, 60 * unit, smallest=12, lines_max=1)
        lit = _lit(self._palette.accent)
        panel = _panel(block, (18, 16, 20), (255, 255, 255), inset=30 * unit, rise=22 * unit, pill=0.3, alpha=205)
        before = " ".join(filter(None, texts[:spoken]))
        x = 30 * unit + (block.face.width(f"{before} ") - 2 * block.face.stroke if before else 0)
        top = (panel.height - block.height) / 2
        if texts[spoken] and len(block.lines) == 1 and block.lines[0] == line:
            write(panel, Block((texts[spoken],), block.face), (x, top), lit)
        return panel

    # What moves

    def _drawn_background(self, at: float) -> Image.Image:
        """The background, slowly zoomed in."""
        width, height = self._size
        zoom = 1 + (_ZOOM - 1) * 0.9 * (at / self.seconds)
        wide, tall = self._back.width / zoom, self._back.height / zoom
        _, x, foot = self._stage
        left = (self._back.width - wide) * (x / width)
        top = (self._back.height - tall) * (foot / height)
        return self._back.resize(self._size, Image.Resampling.BILINEAR, (left, top, left + wide, top + tall))

    def _put_ware(self, image: Image.Image, at: float) -> None:
        """Draw the product. It drops in, then grows, shrinks and sways a little."""
        sprite, x, foot = self._stage
        entry = _eased((at + 0.2) / 0.7, 1.6)  # starts before the first frame, which is often shown alone
        lift = (1 - entry) * self._size[1] * 0.5 + max(0.0, math.sin(at * 1.7)) * 7 * self._unit
        last = _eased((at - self._end) / 0.5)
        scale = 1 + 0.022 * math.sin(at * 1.3) + 0.05 * last
        angle = self._turn * 1.5 * math.sin(at * 1.1)
        moved = _turned(sprite, scale, angle)
        strength = max(0.0, min(1.0, entry)) * (1 - min(0.35, lift / (self._size[1] * 0.2)))
        shade = self._shadow.point([round(value * strength) for value in range(256)])
        image.paste((0, 0, 0), (round(x - shade.width / 2), round(foot - shade.height / 2 - 4)), shade)
        image.paste(
            moved, (round(x - moved.width / 2), round(foot - lift - (moved.height + sprite.height * scale) / 2)), moved
        )

    def _pop(
        self, image: Image.Image, sprite: Image.Image, at: tuple[float, float], since: float, overshoot: float = 1.4
    ) -> None:
        """Draw a sprite that appears small, and grows a little beyond its size at first."""
        if since > 0:
            self._paste(image, sprite, at, 0.55 + 0.45 * _eased(since / 0.35, overshoot))

    def _paste(self, image: Image.Image, sprite: Image.Image, centre: tuple[float, float], scale: float) -> None:
        if not math.isclose(scale, 1, abs_tol=0.002):
            size = (max(1, round(sprite.width * scale)), max(1, round(sprite.height * scale)))
            sprite = sprite.resize(size, Image.Resampling.BILINEAR)
        image.paste(sprite, (round(centre[0] - sprite.width / 2), round(centre[1] - sprite.height / 2)), sprite)


def _eased(share: float, overshoot: float = 0.0) -> float:
    """From 0 to 1, slower towards the end, with an optional overshoot."""
    if share <= 0:
        return 0.0
    if share >= 1:
        return 1.0
    back = share - 1
    return 1 + (overshoot + 1) * back**3 + overshoot * back**2


def _turned(sprite: Image.Image, scale: float, degrees: float) -> Image.Image:
    """Scale and rotate a sprite around its middle in one step."""
    size = (round(sprite.width * 1.12), round(sprite.height * 1.12))
    cos, sin = math.cos(math.radians(degrees)) / scale, math.sin(math.radians(degrees)) / scale
    x, y = size[0] / 2, size[1] / 2
    matrix = (cos, -sin, sprite.width / 2 - cos * x + sin * y, sin, cos, sprite.height / 2 - sin * x - cos * y)
    return sprite.transform(size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def _lettered(text: str, face: Face, colour: Colour) -> Image.Image:
    """A word as a cut-out, with room for descenders."""
    tall = round(face.size * 1.3)
    sprite = Image.new("RGBA", (round(face.width(text) + face.size * 0.3), tall), (*colour, 0))
    write(sprite, Block((text,), face), (face.size * 0.15, (tall - face.size) / 2), colour)
    return sprite


def _panel(
    block: Block, ground: Colour, ink: Colour, *, inset: float, rise: float, pill: float, alpha: int = 255
) -> Image.Image:
    """Text on a field with round corners; ``inset`` and ``rise`` are the margins beside it and above it."""
    size = (round(block.width + inset * 2), round(block.height + rise * 2))
    shape = rounded(size, (0, 0, size[0] - 1, size[1] - 1), size[1] * pill)
    panel = Image.new("RGBA", size, (*ground, 255))
    panel.putalpha(shape.point([round(value * alpha / 255) for value in range(256)]))
    write(panel, block, (inset, (size[1] - block.height) / 2), ink)
    return panel


def _lit(colour: Colour) -> Colour:
    """A colour that can be read on black."""
    brightest = max(*colour, 1)
    return colour if brightest > 200 else mix(colour, (255, 255, 255), 0.55)  # noqa: PLR2004 - bright enough


# The sound


def _mixed(spoken: Spoken, seconds: float, rng: random.Random) -> array[int]:
    """The voice over quiet chords."""
    rate = spoken.rate
    count = round(seconds * rate)
    bed = _chords(count, rate, rng)
    start = round(_LEAD * rate)
    for place, sample in enumerate(spoken.samples[: max(0, count - start)]):
        bed[start + place] = max(-32_768, min(32_767, bed[start + place] + sample))
    return bed


def _chords(count: int, rate: int, rng: random.Random) -> array[int]:
    root = rng.choice((196.0, 220.0, 246.94))
    steps = rng.choice(
        (((0, 4, 7), (9, 12, 16), (5, 9, 12), (7, 11, 14)), ((0, 3, 7), (8, 12, 15), (3, 7, 10), (10, 14, 17)))
    )
    bar = round(rate * 1.6)
    made = array("h", bytes(count * 2))
    for start in range(0, count, bar):
        notes = [2 * math.pi * root * 2 ** (step / 12) / rate for step in steps[start // bar % len(steps)]]
        for place in range(start, min(start + bar, count)):
            within = (place - start) / bar
            swell = math.sin(math.pi * within) ** 0.6 * min(1.0, (count - place) / rate)
            made[place] = int(560 * swell * sum(math.sin(note * place) for note in notes))
    return made


# The file


def _encode(film: Film, sound: array[int], path: str, log: Callable[[str], None]) -> None:
    with av.open(path, "w", options={"movflags": "+faststart"}) as container:
        video = container.add_stream("libx264", rate=RATE, options={"crf": "21", "preset": "superfast"})
        video.width, video.height = film.frame(0).size
        video.pix_fmt = "yuv420p"
        video.codec_context.thread_count = 2
        audio = container.add_stream("aac", rate=_SOUND_RATE)
        audio.layout = "mono"
        audio.bit_rate = 96_000
        total = round(film.seconds * RATE)
        packets: Any = encoded(audio, sound, round(len(sound) / film.seconds))
        for packet in packets:
            container.mux(packet)
        for number, image in enumerate(film.frames()):
            frame = _video_frame(image)
            frame.pts = number
            frame.time_base = Fraction(1, RATE)
            container.mux(video.encode(frame))
            if number % RATE == 0:
                log(f"{round(100 * number / total):3d}%|{'#' * (10 * number // total):<10}| {number}/{total}")
        container.mux(video.encode(None))
    log(f"100%|##########| {total}/{total}")


def _video_frame(image: Image.Image) -> av.VideoFrame:
    return av.VideoFrame.from_image(image)  # pyright: ignore[reportUnknownVariableType] - not declared by PyAV
