"""What is made: it decodes, it is what was asked for, and the same seed makes the same."""

from __future__ import annotations

import base64
import io
import itertools
import wave
import zlib
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, get_args

import av
import pytest
from PIL import Image, ImageChops, ImageDraw, ImageStat
from products.tests.renderer.renderers import LONG, renderer

from millpond_products.renderer import personas, pictures
from millpond_products.renderer.brush import DrawingFrame
from millpond_products.renderer.figures import Figure, Person, Pose
from millpond_products.renderer.hair import CUTS, Hair
from millpond_products.renderer.lettering import Face, clean, face_for, fit, writable
from millpond_products.renderer.models import PersonaInput, StaticAd, Voice
from millpond_products.renderer.wares import Label, ware

if TYPE_CHECKING:
    from pathlib import Path

    from products.tests.renderer.renderers import Receiver, Renderer

LAMP = {
    "product": "Aurora Wake-up Lamp",
    "brand": "Lumen & Co",
    "headline": "Wake up to a softer morning",
    "description": "A sunrise on your nightstand.",
    "price": "$49",
    "seed": 7,
}
SHORT = {"product": "Aurora Lamp", "script": "Good morning!", "price": "€49", "aspect_ratio": "1:1", "seed": 3}
SHAPES = [
    ("lifestyle", "1:1"),
    ("minimal", "4:5"),
    ("bold", "9:16"),
    ("elegant", "16:9"),
    ("playful", "1:1"),
    ("tech", "4:5"),
]


# Pictures


async def test_an_ad_is_a_png_and_the_same_for_the_same_seed(running: Renderer) -> None:
    one = await running.output("static-ad", LAMP)
    again = await running.output("static-ad", LAMP)
    other = await running.output("static-ad", LAMP | {"seed": 8})
    image = Image.open(io.BytesIO(one))
    image.load()
    assert (image.format, image.size, image.mode) == ("PNG", (1_080, 1_080), "RGB")
    assert one == again
    assert one != other


@pytest.mark.parametrize(("style", "ratio"), SHAPES)
def test_every_style_fills_its_sheet(style: Any, ratio: Any) -> None:
    image = pictures.draw(StaticAd(**LAMP, style=style, aspect_ratio=ratio), None, 5)
    assert image.size == pictures.SIZES[ratio]
    assert min(ImageStat.Stat(image).stddev) > 5
    assert len(image.getcolors(maxcolors=2**24) or []) > 10_000  # gradients, and not fields


def test_what_is_written_is_in_the_picture() -> None:
    plain = pictures.draw(StaticAd(product="Lamp", headline="One", style="minimal"), None, 5)
    priced = pictures.draw(StaticAd(product="Lamp", headline="One", style="minimal", price="$49"), None, 5)
    other = pictures.draw(StaticAd(product="Lamp", headline="Two", style="minimal"), None, 5)
    upper, lower = (0, 0, 1_080, 400), (0, 860, 1_080, 1_080)
    assert _differ(plain.crop(lower), priced.crop(lower))
    assert _differ(plain.crop(upper), other.crop(upper))


async def test_a_jpeg_is_one(running: Renderer) -> None:
    image = Image.open(io.BytesIO(await running.output("static-ad", LAMP | {"format": "jpg", "aspect_ratio": "16:9"})))
    assert (image.format, image.size) == ("JPEG", (1_920, 1_080))


def test_the_longest_words_stay_inside() -> None:
    """Whatever fits the schema: nothing raises, and the margins stay free."""
    given = StaticAd(
        product="W" * 80, headline="Donaudampfschifffahrtsgesellschaft " * 3, description="word " * 80,
        price="1.234.567,89 €", call_to_action="m" * 32, brand="W" * 40, style="minimal",
    )  # fmt: skip
    image = pictures.draw(given, None, 5)
    edge = Image.new("L", image.size, 255)
    edge.paste(0, (30, 30, image.width - 30, image.height - 30))
    assert max(ImageStat.Stat(image, edge).stddev) < 12


# The product's own picture


def _photo(background: Any, size: tuple[int, int] = (400, 500)) -> Image.Image:
    photo = Image.new("RGB", size, background)
    ImageDraw.Draw(photo).ellipse((100, 120, 300, 420), fill=(200, 30, 40))
    return photo


def _label(path: Path | None, photo: Image.Image) -> Any:
    assert path is not None
    photo.save(path)
    return ware(str(path), Label("Lamp", "", None, None), None)  # type: ignore[arg-type] - nothing is drawn


def test_a_product_on_white_is_cut_out(tmp_path: Path) -> None:
    shown = _label(tmp_path / "white.png", _photo((252, 252, 252)))
    assert shown.stands
    assert abs(shown.image.width - 201) < 6
    assert shown.image.getpixel((0, 0))[3] < 40
    assert shown.image.getpixel((shown.image.width // 2, shown.image.height // 2)) == (200, 30, 40, 255)


def test_a_product_in_a_scene_is_framed(tmp_path: Path) -> None:
    shown = _label(tmp_path / "scene.png", _photo((40, 90, 160)))
    assert not shown.stands
    assert shown.image.getpixel((shown.image.width // 2, 20)) == (40, 90, 160, 255)


def test_a_product_that_is_cut_out_already_stays_as_it_is(tmp_path: Path) -> None:
    photo = Image.new("RGBA", (300, 300))
    ImageDraw.Draw(photo).rectangle((50, 60, 249, 259), fill=(10, 200, 30, 255))
    shown = _label(tmp_path / "cut.png", photo)
    assert (shown.stands, shown.image.size) == (True, (200, 200))


async def test_a_picture_comes_by_data_url_or_by_url(running: Renderer, hooks: Receiver) -> None:
    png = io.BytesIO()
    _photo((252, 252, 252)).save(png, "PNG")
    hooks.files["/lamp.png"] = png.getvalue()
    inline = f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"
    one = await running.output("static-ad", LAMP | {"image": inline})
    other = await running.output("static-ad", LAMP | {"image": f"{hooks.url}/lamp.png"})
    assert one == other
    assert one != await running.output("static-ad", LAMP)


def _bomb() -> bytes:
    """A picture of 30,000 by 30,000 pixels in a few kilobytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    side = 30_000
    head = side.to_bytes(4, "big") * 2 + bytes([1, 0, 0, 0, 0])
    rows = zlib.compress(bytes((side // 8 + 1) * side), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


async def test_pictures_that_are_none_or_too_many_fail_the_prediction(running: Renderer, hooks: Receiver) -> None:
    hooks.files["/page"] = b"<html>no picture</html>"
    hooks.files["/bomb"] = _bomb()
    hooks.files["/huge"] = bytes(8 * 1024**2 + 1)
    for path, why in (("page", "not a supported image"), ("bomb", "pixels"), ("huge", "fetched"), ("absent", "404")):
        ended = await running.made("static-ad", LAMP | {"image": f"{hooks.url}/{path}"})
        assert (ended["status"], ended["output"]) == ("failed", None), path
        assert why in ended["error"], path


@pytest.mark.parametrize(
    "image",
    [
        "data:image/png;base64,####",
        "data:image/png",
        "data:image/png;base64,",
        "ftp://x/y.png",
        "C:\\lamp.png",
        "http://",
    ],
)
async def test_a_picture_that_cannot_be_one_is_refused_at_once(running: Renderer, image: str) -> None:
    answer = await running.create("static-ad", LAMP | {"image": image})
    assert answer.status_code == 422
    assert answer.json()["invalid_fields"][0]["field"] == "input.image"


async def test_an_oversized_picture_in_the_input_is_refused_at_once(running: Renderer) -> None:
    image = f"data:image/png;base64,{base64.b64encode(bytes(8 * 1024**2 + 1)).decode()}"
    answer = await running.create("static-ad", LAMP | {"image": image})
    assert answer.status_code == 422
    assert "8,388,608" in answer.json()["detail"]


async def test_pictures_of_the_inside_are_refused_unless_that_is_open(hooks: Receiver) -> None:
    hooks.files["/lamp.png"] = b"secret"
    with renderer() as closed:
        answer = await closed.create("static-ad", LAMP | {"image": f"{hooks.url}/lamp.png"})
        assert answer.status_code == 422
        by_name = hooks.url.replace("127.0.0.1", "localhost")
        answer = await closed.create("static-ad", LAMP | {"image": f"{by_name}/lamp.png"}, headers={"Prefer": "wait"})
        assert answer.status_code == 422 or answer.json()["status"] == "failed"


# People


def test_the_seed_is_the_person_and_the_shot_is_the_scene() -> None:
    assert _traits(5) == _traits(5) != _traits(6)
    assert [Person.born(5, "man", 40).is_woman, Person.born(5, "woman", 40).is_woman] == [False, True]
    one = personas.draw(PersonaInput(shot=1, aspect_ratio="1:1"), 5)
    assert one.size == (1_080, 1_080)
    assert not _differ(one, personas.draw(PersonaInput(shot=1, aspect_ratio="1:1"), 5))
    assert _differ(one, personas.draw(PersonaInput(shot=2, aspect_ratio="1:1"), 5))


def _traits(seed: int) -> dict[str, Any]:
    person = Person.born(seed, None, None)
    return {name: getattr(person, name) for name in Person.__slots__ if name != "hair"} | {"cut": person.hair.cut}


def test_nobody_looks_like_anybody_else() -> None:
    """Every cut, cloth and face, small: nothing raises, and no two are alike."""
    seen: set[bytes] = set()
    cloths = itertools.cycle(("tee", "vee", "shirt", "blazer", "hoodie", "roll"))
    for number, cut in enumerate(CUTS):
        person = replace(Person.born(number, None, 20 + number * 3), hair=Hair(cut, (90, 60, 40), number))
        person = replace(person, beard=("", "stubble", "beard")[number % 3], has_glasses=True, has_freckles=True)
        image = Image.new("RGB", (160, 200), (200, 210, 220))
        pose = Pose(turn=number % 3 - 1.0, lean=4, smile=number / len(CUTS), light=(-1.0, 1.0)[number % 2])
        Figure(image, person, pose, DrawingFrame(80, 80, 90), (next(cloths), (60, 90, 140))).draw()
        seen.add(image.tobytes())
    assert len(seen) == len(CUTS)


async def test_a_person_is_drawn_by_a_press(running: Renderer) -> None:
    given = {"seed": 5, "shot": 3, "aspect_ratio": "1:1", "format": "jpg"}
    image = Image.open(io.BytesIO(await running.output("persona", given)))
    assert (image.format, image.size) == ("JPEG", (1_080, 1_080))
    refused = await running.create("persona", given | {"shot": 5})
    assert refused.json()["invalid_fields"][0]["field"] == "input.shot"


# Words


def test_accents_and_currencies_can_be_written_and_what_no_font_has_is_left_out() -> None:
    assert writable("Café crème — €49, £5 ñ Å", None) == "Café crème - €49, £5 ñ Å"
    assert writable("Grüße 🎉", None) == "Grüsse"
    assert writable("光", None) == ""
    assert face_for(["Crème brûlée for €5"]) is None
    assert clean(" two\n lines\x00 ") == "two lines"
    assert Face(40).width("€") == Face(40).width("C")


@pytest.mark.parametrize(
    "text", ["one", "a b c d e f g", "word " * 40, "Donaudampfschifffahrtsgesellschaft", "", "W" * 200]
)
def test_words_are_fitted_into_their_box(text: str) -> None:
    block = fit(text, Face(120, 0.03), 500, 240, smallest=20, lines_max=4)
    assert block.width <= 500
    assert block.height <= 240
    assert len(block.lines) <= 4
    assert "".join(block.lines).replace("…", "").replace(" ", "") in text.replace(" ", "") + " "


# Films


@pytest.mark.slow
async def test_a_film_has_moving_pictures_and_a_voice(running: Renderer) -> None:
    film = await running.output("ugc-video", SHORT)
    assert film == await running.output("ugc-video", SHORT)
    with av.open(io.BytesIO(film), "r") as container:
        video, audio = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, audio.codec_context.name) == ("h264", "aac")
        assert video.average_rate == Fraction(24)
        frames = [frame.to_image() for frame in container.decode(video)]
    assert 3 < len(frames) / 24 < 8
    assert {frame.size for frame in frames} == {(720, 720)}
    third = len(frames) // 3
    assert all(_differ(one, other) for one, other in zip(frames[:-third], frames[third:], strict=True))
    with av.open(io.BytesIO(film), "r") as container:
        loud = [_loudness(frame) for frame in container.decode(audio=0)]
    assert max(loud) > 10 * (sum(loud[-8:]) / 8)  # somebody speaks, and has ended
    assert film.index(b"moov") < film.index(b"mdat")  # it plays before all of it is there


async def test_a_script_that_is_too_long_to_say_fails(running: Renderer) -> None:
    ended = await running.made("ugc-video", LONG | {"speed": 0.5})
    assert ended["status"] == "failed"
    assert "input.script" in ended["error"]


# Speech


async def test_speech_is_sound_and_faster_speech_is_shorter(running: Renderer) -> None:
    said = {"text": "The quick brown fox jumps over the lazy dog.", "format": "wav"}
    seconds = {}
    for speed in (0.7, 1.0, 1.8):
        with wave.open(io.BytesIO(await running.output("tts", said | {"speed": speed}))) as sound:
            assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (1, 2, 22_050)
            frames = sound.readframes(sound.getnframes())
            assert max(frames[1::2]) > 60  # it can be heard
            seconds[speed] = sound.getnframes() / 22_050
    assert seconds[0.7] > seconds[1.0] > seconds[1.8] > 0.5


async def test_every_voice_speaks_and_differs_from_the_others(running: Renderer) -> None:
    said = {"text": "Radio 7", "format": "wav"}
    sounds = {await running.output("tts", said | {"voice": voice}) for voice in get_args(Voice)}
    assert len(sounds) == len(get_args(Voice))


async def test_an_mp3_is_one_and_the_same_again(running: Renderer) -> None:
    said = {"text": "Ein schöner Tag.", "voice": "de-woman", "seed": 4}
    sound = await running.output("tts", said)
    with av.open(io.BytesIO(sound), "r") as container:
        assert container.streams.audio[0].codec_context.name == "mp3float"
        assert sum(frame.samples for frame in container.decode(audio=0)) / 22_050 > 0.5
    assert sound == await running.output("tts", said)


def _differ(one: Image.Image, other: Image.Image) -> bool:
    return ImageChops.difference(one.convert("RGB"), other.convert("RGB")).getbbox() is not None


def _loudness(frame: av.AudioFrame) -> float:
    floats = memoryview(bytes(frame.planes[0])).cast("f")[: frame.samples]
    return sum(abs(value) for value in floats) / len(floats)
