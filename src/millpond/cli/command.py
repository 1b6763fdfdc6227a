"""Commands that call the API: declared as coroutines, with the options that all such commands share."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Key, Url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    Handler = Callable[..., Any]

T = TypeVar("T")

_SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "url": (Url, None),
    "key": (Key, None),
    "data_dir": (DataDir, None),
    "database_url": (DatabaseUrl, None),
    "as_json": (AsJson, False),
}


class CommandGroup(TyperGroup):
    """A group of commands. Their summaries are wrapped; typer would truncate them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, summary(self.get_command(ctx, name))) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def summary(command: Any) -> str:
    """The first paragraph of a command's help, on one line."""
    return " ".join((command.help or "").partition("\n\n")[0].split())


def single() -> typer.Typer:
    """A command without subcommands."""
    return typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich takes longer to import than everything else
    )


def group(description: str) -> typer.Typer:
    """A group of commands, even if it has only one."""
    made = single()
    made.callback(help=description, cls=CommandGroup, no_args_is_help=True)(_nothing)
    return made


def _nothing() -> None: ...


def one_of(items: Sequence[T], field: str, name: str) -> T:
    """The item with this name in an unpaginated list."""
    from millpond.errors import NotFoundError

    known = {getattr(item, field): item for item in items}
    if name not in known:
        hint = f"Known {field}s: {', '.join(sorted(known)) or 'none'}."
        raise NotFoundError(f"There is no {field} {name[:80]!r}.", field=field, hint=hint)
    return known[name]


def always_done(_: Any) -> int:
    return 0


def command(app: typer.Typer, name: str, *, status: Callable[[Any], int] = always_done) -> Callable[[Handler], Handler]:
    """Declare a coroutine ``(api, …)`` as a command: its result is printed, and ``status`` maps it to the exit code.

    The items of an async generator are printed one by one; the last one determines the exit code.
    """

    def declare(handler: Handler) -> Handler:
        def run(**given: Any) -> None:
            shared = {option: given.pop(option) for option in _SHARED}
            sys.exit(status(_run(handler, given, **shared)))

        parameters = list(inspect.signature(handler).parameters.values())[1:]
        hints = _hints(handler, [parameter.name for parameter in parameters])
        hints |= {option: hint for option, (hint, _) in _SHARED.items()}
        defaults = {parameter.name: parameter.default for parameter in parameters}
        defaults |= {option: default for option, (_, default) in _SHARED.items()}
        run.__doc__ = handler.__doc__
        run.__annotations__ = hints
        run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
            [
                inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=defaults[option], annotation=hint)
                for option, hint in hints.items()
            ]
        )
        app.command(name)(run)
        return handler

    return declare


def _hints(handler: Handler, names: list[str]) -> dict[str, Any]:
    """The types of these parameters only: the return type may be imported for type checking only."""
    notes = SimpleNamespace(__annotations__={name: handler.__annotations__[name] for name in names})
    return get_type_hints(notes, globalns=handler.__globals__, include_extras=True)


def _run(
    handler: Handler,
    given: dict[str, Any],
    *,
    url: str | None,
    key: str | None,
    data_dir: Path | None,
    database_url: str | None,
    as_json: bool,
) -> Any:
    import asyncio

    from millpond.cli.reach import reach
    from millpond.cli.show import show

    async def call() -> Any:
        shown: Any = None
        async with reach(url, key, data_dir, database_url, as_json=as_json) as api:
            if not inspect.isasyncgenfunction(handler):
                return show(await handler(api, **given), as_json=as_json)
            async for item in handler(api, **given):
                shown = show(item, as_json=as_json)
        return shown

    return asyncio.run(call())
