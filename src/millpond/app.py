"""The app: the kinds of jobs that a product declares."""

from __future__ import annotations

import inspect
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from millpond import kinds, values
from millpond.errors import LifecycleError
from millpond.kinds import Kind
from millpond.lifecycle import STANDARD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from millpond.gates import Gate
    from millpond.kinds import Handler, Price
    from millpond.lifecycle import Lifecycle


class Millpond:
    """An application with its kinds of jobs.

    >>> app = Millpond()
    >>> @app.kind("greeting", price=1)
    ... def greeting(job, name: str) -> dict:
    ...     return {"text": f"Hello, {name}!"}
    """

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}
        self._gates: dict[str, Gate] = {}

    @property
    def kinds(self) -> Mapping[str, Kind]:
        return MappingProxyType(self._kinds)

    @property
    def gates(self) -> Mapping[str, Gate]:
        return MappingProxyType(self._gates)

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
