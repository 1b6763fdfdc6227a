"""Pictures that come with a request: by data URL, by upload, or by a URL that the outbound guard lets through."""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from millpond.errors import MillpondError, OutboundRefusedError
from millpond.renderer.models import invalid

if TYPE_CHECKING:
    from millpond.outbound import Outbound
    from millpond.renderer.folder import Folder

BYTES_MAX: Final = 8 * 1024**2
SECONDS: Final = 20.0
ENDING: Final = ".image"
_DATA: Final = "data:"


class ImageError(Exception):
    """A picture that could not be had."""


def check(image: str | None, outbound: Outbound) -> None:
    """Refuse at once what can be seen to be wrong."""
    if image is None:
        return
    if image.startswith(_DATA):
        _decode(image)
        return
    try:
        outbound.check(image, field="input.image")
    except OutboundRefusedError as error:
        raise invalid("input.image", error.message) from None


async def fetch(image: str | None, stem: Path, folder: Folder, outbound: Outbound, own_url: str) -> Path | None:
    """The picture as a file beside what is to be made of it."""
    if image is None:
        return None
    path = Path(f"{stem}{ENDING}")
    if image.startswith(_DATA):
        await asyncio.to_thread(path.write_bytes, _decode(image))
        return path
    files = f"{own_url}/v1/files/"
    if image.startswith(files):
        file = folder.find(image.removeprefix(files).partition("/")[0])
        if file is None:
            raise ImageError("The file that input.image names is not here (any more).")
        await asyncio.to_thread(shutil.copyfile, file.path, path)
        return path
    await _download(image, path, outbound)
    return path


async def _download(url: str, path: Path, outbound: Outbound) -> None:
    try:
        async with outbound.stream("GET", url, seconds=SECONDS, size_max=BYTES_MAX) as answer:
            if answer.status != 200:  # noqa: PLR2004 - no other answer has a picture in it
                raise ImageError(f"The picture of input.image could not be fetched: the answer was {answer.status}.")
            with path.open("wb") as file:
                async for chunk in answer:
                    file.write(chunk)
    except MillpondError as error:
        raise ImageError(f"The picture of input.image could not be fetched: {error.message}") from None


def _decode(url: str) -> bytes:
    about, comma, data = url.partition(",")
    if not comma:
        raise invalid("input.image", "It is not a data URL: the comma is missing.")
    try:
        found = base64.b64decode(data, validate=True) if about.endswith(";base64") else unquote_to_bytes(data)
    except binascii.Error:
        raise invalid("input.image", "The data URL is not in base64.") from None
    if not found or len(found) > BYTES_MAX:
        raise invalid("input.image", f"It has {len(found):,} bytes; from 1 to {BYTES_MAX:,} are possible.")
    return found
