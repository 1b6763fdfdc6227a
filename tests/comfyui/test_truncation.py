"""Files that were cut off, of every format that Pillow writes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from millpond.integrations.comfyui.truncation import is_truncated
from tests.doubles.comfyui import sample

if TYPE_CHECKING:
    from pathlib import Path

FORMATS: dict[str, dict[str, Any]] = {
    "PNG": {},
    "JPEG": {},
    "JPEG progressive": {"progressive": True, "exif": b"Exif\0\0" + b"\xff\xd9" * 50},
    "GIF": {},
    "WEBP": {"lossless": True},
    "BMP": {},
    "AVIF": {},
}


def picture(name: str) -> bytes:
    made = io.BytesIO()
    image = Image.effect_noise((97, 61), 80).convert("RGB")
    image.save(made, name.partition(" ")[0], **FORMATS[name])
    return made.getvalue()


def film(*boxes: tuple[bytes, int]) -> bytes:
    head = (24).to_bytes(4) + b"ftypisom" + bytes(12)
    return head + b"".join((size + 8).to_bytes(4) + name + bytes(size) for name, size in boxes)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files") / "file"


@pytest.mark.parametrize("name", FORMATS)
def test_a_picture_that_was_cut_off_is_truncated_and_a_whole_one_is_not(path: Path, name: str) -> None:
    try:
        whole = picture(name)
    except (KeyError, OSError):
        pytest.skip(f"This Pillow cannot write {name}.")
    path.write_bytes(whole)
    assert not is_truncated(path)
    path.write_bytes(whole + b"something after it")
    assert not is_truncated(path)
    for share in (0.05, 0.3, 0.5, 0.9):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert is_truncated(path), share
    path.write_bytes(whole[:-3])
    assert is_truncated(path)


def test_a_film_needs_all_its_boxes_and_its_index(path: Path) -> None:
    whole = film((b"mdat", 5_000), (b"moov", 500))
    for content, expected in [
        (whole, False),
        (whole[:-1], True),
        (whole[:3_000], True),
        (film((b"mdat", 5_000)), True),
        (film((b"moov", 500)) + (0).to_bytes(4) + b"mdat" + bytes(100), False),
        (film((b"moov", 500)) + (1).to_bytes(4) + b"mdat" + (10**12).to_bytes(8) + bytes(100), True),
    ]:
        path.write_bytes(content)
        assert is_truncated(path) is expected


def test_a_gif_may_omit_its_last_byte(path: Path) -> None:
    path.write_bytes(picture("GIF").removesuffix(b";"))
    assert not is_truncated(path)


def test_a_file_of_countless_parts_is_not_followed_to_its_end(path: Path) -> None:
    path.write_bytes(sample()[:8] + (bytes(4) + b"tEXt" + bytes(4)) * 600_000)
    assert not is_truncated(path)


@given(
    start=st.sampled_from(
        [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"BM", b"RIFF", bytes(4) + b"ftyp", b"II*\0", b""]
    ),
    rest=st.binary(max_size=300),
)
def test_no_content_is_an_error(path: Path, start: bytes, rest: bytes) -> None:
    path.write_bytes(start + rest)
    assert is_truncated(path) in {True, False}
