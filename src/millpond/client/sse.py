"""Server-sent events, as far as Millpond speaks them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FRAME_MAX: Final = 4 * 1024 * 1024


class Frame(NamedTuple):
    """One message of a stream."""

    event: str
    data: bytes


class Parser:
    """Makes frames of the bytes as they come; comments and hints are passed over."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete; a frame without an end is a ValueError."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield from self._take(line.removesuffix(b"\r"))
        if len(self._rest) + sum(map(len, self._data)) > FRAME_MAX:
            raise ValueError(f"a frame of more than {FRAME_MAX:,} bytes")

    def _take(self, line: bytes) -> Iterator[Frame]:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"data":
            self._data.append(value)
        elif not line:
            if self._data or self._event:
                yield Frame(self._event, b"\n".join(self._data))
            self._event, self._data = "", []
