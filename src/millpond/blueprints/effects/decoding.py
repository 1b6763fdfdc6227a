"""Decoding: whether an output is what it claims to be. It is looked at after the fact, and only the log is told."""

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

    from millpond.engine.artifacts import ArtifactRecord
    from millpond.engine.engine import Engine

SIZE_MAX: Final = 256 * 1024 * 1024
"""Bytes that are fetched for a look; what is larger is believed."""
_SECONDS_MAX: Final = 60
_one_at_a_time: Final = asyncio.Semaphore(1)


async def look(engine: Engine, record: ArtifactRecord) -> None:
    """Decode an output with whatever library is there; without one nothing is said."""
    is_image = record.content_type.startswith("image/")
    if record.size > SIZE_MAX or find_spec("PIL" if is_image else "av") is None:
        return
    async with _one_at_a_time:  # for each takes as much memory as its output
        with contextlib.suppress(MillpondError):  # Storage is not there now: another time is not worth it.
            await _look(engine, record, _image if is_image else _video)


async def _look(engine: Engine, record: ArtifactRecord, decode: Callable[[bytes], dict[str, Any]]) -> None:
    try:
        async with asyncio.timeout(_SECONDS_MAX):
            found = await asyncio.to_thread(decode, await engine.artifacts.fetch(record))
    except MillpondError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a decoder says of it is the finding
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
