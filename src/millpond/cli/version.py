"""``millpond version``."""

from __future__ import annotations

import sys

from millpond.cli.command import single
from millpond.cli.options import AsJson
from millpond.cli.output import print_json

app = single()


@app.command("version")
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    from importlib.metadata import version as installed

    if as_json:
        print_json({"version": installed("millpond")})
    else:
        sys.stdout.write(f"{installed('millpond')}\n")
