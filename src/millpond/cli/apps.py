"""What a command serves: the app it is told, or the example; and the blueprints, all beside it or one alone.

A file may bring blueprints of its own, beside its Millpond(): they are served like those that come with the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millpond.errors import SettingsError
from millpond.worker.apps import app_of, load_app, load_module

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.api.blueprint import Blueprint
    from millpond.app import Millpond

__all__ = ["Product", "chosen", "declared", "load_app"]


@dataclass(frozen=True, slots=True)
class Product:
    """The kinds of an app with those of blueprints, and where these are served."""

    app: Millpond
    mounted: tuple[Blueprint, ...] = ()
    """Each under its name."""
    alone: Blueprint | None = None
    """At the root."""

    @property
    def blueprints(self) -> tuple[Blueprint, ...]:
        return self.mounted if self.alone is None else (self.alone,)


def chosen(name: str | None, blueprint: str | None = None, *, with_example: bool = False) -> Product:
    """The named app, with all blueprints beside it; or with one of them, which is then served alone.

    One whose kinds the app declares itself is left out, unless the app brings the blueprint too.
    """
    from millpond.app import Millpond
    from millpond.blueprints.catalog import BLUEPRINTS

    if name is None and blueprint is None and with_example:
        from millpond.cli.example import app

        base = Product(app)
    else:
        base = Product(Millpond()) if name is None else declared(name)
    kinds = base.app.kinds
    free = tuple(
        each
        for each in BLUEPRINTS
        if each.routes and each.name not in _names(base.mounted) and not any(kind.name in kinds for kind in each.kinds)
    )
    if blueprint is None:
        return _gathered(base.app, (*base.mounted, *free))
    alone = _named(blueprint, (*BLUEPRINTS, *base.mounted))
    return _gathered(base.app, (), alone)


def declared(name: str) -> Product:
    """The app of a file or module, with the blueprints that it makes itself, and no others."""
    from millpond.api.blueprint import Blueprint

    module = load_module(name)
    made = {id(value): value for value in vars(module).values() if isinstance(value, Blueprint)}
    own = tuple(made.values())
    _check_names(name, own)
    return _gathered(app_of(name, module), own)


def _gathered(base: Millpond, mounted: tuple[Blueprint, ...], alone: Blueprint | None = None) -> Product:
    """An app of its own, for the one that was loaded is left as it is."""
    from millpond.app import Millpond

    app = Millpond()
    for kind in base.kinds.values():
        app.add(kind)
    for gate in base.gates:
        app.gate(gate, base.gates[gate])
    product = Product(app, mounted, alone)
    for each in product.blueprints:
        for kind in each.kinds:
            if app.kinds.get(kind.name) is not kind:
                app.add(kind)
    return product


def _check_names(name: str, blueprints: tuple[Blueprint, ...]) -> None:
    """Refuse a blueprint that would be served where something else is."""
    from millpond.api.app import NATIVE, UI
    from millpond.api.inbox import ROUTES as INBOX_ROUTES
    from millpond.api.native import ROUTES

    taken = {NATIVE, UI, *(route.path.split("/")[1] for route in (*ROUTES, *INBOX_ROUTES))}
    for each in blueprints:
        if each.name in taken:
            raise SettingsError(
                f"{name} makes a blueprint {each.name!r}, and /{each.name} is taken.",
                field="app",
                hint="A blueprint is served under the name of its lifecycle: give that another.",
            )
        taken.add(each.name)


def _names(blueprints: Iterable[Blueprint]) -> set[str]:
    return {blueprint.name for blueprint in blueprints}


def _named(name: str, blueprints: Iterable[Blueprint]) -> Blueprint:
    known = {blueprint.name: blueprint for blueprint in blueprints}
    if name not in known:
        raise SettingsError(
            f"There is no blueprint {name!r}.", field="blueprint", hint=f"Blueprints: {', '.join(sorted(known))}."
        )
    return known[name]
