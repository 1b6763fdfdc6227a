"""``millpond kinds``: the kinds of jobs, with their input and price."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import ApiConnection

app = group("Show the kinds of jobs that can be submitted.")

Name = Annotated[str, typer.Argument(metavar="KIND", help="The name of the kind.", show_default=False)]


@command(app, "list")
async def list_(api: ApiConnection) -> wire.Kinds:
    """List the kinds of jobs."""
    from millpond import wire

    return await api.get("/kinds", wire.Kinds)


@command(app, "get")
async def get(api: ApiConnection, kind: Name) -> wire.KindInfo:
    """Show a kind: its input, its price and its lifecycle."""
    return await _read(api, kind)


@command(app, "schema")
async def schema(api: ApiConnection, kind: Name) -> Any:
    """Print the JSON Schema of the input of a kind."""
    from millpond.cli.show import Document

    return Document((await _read(api, kind)).input_schema)


async def _read(api: ApiConnection, kind: str) -> wire.KindInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/kinds/{segment(kind)}", wire.KindInfo)
