"""Server-sent events, as far as Millpond uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME_MAX: Final = 4 * 1024 * 1024


class StreamMessage(NamedTuple):
    """A message of a stream."""

    event: str
    data: bytes
    id: str = ""


class Parser:
    """Decodes frames from chunks of bytes; comments are ignored."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[bytes] = []
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[StreamMessage]:
        """The frames completed by these bytes; raises ValueError if a frame is too long."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield from self._take(line.removesuffix(b"\r"))
        if len(self._rest) + sum(map(len, self._data)) > FRAME_MAX:
            raise ValueError(f"a frame of more than {FRAME_MAX:,} bytes")

    def _take(self, line: bytes) -> Iterator[StreamMessage]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
        elif name == b"id":
            self._id = value.decode("utf-8", "replace")
        elif not line:
            if self._data or self._event:
                yield StreamMessage(self._event, b"\n".join(self._data), self._id)
            self._event, self._data, self._id = "", [], ""
