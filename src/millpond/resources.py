"""Resources: what handlers use and share, such as a model or a connection pool. Each is created once per process."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond import values
from millpond.errors import LifecycleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Create = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """The declaration of a resource. Created by :meth:`millpond.Millpond.resource`, which checks it."""

    name: str
    create: Create
    """A function, plain or ``async``, that returns the resource, or a generator function that yields it once and then
    closes it.
    """
    needs: tuple[DeclaredResource, ...] = ()
    """The resources that it takes, as arguments of their names."""
    is_eager: bool = False
    """Whether it is created when the process starts, and not when a job first needs it."""


def declare(create: Create, known: Mapping[str, DeclaredResource], *, is_eager: bool) -> DeclaredResource:
    """Declare a resource under the name of its function; its parameters are other resources."""
    name = values.check_name(create.__name__, field="resource")
    if name in known:
        raise LifecycleError(f"Resource {name!r} is declared more than once.")
    needs: list[DeclaredResource] = []
    for parameter in inspect.signature(create).parameters.values():
        if parameter.name == name:
            raise LifecycleError(f"Resource {name!r} needs itself.")
        if parameter.name in known:
            needs.append(known[parameter.name])
        elif parameter.default is parameter.empty:
            raise LifecycleError(
                f"Resource {name!r} needs {parameter.name!r}, which is not declared.",
                hint=(
                    f"Declare {parameter.name!r} above it; two resources cannot need each other. "
                    f"Known resources: {', '.join(known) or 'none'}."
                ),
            )
    return DeclaredResource(name, create, tuple(needs), is_eager)


def taken(
    kind: str, handler: Callable[..., Any], known: Mapping[str, DeclaredResource], schema: Mapping[str, Any] | None
) -> tuple[DeclaredResource, ...]:
    """The resources that a handler takes: its parameters after the job that have the name of one."""
    parameters = list(inspect.signature(handler).parameters)[1:]
    found = tuple(known[name] for name in parameters if name in known)
    fields: Iterable[str] = () if schema is None else schema.get("properties", {})
    for resource in found:
        if resource.name in fields:
            raise LifecycleError(
                f"Kind {kind!r}: {resource.name!r} is both a field of its input and a resource.",
                hint="Rename one of them.",
            )
    return found


def closure(resources: Iterable[DeclaredResource]) -> dict[str, DeclaredResource]:
    """These resources and all that they need, in the order in which they can be created."""
    found: dict[str, DeclaredResource] = {}
    for resource in resources:
        found |= closure(resource.needs)
        found[resource.name] = resource
    return found
