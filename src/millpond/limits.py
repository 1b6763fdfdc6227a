"""Limits: how many jobs run at once, and how many start per period, for each value of a key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from millpond import values
from millpond.errors import InvalidError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NUMBER_MAX: Final = 1_000_000
PER_MIN: Final = timedelta(seconds=1)
PER_MAX: Final = timedelta(days=31)
LIMITS_MAX: Final = 8
"""How many limits a kind or a queue may have."""
_KEY_MAX: Final = 4
_PART: Final = re.compile(r"tenant|account|tags\.[^.\s].*|input(\.[^.\s]+)+")


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of the jobs of one or more kinds or queues, in all processes together.

    ``at_once`` is how many jobs may run at the same time, ``starts`` how many may start in any period of the length
    ``per``. Without a ``key``, that is for all jobs together; with one, for each of its values: ``tenant``,
    ``account``, ``tags.NAME``, ``input.FIELD``, or several of them.

    >>> Limit("openai", at_once=20, starts=500, per="1m", key="input.api_key").per
    datetime.timedelta(seconds=60)
    """

    name: str
    at_once: int | None = None
    starts: int | None = None
    per: Any = None
    key: Any = ()

    def __post_init__(self) -> None:
        check_limit_name(self.name)
        if self.at_once is None and self.starts is None:
            raise InvalidError(
                "A limit needs at_once, or starts and per.", field="at_once", hint='For example: starts=500, per="1m".'
            )
        object.__setattr__(self, "per", check_numbers(self.at_once, self.starts, self.per))
        key = (self.key,) if isinstance(self.key, str) else tuple(self.key or ())
        for part in key:
            if not _PART.fullmatch(str(part)):
                raise InvalidError(
                    f"A limit cannot have the key {str(part)[:80]!r}.",
                    field="key",
                    hint="Use tenant, account, tags.NAME or input.FIELD.",
                )
        if len(key) > _KEY_MAX or len(set(key)) < len(key):
            raise InvalidError(f"A key has at most {_KEY_MAX} different parts.", field="key")
        object.__setattr__(self, "key", key)

    def declaration(self) -> dict[str, Any]:
        """The numbers that apply unless an operator changes them, as JSON."""
        per = None if self.per is None else self.per.total_seconds()
        return {"at_once": self.at_once, "starts": self.starts, "per_seconds": per, "key": list(self.key)}

    def check_input(self, kind: str, schema: Mapping[str, Any]) -> None:
        """Raise if the key names a field that the input of a kind cannot have."""
        for part in self.key:
            if part.startswith("input.") and not _may_have(schema, part.split(".")[1:]):
                raise InvalidError(
                    f"Limit {self.name!r} has the key {part!r}, and kind {kind!r} has no such input.", field="key"
                )


def check_limit_name(name: Any) -> str:
    if ":" in values.check_name(name, field="name"):
        raise InvalidError("The name of a limit has no colon.", field="name")
    return str(name)


def check_numbers(at_once: Any, starts: Any, per: Any) -> timedelta | None:
    """Raise if no job could ever start, or the numbers do not fit together. Returns the period."""
    for number, name in ((at_once, "at_once"), (starts, "starts")):
        if number is not None and (type(number) is not int or not 1 <= number <= NUMBER_MAX):
            raise InvalidError(f"The number must be a whole number from 1 to {NUMBER_MAX:,}.", field=name)
    if (starts is None) != (per is None):
        raise InvalidError("starts and per belong together.", field="per" if per is None else "starts")
    if per is None:
        return None
    period = values.duration(per, field="per")
    if not PER_MIN <= period <= PER_MAX:
        raise InvalidError("The period must be from one second to 31 days.", field="per")
    return period


def by_name(found: Iterable[Limit], known: Mapping[str, Limit]) -> dict[str, Limit]:
    """Known limits and others. One name has one meaning."""
    joined = dict(known)
    for limit in found:
        if joined.setdefault(limit.name, limit) != limit:
            raise InvalidError(f"Limit {limit.name!r} is declared twice with different values.", field="limits")
    return joined


def check_limits(given: Iterable[Any]) -> tuple[Limit, ...]:
    limits = tuple(given)
    for limit in limits:
        if not isinstance(limit, Limit):
            raise InvalidError(f"{str(limit)[:80]!r} is not a Limit.", field="limits")
    if len(limits) > LIMITS_MAX or len({limit.name for limit in limits}) < len(limits):
        raise InvalidError(f"There may be {LIMITS_MAX} limits, each with a name of its own.", field="limits")
    return limits


def _may_have(schema: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a schema knows a field, or knows no fields where it would be."""
    at: dict[str, Any] = dict(schema)
    for step in path:
        while "$ref" in at:
            at = schema.get("$defs", {}).get(str(at["$ref"]).removeprefix("#/$defs/"), {})
        fields: dict[str, Any] | None = at.get("properties")
        if fields is None:
            return True
        if step not in fields:
            return False
        at = fields[step] if isinstance(fields[step], dict) else {}
    return True
