"""The app: the kinds of jobs and the schedules that a product declares."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from millpond import kinds, values
from millpond.errors import LifecycleError
from millpond.kinds import Kind
from millpond.lifecycle import STANDARD
from millpond.schedules import ACCOUNT, NO_JITTER, TENANT, ZONE, Schedule, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.gates import Gate
    from millpond.kinds import Handler, Price
    from millpond.lifecycle import Lifecycle
    from millpond.schedules import CatchUp, Overlap


class Millpond:
    """An application with its kinds of jobs and its schedules.

    Give it a name if several apps with schedules share a database: see :meth:`schedule`.

    >>> app = Millpond()
    >>> @app.kind("greeting", price=1)
    ... def greeting(job, name: str) -> dict:
    ...     return {"text": f"Hello, {name}!"}
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = None if name is None else values.check_name(name, field="name")
        self._kinds: dict[str, Kind] = {}
        self._gates: dict[str, Gate] = {}
        self._schedules: list[Schedule | Callable[[], Schedule]] = []

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return MappingProxyType(self._kinds)

    @property
    def gates(self) -> Mapping[str, Gate]:
        return MappingProxyType(self._gates)

    @property
    def schedules(self) -> Sequence[Schedule]:
        """The declared schedules; each has a name of its own within its tenant."""
        found = [each if isinstance(each, Schedule) else each() for each in self._schedules]
        names: set[tuple[str, str]] = set()
        for each in found:
            if (each.tenant, each.name) in names:
                raise LifecycleError(
                    f"Schedule {each.name!r} is declared more than once.", hint="Give each a name of its own: name=…."
                )
            names.add((each.tenant, each.name))
        return tuple(found)

    def gate(self, name: str, gate: Gate) -> None:
        """Declare a gate. Kinds refer to it by name: ``@app.kind("ad", gate=name)``."""
        values.check_name(name, field="gate")
        if name in self._gates:
            raise LifecycleError(f"Gate {name!r} is declared more than once.")
        self._gates[name] = gate

    def add(self, kind: Kind) -> None:
        if kind.name in self._kinds:
            raise LifecycleError(f"Kind {kind.name!r} is declared more than once.")
        self._kinds[kind.name] = kind

    def add_schedule(self, schedule: Schedule) -> None:
        """Add a schedule that was created without the decorator."""
        self._schedules.append(schedule)

    def schedule(
        self,
        cron: str | None = None,
        *,
        every: timedelta | str | float | None = None,
        at: datetime | None = None,
        zone: str = ZONE,
        jitter: timedelta | str | float | None = None,
        name: str | None = None,
        kind: str | None = None,
        tenant: str = TENANT,
        account: str = ACCOUNT,
        input: Any = None,
        due_field: str | None = None,
        overlap: Overlap = "queue",
        catch_up: CatchUp = "last",
        catch_up_max: int = 100,
        priority: int | None = None,
        expires_in: timedelta | str | float | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> Callable[[Handler], Handler]:
        """Submit jobs of the decorated handler's kind at the due times of a cron expression, at intervals, or once.

        It stands above or below ``@app.kind``, or is called with the name of a kind. Schedules are stored when a
        process of the app starts. One that the app no longer declares is orphaned: it does not fire. An app owns the
        schedules that an app of its name has declared; without names, those of an app with which it has a kind in
        common.

        Without a name, the schedule has that of its kind.
        """
        timing = Timing(cron, _duration(every, "every"), at, zone, _duration(jitter, "jitter") or NO_JITTER)
        options: dict[str, Any] = {
            "tenant": tenant,
            "account": account,
            "input": msgspec.json.decode(values.encode({} if input is None else input, field="input")),
            "due_field": due_field,
            "overlap": overlap,
            "catch_up": catch_up,
            "catch_up_max": catch_up_max,
            "priority": priority,
            "expires_in": _duration(expires_in, "expires_in"),
            "tags": dict(tags or {}),
        }

        Schedule(name or "name", kind or "kind", timing, **options)  # refuse at once what can be refused
        if kind is not None:
            self.add_schedule(Schedule(name or kind, kind, timing, **options))

        def declare(handler: Handler) -> Handler:
            def made() -> Schedule:
                of = self._kind_of(handler)
                return Schedule(name or of, of, timing, **options)

            if kind is None:
                self._schedules.append(made)
            return handler

        return declare

    def _kind_of(self, handler: Handler) -> str:
        """The kind that a function is the handler of."""
        found = [kind.name for kind in self._kinds.values() if handler in kind.handlers.values()]
        if len(found) != 1:
            what = "no kind" if not found else f"the kinds {', '.join(found)}"
            raise LifecycleError(
                f"The scheduled function {getattr(handler, '__name__', handler)!r} is the handler of {what}.",
                hint="Name the kind: @app.schedule(…, kind=…).",
            )
        return found[0]

    def kind(
        self,
        name: str,
        *,
        price: Price = 0,
        stages: Sequence[str] = (),
        firm_stages: Sequence[str] = (),
        expires_in: timedelta | str | float | None = None,
        time_limit: timedelta | str | float | None = None,
        stall_limit: timedelta | str | float | None = None,
        lifecycle: Lifecycle = STANDARD,
        schema: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare a kind with the decorated function as its handler. The parameters after the job are its input."""

        def declare(handler: Handler) -> Handler:
            shape, is_whole = kinds.input_type(name, handler)
            self.add(
                Kind(
                    name=name,
                    handlers=MappingProxyType({None: handler}),
                    lifecycle=lifecycle,
                    price=price,
                    stages=tuple(stages),
                    firm_stages=tuple(firm_stages),
                    expires_in=_duration(expires_in, "expires_in"),
                    time_limit=_duration(time_limit, "time_limit"),
                    stall_limit=_duration(stall_limit, "stall_limit"),
                    schema=schema,
                    input_type=None if schema is not None else shape,
                    takes_whole_input=is_whole,
                    summary=(inspect.getdoc(handler) or "").partition("\n")[0],
                    **options,
                )
            )
            return handler

        return declare


def _duration(given: timedelta | str | float | None, field: str) -> timedelta | None:
    return None if given is None else values.duration(given, field=field)
