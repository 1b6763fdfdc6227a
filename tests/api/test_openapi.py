"""The document: complete, true to the types, and readable without a network."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from millpond.api import problems
from millpond.api.documents import manual, openapi
from millpond.api.documents.advice import ADVICE
from millpond.api.native import ROUTES
from millpond.app import Millpond
from millpond.kinds import Kind
from tests.product import app

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.api.sites import Site

DOCUMENT = openapi.document(ROUTES, app.kinds)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_route_is_described() -> None:
    assert {(path, method.upper()) for path, method, _ in operations()} == {
        (route.path, route.method) for route in ROUTES
    }
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(ids)) == len(ids)
    for path, method, operation in operations():
        assert operation["summary"], (path, method)
        assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
        assert all(parameter["description"] for parameter in operation["parameters"] if parameter["in"] != "query")


def test_every_reference_leads_somewhere() -> None:
    def walk(node: Any) -> Iterator[str]:
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for below in node.values():
                yield from walk(below)
        elif isinstance(node, list):
            for below in node:
                yield from walk(below)

    for reference in set(walk(DOCUMENT)):
        found: Any = DOCUMENT
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_every_example_fits_its_schema() -> None:
    listed = [
        content
        for _, _, operation in operations()
        for side in (operation.get("requestBody", {}), *operation["responses"].values())
        for content in side.get("content", {}).values()
        if "example" in content
    ]
    assert len(listed) > 40
    for content in listed:
        schema = {**content["schema"], "components": DOCUMENT["components"]}
        jsonschema_rs.Draft202012Validator(schema).validate(content["example"])


def test_a_submit_is_described_kind_by_kind() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    assert set(schemas["Submit"]["discriminator"]["mapping"]) == set(app.kinds)
    submit = jsonschema_rs.Draft202012Validator(
        {"$ref": "#/components/schemas/Submit", "components": DOCUMENT["components"]}
    )
    assert submit.is_valid({"kind": "drawn", "input": {"width": 3}})
    assert not submit.is_valid({"kind": "drawn", "input": {"width": 0}})
    assert not submit.is_valid({"kind": "drawn"})
    assert not submit.is_valid({"kind": "absent"})


def test_every_problem_has_advice() -> None:
    assert set(ADVICE) == {kind.code for kind in problems.all_errors()}


async def test_the_server_shows_it(site: Site) -> None:
    answer = await site.get("/openapi.json", key=None)
    assert answer.json()["openapi"] == "3.1.0"
    assert answer.json()["paths"].keys() == DOCUMENT["paths"].keys()


@pytest.mark.parametrize("path", ["/docs", "/docs/problems/insufficient_credits"])
async def test_pages_need_nothing_from_outside(site: Site, path: str) -> None:
    answer = await site.get(path, key=None)
    assert answer.status_code == 200
    assert answer.headers["content-security-policy"].startswith("default-src 'none';")
    assert not re.search(r"https?://|<script|<link|<img|@import|url\(", answer.text)


async def test_every_type_of_a_problem_is_a_page(site: Site) -> None:
    answer = await site.get("/v1/jobs/nonsense")
    page = await site.get(answer.json()["type"], key=None)
    assert (page.status_code, "<code>not_found</code>" in page.text) == (200, True)
    assert (await site.get("/docs/problems/absent", key=None)).status_code == 404


def test_what_comes_from_a_product_is_escaped() -> None:
    assert "<b>" not in manual._inline("<b>`<b>`")


SHAPES: list[Any] = [True, False, {"type": ["object", "array", "null"]}, {"type": "array", "items": True}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_whatever_a_schema_of_a_product_says_is_described(shape: Any) -> None:
    """Schemas may be true or false, types may be several, and a member may be called as a word of schemas is."""
    schema = {"type": "object", "properties": {"data": shape, "$ref": {"type": "string"}}, "required": ["data", "$ref"]}
    kind = Kind(name="wild", schema=schema)
    described = openapi.document(ROUTES, {"wild": kind})["components"]["schemas"]["Input.wild"]
    assert described["properties"] == schema["properties"]


def test_a_handler_that_takes_this_or_that_is_described() -> None:
    wild = Millpond()

    @wild.kind("wild")
    def take(job: Any, data: dict[str, Any] | list[Any] | None) -> None: ...

    assert "Input.wild" in openapi.document(ROUTES, wild.kinds)["components"]["schemas"]
