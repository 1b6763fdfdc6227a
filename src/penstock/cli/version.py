"""``penstock version``."""

from __future__ import annotations

import sys

from penstock.cli.command import single
from penstock.cli.options import AsJson
from penstock.cli.output import print_json

app = single()


@app.command("version")
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    if as_json:
        print_json({"version": installed("penstock")})
    else:
        sys.stdout.write(f"{installed('penstock')}\n")
