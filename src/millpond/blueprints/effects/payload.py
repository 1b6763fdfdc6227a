"""The payload: from a workflow's graph, its defaults, an effect's settings and a user's wishes to what ComfyUI runs.

A placeholder is ``{{name}}`` in a text of a node's inputs. All of it works on decoded JSON and in one pass: whatever
stands in a user's text is text in the graph, and a placeholder in it is not filled in.
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

    from millpond.blueprints.effects.wire import Property

PRIMARY: Final = "input"
"""The placeholder of what the user uploaded."""
GRAPH_MAX: Final = 192 * 1024
"""Bytes of a graph; with all that is filled in it must fit into the input of a job."""
NODES_MAX: Final = 2_000
TEXT_MAX: Final = 2_000
FILE_TYPES: Final = ("image", "video")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_]*)\s*\}\}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LINK_LENGTH: Final = 2
_NUL: Final = "\0"  # which no user's text contains
_SUFFIX: Final = re.compile(r"\.([A-Za-z0-9]{1,8})$")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that goes into the graph: the name under which the worker gets it, and what is known of it."""

    name: str
    filename: str
    content_hash: str | None
    path: str | None = None
    """For a file that all jobs share: where it is in storage."""


# Graphs


def check_graph(graph: Any, output_node_id: str, *, field: str = "workflow") -> None:
    """Refuse what is no graph in ComfyUI's API format, and say where it goes wrong."""
    if not isinstance(graph, dict) or not graph:
        raise InputError("It must be an object of nodes by their ids.", field=field, hint=_EXPORT)
    nodes = cast("dict[str, Any]", graph)
    if isinstance(nodes.get("nodes"), list):
        raise InputError("It is the editor's own format.", field=field, hint=_EXPORT)
    values.check(nodes, field=field)
    if len(nodes) > NODES_MAX:
        raise InputError(f"It has {len(nodes):,} nodes; the limit is {NODES_MAX:,}.", field=field)
    for node_id, node in nodes.items():
        _check_node(nodes, node_id, node, f"{field}.{node_id}"[:200])
    size = len(msgspec.json.encode(nodes))
    if size > GRAPH_MAX:
        raise InputError(f"It is {size:,} bytes of JSON; the limit is {GRAPH_MAX:,}.", field=field)
    if output_node_id not in nodes:
        raise InputError(f"The graph has no node {output_node_id!r}.", field="output_node_id")


_EXPORT: Final = "Export it from ComfyUI with Workflow > Export (API)."


def _check_node(nodes: Mapping[str, Any], node_id: str, node: Any, field: str) -> None:
    if not isinstance(node, dict):
        raise InputError("A node must be an object.", field=field, hint=_EXPORT)
    members = cast("dict[str, Any]", node)
    class_type = members.get("class_type")
    if not isinstance(class_type, str) or not class_type:
        raise InputError("A node needs a class_type.", field=f"{field}.class_type", hint=_EXPORT)
    if not isinstance(members.get("inputs"), dict):
        raise InputError("A node needs inputs, if only an empty object.", field=f"{field}.inputs", hint=_EXPORT)
    for name, given in members["inputs"].items():
        if _is_link(given) and given[0] not in nodes:
            raise InputError(
                f"Node {node_id!r} is linked to node {given[0][:40]!r}, which is not there.",
                field=f"{field}.inputs.{name}",
            )


def _is_link(given: Any) -> bool:
    """As ComfyUI tells a link to another node from a value."""
    if not isinstance(given, list):
        return False
    parts = cast("list[Any]", given)
    return len(parts) == _LINK_LENGTH and isinstance(parts[0], str) and type(parts[1]) in (int, float)


def check_placeholders(graph: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse a graph that asks for what nobody has declared, or that does nothing with what is uploaded."""
    names = {*known, PRIMARY}
    used: set[str] = set()
    for field, text in _texts(graph):
        for found in _PLACEHOLDER.finditer(text):
            if found[1] not in names:
                raise InputError(
                    f"There is no property or asset {found[1]!r}.",
                    field=field[:200],
                    hint=f"Known are: {', '.join(sorted(names))}.",
                )
            used.add(found[1])
    if PRIMARY not in used:
        raise InputError(
            f"The graph does not use what is uploaded: {{{{{PRIMARY}}}}} stands nowhere in it.",
            field="workflow",
            hint="Put it where the file name stands, e.g. as `image` of LoadImage.",
        )


def is_used(graph: Mapping[str, Any], name: str) -> bool:
    """Whether a placeholder of this name stands in the graph."""
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
    names = {PRIMARY: "what is uploaded"} | dict.fromkeys(assets, "an asset")
    for place, declared in enumerate(properties):
        field = f"properties[{place}]"
        if declared.name in names:
            raise InvalidError(f"{declared.name!r} is {names[declared.name]} already.", field=f"{field}.name")
        names[declared.name] = "a property"
        _check_words(declared, field)
        if declared.default is not None:
            accept(declared, declared.default, field=f"{field}.default", assets=tuple(assets))


_WORDS_OF: Final = {"number": ("min", "max", "integer"), "text": ("max_length",), "choice": ("choices",)}


def _check_words(declared: Property, field: str) -> None:
    for kind, words in _WORDS_OF.items():
        for word in words:
            if kind != declared.type and getattr(declared, word) not in (None, False):
                raise InvalidError(f"It is for a property of type {kind}.", field=f"{field}.{word}")
    if declared.type == "choice" and not declared.choices:
        raise InvalidError("A choice needs something to choose from.", field=f"{field}.choices")
    if declared.min is not None and declared.max is not None and declared.min > declared.max:
        raise InvalidError("It must not be less than min.", field=f"{field}.max")


def check_overrides(
    properties: Sequence[Property], overrides: Mapping[str, Any], assets: Sequence[str]
) -> dict[str, Any]:
    """An effect's own settings, each as its property takes it."""
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
    """What each property is: the workflow's default, unless the effect says otherwise, unless the user does.

    Beside them, what of it the user has set: that is checked, the rest has been.
    """
    known = {declared.name: declared for declared in properties}
    for name in given:
        if not _known(known, name, "input").user_configurable:
            raise InputError("It is not the user's to set.", field=f"input.{name}")
    wished = {
        name: accept(known[name], value, field=f"input.{name}") for name, value in given.items() if value is not None
    }
    made = {declared.name: declared.default for declared in properties} | dict(overrides) | wished
    for declared in properties:
        if made[declared.name] is None:
            if declared.required or declared.type != "text":
                raise InputError("It is required.", field=f"input.{declared.name}")
            made[declared.name] = ""
    return made, wished


def _known(known: Mapping[str, Property], name: str, field: str) -> Property:
    if name not in known:
        told = ", ".join(sorted(known)) or "none"
        raise InputError("There is no such property.", field=f"{field}.{name}"[:200], hint=f"Known are: {told}.")
    return known[name]


def accept(declared: Property, given: Any, *, field: str, assets: Sequence[str] | None = None) -> Any:
    """A value as its property takes it, or the refusal that says why not.

    A file is named by its id; where the ``assets`` of the workflow are told, by the name of one of them.
    """
    return _TAKES[declared.type](declared, given, field, assets)


def _take_text(declared: Property, given: Any, field: str, _assets: Any) -> str:
    if not isinstance(given, str):
        raise InputError("It must be text.", field=field)
    values.check(given, field=field)
    most = declared.max_length or TEXT_MAX
    if len(given) > most:
        raise InputError(f"It has {len(given):,} characters; the limit is {most:,}.", field=field)
    if _CONTROL.search(given):
        raise InputError("It contains a control character.", field=field)
    return given


def _take_number(declared: Property, given: Any, field: str, _assets: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise InputError("It must be a number.", field=field)
    values.check(given, field=field)  # a whole number without end is refused here, before anybody makes a float of it
    if not math.isfinite(given):
        raise InputError("It must be a number.", field=field)
    if declared.integer and given != int(given):
        raise InputError("It must be a whole number.", field=field)
    if declared.min is not None and given < declared.min:
        raise InputError(f"It must be at least {declared.min:g}.", field=field)
    if declared.max is not None and given > declared.max:
        raise InputError(f"It must be at most {declared.max:g}.", field=field)
    return int(given) if declared.integer else given


def _take_choice(declared: Property, given: Any, field: str, _assets: Any) -> str:
    if given not in (declared.choices or ()):
        raise InputError(f"It must be one of: {', '.join(declared.choices or ())}.", field=field)
    return given


def _take_file(_declared: Property, given: Any, field: str, assets: Sequence[str] | None) -> str:
    if not isinstance(given, str):
        raise InputError("It must be the id of a file.", field=field)
    if assets is not None and given not in assets:
        known = ", ".join(sorted(assets)) or "none"
        raise InputError(f"The workflow has no asset {given[:80]!r}.", field=field, hint=f"Known are: {known}.")
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
    sources: Mapping[str, Source],
) -> dict[str, Any]:
    """The input of a job: texts and numbers filled in, files named by placeholders that stand nowhere else."""
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
    """What stands for a file until the worker has it: never something that a user has written."""
    written = "\n".join(texts)
    number, token = 1, f"{{{{{name}}}}}"
    while token in written:
        number, token = number + 1, f"{{{{{name}~{number}}}}}"
    return token


def _asset(token: str, source: Source, *, is_primary: bool) -> dict[str, Any]:
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
            return made[whole[1]]  # a number stays one
        return _PLACEHOLDER.sub(lambda found: str(made.get(found[1], found[0])), given)
    if isinstance(given, dict):
        return {name: _filled(below, made) for name, below in cast("dict[str, Any]", given).items()}
    if isinstance(given, list):
        filled = [_filled(below, made) for below in cast("list[Any]", given)]
        if _is_link(filled) and not _is_link(given):
            raise InputError("What is filled in would be a link to another node.", field="input")
        return filled
    return given


def file_name(stem: str, name: str, content_type: str) -> str:
    """A plain name for a file in ComfyUI's folder: nothing of the user's name but how it ends."""
    found = _SUFFIX.search(name)
    suffix = f".{found[1].lower()}" if found else mimetypes.guess_extension(content_type.partition(";")[0]) or ".bin"
    return f"{stem}{suffix}"
