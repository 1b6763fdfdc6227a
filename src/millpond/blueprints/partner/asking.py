"""Asking: what jobs have the provider make, how what it made is told, and how what went wrong there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.blueprints.partner import envelopes, outside
from millpond.engine.measuring import measure
from millpond.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millpond.engine.engine import Engine
    from millpond.providers import Ask, Made
    from millpond.work import Artifact

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


def _platform(error: TransientError | PermanentError) -> TransientError | PermanentError:
    """What the provider said, as the contract tells it."""
    status = error.details.get("provider_status")
    return outside.trouble(error, _PLATFORM, "failed" if status is None else str(status), error.message[:_MESSAGE_MAX])


async def assets(job: Any, files: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Pictures and films as a result tells them."""
    return [
        envelopes.asset(file, file.content_type.partition("/")[0])
        | await measure(job, file.id, file.content_type, file.size)
        for file in files
    ]
