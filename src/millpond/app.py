"""The app: the kinds of jobs and the schedules that a product declares."""

from __future__ import annotations

import inspect
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, overload

import msgspec

from millpond import kinds, resources, values
from millpond.errors import LifecycleError
from millpond.kinds import Kind
from millpond.lifecycle import STANDARD
from millpond.limits import by_name, check_limits
from millpond.schedules import ACCOUNT, NO_JITTER, TENANT, ZONE, Schedule, Timing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime, timedelta

    from millpond.gates import Gate
    from millpond.kinds import Handler, Price
    from millpond.lifecycle import Lifecycle
    from millpond.limits import Limit
    from millpond.resources import Create, DeclaredResource
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
        self._queues: dict[str, tuple[Limit, ...]] = {}
        self._limits: dict[str, Limit] = {}
        self._schedules: list[Schedule | Callable[[], Schedule]] = []
        self._resources: dict[str, DeclaredResource] = {}

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return MappingProxyType(self._kinds)

    @property
    def gates(self) -> Mapping[str, Gate]:
        return MappingProxyType(self._gates)

    @property
    def resources(self) -> Mapping[str, DeclaredResource]:
        return MappingProxyType(self._resources)

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

    @property
    def limits(self) -> Mapping[str, Limit]:
        """The limits of all kinds and queues."""
        return MappingProxyType(self._limits)

    def queue(self, name: str, *, limits: Sequence[Limit]) -> None:
        """Limit all kinds of the app whose jobs are in a queue, in addition to their own limits."""
        values.check_name(name, field="queue")
        if name in self._queues:
            raise LifecycleError(f"Queue {name!r} is declared more than once.")
        checked = check_limits(limits)
        self._limits = by_name(checked, self._limits)
        self._queues[name] = checked
        self._kinds |= {kind.name: self._limited(kind) for kind in self._kinds.values() if kind.queue == name}

    def _limited(self, kind: Kind) -> Kind:
        """A kind with the limits of its queue."""
        more = self._queues.get(kind.queue, ())
        return replace(kind, limits=tuple(dict.fromkeys((*kind.limits, *more)))) if more else kind

    def gate(self, name: str, gate: Gate) -> None:
        """Declare a gate. Kinds refer to it by name: ``@app.kind("ad", gate=name)``."""
        values.check_name(name, field="gate")
        if name in self._gates:
            raise LifecycleError(f"Gate {name!r} is declared more than once.")
        self._gates[name] = gate

    @overload
    def resource(self, create: Create) -> Create: ...

    @overload
    def resource(self, *, eager: bool = False) -> Callable[[Create], Create]: ...

    def resource(self, create: Create | None = None, *, eager: bool = False) -> Any:
        """Declare something that handlers share, such as a model or a connection pool, created once per process.

        The decorated function returns it, or yields it once and then closes it; it may be ``async``. A handler gets it
        by a parameter of its name, which is not part of the input, and so does another resource. It is created when a
        job first needs it; with ``eager``, when the worker starts, if a kind of the worker uses it. Resources are
        closed when the process ends, in reverse order.

        Declare a resource above the kinds and resources that use it.

        >>> app = Millpond()
        >>> @app.resource
        ... def model():
        ...     yield {"small": "words"}
        >>> @app.kind("answer")
        ... def answer(job, model, question: str) -> str:
        ...     return model[question]
        """

        def declare(create: Create) -> Create:
            resource = resources.declare(create, self._resources, is_eager=eager)
            self._refuse_field(resource.name)
            self._resources[resource.name] = resource
            return create

        return declare if create is None else declare(create)

    def _refuse_field(self, name: str) -> None:
        """Refuse a resource whose name a handler above has taken for a field of its input."""
        for kind in self._kinds.values():
            for handler in kind.handlers.values():
                if name in list(inspect.signature(handler).parameters)[1:]:
                    raise LifecycleError(
                        f"Resource {name!r} is declared below kind {kind.name!r}, which takes {name!r} as its input.",
                        hint="Declare the resource above the kind, or rename one of them.",
                    )

    def add(self, kind: Kind) -> None:
        if kind.name in self._kinds:
            raise LifecycleError(f"Kind {kind.name!r} is declared more than once.")
        self._limits = by_name(kind.limits, self._limits)
        self._kinds[kind.name] = self._limited(kind)

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
        limits: Sequence[Limit] = (),
        schema: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare a kind with the decorated function as its handler. The parameters after the job are its input."""

        def declare(handler: Handler) -> Handler:
            shape, is_whole = kinds.input_type(name, handler, self._resources)
            self.add(
                Kind(
                    name=name,
                    handlers=MappingProxyType({None: handler}),
                    lifecycle=lifecycle,
                    price=price,
                    limits=tuple(limits),
                    stages=tuple(stages),
                    firm_stages=tuple(firm_stages),
                    expires_in=_duration(expires_in, "expires_in"),
                    time_limit=_duration(time_limit, "time_limit"),
                    stall_limit=_duration(stall_limit, "stall_limit"),
                    schema=schema,
                    input_type=None if schema is not None else shape,
                    takes_whole_input=is_whole,
                    resources=resources.taken(name, handler, self._resources, schema),
                    summary=(inspect.getdoc(handler) or "").partition("\n")[0],
                    **options,
                )
            )
            return handler

        return declare


def _duration(given: timedelta | str | float | None, field: str) -> timedelta | None:
    return None if given is None else values.duration(given, field=field)
