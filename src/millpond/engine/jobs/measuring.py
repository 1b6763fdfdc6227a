"""Measuring: reads the size and duration of media files, if a library for them is installed."""

from __future__ import annotations

import asyncio
import io
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millpond.worker.context import Job

SIZE_MAX: Final = 64 * 1024 * 1024
"""The size in bytes up to which a file is read and measured."""
_LIBRARIES: Final = {"image": "PIL", "video": "av", "audio": "av"}


async def measure(job: Job, artifact_id: str, content_type: str, size: int) -> dict[str, Any]:
    """The width, height and seconds of a media file, as far as they can be determined."""
    media = content_type.partition("/")[0]
    if media not in _LIBRARIES or size > SIZE_MAX or find_spec(_LIBRARIES[media]) is None:
        return {}
    data = await job.open(artifact_id)
    try:
        return await asyncio.to_thread(_picture if media == "image" else _recording, data)
    except Exception:  # noqa: BLE001 - on any error of a decoder the measures are unknown
        return {}


def _picture(data: bytes) -> dict[str, Any]:
    pillow: Any = import_module("PIL.Image")
    with pillow.open(io.BytesIO(data)) as image:  # reads only the header
        return {"width": image.width, "height": image.height}


def _recording(data: bytes) -> dict[str, Any]:
    av: Any = import_module("av")
    with av.open(io.BytesIO(data)) as container:
        found: dict[str, Any] = {}
        if container.streams.video:
            stream = container.streams.video[0]
            found |= {"width": stream.width, "height": stream.height}
        if container.duration is not None:
            found["seconds"] = round(container.duration / av.time_base, 2)
        return found
