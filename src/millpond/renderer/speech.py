"""``millpond/tts``: a text, spoken."""

from __future__ import annotations

import subprocess
import sys
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from millpond import lifeline
from millpond.renderer.orders import UnmakeableError
from millpond.renderer.sounds import write_sound
from millpond.renderer.voice import Sound, Text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millpond.renderer.models import Speech
    from millpond.renderer.orders import Made, Order

WORDS_A_MINUTE: Final = 165
_LOUD: Final = 0.82
_VARIANTS: Final = {"woman": "+f3", "man": "+m3"}
_OWN_NAMES: Final = {"en-gb": "en-gb-x-rp"}
_SECONDS: Final = 60


@dataclass(slots=True)
class Spoken:
    """A text as sound, and when each of its words begins."""

    rate: int
    samples: array[int]
    words: list[tuple[float, int, int]] = field(default_factory=list[tuple[float, int, int]])
    """Seconds, and where in the text the word stands and how long it is."""

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def make(given: Speech, order: Order, say: Callable[[str], None]) -> Made:
    spoken = speak(given.text, given.voice, order.seed, speed=given.speed, pitch=given.pitch)
    say(f"Spoke {spoken.seconds:.1f} seconds.")
    return write_sound(spoken, order.target, given.format)


def speak(text: str, voice: str, seed: int, *, speed: float = 1.0, pitch: int = 50) -> Spoken:
    """Say it; as loud as it may be, whichever the voice."""
    language, _, who = voice.rpartition("-")
    asked = Text(
        text=text,
        voice=f"{_OWN_NAMES.get(language, language)}{_VARIANTS[who]}",
        words_a_minute=round(WORDS_A_MINUTE * speed),
        pitch=pitch,
        seed=seed,
    )
    words = [sys.executable, "-m", "millpond.renderer.voice"]
    said = subprocess.run(
        words,
        input=msgspec.json.encode(asked) + b"\n",
        stdout=subprocess.PIPE,
        env=lifeline.environment(),
        pass_fds=(lifeline.descriptor(),),
        timeout=_SECONDS,
        check=False,
    )
    if said.returncode:
        raise UnmakeableError(f"The process that was to say it has died (status {said.returncode}).")
    line, _, samples = said.stdout.partition(b"\n")
    sound = msgspec.json.decode(line, type=Sound)
    if sound.error is not None:
        raise UnmakeableError(sound.error)
    return Spoken(sound.rate, _normalized(array("h", samples)), sound.words)


def _normalized(samples: array[int]) -> array[int]:
    loudest, lowest = max(samples), min(samples)
    factor = _LOUD * 32_767 / max(loudest, -lowest, 1)
    return array("h", [int(sample * factor) for sample in samples])
