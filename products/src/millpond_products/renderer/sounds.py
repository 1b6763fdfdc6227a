"""Writes sound to files."""

# PyAV's types refer to numpy, which is not installed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import wave
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import av

from millpond_products.renderer.orders import Rendered

if TYPE_CHECKING:
    from array import array
    from collections.abc import Generator

    from av.audio.stream import AudioStream

    from millpond_products.renderer.speech import Spoken

_FRAME: Final = 1_152


def write_sound(spoken: Spoken, target: str, ending: str) -> Rendered:
    """Write a sound file: wav directly, mp3 with PyAV."""
    path = f"{target}.{ending}"
    if ending == "wav":
        with wave.open(path, "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(spoken.rate)
            file.writeframes(spoken.samples.tobytes())
        return Rendered(path=path, content_type="audio/wav")
    with av.open(path, "w", format="mp3") as container:
        stream = container.add_stream("libmp3lame", rate=spoken.rate)
        stream.bit_rate = 64_000
        stream.layout = "mono"
        for packet in encoded(stream, spoken.samples, spoken.rate):
            container.mux(packet)
    return Rendered(path=path, content_type="audio/mpeg")


def encoded(stream: AudioStream, samples: array[int], rate: int) -> Generator[Any]:
    """Encode mono samples as packets of a stream, in the format that the stream requires."""
    codec = stream.codec_context
    resampler = av.AudioResampler(
        format=codec.format, layout=codec.layout, rate=codec.rate, frame_size=codec.frame_size
    )
    for start in range(0, len(samples), _FRAME):
        piece = samples[start : start + _FRAME]
        frame = av.AudioFrame(format="s16", layout="mono", samples=len(piece))
        frame.planes[0].update(piece.tobytes().ljust(frame.planes[0].buffer_size, b"\0"))
        frame.rate = rate
        frame.pts = start
        frame.time_base = Fraction(1, rate)
        for ready in resampler.resample(frame):
            yield from stream.encode(ready)
    for ready in resampler.resample(None):
        yield from stream.encode(ready)
    yield from stream.encode(None)
