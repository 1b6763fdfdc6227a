"""Samples: an example of anything that a JSON Schema describes, in the words of a product."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_JOB: Final = "job_01k9w3v6m2f4tb8r0e5s7q1xzc"
_WORDS: Final[dict[str, Any]] = {
    "account": "ann",
    "action": "credits.grant",
    "active_max": 10,
    "actor": "key_01k9w3v6m2f4tb8r0e5s7q1xzd",
    "amount": 100,
    "available": 95,
    "available_after": 95,
    "code": "insufficient_credits",
    "created_at": "2026-01-05T09:30:00Z",
    "cursor": _JOB,
    "detail": "The job costs 5 credits and 3 are available.",
    "events": 2,
    "expires_in": "15m",
    "hint": "mp_client_4kZ…9aQ",
    "id": _JOB,
    "idempotency_key": "order-42",
    "job_id": _JOB,
    "key": "mp_client_…",
    "kind": "hello",
    "lifecycle": "standard",
    "limit": 50,
    "mermaid": "stateDiagram-v2\n    [*] --> queued\n",
    "moment": "started",
    "name": "web shop",
    "overlap": "24h",
    "outcome": None,
    "phase": "ready",
    "position": 1,
    "price": 5,
    "progress": 0.0,
    "queue": "hello",
    "reason": "top-up",
    "reference": "invoice-7",
    "request_id": "req_5f1c7a90e2b400000001",
    "retry_of": None,
    "seq": 1,
    "state": "queued",
    "subject": "ann",
    "summary": "Says hello.",
    "stages": "loading",
    "tenant": "acme",
    "text": "Loaded the model.",
    "title": "The account has too few credits",
    "to_state": "running",
    "token": "mpt_…",
    "type": "queued",
    "worker": "gpu-7",
}
_WHOLES: Final[dict[str, Any]] = {
    "input_schema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    "links": {"self": f"/v1/jobs/{_JOB}"}
    | {word: f"/v1/jobs/{_JOB}/{word}" for word in ("events", "stream", "cancel")},
    "output": None,
    "states": {"queued": "waiting", "running": "leased", "succeeded": "ended"},
}
"""Members that have no shape of their own, or one whose parts have the names of others."""
_FORMATS: Final = {
    "date-time": _WORDS["created_at"],
    "uri": "https://example.com/hooks",
    "uuid": "7d2f4c1e-0b3a-4e5f-9c8d-1a2b3c4d5e6f",
}
_BY_TYPE: Final[dict[str, Any]] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def sample(schema: Any, components: dict[str, Any], name: str = "") -> Any:
    """A value that fits the schema; ``name`` is that of the member it stands in."""
    if isinstance(schema, bool):  # which lets anything pass, or nothing
        schema = {}
    is_shaped = bool({"$ref", "properties"} & schema.keys())
    if name in _WHOLES and "examples" not in schema and (_WHOLES[name] is not None or not is_shaped):
        return _WHOLES[name]
    if "properties" in schema:
        return _typed(schema, components, name)
    for word, take in _TAKES.items():
        if word in schema:
            return take(schema[word], components, name)
    return _typed(schema, components, name)


def _resolved(reference: str, components: dict[str, Any], name: str) -> Any:
    found: Any = components
    for part in reference.removeprefix("#/components/schemas/").split("/"):
        found = found[part.replace("~1", "/").replace("~0", "~")]
    return sample(found, components, name)


def _listed(values: list[Any], _components: dict[str, Any], name: str) -> Any:
    return _WORDS[name] if name in _WORDS and _WORDS[name] in values else values[0]


def _chosen(choices: Any, components: dict[str, Any], name: str) -> Any:
    """One of several shapes; nothing, where that is one of them and no word is known."""
    if name not in _WORDS and {"type": "null"} in choices:
        return None
    return sample(choices[0], components, name) if _WORDS.get(name, "") is not None else None


def _typed(schema: Any, components: dict[str, Any], name: str) -> Any:
    match schema.get("type"):
        case [first, *_]:
            return _typed(schema | {"type": first}, components, name)
        case "object":
            members = schema.get("properties", {})
            first = schema.get("oneOf", [{}])[0].get("required", ())  # of several ways to make it whole
            return {
                member: sample(_given(below) if member in first else below, components, member)
                for member, below in members.items()
                if member in (*schema.get("required", ()), *first) or "examples" in below
            }
        case "array":
            return [sample(schema.get("items", {}), components, name)] if schema.get("minItems", 1) else []
        case "string" if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]]
        case None:
            return {}
        case kind:
            return _fitting(schema, _WORDS[name] if isinstance(_WORDS.get(name), _PYTHON[kind]) else _BY_TYPE[kind])


def _given(schema: Any) -> Any:
    """What it is where it is not null."""
    return next((below for below in schema.get("anyOf", ()) if below != {"type": "null"}), schema)


_PYTHON: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


def _fitting(schema: Any, value: Any) -> Any:
    """The value, moved to the edge of the bounds it does not keep to; a word of another pattern is replaced."""
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return _BY_TYPE["string"]
    if "minimum" in schema and value < schema["minimum"]:
        return schema["minimum"]
    if "maximum" in schema and value > schema["maximum"]:
        return schema["maximum"]
    return value


def _as_it_is(value: Any, _components: dict[str, Any], _name: str) -> Any:
    return value


_TAKES: Final[dict[str, Callable[[Any, dict[str, Any], str], Any]]] = {
    "$ref": _resolved,
    "examples": _listed,
    "const": _as_it_is,
    "default": _as_it_is,
    "oneOf": _chosen,
    "anyOf": _chosen,
    "enum": _listed,
}
"""How a schema that has this word is read; the first that it has counts."""
