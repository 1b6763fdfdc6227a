"""What a command serves: the app it is told, or the example; and the blueprints, all beside it or one alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import SettingsError
from penstock.worker.apps import load_app

if TYPE_CHECKING:
    from penstock.api.blueprint import Blueprint
    from penstock.app import Penstock

__all__ = ["Product", "chosen", "load_app"]


@dataclass(frozen=True, slots=True)
class Product:
    """The kinds of an app with those of blueprints, and where these are served."""

    app: Penstock
    mounted: tuple[Blueprint, ...] = ()
    """Each under its name."""
    alone: Blueprint | None = None
    """At the root."""

    @property
    def blueprints(self) -> tuple[Blueprint, ...]:
        return self.mounted if self.alone is None else (self.alone,)


def chosen(name: str | None, blueprint: str | None = None, *, with_example: bool = False) -> Product:
    """The named app, with all blueprints beside it; or with one of them, which is then served alone.

    One whose kinds the app declares itself is left out.
    """
    from penstock.app import Penstock
    from penstock.blueprints.catalog import BLUEPRINTS

    if name is None and blueprint is None and with_example:
        from penstock.cli.example import app as base
    else:
        base = Penstock() if name is None else load_app(name)
    app = Penstock()
    for kind in base.kinds.values():
        app.add(kind)
    for gate in base.gates:
        app.gate(gate, base.gates[gate])
    alone = None if blueprint is None else _named(blueprint)
    free = tuple(each for each in BLUEPRINTS if each.routes and not any(kind.name in app.kinds for kind in each.kinds))
    product = Product(app, free if alone is None else (), alone)
    for each in product.blueprints:
        for kind in each.kinds:
            app.add(kind)
    return product


def _named(name: str) -> Blueprint:
    from penstock.blueprints.catalog import BLUEPRINTS

    known = {blueprint.name: blueprint for blueprint in BLUEPRINTS}
    if name not in known:
        raise SettingsError(
            f"There is no blueprint {name!r}.", field="blueprint", hint=f"Blueprints: {', '.join(sorted(known))}."
        )
    return known[name]
