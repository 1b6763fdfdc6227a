"""Schedules: what submits jobs again and again, and the arithmetic of its due times.

A cron expression is read in a time zone, where a change of the clock skips some times and repeats others. A time that
is skipped is due right after the change, and one that is repeated is due once, the first time. An expression that
names every hour follows the elapsed time instead: it is due whenever the clock shows a time that matches.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from zoneinfo import ZoneInfo, available_timezones

from millpond import values
from millpond.errors import InvalidError

try:
    import cronsim
except ModuleNotFoundError:  # the SDK computes no due times: the server has checked the declaration
    cronsim = None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from uuid import UUID

    from cronsim import CronSim

Overlap = Literal["skip", "queue", "cancel_previous"]
"""What happens at a due time if the job of the previous one has not ended."""
CatchUp = Literal["none", "last", "all"]
"""Which of the due times that were missed are made up for."""
Cause = Literal["schedule", "manual", "backfill"]
"""Why a schedule submitted a job: a due time came, an operator ran it, or an operator made up for a period."""

ScheduleState = Literal["active", "paused", "orphaned", "ended"]
"""Whether it fires: it is paused by an operator, no longer declared by its app, or never due again."""
ScheduleSource = Literal["code", "api"]
FireOutcome = Literal["pending", "submitted", "skipped", "failed"]

ZONE: Final = "UTC"
NO_JITTER: Final = timedelta(0)
TENANT: Final = "default"
ACCOUNT: Final = "default"
"""The owner of the jobs of a schedule whose declaration names none."""
CATCH_UP_MAX: Final = 1_000
"""The limit of due times that one schedule makes up for after an outage."""
TAG: Final = "schedule"
"""The key of the tag with the name of the schedule, which its jobs have in addition to their own tags."""
EVERY_MIN: Final = timedelta(seconds=1)
SOME_TIME: Final = datetime(2024, 1, 1, tzinfo=UTC)
"""A due time to check a declaration with."""

_CRON_LENGTH_MAX: Final = 200
_FIELDS: Final = 5
_HOURS: Final = set(range(24))
_MINUTE: Final = timedelta(minutes=1)
_SECOND: Final = timedelta(seconds=1)
_COMPARED: Final = 10
"""How many due times are compared with the jitter."""
_SHORTHANDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_ORDER: Final = "A cron expression is: minute, hour, day of month, month, day of week."


@dataclass(frozen=True, slots=True)
class Timing:
    """When a schedule is due: at the matches of a cron expression in a time zone, at intervals, or once."""

    cron: str | None = None
    every: timedelta | None = None
    at: datetime | None = None
    zone: str = ZONE
    """The time zone of the cron expression."""
    jitter: timedelta = NO_JITTER
    """The limit of the random delay after each due time."""
    since: datetime = SOME_TIME
    """From when the intervals are counted."""

    def __post_init__(self) -> None:
        given = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            raise InvalidError("Exactly one of cron, every and at is required.", field=given[1] if given else "cron")
        if self.cron is None and self.zone != ZONE:
            raise InvalidError("A time zone applies to a cron expression only.", field="zone")
        if self.cron is not None:
            _check_zone(self.zone)
            _check_cron(self.cron)
        if self.every is not None and self.every < EVERY_MIN:
            raise InvalidError("The shortest interval is one second.", field="every")
        if self.at is not None:
            values.check_time(self.at, field="at")
        self._check_jitter()

    def _check_jitter(self) -> None:
        """Refuse a delay that could be longer than the time to the next due time."""
        if not self.jitter or cronsim is None:
            return
        times = list(islice(self.after(SOME_TIME), _COMPARED))
        shortest = min((later - earlier for earlier, later in pairwise(times)), default=None)
        if shortest is not None and self.jitter > shortest:
            raise InvalidError(f"The jitter is longer than the time between two due times, {shortest}.", field="jitter")

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The due times after an instant, in order."""
        if self.cron is not None:
            yield from self._matches_after(instant)
        elif self.every is not None:
            number = max((instant - self.since) // self.every, 0)
            while True:
                number += 1
                yield self.since + number * self.every
        elif self.at is not None and self.at > instant:
            yield self.at.astimezone(UTC)

    def before(self, instant: datetime) -> Iterator[datetime]:
        """The due times before and at an instant, the last one first."""
        if self.cron is not None:
            yield from self._matches_before(instant)
        elif self.every is not None:
            for number in range((instant - self.since) // self.every, 0, -1):
                yield self.since + number * self.every
        elif self.at is not None and self.at <= instant:
            yield self.at.astimezone(UTC)

    def upcoming(self, instant: datetime, count: int) -> list[datetime]:
        """The next due times after an instant."""
        return list(islice(self.after(instant), count))

    def delayed(self, due_at: datetime, schedule_id: UUID) -> datetime:
        """A due time with its jitter, which is the same in every process."""
        if not self.jitter:
            return due_at
        digest = hashlib.sha256(f"{schedule_id} {due_at.isoformat()}".encode()).digest()
        return due_at + self.jitter * (int.from_bytes(digest[:4]) / 2**32)

    def _matches_after(self, instant: datetime) -> Iterator[datetime]:
        last = instant
        for match in self._instants(instant, is_reverse=False):
            if match > last:
                yield match
                last = match

    def _matches_before(self, instant: datetime) -> Iterator[datetime]:
        last = instant + _SECOND
        for match in self._instants(instant.replace(microsecond=0), is_reverse=True):
            if match <= instant and match < last:
                yield match
                last = match

    def _instants(self, instant: datetime, *, is_reverse: bool) -> Iterator[datetime]:
        """The instants of the matches from about an instant on, or back from it, in order."""
        zone, cron = ZoneInfo(self.zone), _expanded(self.cron or "")
        is_elapsing = _names_every_hour(cron)
        wall, change = _clock(instant, zone)
        start = wall + change + _SECOND if is_reverse else wall - change
        behind = deque[datetime]()
        """The second times, or in reverse the first ones, at which the clock shows the same: these come later."""
        for match in _simulator()(cron, start, reverse=is_reverse):
            times = _times(match, zone, is_elapsing=is_elapsing)
            if not times:
                continue
            ahead, *others = reversed(times) if is_reverse else times
            while behind and (behind[0] > ahead if is_reverse else behind[0] < ahead):
                yield behind.popleft()
            yield ahead
            behind.extend(others)
        yield from behind


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is declared: when it is due, and what it submits."""

    name: str
    kind: str
    timing: Timing
    _: KW_ONLY
    tenant: str = TENANT
    account: str = ACCOUNT
    input: Any = field(default_factory=dict[str, Any])
    due_field: str | None = None
    """The member of the input that is set to the due time."""
    overlap: Overlap = "queue"
    catch_up: CatchUp = "last"
    catch_up_max: int = 100
    """How many of the missed due times ``all`` makes up for: the last ones."""
    priority: int | None = None
    expires_in: timedelta | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for name in ("name", "kind", "tenant", "account"):
            values.check_name(getattr(self, name), field=name)
        _check_choice(self.overlap, get_args(Overlap), field="overlap")
        _check_choice(self.catch_up, get_args(CatchUp), field="catch_up")
        _check_number(self.catch_up_max, CATCH_UP_MAX, field="catch_up_max")
        if self.priority is not None:
            values.check_priority(self.priority)
        if TAG not in values.check_tags(self.tags) and len(self.tags) == values.TAGS_MAX:
            raise InvalidError(
                f"It has {values.TAGS_MAX} tags; the jobs of a schedule have the tag {TAG!r} in addition.", field="tags"
            )
        self._check_due_field()

    def _check_due_field(self) -> None:
        if self.due_field is None:
            return
        if not self.due_field or len(self.due_field) > values.NAME_LENGTH_MAX:
            raise InvalidError(f"The name must have 1 to {values.NAME_LENGTH_MAX} characters.", field="due_field")
        values.check(self.due_field, field="due_field")
        if not isinstance(self.input, dict):
            raise InvalidError("Only an input that is an object can have this member.", field="due_field")

    def input_at(self, due_at: datetime) -> Any:
        """The input of the job of a due time."""
        return self.input if self.due_field is None else self.input | {self.due_field: due_at.isoformat()}

    @property
    def job_tags(self) -> dict[str, str]:
        """The tags of its jobs, by which they are found."""
        return {TAG: self.name, **self.tags}


def due_key(schedule_id: UUID, due_at: datetime) -> str:
    """The idempotency key of the job of a due time, in a scope that no client has."""
    return f"{schedule_id}:{due_at.isoformat()}"


def _check_choice(given: Any, choices: tuple[str, ...], *, field: str) -> None:
    if given not in choices:
        raise InvalidError(f"{str(given)[:60]!r} is not valid.", field=field, hint=f"Use one of {', '.join(choices)}.")


def _check_number(given: Any, limit: int, *, field: str) -> None:
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= limit:
        raise InvalidError(f"It must be a whole number from 1 to {limit:,}.", field=field)


def _check_zone(zone: Any) -> None:
    if not isinstance(zone, str) or zone not in _zones():
        known = {name.lower(): name for name in _zones()}
        close = difflib.get_close_matches(str(zone)[:60].lower(), known, n=1)
        hint = f"Did you mean {known[close[0]]!r}?" if close else "Use a name such as Europe/Berlin or UTC."
        raise InvalidError(f"There is no time zone {str(zone)[:60]!r}.", field="zone", hint=hint)


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


def _check_cron(cron: Any) -> None:
    if not isinstance(cron, str) or not 0 < len(cron) <= _CRON_LENGTH_MAX:
        raise InvalidError(f"It must be text of 1 to {_CRON_LENGTH_MAX} characters.", field="cron", hint=_ORDER)
    expanded = _expanded(cron)
    fields = expanded.split()
    if len(fields) != _FIELDS:
        raise InvalidError(f"{cron[:80]!r} has {len(fields)} fields, and not {_FIELDS}.", field="cron", hint=_ORDER)
    if (problem := _problem(expanded)) is not None:
        without_day, without_month = (" ".join([*fields[:n], "*", *fields[n + 1 :]]) for n in (2, 3))
        if _problem(without_day) is None and _problem(without_month) is None:  # its months do not have its days
            raise _never(cron)
        raise InvalidError(f"{cron[:80]!r} is not valid: {problem}.", field="cron", hint=_ORDER)
    if cronsim is not None and next(cronsim.CronSim(expanded, SOME_TIME), None) is None:
        raise _never(cron)


def _problem(cron: str) -> str | None:
    """What is wrong with an expression, in the words of the simulator."""
    if cronsim is None:
        return None
    try:
        cronsim.CronSim(cron, SOME_TIME)
    except cronsim.CronSimError as error:
        return str(error).lower()
    return None


def _never(cron: str) -> InvalidError:
    return InvalidError(f"{cron[:80]!r} never matches: there is no such date.", field="cron")


def _expanded(cron: str) -> str:
    return _SHORTHANDS.get(cron.strip().lower(), cron)


@cache
def _names_every_hour(cron: str) -> bool:
    return _simulator()(cron, SOME_TIME).hours == _HOURS


def _simulator() -> type[CronSim]:
    if cronsim is None:
        raise ModuleNotFoundError("Computing due times requires cronsim: run pip install 'millpond[server]'.")
    return cronsim.CronSim


def _clock(instant: datetime, zone: ZoneInfo) -> tuple[datetime, timedelta]:
    """What a clock of the zone shows; and if it shows this time twice, by how much it is set back between the two."""
    local = instant.astimezone(zone)
    first, second = local.replace(fold=0).utcoffset(), local.replace(fold=1).utcoffset()
    change = (first or timedelta(0)) - (second or timedelta(0))
    return local.replace(tzinfo=None, fold=0), max(change, timedelta(0))


def _times(wall: datetime, zone: ZoneInfo, *, is_elapsing: bool) -> list[datetime]:
    """The instants that a match stands for.

    The clock shows a time once, twice, or never. Of an expression that follows the elapsed time, each of them is due;
    of any other, the first one, or the end of the change by which the time is skipped.
    """
    first, second = _both(wall, zone)
    if first.astimezone(zone).replace(tzinfo=None) == wall:
        return [first, second] if is_elapsing and first != second else [first]
    if is_elapsing:
        return []
    while first.astimezone(zone).replace(tzinfo=None) != wall:
        wall += _MINUTE
        first, _ = _both(wall, zone)
    return [first]


def _both(wall: datetime, zone: ZoneInfo) -> tuple[datetime, datetime]:
    """The first and the second instant at which the clock shows a time; they are equal if it does so once."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    return first, second
