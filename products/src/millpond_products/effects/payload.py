"""The payload: what ComfyUI runs, built from a workflow's graph and defaults, an effect's settings and a user's input.

A placeholder is ``{{name}}`` in a text of a node's inputs. Placeholders are replaced in the decoded JSON and in one
pass: a user's text can only become text in the graph, and a placeholder in it is not replaced.
"""

from __future__ import annotations

import math
import mimetypes
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import InputError, InvalidError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millpond_products.effects.wire import Property

PRIMARY: Final = "input"
"""The placeholder of the uploaded file."""
GRAPH_MAX: Final = 192 * 1024
"""The limit of a graph in bytes. With its placeholders replaced, it must fit into the input of a job."""
NODES_MAX: Final = 2_000
TEXT_MAX: Final = 2_000
FILE_TYPES: Final = ("image", "video")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]*)\s*\}\}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINK_LENGTH: Final = 2
_NUL: Final = "\0"  # no user's text contains it
_SUFFIX: Final = re.compile(r"\.([A-Za-z0-9]{1,8})$")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file that the graph uses. The worker receives it under ``name``."""

    name: str
    filename: str
    content_hash: str | None
    path: str | None = None
    """The storage path of a file that all jobs share."""


# Graphs


def check_graph(graph: Any, output_node_id: str, *, field: str = "workflow") -> None:
    """Refuse a graph that is not in ComfyUI's API format. The error names the place."""
    if not isinstance(graph, dict) or not graph:
        raise InputError("The graph must be an object of nodes by id.", field=field, hint=_EXPORT)
    nodes = cast("dict[str, Any]", graph)
    if isinstance(nodes.get("nodes"), list):
        raise InputError("The graph is in the format of ComfyUI's editor.", field=field, hint=_EXPORT)
    values.check(nodes, field=field)
    if len(nodes) > NODES_MAX:
        raise InputError(f"The graph has {len(nodes):,} nodes; the limit is {NODES_MAX:,}.", field=field)
    for node_id, node in nodes.items():
        _check_node(nodes, node_id, node, f"{field}.{node_id}"[:200])
    size = len(msgspec.json.encode(nodes))
    if size > GRAPH_MAX:
        raise InputError(f"The graph has {size:,} bytes of JSON; the limit is {GRAPH_MAX:,}.", field=field)
    if output_node_id not in nodes:
        raise InputError(f"The graph has no node {output_node_id!r}.", field="output_node_id")


_EXPORT: Final = "Export the graph from ComfyUI with Workflow > Export (API)."


def _check_node(nodes: Mapping[str, Any], node_id: str, node: Any, field: str) -> None:
    if not isinstance(node, dict):
        raise InputError("A node must be an object.", field=field, hint=_EXPORT)
    members = cast("dict[str, Any]", node)
    class_type = members.get("class_type")
    if not isinstance(class_type, str) or not class_type:
        raise InputError("A node requires a class_type.", field=f"{field}.class_type", hint=_EXPORT)
    if not isinstance(members.get("inputs"), dict):
        raise InputError("A node requires inputs; they may be an empty object.", field=f"{field}.inputs", hint=_EXPORT)
    for name, given in members["inputs"].items():
        if _is_link(given) and given[0] not in nodes:
            raise InputError(
                f"Node {node_id!r} is linked to node {given[0][:40]!r}, which does not exist.",
                field=f"{field}.inputs.{name}",
            )


def _is_link(given: Any) -> bool:
    """Whether a value is a link to another node, by the rule of ComfyUI."""
    if not isinstance(given, list):
        return False
    parts = cast("list[Any]", given)
    return len(parts) == _LINK_LENGTH and isinstance(parts[0], str) and type(parts[1]) in (int, float)


def check_placeholders(graph: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a graph that has undeclared placeholders or does not use the uploaded file."""
    names = {*known, PRIMARY}
    used: set[str] = set()
    for field, text in _texts(graph):
        for found in _PLACEHOLDER.finditer(text):
            if found[1] not in names:
                raise InputError(
                    f"There is no property or asset {found[1]!r}.",
                    field=field[:200],
                    hint=f"Known names: {', '.join(sorted(names))}.",
                )
            used.add(found[1])
    if PRIMARY not in used:
        raise InputError(
            f"The graph does not use the uploaded file: it does not contain {{{{{PRIMARY}}}}}.",
            field="workflow",
            hint="Use it in place of the file name, for example as `image` of LoadImage.",
        )


def is_used(graph: Mapping[str, Any], name: str) -> bool:
    """Whether the graph contains a placeholder with this name."""
    return any(found[1] == name for _, text in _texts(graph) for found in _PLACEHOLDER.finditer(text))


def _texts(graph: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    pending: list[tuple[str, Any]] = [(f"workflow.{node_id}.inputs", node["inputs"]) for node_id, node in graph.items()]
    while pending:
        field, given = pending.pop()
        if isinstance(given, str):
            yield field, given
        elif isinstance(given, dict):
            pending += [(f"{field}.{name}", below) for name, below in cast("dict[str, Any]", given).items()]
        elif isinstance(given, list):
            pending += [(f"{field}[{place}]", below) for place, below in enumerate(cast("list[Any]", given))]


# Properties


def check_properties(properties: Sequence[Property], assets: Iterable[str]) -> None:
    """Refuse declarations that contradict themselves or each other."""
    names = {PRIMARY: "the uploaded file"} | dict.fromkeys(assets, "an asset")
    for place, declared in enumerate(properties):
        field = f"properties[{place}]"
        if declared.name in names:
            raise InvalidError(f"{declared.name!r} is already {names[declared.name]}.", field=f"{field}.name")
        names[declared.name] = "a property"
        _check_options(declared, field)
        if declared.default is not None:
            accept(declared, declared.default, field=f"{field}.default", assets=tuple(assets))


_OPTIONS_OF: Final = {"number": ("min", "max", "integer"), "text": ("max_length",), "choice": ("choices",)}


def _check_options(declared: Property, field: str) -> None:
    for kind, options in _OPTIONS_OF.items():
        for option in options:
            if kind != declared.type and getattr(declared, option) not in (None, False):
                raise InvalidError(f"The field requires a property of type {kind}.", field=f"{field}.{option}")
    if declared.type == "choice" and not declared.choices:
        raise InvalidError("A property of type choice requires choices.", field=f"{field}.choices")
    if declared.min is not None and declared.max is not None and declared.min > declared.max:
        raise InvalidError("The value must not be less than min.", field=f"{field}.max")


def check_overrides(
    properties: Sequence[Property], overrides: Mapping[str, Any], assets: Sequence[str]
) -> dict[str, Any]:
    """Validate the settings of an effect against the properties of its workflow."""
    known = {declared.name: declared for declared in properties}
    return {
        name: accept(
            _known(known, name, "property_overrides"), given, field=f"property_overrides.{name}", assets=assets
        )
        for name, given in overrides.items()
    }


def resolve(
    properties: Sequence[Property], overrides: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The value of each property: the user's, else the effect's, else the workflow's default.

    Also returns the user's values alone. These are validated here; the others have been validated before.
    """
    known = {declared.name: declared for declared in properties}
    for name in given:
        if not _known(known, name, "input").user_configurable:
            raise InputError("Users cannot set this property.", field=f"input.{name}")
    chosen = {
        name: accept(known[name], value, field=f"input.{name}") for name, value in given.items() if value is not None
    }
    made = {declared.name: declared.default for declared in properties} | dict(overrides) | chosen
    for declared in properties:
        if made[declared.name] is None:
            if declared.required or declared.type != "text":
                raise InputError("The property is required.", field=f"input.{declared.name}")
            made[declared.name] = ""
    return made, chosen


def _known(known: Mapping[str, Property], name: str, field: str) -> Property:
    if name not in known:
        names = ", ".join(sorted(known)) or "none"
        raise InputError(
            "The property does not exist.", field=f"{field}.{name}"[:200], hint=f"Known properties: {names}."
        )
    return known[name]


def accept(declared: Property, given: Any, *, field: str, assets: Sequence[str] | None = None) -> Any:
    """Validate and convert a value for its property.

    A file is given by its id or, if the ``assets`` of the workflow are passed, by the name of one of them.
    """
    return _TAKES[declared.type](declared, given, field, assets)


def _take_text(declared: Property, given: Any, field: str, _assets: Any) -> str:
    if not isinstance(given, str):
        raise InputError("The value must be text.", field=field)
    values.check(given, field=field)
    limit = declared.max_length or TEXT_MAX
    if len(given) > limit:
        raise InputError(f"The text has {len(given):,} characters; the limit is {limit:,}.", field=field)
    if _CONTROL.search(given):
        raise InputError("The text contains a control character.", field=field)
    return given


def _take_number(declared: Property, given: Any, field: str, _assets: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError("The value must be a number.", field=field)
    values.check(given, field=field)  # refuses a huge integer before it is converted to a float
    if not math.isfinite(given):
        raise InputError("The value must be a number.", field=field)
    if declared.integer and given != int(given):
        raise InputError("The value must be a whole number.", field=field)
    if declared.min is not None and given < declared.min:
        raise InputError(f"The value must be at least {declared.min:g}.", field=field)
    if declared.max is not None and given > declared.max:
        raise InputError(f"The value must be at most {declared.max:g}.", field=field)
    return int(given) if declared.integer else given


def _take_choice(declared: Property, given: Any, field: str, _assets: Any) -> str:
    if given not in (declared.choices or ()):
        raise InputError(f"The value must be one of: {', '.join(declared.choices or ())}.", field=field)
    return given


def _take_file(_declared: Property, given: Any, field: str, assets: Sequence[str] | None) -> str:
    if not isinstance(given, str):
        raise InputError("The value must be the id of a file.", field=field)
    if assets is not None and given not in assets:
        known = ", ".join(sorted(assets)) or "none"
        raise InputError(f"The workflow has no asset {given[:80]!r}.", field=field, hint=f"Known assets: {known}.")
    return given


_TAKES: Final[dict[str, Callable[[Any, Any, str, Any], Any]]] = {
    "text": _take_text,
    "number": _take_number,
    "choice": _take_choice,
    "image": _take_file,
    "video": _take_file,
}


# Filling in


def build(
    graph: Mapping[str, Any],
    *,
    output_node_id: str,
    extension: str | None,
    made: Mapping[str, Any],
    sources: Mapping[str, SourceFile],
) -> dict[str, Any]:
    """The input of a job: texts and numbers are filled in; files get placeholders that occur nowhere else."""
    blank = {**made, **dict.fromkeys(sources, _NUL)}
    shown = {node_id: {"inputs": _filled(node["inputs"], blank)} for node_id, node in graph.items()}
    texts = [text for _, text in _texts(shown)]
    tokens = {name: _token(name, texts) for name in sources}
    filled = {
        node_id: {**node, "inputs": _filled(node["inputs"], {**made, **tokens})} for node_id, node in graph.items()
    }
    return {
        "workflow": filled,
        "output_node_id": output_node_id,
        "assets": [_asset(tokens[name], source, is_primary=name == PRIMARY) for name, source in sources.items()],
        "extension": extension,
    }


def _token(name: str, texts: Iterable[str]) -> str:
    """The placeholder of a file until the worker replaces it. It never occurs in a user's text."""
    written = "\n".join(texts)
    number, token = 1, f"{{{{{name}}}}}"
    while token in written:
        number, token = number + 1, f"{{{{{name}~{number}}}}}"
    return token


def _asset(token: str, source: SourceFile, *, is_primary: bool) -> dict[str, Any]:
    made = {
        "placeholder": token,
        "name": source.name,
        "filename": source.filename,
        "content_hash": source.content_hash,
        "is_primary_input": is_primary,
    }
    return made if source.path is None else made | {"path": source.path}


def _filled(given: Any, made: Mapping[str, Any]) -> Any:
    if isinstance(given, str):
        whole = _PLACEHOLDER.fullmatch(given)
        if whole is not None and whole[1] in made:
            return made[whole[1]]  # a number stays a number
        return _PLACEHOLDER.sub(lambda found: str(made.get(found[1], found[0])), given)
    if isinstance(given, dict):
        return {name: _filled(below, made) for name, below in cast("dict[str, Any]", given).items()}
    if isinstance(given, list):
        filled = [_filled(below, made) for below in cast("list[Any]", given)]
        if _is_link(filled) and not _is_link(given):
            raise InputError("The value would become a link to another node.", field="input")
        return filled
    return given


def file_name(stem: str, name: str, content_type: str) -> str:
    """A plain name for a file in ComfyUI's folder. Only the extension is taken from the user's name."""
    found = _SUFFIX.search(name)
    suffix = f".{found[1].lower()}" if found else mimetypes.guess_extension(content_type.partition(";")[0]) or ".bin"
    return f"{stem}{suffix}"
