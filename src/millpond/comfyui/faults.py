"""What ComfyUI says when something is wrong, as errors that a person can read.

Each has a ``reason`` among its details: ``validation``, ``execution``, ``out_of_memory``, ``interrupted``, ``lost``,
``stalled``, ``unreachable``, ``account``, ``asset``, ``input`` or ``output``.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from millpond import values
from millpond.errors import HandlerError, PermanentError, TransientError

_TEXT_MAX: Final = 500
_LISTED_MAX: Final = 5
_FULL: Final = ("outofmemory", "oomerror", "out of memory", "allocation on device")


def refused(status: int, body: bytes) -> PermanentError:
    """/prompt did not take the graph."""
    told = _object(body)
    error = _mapping(told.get("error"))
    flaws = _flaws(told.get("node_errors"))
    if flaws:
        return _invalid(flaws)
    message = _text(error.get("message")) or _text(told.get("message")) or _text(body.decode("utf-8", "replace"))
    details = _text(error.get("details"))
    where = f" ({details})" if details and details != message else ""
    return PermanentError(f"ComfyUI refuses the workflow: {message or status}{where}", reason="validation", flaws=[])


def dropped(node_errors: Any, output_node: str) -> PermanentError | None:
    """/prompt took the graph, but perhaps left out the one output that is wanted."""
    wanted = {
        id: entry
        for id, entry in _mapping(node_errors).items()
        if output_node in _listed(_mapping(entry).get("dependent_outputs"))
    }
    return _invalid(_flaws(wanted)) if wanted else None


def is_about(error: PermanentError, names: set[str]) -> bool:
    """Whether a refusal names one of these files."""
    flaws = cast("list[dict[str, Any]]", error.details.get("flaws", []))
    return any(name in str(flaw.get("message")) for flaw in flaws for name in names)


def _invalid(flaws: list[dict[str, Any]]) -> PermanentError:
    lines = [_line(flaw) for flaw in flaws[:_LISTED_MAX]]
    if len(flaws) > _LISTED_MAX:
        lines.append(f"and {len(flaws) - _LISTED_MAX} more")
    return PermanentError(
        f"ComfyUI refuses the workflow: {'; '.join(lines)}.", reason="validation", flaws=flaws[: 4 * _LISTED_MAX]
    )


def _line(flaw: dict[str, Any]) -> str:
    where = f"node {flaw['node']} ({flaw['type']})" + (f", input {flaw['input']}" if flaw["input"] else "")
    return f"{where}: {flaw['message']}"


def _flaws(node_errors: Any) -> list[dict[str, Any]]:
    """Every error of every node: which node, of which class, which input, and what is wrong with it."""
    found = list[dict[str, Any]]()
    for id, entry in _mapping(node_errors).items():
        for error in _listed(_mapping(entry).get("errors")):
            named = _text(_mapping(_mapping(error).get("extra_info")).get("input_name"))
            message, details = _text(_mapping(error).get("message")), _text(_mapping(error).get("details"))
            told = f"{message} ({details})" if details and details != named else message
            kind = _text(_mapping(entry).get("class_type"))
            found.append({"node": _text(id), "type": kind, "input": named or None, "message": told})
    return found


def ending(entry: Any) -> HandlerError | None:
    """How a run ended, by its messages alone: the word for its status may be that of the run before it."""
    messages = [item for item in _listed(_mapping(_mapping(entry).get("status")).get("messages")) if _is_pair(item)]
    by_event = {str(event): _mapping(data) for event, data in messages}
    if "execution_error" in by_event:
        return failed(by_event["execution_error"])
    if "execution_interrupted" in by_event:
        told = by_event["execution_interrupted"]
        node, kind = _text(told.get("node_id")), _text(told.get("node_type"))
        return TransientError(
            f"Somebody interrupted the run, at node {node} ({kind}).", reason="interrupted", node=node, type=kind
        )
    if "execution_success" in by_event:
        return None
    return PermanentError(
        "The run ended without a result.", hint="Do its nodes depend on each other in a circle?", reason="execution"
    )


def failed(told: dict[str, Any]) -> HandlerError:
    """A node raised an error."""
    node, kind = _text(told.get("node_id")), _text(told.get("node_type"))
    name, message = _text(told.get("exception_type")), _text(told.get("exception_message"))
    where = f"Node {node} ({kind})" if node else "The run"
    about: dict[str, Any] = {"node": node or None, "type": kind or None, "exception": name or None}
    if any(word in f"{name} {message}".lower() for word in _FULL):
        return TransientError(f"{where} ran out of memory: {message}", reason="out_of_memory", **about)
    return PermanentError(
        f"{where} failed: {name}: {message}" if name else f"{where} failed: {message}", reason="execution", **about
    )


def for_good(error: HandlerError) -> PermanentError:
    """The same error, but for something that another try would not help."""
    return PermanentError(error.message, field=error.field, hint=error.hint, **error.details)


def _object(body: bytes) -> dict[str, Any]:
    try:
        return _mapping(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(cast("list[Any]", value)) == 2  # noqa: PLR2004 - an event and its data


def _text(value: Any) -> str:
    return "" if value is None else values.printable(str(value)[: 4 * _TEXT_MAX].strip(), _TEXT_MAX)
