"""Members of JSON objects: each may be given only once.

Of two members with one name, parsers take the first or the last, or reject both. A proxy or a gate that takes one and a
server that takes the other are two readers of one request, so such a request is rejected, at any depth.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import InvalidError

_COLON: Final = b":"
_ESCAPED_COLON: Final = b"\\u003"  # begins the only escape that stands for a colon
_FIELD_MAX: Final = 200

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class _Pairs(list[tuple[str, Any]]):
    """The members of an object as they were written."""


def check_unique(text: bytes) -> None:
    """Reject JSON in which an object has two members with the same name; the error names the second one.

    Decoding drops all but the last one, and with it a colon. So both texts have the same number of colons if and only
    if nothing was dropped. This costs a fraction of what reading the members one by one does, which is left for
    the few texts with an escaped colon, and for the error.
    """
    decoded = _decode(text)
    if _ESCAPED_COLON in text or _encode(decoded).count(_COLON) != text.count(_COLON):
        _search(_read_pairs(text.decode()))


_read_pairs: Final = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=str, parse_float=str, strict=False).decode
"""Numbers stay text: Python needs quadratic time to convert long ones."""


def _search(whole: Any) -> None:
    pending: list[tuple[str, Any]] = [("", whole)]
    while pending:
        path, node = pending.pop()
        if isinstance(node, _Pairs):
            seen = set[str]()
            for name, part in node:
                below = f"{path}.{name}"[:_FIELD_MAX] if path else name[:_FIELD_MAX]
                if name in seen:
                    raise InvalidError("The member was given more than once.", field=values.printable(below))
                seen.add(name)
                pending.append((below, part))
        elif isinstance(node, list):
            parts = cast("list[Any]", node)
            pending += [(f"{path}[{index}]"[:_FIELD_MAX], part) for index, part in enumerate(parts)]
