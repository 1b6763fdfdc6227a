"""``millpond worker comfyui``: run the jobs of routes on ComfyUI."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, Slots, Url

app = single()


class Provider(StrEnum):
    """Whose ComfyUI it is."""

    self_hosted = "self_hosted"
    cloud = "cloud"


@app.command("comfyui")
def comfyui(
    route: Annotated[
        list[str] | None, typer.Option(help="A route to serve; may be given again.", show_default=False)
    ] = None,
    url: Url = None,
    comfyui: Annotated[
        str | None,
        typer.Option(help="Where ComfyUI is.  [default: http://127.0.0.1:8188, or Comfy Cloud]", show_default=False),
    ] = None,
    provider: Annotated[Provider, typer.Option(help="Whose ComfyUI it is.")] = Provider.self_hosted,
    api_key_env: Annotated[str, typer.Option(help="The variable that holds the key of Comfy Cloud.")] = "COMFY_API_KEY",
    partner_nodes: Annotated[bool, typer.Option("--partner-nodes", help="Send that key with the graph too.")] = False,
    name: Annotated[
        str | None, typer.Option(help="What to call this worker.  [default: host:pid]", show_default=False)
    ] = None,
    slots: Slots = None,
    grace: Annotated[
        str | None, typer.Option(help="How long a job may take to end once it is told to.", show_default=False)
    ] = None,
    stall: Annotated[
        str | None, typer.Option(help="How long a run may show no sign of life.  [default: 15m]", show_default=False)
    ] = None,
    patience: Annotated[
        str | None,
        typer.Option(help="How long a ComfyUI that is away is waited for.  [default: 2m]", show_default=False),
    ] = None,
    asset_max: Annotated[int, typer.Option(help="The bytes that one file of a job may have.", min=1)] = 2 * 1024**3,
    spot: Annotated[
        bool, typer.Option("--spot", help="Heed the notices of EC2, and ask for scale-in protection while busy.")
    ] = False,
    drain: Annotated[bool, typer.Option("--drain", help="End when nothing is ready any more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of routes on ComfyUI until told to stop.

    It registers by the key of scope worker in MILLPOND_FLEET_SECRET, once ComfyUI answers. The first SIGTERM or
    SIGINT lets running jobs finish within the grace and gives back the rest; a second one ends at once. With --json it
    prints a line when it begins.
    """
    from millpond.cli.output import print_json
    from millpond.comfyui import program
    from millpond.worker.process import configure_logs

    configure_logs()
    options = program.Options(
        routes=route or (),
        url=url,
        comfyui=comfyui,
        provider=provider.value,
        api_key_env=api_key_env,
        has_partner_nodes=partner_nodes,
        name=name,
        slots=slots,
        grace=grace,
        stall=stall,
        patience=patience,
        asset_max=asset_max,
        on_spot=spot,
        drain=drain,
    )
    program.run(options, print_json if as_json else lambda _: None)
