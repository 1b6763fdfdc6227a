"""The images of requests: data URLs, uploads, or URLs that the outbound guard allows."""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from millpond.errors import MillpondError, OutboundRefusedError
from millpond_products.renderer.models import invalid

if TYPE_CHECKING:
    from millpond.product import Outbound
    from millpond_products.renderer.folder import Folder

BYTES_MAX: Final = 8 * 1024**2
SECONDS: Final = 20.0
ENDING: Final = ".image"
_DATA: Final = "data:"


class ImageError(Exception):
    """An image could not be fetched."""


def check(image: str | None, outbound: Outbound) -> None:
    """Refuse an image that is invalid, without fetching it."""
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
    """Write the image to a file beside the output."""
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
            raise ImageError("The file of input.image does not exist or has expired.")
        await asyncio.to_thread(shutil.copyfile, file.path, path)
        return path
    await _download(image, path, outbound)
    return path


async def _download(url: str, path: Path, outbound: Outbound) -> None:
    try:
        async with outbound.stream("GET", url, seconds=SECONDS, size_max=BYTES_MAX) as answer:
            if answer.status != 200:  # noqa: PLR2004 - no other response contains an image
                raise ImageError(f"The image of input.image could not be fetched: HTTP {answer.status}.")
            with path.open("wb") as file:
                async for chunk in answer:
                    file.write(chunk)
    except MillpondError as error:
        raise ImageError(f"The image of input.image could not be fetched: {error.message}") from None


def _decode(url: str) -> bytes:
    about, comma, data = url.partition(",")
    if not comma:
        raise invalid("input.image", "The data URL has no comma.")
    try:
        found = base64.b64decode(data, validate=True) if about.endswith(";base64") else unquote_to_bytes(data)
    except binascii.Error:
        raise invalid("input.image", "The data URL is not valid base64.") from None
    if not found or len(found) > BYTES_MAX:
        raise invalid("input.image", f"The image has {len(found):,} bytes; it must have 1 to {BYTES_MAX:,}.")
    return found
