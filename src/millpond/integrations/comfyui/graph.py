"""The input of a ComfyUI job: a graph of nodes, the files that it needs, and the node whose file is the result."""

from __future__ import annotations

import copy
import re
from pathlib import PurePosixPath
from typing import Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import PermanentError

ATTEMPT_INPUT: Final = "millpond_attempt"
"""An input that no node has. ComfyUI ignores it, but a node with another value of it is not answered from its cache."""

_KEYS: Final = ("videos", "video", "gifs", "images", "audio", "files")
"""The names under which nodes list their files, in order of preference; core nodes list videos under ``images``."""
_EXTENSION: Final = re.compile(r"[A-Za-z0-9]{1,8}")


class Asset(msgspec.Struct, frozen=True):
    """A file that the graph needs."""

    placeholder: str
    """The text in the graph to replace by the name that ComfyUI gives the file."""
    name: str
    """The name of the file in the job."""
    filename: str = "input"
    content_hash: str | None = None
    is_primary_input: bool = False

    @property
    def extension(self) -> str:
        return _extension(self.filename)


class Task(msgspec.Struct, frozen=True):
    """The input of a job."""

    workflow: dict[str, Any]
    output_node_id: str
    assets: list[Asset] = []
    extension: str | None = None


class OutputFile(msgspec.Struct, frozen=True):
    """A file that a node produced."""

    filename: str
    subfolder: str = ""
    type: str = "output"

    @property
    def extension(self) -> str:
        return _extension(self.filename)

    @property
    def params(self) -> dict[str, str]:
        return {"filename": self.filename, "subfolder": self.subfolder, "type": self.type}


def _extension(name: str) -> str:
    found = PurePosixPath(name.replace("\\", "/")).suffix.removeprefix(".")
    return found.lower() if _EXTENSION.fullmatch(found) else ""


def read(given: Any) -> Task:
    """Validate the input of a job."""
    if not isinstance(given, dict):
        raise _wrong("The input must be an object.", "input")
    members = cast("dict[str, Any]", dict(given))  # pyright: ignore[reportUnknownArgumentType] - it comes from JSON
    members["workflow"] = _workflow(members.get("workflow"))
    if isinstance(members.get("output_node_id"), int):
        members["output_node_id"] = str(members["output_node_id"])
    try:
        task = msgspec.convert(members, Task)
    except msgspec.ValidationError as error:
        raise _wrong(f"The input is invalid: {error}.", "input") from None
    if task.output_node_id not in task.workflow:
        raise _wrong(
            f"The workflow does not contain the output node {values.printable(task.output_node_id, 100)!r}.",
            "output_node_id",
        )
    return task


def _workflow(given: Any) -> dict[str, Any]:
    if isinstance(given, str | bytes):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _wrong(f"The workflow is not valid JSON: {error}.", "workflow") from None
    if not isinstance(given, dict) or not given:
        raise _wrong("The workflow must be an object of nodes.", "workflow")
    nodes = cast("dict[str, Any]", given)
    if isinstance(nodes.get("nodes"), list):
        raise _wrong(
            "The workflow is in the format of the ComfyUI editor, not in the API format.",
            "workflow",
            hint="Export it with Export (API).",
        )
    for id, node in nodes.items():
        if not isinstance(node, dict) or not isinstance(node.get("class_type"), str):  # pyright: ignore[reportUnknownMemberType] - as above
            raise _wrong(f"Node {values.printable(id, 100)!r} has no class_type.", "workflow")
        if not isinstance(node.get("inputs"), dict):  # pyright: ignore[reportUnknownMemberType] - as above
            raise _wrong(f"Node {values.printable(id, 100)!r} has no inputs.", "workflow")
    return nodes


def absent(task: Task) -> list[str]:
    """The placeholders of assets that do not occur in the graph."""
    texts = list[str]()

    def visit(value: Any) -> None:
        if isinstance(value, str):
            texts.append(value)
        for child in _children(value):
            visit(child)

    for node in task.workflow.values():
        visit(node["inputs"])
    return [asset.placeholder for asset in task.assets if not any(asset.placeholder in text for text in texts)]


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []


def fill(workflow: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The graph with file names in place of placeholders, in the texts of its inputs only.

    All are replaced in one pass, so a name that looks like a placeholder is not replaced. The graph is not serialized
    for this, so no name can change its structure.
    """
    filled = copy.deepcopy(workflow)
    if not names:
        return filled
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(re.escape(placeholder) for placeholder in longest_first))

    def put(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda found: names[found[0]], value)
        if isinstance(value, list):
            return [put(child) for child in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {key: put(child) for key, child in cast("dict[str, Any]", value).items()}
        return value

    for node in filled.values():
        node["inputs"] = put(node["inputs"])
    return filled


def own(workflow: dict[str, Any], output_node: str, attempt: str) -> dict[str, Any]:
    """The graph with output file names of this attempt only.

    ComfyUI does not run again what it has just run: it returns the old file from its cache, which belongs to another
    job or was deleted. A node with different inputs is run.
    """
    owned = copy.deepcopy(workflow)
    for node in owned.values():
        prefix = node["inputs"].get("filename_prefix")
        if isinstance(prefix, str):
            node["inputs"]["filename_prefix"] = f"{prefix or 'ComfyUI'}_{attempt}"
    inputs = owned[output_node]["inputs"]
    if not isinstance(inputs.get("filename_prefix"), str):
        inputs[ATTEMPT_INPUT] = attempt
    return owned


def pick(outputs: dict[str, Any], node: str) -> OutputFile:
    """The file that a node produced; output files are preferred to temporary ones."""
    found = _files(outputs.get(node))
    if not found:
        others = sorted(id for id in outputs if _files(outputs[id]))
        raise PermanentError(
            f"Node {node} produced no file.",
            hint=f"Files were produced by: {', '.join(others)}." if others else "No node produced a file.",
            reason="output",
            node=node,
        )
    kept = [file for file in found if file.type == "output"]
    return (kept or found)[0]


def _files(made: Any) -> list[OutputFile]:
    """All items with a file name, from all lists."""
    if not isinstance(made, dict):
        return []
    members = cast("dict[str, Any]", made)
    keys = [key for key in _KEYS if key in members] + [key for key in members if key not in _KEYS]
    items = [cast("dict[str, Any]", item) for key in keys for item in _children(members[key]) if isinstance(item, dict)]
    return [
        OutputFile(str(item["filename"]), str(item.get("subfolder") or ""), str(item.get("type") or "output"))
        for item in items
        if item.get("filename")
    ]


def _wrong(message: str, field: str, hint: str | None = None) -> PermanentError:
    return PermanentError(message, field=field, hint=hint, reason="input")
