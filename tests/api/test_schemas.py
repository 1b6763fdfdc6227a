"""The documents describe a kind whatever its JSON Schema is: pages and samples are made for every form of one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from millpond import wire
from millpond.api.documents import manual, openapi, schemas
from millpond.api.documents.samples import sample
from millpond.api.native import ROUTES
from millpond.api.webhooks.inbox import ROUTES as INBOX_ROUTES
from millpond.cli.apps import chosen
from millpond.kinds import Kind
from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millpond.api.routes import Route
    from millpond.app import Millpond

REF = {"$ref": "#/$defs/node"}
FORMS: list[Any] = [
    True,
    False,
    {},
    {"type": "null"},
    {"type": ["object", "array", "null"]},
    {"type": "array", "items": True},
    {"type": "array", "items": False},
    {"type": "array", "items": False, "prefixItems": [{"type": "string"}, True]},
    {"type": "array", "items": {"type": "integer"}, "prefixItems": [False], "contains": True, "minItems": 1},
    {"type": "array", "items": REF},
    {"type": "array", "uniqueItems": True, "unevaluatedItems": False, "maxContains": 2, "contains": {"const": 1}},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer"}, "patternProperties": {"^a": False}},
    {"type": "object", "properties": {"yes": True, "no": False, "own": REF}, "required": ["yes", "no", "own"]},
    {"type": "object", "properties": {"one": True, "two": False}, "oneOf": [True, {"required": ["one"]}]},
    {"type": "object", "propertyNames": False, "dependentSchemas": {"a": True}, "dependentRequired": {"a": ["b"]}},
    {"allOf": [{"type": "integer"}, {"minimum": 3}, True]},
    {"anyOf": [True, False, {"type": "string", "description": "A word."}]},
    {"oneOf": [False, {"type": "string"}]},
    {"oneOf": [REF, {"type": "null"}]},
    {"not": True},
    {"not": {"type": "string"}},
    {"if": True, "then": False, "else": {"type": "string"}},
    {"const": None},
    {"const": {"$ref": "anything"}},
    {"enum": [None, 1, "<b>", {"a": [True]}]},
    {"examples": [], "type": "string"},
    {"default": False, "type": "boolean"},
    {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10, "multipleOf": 5},
    {"type": "number", "minimum": 0.5},
    {"type": "number", "maximum": 3},
    {"type": "string", "pattern": r"^\p{Letter}+$"},
    {"type": "string", "format": "uuid", "maxLength": 36, "contentEncoding": "base64"},
    {**REF, "description": "A node that contains nodes."},
    {"$ref": "#"},
    {"$dynamicRef": "#here"},
]
NODE = {"type": "object", "properties": {"next": REF, "below": {"type": "array", "items": REF}}, "required": ["next"]}

each_form = pytest.mark.parametrize("form", FORMS, ids=str)


NEEDED = [route for route in ROUTES if route.body in (wire.Submit, wire.AskPrice)]
"""Those whose bodies contain the input of a kind: the other pages would be the same in each test."""


def described(kinds: dict[str, Kind], routes: Iterable[Route] = NEEDED) -> str:
    return manual.page(openapi.document(routes, kinds), "", partial(openapi.status_of, product=None))


@pytest.mark.parametrize("required", [["data"], []], ids=["required", "optional"])
@each_form
def test_the_documents_describe_every_form(form: Any, required: list[str]) -> None:
    schema = {"type": "object", "properties": {"data": form}, "required": required, "$defs": {"node": NODE}}
    page = described({"wild": Kind(name="wild", schema={**schema, "$anchor": "here", "$dynamicAnchor": "here"})})
    assert "<section id='shape-Input.wild'>" in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (True, "any"),
        (False, "no value"),
        ({"type": ["integer", "null"], "minimum": 1, "maximum": 3}, "integer 1…3 or null 1…3"),
        ({"type": "array", "items": False}, "empty list"),
        ({"type": "array", "items": False, "prefixItems": [{"type": "string"}, True]}, "list of string, any"),
        ({"type": "array", "items": {"type": "null"}, "prefixItems": [True]}, "list of any, then null"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object of integer"),
        ({"allOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]}, "integer and number ≥ 3"),
        ({"not": {"const": None}}, "not <code>null</code>"),
        ({"enum": []}, "no value"),
        ({"$ref": "https://example.com/<b>"}, "<code>https://example.com/&lt;b&gt;</code>"),
    ],
    ids=str,
)
def test_the_manual_reports_what_a_schema_accepts(form: Any, expected: str) -> None:
    assert schemas.in_short(form) == expected


@pytest.mark.parametrize("reference", ["#/components/schemas/absent", "https://example.com/schema", "#here", "#", ""])
def test_a_reference_that_leads_nowhere_has_a_sample(reference: str) -> None:
    assert sample({"$ref": reference}, {}) == {}


def test_a_schema_that_contains_itself_has_a_sample() -> None:
    node = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name", "below"]}
    node["properties"]["below"] = {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}
    assert sample({"$ref": "#/components/schemas/Node"}, {"Node": node}) == {"name": "web shop", "below": []}


APPS = [None, *sorted(str(path) for path in (ROOT / "examples").glob("*/app.py"))]


@pytest.mark.parametrize("name", APPS, ids=lambda name: "hello, built in" if name is None else name.split("/")[-2])
def test_the_documents_of_each_example_can_be_made_as_up_serves_them(name: str | None) -> None:
    app: Millpond = chosen(name, with_example=True).app
    page = described(dict(app.kinds), (*ROUTES, *INBOX_ROUTES))
    assert all(f"<section id='shape-Input.{kind}'>" in page for kind in app.kinds)
