"""Decoding: checks whether an output can be decoded. The check runs after the job has ended, and is only logged."""

from __future__ import annotations

import asyncio
import contextlib
import io
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from millpond import logs
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.product import ArtifactRecord, Engine

SIZE_MAX: Final = 256 * 1024 * 1024
"""The limit of the check, in bytes; larger outputs are not checked."""
_SECONDS_MAX: Final = 60
_one_at_a_time: Final = asyncio.Semaphore(1)


async def look(engine: Engine, record: ArtifactRecord) -> None:
    """Decode an output with Pillow or PyAV, if it is installed, and log the result."""
    is_image = record.content_type.startswith("image/")
    if record.size > SIZE_MAX or find_spec("PIL" if is_image else "av") is None:
        return
    async with _one_at_a_time:  # each check takes as much memory as its output
        with contextlib.suppress(MillpondError):  # storage is unavailable; the check is not repeated
            await _look(engine, record, _image if is_image else _video)


async def _look(engine: Engine, record: ArtifactRecord, decode: Callable[[bytes], dict[str, Any]]) -> None:
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            found = await asyncio.to_thread(decode, await engine.artifacts.fetch(record))
    except MillpondError:
        raise
    except Exception as error:  # noqa: BLE001 - any error of a decoder is the result
        reason = f"{type(error).__name__}: {error}"
        logs.emit("output.unreadable", job_id=record.job_id, file=record.id, reason=reason[:500])
    else:
        logs.emit("output.decoded", job_id=record.job_id, file=record.id, **found)


def _image(data: bytes) -> dict[str, Any]:
    pillow: Any = import_module("PIL.Image")
    with pillow.open(io.BytesIO(data)) as image:
        image.load()
        return {"width": image.width, "height": image.height}


def _video(data: bytes) -> dict[str, Any]:
    av: Any = import_module("av")
    with av.open(io.BytesIO(data)) as container:
        frame = next(container.decode(video=0))
        seconds = None if container.duration is None else container.duration / av.time_base
        return {"width": frame.width, "height": frame.height, "seconds": seconds}
