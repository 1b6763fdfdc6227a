"""A command that speaks to the API: declared as a coroutine, run with the options that all such commands share."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, get_type_hints

import typer

from millpond.cli.options import AsJson, DatabaseUrl, DataDir, Key, Url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Handler = Callable[..., Any]

_SHARED: Final[dict[str, tuple[Any, Any]]] = {
    "url": (Url, None),
    "key": (Key, None),
    "data_dir": (DataDir, None),
    "database_url": (DatabaseUrl, None),
    "as_json": (AsJson, False),
}


def single() -> typer.Typer:
    """A command without others under it."""
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its library takes longer to load than all the rest
    )


def group(told: str) -> typer.Typer:
    """A noun with its verbs, be it one alone."""
    made = single()
    made.callback(help=told, no_args_is_help=True)(_nothing)
    return made


def _nothing() -> None: ...


def always_done(_: Any) -> int:
    return 0


def command(app: typer.Typer, name: str, *, status: Callable[[Any], int] = always_done) -> Callable[[Handler], Handler]:
    """Make a command of a coroutine ``(api, …)``: what it returns is shown, and ``status`` makes its exit code of it.

    An async generator is shown item by item; its last item makes the exit code.
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
    """The types of these parameters only: that of the answer may be known to type checkers alone."""
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
