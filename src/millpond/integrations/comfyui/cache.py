"""Remembers which files an endpoint has, so that they are not sent again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

REMEMBERED_MAX: Final = 1_000


@dataclass(slots=True)
class Uploads:
    """The names of files at their endpoint, by content hash; the least recently used are forgotten first."""

    limit: int = REMEMBERED_MAX
    _names: OrderedDict[tuple[str, str], str] = field(default_factory=OrderedDict[tuple[str, str], str], init=False)

    def get(self, endpoint: str, content_hash: str | None) -> str | None:
        if content_hash is None or (endpoint, content_hash) not in self._names:
            return None
        self._names.move_to_end((endpoint, content_hash))
        return self._names[endpoint, content_hash]

    def put(self, endpoint: str, content_hash: str, name: str) -> None:
        self._names[endpoint, content_hash] = name
        self._names.move_to_end((endpoint, content_hash))
        while len(self._names) > self.limit:
            self._names.popitem(last=False)

    def forget(self, endpoint: str, names: set[str]) -> None:
        """Forget files that the endpoint no longer has."""
        for key in [key for key, name in self._names.items() if key[0] == endpoint and name in names]:
            del self._names[key]

    def __len__(self) -> int:
        return len(self._names)
