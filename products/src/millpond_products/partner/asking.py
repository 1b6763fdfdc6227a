"""Asking: has the provider make files for jobs, and puts its files and errors into the terms of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.errors import PermanentError, TransientError
from millpond.product import measure
from millpond_products.partner import envelopes, outside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.product import Engine
    from millpond.providers import Ask, PartResult
    from millpond.work import Artifact

PROVIDER: Final = "replicate"
"""The provider of images and videos: Replicate, or the local renderer, which has the same API."""
_PLATFORM: Final = "renderer"
_MESSAGE_MAX: Final = 500


async def ask(engine: Engine, job: Any, asks: Mapping[str, Ask]) -> list[Artifact]:
    """The first file of each part, in their order. The job is parked while they are made."""
    try:
        made = await engine.providers.ask_all(job, PROVIDER, asks)
    except (TransientError, PermanentError) as error:
        raise _platform(error) from error
    return [_file(part, made[part]) for part in asks]


def _file(part: str, made: PartResult) -> Artifact:
    if not made.files:
        raise PermanentError(
            f"The model produced no file for {part}.",
            platform=_PLATFORM,
            platformCode="no_output",
            platformMessage=None,
        )
    return made.files[0]


def _platform(error: TransientError | PermanentError) -> TransientError | PermanentError:
    """The provider's error in the terms of the contract."""
    status = error.details.get("provider_status")
    return outside.trouble(error, _PLATFORM, "failed" if status is None else str(status), error.message[:_MESSAGE_MAX])


async def assets(job: Any, files: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Images and videos as assets of a result, with their measurements."""
    return [
        envelopes.asset(file, file.content_type.partition("/")[0])
        | await measure(job, file.id, file.content_type, file.size)
        for file in files
    ]
