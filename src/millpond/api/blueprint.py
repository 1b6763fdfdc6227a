"""A blueprint: a product's contract as data. Its kinds, routes, shapes of refusal, tables and first rows.

The application serves each under ``/NAME``, beside the native API, through the same table and the same checks; or one
of them alone at ``/``, in front of the native API.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from millpond import logs, wire
from millpond.api import problems
from millpond.app import Millpond
from millpond.store import books

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    import msgspec

    from millpond.api.routes import Route
    from millpond.engine.engine import Engine
    from millpond.gates import Gate
    from millpond.kinds import Handler, Kind
    from millpond.lifecycle import Lifecycle
    from millpond.services.service import Service
    from millpond.settings import Settings

    Refuse = Callable[[BaseException, dict[str, Any]], tuple[int, Any]]
    Seed = Callable[[Engine], Awaitable[None]]
    Services = Callable[[Engine, Settings], Sequence[Service]]
    Code = Mapping[str, Mapping[str | None, Handler]]
    Handlers = Callable[[Engine, Settings], Code]
    Gates = Callable[[Engine], Mapping[str, Gate]]
    Parameters = Mapping[str, tuple[dict[str, Any], str]]


def as_problem(error: BaseException, problem: dict[str, Any]) -> tuple[int, Any]:  # noqa: ARG001 - as all that refuse
    """A refusal as the native API tells it."""
    return problem["status"], problem


def no_services(engine: Engine, settings: Settings) -> Sequence[Service]:  # noqa: ARG001 - as all that make some
    return ()


def no_handlers(engine: Engine, settings: Settings) -> Code:  # noqa: ARG001 - as all that make some
    return {}


def no_gates(engine: Engine) -> Mapping[str, Gate]:  # noqa: ARG001 - as all that make some
    return {}


_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Blueprint:
    """One product's contract."""

    lifecycle: Lifecycle
    kinds: tuple[Kind, ...]
    title: str
    """What its document is called."""
    about: str = ""
    """What its document says first."""
    routes: tuple[Route, ...] = ()
    """Relative to where it is served; none: only its kinds are known."""
    groups: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    """The groups of its routes, with what they are for."""
    parameters: Parameters = field(default_factory=lambda: _NOTHING)
    """The variable parts of its paths: their schemas, and what they are."""
    refuse: Refuse = as_problem
    """From an error, and the problem as which the native API would tell it: its own status and body."""
    refusal: type[msgspec.Struct] = wire.Problem
    """The shape of that body."""
    refusal_form: bytes = problems.MEDIA_TYPE
    migrations: str | None = None
    """The package that has its tables, as numbered files in ``migrations``."""
    seed: Seed | None = None
    """What a developer finds there on the first start; harmless to repeat."""
    services: Services = no_services
    """What must run in the background."""
    gates: Gates = no_gates
    """The gates that kinds can be put behind, by name; those of any other product too."""
    handlers: Handlers = no_handlers
    """The code of its kinds, by kind and state, where that needs more than the job: tables, or settings."""

    @property
    def name(self) -> str:
        return self.lifecycle.name


def bound(engine: Engine, settings: Settings, blueprints: Iterable[Blueprint]) -> Millpond:
    """The app as a worker beside the database runs it: with the code of blueprints."""
    code: dict[str, Mapping[str | None, Handler]] = dict(engine.providers.handlers())
    provided = set(code)
    for blueprint in blueprints:
        code |= blueprint.handlers(engine, settings)
    app = Millpond()
    for kind in engine.app.kinds.values():
        whole = kind.takes_whole_input or kind.name in provided
        known = code.get(kind.name, kind.handlers) if engine.providers.serves(kind) else _NOTHING
        app.add(replace(kind, handlers=known, takes_whole_input=whole))
    return app


def hang(engine: Engine, blueprints: Iterable[Blueprint]) -> None:
    """Put the gates of blueprints where kinds find them, and say which are still missing."""
    for blueprint in blueprints:
        for name, gate in blueprint.gates(engine).items():
            engine.gates.setdefault(name, gate)
    engine.gates.report(engine.app.kinds.values())


async def prepare(engine: Engine, blueprints: Sequence[Blueprint]) -> None:
    """Bring the tables of these blueprints up to date, in every database of the engine, and hang their gates."""
    hang(engine, blueprints)
    known = [(blueprint.name, blueprint.migrations) for blueprint in blueprints if blueprint.migrations is not None]

    async def bring_up_to_date(address: str) -> None:
        for name, package in known:
            if applied := await books.migrate(address, name, package):
                logs.emit("db.migrated", applied=applied, blueprint=name)

    await bring_up_to_date(engine.db.dsn)
    await engine.homes.prepare(bring_up_to_date)
