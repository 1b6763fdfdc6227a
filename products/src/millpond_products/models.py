"""Models: which model of a provider makes each type of media."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from millpond.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

MODELS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "static_ad": "millpond/static-ad",
        "ugc_video": "millpond/ugc-video",
        "persona": "millpond/persona",
        "tts": "millpond/tts",
    }
)
"""The default models, which are those of the local renderer."""


def models(chosen: str) -> dict[str, str]:
    """The models by type, with the operator's choices, such as ``static_ad=owner/name, tts=owner/name``."""
    made = dict(MODELS)
    for part in filter(None, (part.strip() for part in chosen.split(","))):
        name, _, model = (word.strip() for word in part.partition("="))
        if name not in MODELS or "/" not in model:
            hint = f"Use TYPE=OWNER/NAME, separated by commas; the types are {', '.join(MODELS)}."
            raise SettingsError(f"MILLPOND_MODELS: {part[:80]!r} cannot be parsed.", hint=hint)
        made[name] = model
    return made
