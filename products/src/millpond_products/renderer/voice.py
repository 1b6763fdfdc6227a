"""``python -m millpond_products.renderer.voice``: speaks one text with espeak-ng, from a wheel, through ctypes.

The library keeps its state in globals, some of it from one text to the next: only a new process speaks the same text in
the same way. A crash of the library also ends only this process.

It reads a :class:`Text` and writes a :class:`Sound`, each as a line of JSON, and then the samples.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any, Final

import espeakng_loader  # pyright: ignore[reportMissingTypeStubs] - it has none
import msgspec

from millpond import lifeline

SECONDS_MAX: Final = 600
_RATE, _PITCH, _RANGE = 1, 3, 4  # espeak_PARAMETER
_SYNCHRONOUS: Final = 2  # AUDIO_OUTPUT_SYNCHRONOUS
_CHARACTERS: Final = 1  # POS_CHARACTER
_UTF8: Final = 1  # espeakCHARS_UTF8
_WORD: Final = 1  # espeakEVENT_WORD
_LIVELY: Final = 60
_STOP, _GO_ON = 1, 0


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text to speak, with its voice."""

    text: str
    voice: str
    """The name of the voice in the library."""
    words_a_minute: int
    pitch: int
    seed: int


class Sound(msgspec.Struct, frozen=True, kw_only=True):
    """Describes the samples that follow."""

    rate: int = 0
    words: list[tuple[float, int, int]] = []
    """For each word: its time in seconds, and its position and length in the text."""
    error: str | None = None


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", ctypes.c_char * 8),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


def main() -> None:
    lifeline.stop_with_parent()
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the library must not mix with the answer
    sound, samples = _speak(msgspec.json.decode(sys.stdin.buffer.readline(), type=Text))
    with answer:
        answer.write(msgspec.json.encode(sound) + b"\n" + samples)


def _speak(given: Text) -> tuple[Sound, bytes]:
    library, rate = _library()
    if rate <= 0:
        return Sound(error="espeak-ng could not be started."), b""
    samples = bytearray()
    words: list[tuple[float, int, int]] = []

    def receive(piece: Any, count: int, events: Any) -> int:
        if piece and count:
            samples.extend(ctypes.string_at(piece, count * 2))
        place = 0
        while (event := events[place]).type:
            if event.type == _WORD:
                words.append((event.audio_position / 1000, event.text_position - 1, event.length))
            place += 1
        return _STOP if len(samples) > SECONDS_MAX * rate * 2 else _GO_ON

    callback = _Callback(receive)
    library.espeak_SetSynthCallback(callback)
    library.espeak_ng_SetRandSeed(given.seed)
    if library.espeak_SetVoiceByName(given.voice.encode()):
        return Sound(error=f"The voice {given.voice} does not exist."), b""
    library.espeak_SetParameter(_RATE, given.words_a_minute, 0)
    library.espeak_SetParameter(_PITCH, given.pitch, 0)
    library.espeak_SetParameter(_RANGE, _LIVELY, 0)
    text = given.text.replace("\0", " ").encode()
    library.espeak_Synth(text, len(text) + 1, 0, _CHARACTERS, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    if not samples:
        return Sound(error="The text contains nothing that can be spoken."), b""
    if len(samples) > SECONDS_MAX * rate * 2:
        return Sound(error=f"The speech would be longer than {SECONDS_MAX} seconds."), b""
    return Sound(rate=rate, words=words), bytes(samples)


@cache
def _library() -> tuple[Any, int]:
    library = ctypes.CDLL(str(espeakng_loader.get_library_path()))
    library.espeak_ng_SetRandSeed.argtypes = (ctypes.c_long,)
    library.espeak_Synth.argtypes = (
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    return library, library.espeak_Initialize(_SYNCHRONOUS, 200, str(espeakng_loader.get_data_path()).encode(), 0)


if __name__ == "__main__":
    main()
