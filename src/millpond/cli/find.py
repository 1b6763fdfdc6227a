"""``millpond find``: anything by its id, how that begins, or its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from millpond.cli.command import command, single

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = single()


@command(app, "find")
async def find(
    api: Api,
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="An id, a prediction id, an idempotency key, or a name; of ids and names the beginning is enough.",
            show_default=False,
        ),
    ],
) -> wire.Found:
    """Find a job, worker, endpoint, delivery, key, file, tenant, account, kind or queue."""
    from millpond import wire

    return await api.get("/find", wire.Found, q=what)
