"""The command line. Data goes to standard output, talk to standard error; exit codes tell the outcome.

What a command needs is imported inside it, so that ``penstock --help`` answers at once.
"""

from __future__ import annotations

import sys

import typer

from penstock.cli import db, verify, worker
from penstock.cli.output import fail
from penstock.errors import PenstockError

app = typer.Typer(
    name="penstock",
    help="The job backend for AI products, on PostgreSQL alone.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(db.app, name="db")
app.command("verify")(verify.verify)
app.command("worker")(worker.worker)


@app.command()
def version() -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    sys.stdout.write(f"{installed('penstock')}\n")


def main() -> None:
    """Run the command line; an error we know is told in one line, without a stack."""
    try:
        app()
    except PenstockError as error:
        fail(error)
