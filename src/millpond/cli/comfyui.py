"""``millpond worker comfyui``: run the jobs of routes on ComfyUI."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from millpond.cli.command import single
from millpond.cli.options import AsJson, Grace, Slots, Url, optional

app = single()


class ComfyHost(StrEnum):
    """Who runs ComfyUI."""

    self_hosted = "self_hosted"
    cloud = "cloud"


@app.command("comfyui")
def comfyui(
    route: Annotated[list[str] | None, optional("--route", text="A route whose jobs to run. Repeatable.")] = None,
    url: Url = None,
    comfyui: Annotated[
        str | None,
        optional("--comfyui", text="The URL of ComfyUI.", default="http://127.0.0.1:8188, or Comfy Cloud"),
    ] = None,
    provider: Annotated[ComfyHost, typer.Option(help="Who runs ComfyUI.")] = ComfyHost.self_hosted,
    api_key_env: Annotated[
        str, typer.Option(help="The environment variable with the API key of Comfy Cloud.")
    ] = "COMFY_API_KEY",
    partner_nodes: Annotated[
        bool, typer.Option("--partner-nodes", help="Send that key with the graph too, for partner nodes.")
    ] = False,
    name: Annotated[str | None, optional("--name", text="The name of this worker.", default="host:pid")] = None,
    slots: Slots = None,
    grace: Grace = None,
    stall: Annotated[
        str | None, optional("--stall", text="Fail a run that reports nothing for this long.", default="15m")
    ] = None,
    patience: Annotated[
        str | None, optional("--patience", text="How long to wait for an unreachable ComfyUI.", default="2m")
    ] = None,
    asset_max: Annotated[int, typer.Option(help="The maximum size of a file of a job, in bytes.", min=1)] = 2 * 1024**3,
    spot: Annotated[
        bool, typer.Option("--spot", help="Handle EC2 interruption notices; request scale-in protection while busy.")
    ] = False,
    drain: Annotated[bool, typer.Option("--drain", help="Exit when no job is ready.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the jobs of routes on ComfyUI until stopped.

    When ComfyUI answers, the worker registers with the key of scope worker in MILLPOND_FLEET_SECRET. The first SIGTERM
    or SIGINT lets running jobs finish within the grace period and returns the others to the queue; the second one ends
    the worker immediately. With --json, the worker prints a line when it starts.
    """
    from millpond.cli.output import announce
    from millpond.integrations.comfyui import program
    from millpond.worker.process import configure_logs

    configure_logs()
    options = program.ComfyOptions(
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
    program.run(options, announce if as_json else lambda _: None)
