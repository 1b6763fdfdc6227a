"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", help="Any PostgreSQL from 15 on. [env: DATABASE_URL]", show_default=False),
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Where the embedded PostgreSQL lives.  [default: .millpond]", show_default=False),
]
Url = Annotated[str | None, typer.Option("--url", help="Where the API is. [env: MILLPOND_URL]", show_default=False)]
Key = Annotated[
    str | None, typer.Option("--key", help="The key to show there. [env: MILLPOND_API_KEY]", show_default=False)
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

Tenant = Annotated[
    str | None, typer.Option("--tenant", help="The tenant; a client key has its own.", show_default=False)
]
Account = Annotated[
    str | None, typer.Option("--account", help="The account; a client key has its own.", show_default=False)
]
Cursor = Annotated[
    str | None, typer.Option("--cursor", help="Go on where the page before this one ended.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", help="How many at most.", min=1, max=200)]
JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id: job_…", show_default=False)]

Host = Annotated[
    str | None, typer.Option("--host", help="The address to listen on.  [default: 127.0.0.1]", show_default=False)
]
Port = Annotated[
    int | None,
    typer.Option("--port", help="The port; 0 for any.  [default: 8686]", min=0, max=65_535, show_default=False),
]
Slots = Annotated[
    int | None, typer.Option("--slots", help="How many jobs to run at once.", min=1, max=10_000, show_default=False)
]
ReadyFile = Annotated[
    Path | None,
    typer.Option("--ready-file", help="Write a line of JSON here once it serves.", show_default=False),
]
App = Annotated[
    str | None,
    typer.Argument(
        help="A file (app.py) or a module (shop.jobs) that makes a Millpond(). [env: MILLPOND_APP]", show_default=False
    ),
]
