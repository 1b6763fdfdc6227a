"""JSON Schemas as a few words of HTML, for the manual. Every keyword that changes what is accepted is named."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPONENTS: Final = "#/components/schemas/"


def is_object(schema: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a schema has keywords; it may also be true or false."""
    return isinstance(schema, dict)


def meaning(schema: Any) -> str:
    """The description of a member; that of a nullable member is at its other alternative."""
    if not is_object(schema):
        return ""
    if "description" in schema:
        return schema["description"]
    return next((found for below in schema.get("anyOf", ()) if (found := meaning(below))), "")


def in_short(schema: Any) -> str:
    """What a schema accepts, in short."""
    if not is_object(schema):
        return "any" if schema else "no value"
    for keyword, described in _DESCRIBED.items():
        if keyword in schema:
            return described(schema[keyword])
    kinds: Any = schema.get("type", "any")
    return " or ".join(_typed(schema, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _typed(schema: dict[str, Any], kind: str) -> str:
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return _object(schema)
    return escape(" ".join([kind, *_bounds(schema)]))


def _array(schema: dict[str, Any]) -> str:
    """A list of items of one type, or of some with types of their own, which others may follow."""
    first, items = schema.get("prefixItems", ()), schema.get("items", True)
    if not first:
        return "empty list" if items is False else f"list of {in_short(items)}"
    listed = f"list of {', '.join(map(in_short, first))}"
    return listed if items is False else f"{listed}, then {in_short(items)}"


def _object(schema: dict[str, Any]) -> str:
    """An object; if its members are not listed one by one, with their type."""
    patterns = schema.get("patternProperties", {}).values()
    others = schema.get("additionalProperties", True)
    types = [in_short(below) for below in (*patterns, others) if not isinstance(below, bool)]
    return f"object of {' or '.join(dict.fromkeys(types))}" if types and not schema.get("properties") else "object"


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    if "format" in schema:
        yield f"({schema['format']})"
    if "minimum" in schema and "maximum" in schema:
        yield f"{schema['minimum']}…{schema['maximum']}"
    elif "minimum" in schema:
        yield f"≥ {schema['minimum']}"
    elif "maximum" in schema:
        yield f"≤ {schema['maximum']}"
    if "exclusiveMinimum" in schema:
        yield f"> {schema['exclusiveMinimum']}"
    if "exclusiveMaximum" in schema:
        yield f"< {schema['exclusiveMaximum']}"
    if "maxLength" in schema:
        yield f"≤ {schema['maxLength']} characters"
    if schema.get("default") is not None:
        yield f"= {_value(schema['default'])}"


def _reference(target: str) -> str:
    """A link to a schema of the document; the parts of one are described with it."""
    name = target.removeprefix(_COMPONENTS).partition("/")[0]
    if not target.startswith(_COMPONENTS):
        return f"<code>{escape(target)}</code>"
    return f"<a href='#shape-{escape(name)}'>{escape(name)}</a>"


def _either(choices: list[Any]) -> str:
    return " or ".join(dict.fromkeys(map(in_short, choices)))


def _all(parts: list[Any]) -> str:
    return " and ".join(dict.fromkeys(map(in_short, parts)))


def _negation(schema: Any) -> str:
    return f"not {in_short(schema)}"


def _enum(values: list[Any]) -> str:
    return " or ".join(map(_constant, values)) or "no value"


def _constant(value: Any) -> str:
    return f"<code>{escape(_value(value))}</code>"


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_DESCRIBED: Final[dict[str, Callable[[Any], str]]] = {
    "$ref": _reference,
    "$dynamicRef": _reference,
    "anyOf": _either,
    "oneOf": _either,
    "const": _constant,
    "enum": _enum,
    "allOf": _all,
    "not": _negation,
}
"""The description of schemas with this keyword. The first of these that a schema has is used."""
