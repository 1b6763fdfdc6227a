"""What the code of a job does in steps: each is recorded once, and a later attempt gets the record.

The code runs again from the top after an interruption, a failed attempt or a wait. So it must make the same steps, in
the same order, each time. A step is found by its name; a name that is used more than once gets a number.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec

from millpond import ids, values
from millpond.errors import ChildFailedError, InvalidError, StepOrderError, UnansweredError
from millpond.work import ChildRequest, ChildResult, SpawnRequest, Step, StepRequest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from datetime import timedelta

    from millpond.work import Lease, StepType
    from millpond.worker.context import Job
    from millpond.worker.source import JobSource

NAME_LENGTH_MAX: Final = 200
_PART_SIZE: Final = 500
"""How many children one request submits."""
_PART_BYTES: Final = 512 * 1024


class Parked(BaseException):
    """Raised to leave the handler while the job waits: for an answer, or for what the step with this name waits for.

    Not an Exception, so that ``except Exception`` does not catch it.
    """

    def __init__(self, memo: Any = None, step: str | None = None) -> None:
        super().__init__()
        self.memo = memo
        self.step = step


def parked_by(raised: Parked | BaseExceptionGroup[BaseException]) -> Parked | None:
    """Whether code has parked its job; one of the waits of several tasks, if none has raised an error.

    When that one is over, the code finds out what else there is to wait for.
    """
    if isinstance(raised, Parked):
        return raised
    waits, rest = raised.split(Parked)
    found: BaseException | None = waits if rest is None else None
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, Parked) else None


@dataclass(frozen=True, slots=True)
class Place:
    """The name of a step and its number; the number is none outside of the handler's own task or thread."""

    name: str
    position: int | None
    type: StepType


class Steps:
    """The steps of one attempt of a job."""

    def __init__(self, source: JobSource, lease: Lease, size_max: int) -> None:
        self._source = source
        self._lease = lease
        self._size_max = size_max
        self._names: Counter[str] = Counter()
        self._positions = count(1)
        self._owner: object = None
        self._recorded: dict[str, Step] = {}
        self._by_position: dict[int, Step] = {}
        self._missing: dict[str, Step] = {}
        """The recorded steps of the handler's own task or thread that this attempt has not repeated yet.

        Other tasks may be stopped by what happens elsewhere, so theirs need not be repeated.
        """

    @property
    def is_replaying(self) -> bool:
        """Whether the code has not yet reached the point at which an earlier attempt stopped."""
        return bool(self._missing)

    async def load(self) -> None:
        """Read what earlier attempts have recorded."""
        after = ""
        while page := await self._source.recall(self._lease, after):
            self._recorded |= {step.name: step for step in page}
            after = page[-1].name
        self._by_position = {step.position: step for step in self._recorded.values() if step.position is not None}
        self._missing = {step.name: step for step in self._by_position.values()}

    def enter(self) -> None:
        """Called in the task or thread of the handler, which makes its steps in a fixed order."""
        self._owner = _current()

    def place(self, name: str, type: StepType) -> Place:
        """The next step with this name."""
        if not 1 <= len(name) <= NAME_LENGTH_MAX or values.printable(name) != name:
            raise InvalidError(f"The name must be a text of 1 to {NAME_LENGTH_MAX} characters.", field="name")
        self._names[name] += 1
        number = self._names[name]
        position = next(self._positions) if self._owner == _current() else None
        return Place(name if number == 1 else f"{name}:{number}", position, type)

    def find(self, place: Place) -> Step | None:
        """The step at this place as an earlier attempt recorded it; raises if that attempt did something else."""
        step = self._recorded.get(place.name)
        if step is None:
            other = None if place.position is None else self._by_position.get(place.position)
            if other is not None:
                raise StepOrderError(
                    f"Step {place.position} was {other.name!r} in an earlier attempt, and is {place.name!r} now.",
                    step=place.name,
                )
            return None
        if step.type != place.type:
            raise StepOrderError(
                f"Step {place.name!r} was a {step.type} in an earlier attempt, and is a {place.type} now.",
                step=place.name,
            )
        if None not in {step.position, place.position} and step.position != place.position:
            raise StepOrderError(
                f"Step {place.name!r} was number {step.position} in an earlier attempt, "
                f"and is number {place.position} now.",
                step=place.name,
            )
        self._missing.pop(place.name, None)
        return step

    def check_end(self) -> None:
        """Raise if the code has ended without a step that an earlier attempt recorded."""
        for name in self._missing:
            raise StepOrderError(f"The step {name!r} of an earlier attempt was not repeated.", step=name)

    async def record(self, place: Place, **fields: Any) -> Step:
        return await self._source.record(StepRequest(self._lease, place.name, place.position, place.type, **fields))

    async def record_result(self, place: Place, result: Any) -> Any:
        """Record what a call returned; returns it as a later attempt would get it."""
        text = values.encode(result, field=f"step {place.name}", limit=self._size_max)
        return decode((await self.record(place, result=text)).result)

    async def wait(self, place: Place, seconds: timedelta) -> None:
        step = self.find(place) or await self.record(place, wait=seconds)
        if not step.is_due:
            raise Parked(step=place.name)

    async def ask(self, place: Place, details: dict[str, Any], within: timedelta | None, default: Any) -> Any:
        """The answer to a question; parks until there is one."""
        step = self.find(place)
        if step is None:
            text = values.encode(details, field="question", limit=self._size_max)
            step = await self.record(place, details=text, wait=within)
        if step.is_done:
            return decode(step.result)
        if not step.is_due:
            raise Parked(step=place.name)
        if default is NO_DEFAULT:
            raise UnansweredError(f"The question {place.name!r} was not answered in time.", question=place.name)
        return default

    # Children

    async def submit(self, children: Sequence[Child], *, is_detached: bool, fails_fast: bool) -> Step:
        """Submit children as one batch, unless an earlier attempt has; returns their step."""
        place, requests = children[0].place, [child.request for child in children]
        step = self.find(place)
        first = 0 if step is None else step.submitted
        for part in _parts(requests[first:]):
            step = await self._source.spawn(
                SpawnRequest(
                    self._lease,
                    place.name,
                    place.position,
                    part,
                    total=len(requests),
                    first=first,
                    is_detached=is_detached,
                    fails_fast=fails_fast,
                )
            )
            first += len(part)
        if step is None:
            raise InvalidError("There are no children to submit.", field="children")
        return step

    async def results(self, step: Step, total: int) -> list[ChildResult]:
        """The results of children, in order; parks until they have ended, or one has failed if that is awaited."""
        found: list[ChildResult] = []
        if step.batch_id is None:
            raise StepOrderError(f"The step {step.name!r} has no children.", step=step.name)
        while True:
            after = ids.parse("job", found[-1].id) if found else None
            page = await self._source.results(self._lease, step.batch_id, after)
            if not page.is_over:
                raise Parked(step=step.name)
            if page.total != total:
                raise StepOrderError(
                    f"The step {step.name!r} had {page.total} children in an earlier attempt, and has {total} now.",
                    step=step.name,
                )
            found += page.children
            if len(found) >= total or not page.children:
                return found


class Child:
    """A child of the job. Await it, or call :meth:`wait` in a plain handler, to get its result."""

    def __init__(self, job: Job, place: Place, request: ChildRequest, *, is_detached: bool) -> None:
        self._job = job
        self.place = place
        self.request = request
        self.is_detached = is_detached

    def __await__(self) -> Generator[Any, None, ChildResult]:
        return self._job.gather_one(self).__await__()

    def wait(self) -> ChildResult:
        """In a plain handler: wait until the child has ended."""
        return self._job.gather_one(self)

    def start(self) -> Any:
        """Submit the child without waiting for it. To be awaited, except in a plain handler."""
        return self._job.start_child(self)


NO_DEFAULT: Final = object()
_QUESTION_MAX: Final = 8_192
_KEY_ID: Final = re.compile("key_[0-7][0-9a-hjkmnp-tv-z]{25}")


def check_question(question: str, who: str) -> None:
    if not 1 <= len(question) <= _QUESTION_MAX:
        raise InvalidError(f"The question must be a text of 1 to {_QUESTION_MAX:,} characters.", field="question")
    if who not in {"client", "operator"} and not _KEY_ID.fullmatch(who):
        raise InvalidError("It must be client, operator or the id of a key.", field="who")


def outcome(result: ChildResult) -> ChildResult | ChildFailedError:
    """The result of a child, or the error if it did not succeed."""
    if result.outcome == "succeeded":
        return result
    detail = result.error or {}
    reason = detail.get("message") or "It has not ended." if result.outcome is None else detail.get("message", "")
    return ChildFailedError(
        f"Child {result.id} ({result.kind}) {result.outcome or 'has not ended'}: {reason}".rstrip(": "),
        child_id=result.id,
        kind=result.kind,
        outcome=result.outcome,
        error=detail,
    )


def first_failure(results: Iterable[ChildResult]) -> ChildFailedError | None:
    """The error of a child that has failed; of one that was canceled only if no other has."""
    failed = [result for result in results if result.outcome not in {None, "succeeded"}]
    failed.sort(key=lambda result: result.outcome == "canceled")
    found = outcome(failed[0]) if failed else None
    return found if isinstance(found, ChildFailedError) else None


def decode(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _parts(requests: Sequence[ChildRequest]) -> Iterable[list[ChildRequest]]:
    """Parts that each fit into one request."""
    part: list[ChildRequest] = []
    size = 0
    for request in requests:
        length = len(values.encode(request.input, field="input", limit=values.BYTES_MAX * 64))
        if part and (len(part) >= _PART_SIZE or size + length > _PART_BYTES):
            yield part
            part, size = [], 0
        part.append(request)
        size += length
    if part:
        yield part


def _current() -> object:
    """The current task, or the thread if there is none."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()
