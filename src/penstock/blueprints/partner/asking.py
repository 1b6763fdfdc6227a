"""Asking: what jobs have the provider make, how what it made is told, and how what went wrong there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.engine.measuring import measure
from penstock.errors import PenstockError, PermanentError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.engine.engine import Engine
    from penstock.providers import Ask, Made
    from penstock.work import Artifact

PROVIDER: Final = "replicate"
"""Who makes pictures and films: Replicate, or the local renderer, which speaks like it."""
_PLATFORM: Final = "renderer"
_MESSAGE_MAX: Final = 500


async def ask(engine: Engine, job: Any, asks: Mapping[str, Ask]) -> list[Artifact]:
    """The first file of each part, in their order. The job waits while they are made."""
    try:
        made = await engine.providers.ask_all(job, PROVIDER, asks)
    except (TransientError, PermanentError) as error:
        raise _platform(error) from error
    return [_file(part, made[part]) for part in asks]


def _file(part: str, made: Made) -> Artifact:
    if not made.files:
        raise PermanentError(
            f"The model made no file for {part}.", platform=_PLATFORM, platformCode="no_output", platformMessage=None
        )
    return made.files[0]


def _platform(error: TransientError | PermanentError) -> PenstockError:
    """What the provider said, as the contract tells it."""
    status, after = error.details.get("provider_status"), getattr(error, "retry_after", None)
    details: dict[str, Any] = {
        "platform": _PLATFORM,
        "platformCode": "failed" if status is None else str(status),
        "platformMessage": error.message[:_MESSAGE_MAX],
    }
    if after is not None:
        details["retryAfterMs"] = round(after.total_seconds() * 1_000)
    if isinstance(error, TransientError):
        return TransientError(error.message, retry_after=error.retry_after, **details)
    return PermanentError(error.message, **details)


async def assets(job: Any, files: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Files as a result tells them; where to get them is told whenever somebody asks."""
    return [
        {
            "assetId": file.id,
            "type": file.content_type.partition("/")[0],
            "contentType": file.content_type,
            "bytes": file.size,
            "name": file.name,
            **await measure(job, file.id, file.content_type, file.size),
        }
        for file in files
    ]
