"""``millpond/tts``: text to speech."""

from __future__ import annotations

import subprocess
import sys
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import lifeline
from millpond_products.renderer.orders import UnmakeableError
from millpond_products.renderer.sounds import write_sound
from millpond_products.renderer.voice import Sound, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond_products.renderer.models import Speech
    from millpond_products.renderer.orders import Rendered, RenderOrder

WORDS_A_MINUTE: Final = 165
_LOUD: Final = 0.82
_VARIANTS: Final = {"woman": "+f3", "man": "+m3"}
_OWN_NAMES: Final = {"en-gb": "en-gb-x-rp"}
_SECONDS: Final = 60


@dataclass(slots=True)
class Spoken:
    """A spoken text, with the time of each of its words."""

    rate: int
    samples: array[int]
    words: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    """For each word: its time in seconds, and its position and length in the text."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def make(given: Speech, order: RenderOrder, log: Callable[[str], None]) -> Rendered:
    spoken = speak(given.text, given.voice, order.seed, speed=given.speed, pitch=given.pitch)
    log(f"Spoke {spoken.seconds:.1f} seconds.")
    return write_sound(spoken, order.target, given.format)


def speak(text: str, voice: str, seed: int, *, speed: float = 1.0, pitch: int = 50) -> Spoken:
    """Speak a text, with the same peak volume for all voices."""
    language, _, who = voice.rpartition("-")
    request = Text(
        text=text,
        voice=f"{_OWN_NAMES.get(language, language)}{_VARIANTS[who]}",
        words_a_minute=round(WORDS_A_MINUTE * speed),
        pitch=pitch,
        seed=seed,
    )
    command = [sys.executable, "-m", "millpond_products.renderer.voice"]
    finished = subprocess.run(
        command,
        input=msgspec.json.encode(request) + b"\n",
        stdout=subprocess.PIPE,
        env=lifeline.environment(),
        pass_fds=(lifeline.descriptor(),),
        timeout=_SECONDS,
        check=False,
    )
    if finished.returncode:
        raise UnmakeableError(f"The speech process died (status {finished.returncode}).")
    line, _, samples = finished.stdout.partition(b"\n")
    sound = msgspec.json.decode(line, type=Sound)
    if sound.error is not None:
        raise UnmakeableError(sound.error)
    return Spoken(sound.rate, _normalized(array("h", samples)), sound.words)


def _normalized(samples: array[int]) -> array[int]:
    loudest, lowest = max(samples), min(samples)
    factor = _LOUD * 32_767 / max(loudest, -lowest, 1)
    return array("h", [int(sample * factor) for sample in samples])
