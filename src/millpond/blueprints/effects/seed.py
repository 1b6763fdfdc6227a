"""What a developer finds on the first start: one workflow and one effect, which invert an image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millpond.blueprints.effects import effects, wire, workflows
from millpond.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from millpond.blueprints.effects.workflows import Workflow
    from millpond.engine.engine import Engine

SLUG: Final = "invert"
PRICE: Final = 5
OUTPUT: Final = "3"
GRAPH: Final[dict[str, Any]] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "invert"}},
}


async def seed(engine: Engine) -> None:
    """Harmless to repeat: what is there is left as it is, but for a graph that storage has lost."""
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
                description="Turns every colour into its opposite.",
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
        except ConflictError:  # another process was quicker
            return await workflows.find(engine, SLUG)
