"""Example data for the first start: a workflow and an effect that invert an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.errors import ConflictError, NotFoundError
from millpond_products.effects import effects, wire, workflows

if TYPE_CHECKING:
    from millpond.product import Engine
    from millpond_products.effects.workflows import Workflow

SLUG: Final = "invert"
PRICE: Final = 5
OUTPUT: Final = "3"
GRAPH: Final[dict[str, Any]] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "invert"}},
}


async def seed(engine: Engine) -> None:
    """Idempotent. Existing objects are not changed, but a graph that is missing in storage is uploaded again."""
    workflow = await _workflow(engine)
    path = workflow.comfyui_workflow_path
    if path is None:
        workflow = await workflows.put_graph(engine, workflow, GRAPH, OUTPUT)
        await workflows.activate(engine, workflow)
    elif await engine.artifacts.store.head(path) is None:
        await workflows.put_graph(engine, workflow, GRAPH, OUTPUT)
    try:
        await effects.find(engine, SLUG)
    except NotFoundError:
        await effects.make(
            engine,
            wire.MakeEffect(
                slug=SLUG,
                name="Invert",
                description="Inverts all colours.",
                workflow_id=SLUG,
                credits_cost=PRICE,
            ),
        )


async def _workflow(engine: Engine) -> Workflow:
    try:
        return await workflows.find(engine, SLUG)
    except NotFoundError:
        made = wire.MakeWorkflow(slug=SLUG, name="Invert", input_type="image", output_extension="png")
        try:
            return await workflows.make(engine, made)
        except ConflictError:  # another process has created it
            return await workflows.find(engine, SLUG)
