"""Whether an image or a video was cut off.

ComfyUI loads the beginning of an image and fills the rest with one color, so that the run succeeds and is paid for. The
structure of the file is followed to its end; nothing is decoded. A file of a format or a variant that is not known here
counts as whole.
"""

from __future__ import annotations

import mmap
import re
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_STEPS_MAX: Final = 500_000
"""How many parts of a file are followed: a file that consists of more counts as whole."""
_SCAN: Final = re.compile(rb"\xff+[^\x00\xd0-\xd7\xff]")
"""A marker among the pixels of a JPEG file."""
_STANDALONE: Final = frozenset({0x01, *range(0xD0, 0xD9)})
_EOI: Final = 0xD9
_BITMAP_HEADERS: Final = frozenset({40, 52, 56, 64, 108, 124})
_INDEXES: Final = frozenset({b"moov", b"moof", b"meta"})
_BOXES: Final = _INDEXES | {b"ftyp", b"styp", b"mdat", b"free", b"skip", b"wide", b"uuid", b"sidx", b"mfra"}


class _EndError(Exception):
    """The file ends too early."""


class _Reader:
    """Reads a file from one part to the next."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0
        self.steps = 0

    @property
    def has_more(self) -> bool:
        self.steps += 1
        return self.at < len(self.data) and self.steps < _STEPS_MAX

    def take(self, fields: str) -> tuple[int, ...]:
        size = struct.calcsize(fields)
        self.skip(size)
        return struct.unpack_from(fields, self.data, self.at - size)

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise _EndError


def is_truncated(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.read(1):
            return True
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                follow = next((follow for at, magic, follow in _FORMATS if data[at : at + len(magic)] == magic), None)
                return follow is not None and follow(_Reader(data))
            except _EndError:
                return True


def _png(reader: _Reader) -> bool:
    reader.skip(8)
    while reader.has_more:
        length, kind = reader.take(">II")
        reader.skip(length + 4)
        if kind == int.from_bytes(b"IEND"):
            return False
    return reader.steps < _STEPS_MAX


def _jpeg(reader: _Reader) -> bool:
    reader.skip(2)
    while reader.has_more:
        found = _SCAN.search(reader.data, reader.at)
        if found is None:
            return True
        reader.at = found.end()
        marker = found[0][-1]
        if marker == _EOI:
            return False
        if marker not in _STANDALONE:
            (length,) = reader.take(">H")
            reader.skip(max(length - 2, 0))
    return reader.steps < _STEPS_MAX


def _gif(reader: _Reader) -> bool:
    """Many encoders omit the last byte, so a file that ends after a whole image is accepted."""
    reader.skip(10)
    flags, _, _ = reader.take("BBB")
    reader.skip(_palette(flags))
    images = 0
    while reader.has_more:
        (kind,) = reader.take("B")
        if kind == ord(","):
            *_, flags = reader.take("<HHHHB")
            reader.skip(_palette(flags) + 1)
            images += 1
        elif kind == ord("!"):
            reader.skip(1)
        else:
            return False
        while (length := reader.take("B")[0]) and reader.has_more:
            reader.skip(length)
    return not images


def _palette(flags: int) -> int:
    return 3 * 2 ** ((flags & 7) + 1) if flags & 0x80 else 0


def _riff(reader: _Reader) -> bool:
    """WebP and AVI. Some encoders do not count the byte that makes the length even."""
    _, length = reader.take("<II")
    return length + 8 > len(reader.data) + 1


def _bitmap(reader: _Reader) -> bool:
    reader.skip(10)
    offset, header = reader.take("<II")
    if header not in _BITMAP_HEADERS:
        return False
    width, height, planes, bits, compression = reader.take("<iiHHI")
    if planes != 1 or compression:
        return False
    return offset + (width * bits + 31) // 32 * 4 * abs(height) > len(reader.data)


def _boxes(reader: _Reader) -> bool:
    """MP4, MOV, AVIF and HEIC: a box may end with the file, and one of them says what the others contain."""
    found = set[bytes]()
    while len(reader.data) - reader.at >= 8 and reader.has_more:  # noqa: PLR2004 - the length and the name of a box
        start = reader.at
        (length,) = reader.take(">I")
        name = reader.data[reader.at : reader.at + 4]
        if name not in _BOXES:  # something was appended to the file
            break
        found.add(name)
        reader.skip(4)
        if length == 1:
            (length,) = reader.take(">Q")
        if not length:
            break
        reader.skip(max(length - (reader.at - start), 0))
    return not found & _INDEXES


_FORMATS: Final = (
    (0, b"\x89PNG\r\n\x1a\n", _png),
    (0, b"\xff\xd8\xff", _jpeg),
    (0, b"GIF8", _gif),
    (0, b"BM", _bitmap),
    (8, b"WEBP", _riff),
    (8, b"AVI ", _riff),
    (4, b"ftyp", _boxes),
)
"""Where each format has its mark, the mark, and what follows a file of the format to its end."""
