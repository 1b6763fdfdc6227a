"""What a command serves: the given app or the example, and the named products.

A file may declare products beside its Millpond(): these are always served. Installed products are found by their entry
points, and are served only if they are named.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

from millpond.errors import SettingsError
from millpond.worker.apps import app_of, load_app, load_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millpond.api.product import Product
    from millpond.app import Millpond
    from millpond.companions import Companion

__all__ = ["GROUP", "Selection", "chosen", "declared", "load_app"]

GROUP: Final = "millpond.products"
"""The group of entry points in which installed packages declare their products."""
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Selection:
    """An app with the kinds of its products, and the products by where they are served."""

    app: Millpond
    mounted: tuple[Product, ...] = ()
    """The products served under their names."""
    alone: Product | None = None
    """The product served at the root."""

    @property
    def products(self) -> tuple[Product, ...]:
        return self.mounted if self.alone is None else (self.alone,)

    @property
    def companions(self) -> dict[str, Companion]:
        return {each.name: each for product in self.products for each in product.companions}


def chosen(
    name: str | None, products: Sequence[str] = (), *, at_root: bool = False, with_example: bool = False
) -> Selection:
    """The named app with its own products and the named installed products.

    ``at_root`` serves the only product at ``/``.
    """
    from millpond.app import Millpond

    if name is None and not products and with_example:
        from millpond.cli.example import app

        base = Selection(app)
    else:
        base = Selection(Millpond()) if name is None else declared(name)
    own = {each.name: each for each in base.mounted}
    named = _named(products, own)
    served = tuple((own | {each.name: each for each in named}).values())
    _check_names(name or "--product", served)
    if not at_root:
        return _gathered(base.app, served)
    if len(named or served) != 1:
        names = ", ".join(each.name for each in named or served) or "none"
        hint = f"Name it with --product. Products: {names}."
        raise SettingsError("--at-root requires exactly one product.", field="product", hint=hint)
    return _gathered(base.app, (), (named or served)[0])


def declared(name: str) -> Selection:
    """The app of a file or module, with only the products that it declares itself."""
    from millpond.api.product import Product

    module = load_module(name)
    made = {id(value): value for value in vars(module).values() if isinstance(value, Product)}
    own = tuple(made.values())
    _check_names(name, own)
    return _gathered(app_of(name, module), own)


def _named(products: Sequence[str], own: dict[str, Product]) -> tuple[Product, ...]:
    """The products with these names, each once; the app's own take precedence over installed ones."""
    installed = {found.name: found for found in entry_points(group=GROUP)}
    names = dict.fromkeys(name for each in products for name in (sorted(installed) if each == ALL else [each]))
    for name in names:
        if name not in own and name not in installed:
            known = ", ".join(sorted({*own, *installed}))
            hint = (
                f"Products: {known}."
                if known
                else "No product is installed. Run pip install millpond-products for five products."
            )
            raise SettingsError(f"There is no product {name!r}.", field="product", hint=hint)
    return tuple(own[name] if name in own else installed[name].load() for name in names)


def _gathered(base: Millpond, mounted: tuple[Product, ...], alone: Product | None = None) -> Selection:
    """A copy of the app with the kinds of the products; the loaded app is not changed."""
    from millpond.app import Millpond

    app = Millpond(base.name)
    for kind in base.kinds.values():
        app.add(kind)
    for schedule in base.schedules:
        app.add_schedule(schedule)
    for gate in base.gates:
        app.gate(gate, base.gates[gate])
    selection = Selection(app, mounted, alone)
    for each in selection.products:
        for kind in each.kinds:
            if app.kinds.get(kind.name) is not kind:
                app.add(kind)
    return selection


def _check_names(name: str, products: Iterable[Product]) -> None:
    """Refuse a product whose path is already in use."""
    from millpond.api.app import NATIVE, UI
    from millpond.api.native import ROUTES
    from millpond.api.webhooks.inbox import ROUTES as INBOX_ROUTES

    taken = {NATIVE, UI, *(route.path.split("/")[1] for route in (*ROUTES, *INBOX_ROUTES))}
    for each in products:
        if each.name in taken:
            raise SettingsError(
                f"{name} declares a product {each.name!r}, but the path /{each.name} is already in use.",
                field="app",
                hint="A product is served under the name of its lifecycle: choose another name.",
            )
        taken.add(each.name)
