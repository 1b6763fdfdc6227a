"""``millpond kinds``: what kinds of jobs there are, what they take and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from millpond.cli.command import command, group

if TYPE_CHECKING:
    from millpond import wire
    from millpond.cli.reach import Api

app = group("What kinds of jobs there are.")

Name = Annotated[str, typer.Argument(metavar="KIND", help="Its name.", show_default=False)]


@command(app, "list")
async def list_(api: Api) -> wire.Kinds:
    """List the kinds of jobs."""
    from millpond import wire

    return await api.get("/kinds", wire.Kinds)


@command(app, "get")
async def get(api: Api, kind: Name) -> wire.KindInfo:
    """Show a kind: what it takes, what it costs, how it lives."""
    return await _read(api, kind)


@command(app, "schema")
async def schema(api: Api, kind: Name) -> Any:
    """Print the JSON Schema of a kind's input."""
    from millpond.cli.show import Document

    return Document((await _read(api, kind)).input_schema)


async def _read(api: Api, kind: str) -> wire.KindInfo:
    from millpond import wire
    from millpond.client.requests import segment

    return await api.get(f"/kinds/{segment(kind)}", wire.KindInfo)
