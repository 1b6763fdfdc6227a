"""Samples: an example value for any JSON Schema, with the values of a typical product."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from millpond.api.documents.schemas import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_COMPONENTS: Final = "#/components/schemas/"
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
    "detail": "The job costs 5 credits, but only 3 are available.",
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
    "event": "started",
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
    "title": "The account does not have enough credits",
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
"""Members without a schema of their own, or whose parts have the names of unrelated members."""
_FORMATS: Final = {
    "date-time": _WORDS["created_at"],
    "uri": "https://example.com/hooks",
    "uuid": "7d2f4c1e-0b3a-4e5f-9c8d-1a2b3c4d5e6f",
}
_BY_TYPE: Final[dict[str, Any]] = {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None}


def sample(schema: Any, components: Mapping[str, Any], name: str = "") -> Any:
    """A value that fits the schema; ``name`` is the name of its member."""
    return _Sampler(components).of(schema, name)


class _Sampler:
    """Makes a sample of any JSON Schema, including one that refers to itself or to a schema that does not exist."""

    def __init__(self, components: Mapping[str, Any]) -> None:
        self._components = components
        self._open: list[str] = []
        """The references that are being followed."""

    def of(self, schema: Any, name: str = "") -> Any:
        if not is_object(schema):
            return {}
        is_shaped = bool({"$ref", "properties"} & schema.keys())
        if name in _WHOLES and "examples" not in schema and (_WHOLES[name] is not None or not is_shaped):
            return _WHOLES[name]
        if "properties" in schema:
            return self._typed(schema, name)
        for word, take in _TAKES.items():
            if word in schema and schema[word] != []:
                return take(self, schema[word], name)
        return self._typed(schema, name)

    def resolved(self, reference: str, name: str) -> Any:
        found = self._find(reference)
        if reference in self._open:
            return {}
        self._open.append(reference)
        try:
            return self.of(found, name)
        finally:
            self._open.pop()

    def _find(self, reference: str) -> Any:
        """The schema at a place in the components; for any other reference, one that accepts everything."""
        found: Any = self._components
        for part in reference.removeprefix(_COMPONENTS).split("/"):
            step = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step) if isinstance(found, list) else step]
            except (KeyError, IndexError, TypeError, ValueError):
                return {}
        return found if is_object(found) else {}

    def listed(self, values: list[Any], name: str) -> Any:
        return _WORDS[name] if name in _WORDS and _WORDS[name] in values else values[0]

    def chosen(self, choices: Any, name: str) -> Any:
        """The first of several schemas; None if null is one of them and the name is unknown."""
        if name not in _WORDS and {"type": "null"} in choices:
            return None
        return self.of(choices[0], name) if _WORDS.get(name, "") is not None else None

    def as_it_is(self, value: Any, _name: str) -> Any:
        return value

    def _typed(self, schema: Any, name: str) -> Any:
        match schema.get("type"):
            case [first, *_]:
                return self._typed(schema | {"type": first}, name)
            case "object":
                return self._members(schema)
            case "array":
                return self._items(schema, name)
            case "string" if schema.get("format") in _FORMATS:
                return _FORMATS[schema["format"]]
            case None:
                return {}
            case kind:
                return _fitting(schema, _WORDS[name] if isinstance(_WORDS.get(name), _PYTHON[kind]) else _BY_TYPE[kind])

    def _members(self, schema: Any) -> dict[str, Any]:
        choice = schema.get("oneOf", [{}])[0]  # the first of several sets of required members
        first = () if isinstance(choice, bool) else choice.get("required", ())
        required = (*schema.get("required", ()), *first)
        return {
            member: self.of(_given(below) if member in first else below, member)
            for member, below in schema.get("properties", {}).items()
            if member in required or (is_object(below) and "examples" in below)
        }

    def _items(self, schema: Any, name: str) -> list[Any]:
        items = schema.get("items", {})
        listed = [self.of(below, name) for below in schema.get("prefixItems", ())]
        if listed or items is False or not schema.get("minItems", 1):
            return listed
        if "minItems" not in schema and is_object(items) and items.get("$ref") in self._open:
            return []
        return [self.of(items, name)]


def _given(schema: Any) -> Any:
    """The alternative of a schema that is not null."""
    choices = schema.get("anyOf", ()) if is_object(schema) else ()
    return next((below for below in choices if below != {"type": "null"}), schema)


_PYTHON: Final[dict[str, Any]] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": (),
}


def _fitting(schema: Any, value: Any) -> Any:
    """The value, limited to the bounds of the schema; text that does not match the pattern is replaced."""
    if isinstance(value, str):
        return value if "pattern" not in schema or _matches(schema["pattern"], value) else _BY_TYPE["string"]
    if value is None or isinstance(value, bool):
        return value
    if "minimum" in schema and value < schema["minimum"]:
        return schema["minimum"]
    if "maximum" in schema and value > schema["maximum"]:
        return schema["maximum"]
    return value


def _matches(pattern: str, value: str) -> bool:
    """Whether text matches a pattern of JSON Schema, which Python may not understand."""
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return False


_TAKES: Final[dict[str, Callable[[_Sampler, Any, str], Any]]] = {
    "$ref": _Sampler.resolved,
    "examples": _Sampler.listed,
    "const": _Sampler.as_it_is,
    "default": _Sampler.as_it_is,
    "oneOf": _Sampler.chosen,
    "anyOf": _Sampler.chosen,
    "allOf": _Sampler.chosen,
    "enum": _Sampler.listed,
}
"""How a schema with this keyword is read; the first keyword that it has counts."""
