"""A product as data: its kinds, routes, error bodies, tables and seed data.

The application serves each product under ``/NAME`` beside the native API, with the same dispatch and the same checks;
or a single product at ``/``, in front of the native API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from millpond import logs, wire
from millpond.api import problems
from millpond.api.documents import pages
from millpond.app import Millpond
from millpond.store import plugin_migrations

Code: TypeAlias = "Mapping[str, Mapping[str | None, Handler]]"
"""The handlers of kinds, by kind and state."""

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    import msgspec

    from millpond.api.routes import Route
    from millpond.companions import Companion
    from millpond.engine.engine import Engine
    from millpond.gates import Gate
    from millpond.kinds import Handler, Kind
    from millpond.lifecycle import Lifecycle
    from millpond.services.service import Service
    from millpond.settings import Settings

    Refuse = Callable[[BaseException, dict[str, Any]], tuple[int, Any]]
    Seed = Callable[[Engine], Awaitable[None]]
    Services = Callable[[Engine, Any], Sequence[Service]]
    Handlers = Callable[[Engine, Any], Code]
    Gates = Callable[[Engine], Mapping[str, Gate]]
    Parameters = Mapping[str, tuple[dict[str, Any], str]]


def no_services(engine: Engine, settings: Settings) -> Sequence[Service]:  # noqa: ARG001 - the signature is given
    return ()


def no_handlers(engine: Engine, settings: Settings) -> Code:  # noqa: ARG001 - the signature is given
    return {}


def no_gates(engine: Engine) -> Mapping[str, Gate]:  # noqa: ARG001 - the signature is given
    return {}


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One product's contract."""

    lifecycle: Lifecycle
    kinds: tuple[Kind, ...]
    title: str
    """The title of its OpenAPI document."""
    about: str = ""
    """The description of its OpenAPI document."""
    routes: tuple[Route, ...] = ()
    """Its routes, relative to the path under which it is served. Without routes, it only adds its kinds."""
    page_scope: Literal["client", "operator"] = "client"
    """The scope of the key that its page needs."""
    groups: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """The groups of its routes, with their descriptions."""
    parameters: Parameters = field(default_factory=lambda: _NOTHING)
    """The schemas and descriptions of the parameters in its paths and headers."""
    refuse: Refuse = problems.as_problem
    """Maps an error, and the problem with which the native API would respond, to a status and body of its own."""
    refusal: type[msgspec.Struct] = wire.Problem
    """The type of that body."""
    refusal_form: bytes = problems.MEDIA_TYPE
    migrations: str | None = None
    """The package with its migrations: numbered SQL files in the folder ``migrations``."""
    seed: Seed | None = None
    """Creates data for development, on every start of ``millpond up``; must be idempotent."""
    services: Services = no_services
    """Creates its background services."""
    gates: Gates = no_gates
    """Creates the gates that its kinds and those of other products may use, by name."""
    handlers: Handlers = no_handlers
    """Creates the handlers of its kinds, by kind and state, if they need more than the job: tables, or settings."""
    companions: tuple[Companion, ...] = ()
    """The programs that its kinds can use, which run beside the API."""

    def __post_init__(self) -> None:
        """Add the routes of its OpenAPI document; a copy made by :func:`dataclasses.replace` has them already."""
        if self.routes:
            added = tuple(route for route in pages.ROUTES if route not in self.routes)
            object.__setattr__(self, "routes", (*self.routes, *added))

    @property
    def name(self) -> str:
        return self.lifecycle.name


def bound(engine: Engine, settings: Settings, products: Iterable[Product]) -> Millpond:
    """The app for a worker on the database: with the handlers of products and providers."""
    code: dict[str, Mapping[str | None, Handler]] = dict(engine.providers.handlers())
    provided = set(code)
    for product in products:
        code |= product.handlers(engine, settings)
    app = Millpond()
    for kind in engine.app.kinds.values():
        whole = kind.takes_whole_input or kind.name in provided
        known = code.get(kind.name, kind.handlers) if engine.providers.serves(kind) else _NOTHING
        app.add(replace(kind, handlers=known, takes_whole_input=whole))
    return app


def register_gates(engine: Engine, products: Iterable[Product]) -> None:
    """Register the gates of products with the engine, and report those that are still missing."""
    for product in products:
        for name, gate in product.gates(engine).items():
            engine.gates.setdefault(name, gate)
    engine.gates.report(engine.app.kinds.values())


async def prepare(engine: Engine, products: Sequence[Product]) -> None:
    """Register the gates of these products, and migrate their tables in every database of the engine."""
    register_gates(engine, products)
    known = [(product.name, product.migrations) for product in products if product.migrations is not None]

    async def bring_up_to_date(address: str) -> None:
        for name, package in known:
            if applied := await plugin_migrations.migrate(address, name, package):
                logs.emit("db.migrated", applied=applied, product=name)

    await bring_up_to_date(engine.db.dsn)
    await engine.tenant_databases.prepare(bring_up_to_date)
