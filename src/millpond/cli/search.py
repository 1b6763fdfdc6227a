"""``millpond search``: any object, by its ID, the start of its ID, or its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = single()


@command(app, "find")
async def search(
    api: ApiConnection,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="An ID, a prediction ID, an idempotency key or a name. The start of an ID or a name is enough.",
            show_default=False,
        ),
    ],
) -> wire.SearchResults:
    """Find a job, worker, endpoint, delivery, key, file, tenant, account, kind or queue."""
    from millpond import wire

    return await api.get("/search", wire.SearchResults, q=what)
