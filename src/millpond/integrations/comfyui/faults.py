"""Turns the errors of ComfyUI into readable errors.

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
_FRAMES_MAX: Final = 30
_FULL: Final = ("outofmemory", "oomerror", "out of memory", "allocation on device")


def refused(status: int, body: bytes) -> PermanentError:
    """The error for a graph that /prompt rejected."""
    problem = _object(body)
    error = _mapping(problem.get("error"))
    flaws = _flaws(problem.get("node_errors"))
    if flaws:
        return _invalid(flaws)
    message = _text(error.get("message")) or _text(problem.get("message")) or _text(body.decode("utf-8", "replace"))
    details = _text(error.get("details"))
    where = f" ({details})" if details and details != message else ""
    return PermanentError(f"ComfyUI rejected the workflow: {message or status}{where}", reason="validation", flaws=[])


def dropped(node_errors: Any, output_node: str) -> PermanentError | None:
    """The error for a graph that /prompt accepted without the wanted output; None if it includes that."""
    wanted = {
        id: entry
        for id, entry in _mapping(node_errors).items()
        if output_node in _listed(_mapping(entry).get("dependent_outputs"))
    }
    return _invalid(_flaws(wanted)) if wanted else None


def is_about(error: PermanentError, names: set[str]) -> bool:
    """Whether a rejection names one of these files."""
    flaws = cast("list[dict[str, Any]]", error.details.get("flaws", []))
    return any(name in str(flaw.get("message")) for flaw in flaws for name in names)


def _invalid(flaws: list[dict[str, Any]]) -> PermanentError:
    lines = [_flaw_text(flaw) for flaw in flaws[:_LISTED_MAX]]
    if len(flaws) > _LISTED_MAX:
        lines.append(f"and {len(flaws) - _LISTED_MAX} more")
    return PermanentError(
        f"ComfyUI rejected the workflow: {'; '.join(lines)}.", reason="validation", flaws=flaws[: 4 * _LISTED_MAX]
    )


def _flaw_text(flaw: dict[str, Any]) -> str:
    where = f"node {flaw['node']} ({flaw['type']})" + (f", input {flaw['input']}" if flaw["input"] else "")
    return f"{where}: {flaw['message']}"


def _flaws(node_errors: Any) -> list[dict[str, Any]]:
    """Every error of every node: which node, of which class, which input, and what is wrong with it."""
    found = list[dict[str, Any]]()
    for id, entry in _mapping(node_errors).items():
        for error in _listed(_mapping(entry).get("errors")):
            named = _text(_mapping(_mapping(error).get("extra_info")).get("input_name"))
            message, details = _text(_mapping(error).get("message")), _text(_mapping(error).get("details"))
            text = f"{message} ({details})" if details and details != named else message
            kind = _text(_mapping(entry).get("class_type"))
            found.append({"node": _text(id), "type": kind, "input": named or None, "message": text})
    return found


def ending(entry: Any) -> HandlerError | None:
    """The error of an ended run, or None. Only its messages count: its status may be that of the run before."""
    messages = [item for item in _listed(_mapping(_mapping(entry).get("status")).get("messages")) if _is_pair(item)]
    by_event = {str(event): _mapping(data) for event, data in messages}
    if "execution_error" in by_event:
        return failed(by_event["execution_error"])
    if "execution_interrupted" in by_event:
        data = by_event["execution_interrupted"]
        node, kind = _text(data.get("node_id")), _text(data.get("node_type"))
        return TransientError(
            f"The run was interrupted at node {node} ({kind}).", reason="interrupted", node=node, type=kind
        )
    if "execution_success" in by_event:
        return None
    return PermanentError(
        "The run ended without a result.", hint="Check the workflow for circular dependencies.", reason="execution"
    )


def failed(data: dict[str, Any]) -> HandlerError:
    """The error for a node that raised one."""
    node, kind = _text(data.get("node_id")), _text(data.get("node_type"))
    name, message = _text(data.get("exception_type")), _text(data.get("exception_message"))
    where = f"Node {node} ({kind})" if node else "The run"
    about: dict[str, Any] = {"node": node or None, "type": kind or None, "exception": name or None}
    error: HandlerError
    if any(word in f"{name} {message}".lower() for word in _FULL):
        error = TransientError(f"{where} ran out of memory: {message}", reason="out_of_memory", **about)
    else:
        text = f"{name}: {message}" if name else message
        error = PermanentError(f"{where} failed: {text}", reason="execution", **about)
    for frame in _listed(data.get("traceback"))[-_FRAMES_MAX:]:
        error.add_note(_text(frame))
    return error


def for_good(error: HandlerError) -> PermanentError:
    """The same error, but permanent: another try would not help."""
    final = PermanentError(error.message, field=error.field, hint=error.hint, **error.details)
    for note in getattr(error, "__notes__", ()):
        final.add_note(note)
    return final


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
