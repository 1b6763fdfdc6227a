"""A gate of the tests' own: some words may not pass, and addresses of mail are hidden."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.errors import BlockedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAIL = re.compile(r"\w+@\w+(\.\w+)+")


@dataclass(frozen=True, slots=True)
class WordGate:
    """Blocks a value that has one of these words in it, and names the rule that the word breaks."""

    inward: Mapping[str, str]
    outward: Mapping[str, str]

    async def inbound(self, tenant: str, given: Any) -> Any:  # noqa: ARG002 - the rules are the same for everybody
        return _passed(given, self.inward, "input")

    async def outbound(self, tenant: str, given: Any) -> Any:  # noqa: ARG002 - as above
        return _passed(given, self.outward, "output")


def _passed(given: Any, rules: Mapping[str, str], field: str) -> Any:
    verdicts = [
        {"name": name, "field": place}
        for place, text in _texts(given, field)
        for word, name in rules.items()
        if word in text
    ]
    if verdicts:
        raise BlockedError(f"The rules do not let the {field} pass.", field=field, verdicts=verdicts)
    return _with_mail_hidden(given)


def _texts(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """All text in a value, with the field that it is in: keys are text too."""
    match value:
        case str():
            yield field, value
        case dict():
            for key, part in value.items():
                yield f"{field}.{key}", key
                yield from _texts(part, f"{field}.{key}")
        case list():
            for number, part in enumerate(value):
                yield from _texts(part, f"{field}[{number}]")
        case _:
            pass


def _with_mail_hidden(value: Any) -> Any:
    match value:
        case str():
            return _MAIL.sub("[EMAIL]", value)
        case dict():
            return {key: _with_mail_hidden(part) for key, part in value.items()}
        case list():
            return [_with_mail_hidden(part) for part in value]
        case _:
            return value
