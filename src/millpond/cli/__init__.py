"""The command line. Data goes to standard output, talk to standard error; exit codes tell the outcome.

What a command needs is imported inside it, so that ``millpond --help`` answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from millpond import lifeline
from millpond.cli.output import INTERRUPTED, USAGE, UsageError, fail, say
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "up": "Start everything on this machine, for development.",
    "serve": "Run the API, the services and workers, for production.",
    "worker": "Run an app's jobs.",
    "worker comfyui": "Run the jobs of routes on ComfyUI.",
    "run": "Submit a job, watch it, print its output.",
    "jobs": "Look at jobs, follow them, stop them, run them again.",
    "errands": "What is done to many jobs in the background.",
    "find": "Find anything by its id, or how that begins.",
    "artifacts": "Files, in and out of storage.",
    "kinds": "What kinds of jobs there are.",
    "queues": "How the queues are doing; pause and resume them.",
    "workers": "Who works; approve, revoke, drain and bind workers.",
    "routes": "The fleet's queues, and how many workers each should have.",
    "renderer": "Make pictures, films and speech on this machine.",
    "llm": "Serve a small language model on this machine.",
    "autoscale": "Give each route as many EC2 instances as it needs.",
    "webhooks": "Who is told of jobs, and what came of it; tools to try it.",
    "credits": "What accounts have, and how it came about.",
    "tenants": "The customers, their accounts and limits.",
    "keys": "Make keys, renew them, take them away.",
    "verify": "Check every invariant of the database.",
    "doctor": "Check settings, database, clocks and server.",
    "system": "How a server and its database are.",
    "db": "The schema, and whether the database is well.",
    "config": "The settings as they are read.",
    "version": "Print the version.",
}
"""The last word of each is a module of this package, which is imported when the command is called."""
HIDDEN: Final = frozenset({"files"})
"""What other commands start, and people do not."""

# What typer raises at a command line that it does not understand; it names no more than this one of them.
_MISUNDERSTOOD: Final[Any] = typer.BadParameter.__base__


class Root(TyperGroup):
    """The commands by name, without loading them."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the interface is typer's
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - as above
        return load(cmd_name) if cmd_name in COMMANDS or cmd_name in HIDDEN else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """A name of two words goes before that of its first, which is a command with an argument."""
        name = " ".join(args[:2])
        if len(args) > 1 and name in COMMANDS:
            return name, self.get_command(ctx, name), args[2:]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load(name: str) -> Any:
    """A command with all that is under it."""
    return typer.main.get_command(import_module(f"millpond.cli.{name.rsplit(maxsplit=1)[-1]}").app)


app = typer.Typer(
    name="millpond",
    cls=Root,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its library takes longer to load than all the rest
)


@app.callback()
def root() -> None:
    """The job backend for AI products, on PostgreSQL alone."""


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; an error we know is told in one line, without a stack."""
    words = sys.argv[1:] if words is None else words
    lifeline.heed()
    as_json = "--json" in words  # asked of the words, for they may be what is wrong
    try:
        sys.exit(app(words, standalone_mode=False, prog_name="millpond") or 0)
    except MillpondError as error:
        fail(error, as_json=as_json)
    except typer.Abort:
        say("millpond: not done")
        sys.exit(1)
    except KeyboardInterrupt:
        say("millpond: interrupted")
        sys.exit(INTERRUPTED)
    except _MISUNDERSTOOD as error:
        _refuse(error, as_json=as_json)


def _refuse(error: Any, *, as_json: bool) -> NoReturn:
    """Say it in typer's own words, with the usage; to programs as a problem."""
    if as_json and error.format_message():
        fail(UsageError(error.format_message()), as_json=True)
    error.show()
    sys.exit(USAGE)
