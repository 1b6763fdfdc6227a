"""Measuring: how large a picture is, and how long a film or a voice, where a library is at hand that can tell."""

from __future__ import annotations

import asyncio
import io
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millpond.worker.context import Job

SIZE_MAX: Final = 64 * 1024 * 1024
"""Bytes that are read for a look; what is larger is told without."""
_LIBRARIES: Final = {"image": "PIL", "video": "av", "audio": "av"}


async def measure(job: Job, artifact_id: str, content_type: str, size: int) -> dict[str, Any]:
    """What can be seen of a file: its width, height and seconds, as far as they are known."""
    sort = content_type.partition("/")[0]
    if sort not in _LIBRARIES or size > SIZE_MAX or find_spec(_LIBRARIES[sort]) is None:
        return {}
    data = await job.open(artifact_id)
    try:
        return await asyncio.to_thread(_picture if sort == "image" else _recording, data)
    except Exception:  # noqa: BLE001 - whatever a decoder says: it is not known then
        return {}


def _picture(data: bytes) -> dict[str, Any]:
    pillow: Any = import_module("PIL.Image")
    with pillow.open(io.BytesIO(data)) as image:  # its head alone is read
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
