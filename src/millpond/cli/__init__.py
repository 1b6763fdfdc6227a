"""The command line. Results go to standard output, diagnostics to standard error; exit codes show the outcome.

Commands import what they need in their functions, so that ``millpond --help`` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from millpond import lifeline
from millpond.cli.output import INTERRUPTED, USAGE, UsageError, fail, report
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "up": "Start a complete development server on this machine.",
    "serve": "Run the API, the background services and workers in production.",
    "worker": "Run the jobs of an app.",
    "worker comfyui": "Run the jobs of routes on ComfyUI.",
    "run": "Submit a job, follow it, and print its output.",
    "jobs": "Show, follow, cancel and retry jobs.",
    "batches": "Submit, show and cancel batches of jobs.",
    "bulk": "Retry, cancel, refund, export or prioritize many jobs.",
    "schedules": "Show, create, pause, run and backfill schedules.",
    "search": "Find any object by its ID, the start of its ID, or its name.",
    "artifacts": "Upload and download files.",
    "kinds": "Show the kinds of jobs that can be submitted.",
    "limits": "Show limits, and the jobs that wait for them; change, close and open them.",
    "queues": "Show the health of queues; pause and resume them.",
    "workers": "Show, approve, revoke, drain and reassign workers.",
    "routes": "Show the routes of the fleet and the workers they need.",
    "autoscale": "Scale EC2 Auto Scaling Groups to the load of routes.",
    "webhooks": "Manage webhook endpoints and deliveries; test receivers.",
    "credits": "Show and change the credits of accounts.",
    "tenants": "Show and create tenants; limit their accounts.",
    "keys": "Create, rotate and revoke API keys.",
    "verify": "Check every invariant of the database.",
    "doctor": "Check the settings, the database, the storage, the clocks and the server.",
    "system": "Show the state of a server and its database.",
    "db": "Migrate the database schema; repair counters.",
    "config": "Show the settings in effect.",
}
"""The last word of each is a module of this package, which is imported when the command is called."""
HIDDEN: Final = frozenset({"files"})
"""Commands that only other commands start."""

# The base class of typer's errors about the command line; typer exports only this subclass of it.
_MISUNDERSTOOD: Final[Any] = typer.BadParameter.__base__


class Root(TyperGroup):
    """The commands by name, without loading them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the interface is typer's
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        return load(cmd_name) if cmd_name in COMMANDS or cmd_name in HIDDEN else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Prefer a command with a name of two words to that of the first word, which takes an argument."""
        name = " ".join(args[:2])
        if len(args) > 1 and name in COMMANDS:
            return name, self.get_command(ctx, name), args[2:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load(name: str) -> Any:
    """A command with its subcommands."""
    return typer.main.get_command(import_module(f"millpond.cli.{name.rsplit(maxsplit=1)[-1]}").app)


app = typer.Typer(
    name="millpond",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than everything else
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from millpond import __version__

        typer.echo(f"millpond {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The job backend for AI products, on PostgreSQL alone."""


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; a known error is reported on one line, without a traceback."""
    words = sys.argv[1:] if words is None else words
    lifeline.stop_with_parent()
    as_json = "--json" in words  # not from the parsed options, because parsing may fail
    try:
        sys.exit(app(words, standalone_mode=False, prog_name="millpond") or 0)
    except MillpondError as error:
        fail(error, as_json=as_json)
    except typer.Abort:
        report("millpond: canceled")
        sys.exit(1)
    except KeyboardInterrupt:
        report("millpond: interrupted")
        sys.exit(INTERRUPTED)
    except _MISUNDERSTOOD as error:
        _refuse(error, as_json=as_json)


def _refuse(error: Any, *, as_json: bool) -> NoReturn:
    """Report an invalid command line as typer does, with the usage; with ``--json``, as a problem."""
    if as_json and error.format_message():
        fail(UsageError(error.format_message()), as_json=True)
    error.show()
    sys.exit(USAGE)
