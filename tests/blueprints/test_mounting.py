"""Blueprints beside the native API, or one alone in front of it: one set of checks, documents of their own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import httpx2
import jsonschema_rs
import pytest

from penstock.api import openapi, problems
from penstock.blueprints.catalog import BLUEPRINTS
from penstock.blueprints.effects.routes import BLUEPRINT
from penstock.cli.apps import chosen
from penstock.errors import MigrationError, SettingsError
from penstock.store import books
from penstock.store.db import connect
from tests.blueprints.effects.places import Place, running_place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.databases import Server

DOCUMENT = openapi.document(BLUEPRINT.routes, {}, blueprint=BLUEPRINT)


@pytest.fixture(scope="module", params=[False, True], ids=["mounted", "alone"])
async def place(
    anyio_backend: str,
    server: Server,
    template: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Place]:
    folder = tmp_path_factory.mktemp("files")
    async with server.database(template) as dsn, running_place(dsn, folder, alone=request.param) as running:
        yield running


async def test_it_is_served_with_the_native_api_below(place: Place) -> None:
    user = await place.user()
    assert [effect["slug"] for effect in (await user.get("/api/effects"))["data"]] == ["invert"]
    async with httpx2.AsyncClient(base_url=place.url, headers=user.headers) as http:
        assert (await http.get("/v1/wallet")).json()["available"] == 100
        assert (await http.get("/healthz")).json()["status"] == "ok"
        assert (await http.get("/v1/nothing")).status_code == 404


async def test_it_has_a_document_and_a_page_of_its_own(place: Place) -> None:
    document = (await place.http.get("/openapi.json")).json()
    assert document["info"]["title"] == "Effects"
    assert document["servers"] == [{"url": place.root or "/"}]
    assert "/v1/jobs" not in document["paths"]
    assert "/api/ai-jobs" in document["paths"]
    assert "ai-jobs" in (await place.http.get("/docs")).text
    page = await place.http.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert re.search(r"connect-src 'self' http://127\.0\.0\.1:\d+;", policy)
    for part in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
        assert (await place.http.get(f"/{part}")).status_code == 200
    assert (await place.http.get("/static/nothing.js")).status_code == 404
    assert not re.search(r"https?://", page.text)


async def test_it_refuses_in_its_own_words(place: Place) -> None:
    for path in ("/nothing", "/api/nothing"):
        problem = (await place.http.get(path)).json()
        assert (problem["code"], problem["message"]) == ("not_found", "There is nothing at this path.")
        assert problem["type"] == f"{place.root}/docs/problems/not_found"
        page = await place.http.get(f"{place.url}{problem['type']}")
        assert page.status_code == 200
    wrong = await place.http.delete("/api/effects")
    assert (wrong.status_code, wrong.headers["allow"], wrong.json()["message"][:6]) == (405, "GET", "DELETE")
    assert (await place.http.get("/api/effects")).headers["www-authenticate"] == 'Bearer realm="penstock"'


async def test_its_requests_are_counted_by_where_they_are_served(place: Place) -> None:
    user = await place.user()
    await user.get("/api/wallet")
    metrics = (await place.http.get(f"{place.url}/metrics")).text
    assert f'route="{place.root}/api/wallet"' in metrics


async def test_its_kind_is_nobody_elses_to_submit(place: Place) -> None:
    """What stands in such a job's input is trusted: the price, and the paths of files."""
    user = await place.user()
    given = {"workflow": {}, "output_node_id": "1", "extension": "png", "effect": {"price": 0}}
    given["assets"] = [{"name": "secret", "path": "effects/anything"}]
    async with httpx2.AsyncClient(base_url=place.url, headers=user.headers) as http:
        answer = await http.post("/v1/jobs", json={"kind": "effects", "input": given})
        assert (answer.status_code, answer.json()["field"]) == (403, "kind")
        many = (await http.post("/v1/jobs/bulk", json={"jobs": [{"kind": "effects", "input": given}]})).json()
        assert (many["accepted"], many["results"][0]["status"]) == (0, 403)
        assert (await http.get("/v1/kinds")).json()["data"] == []


async def test_a_mount_without_its_slash_leads_to_the_page(server: Server, template: str, tmp_path: Path) -> None:
    async with server.database(template) as dsn, running_place(dsn, tmp_path) as running:
        answer = await running.http.get(f"{running.url}/effects")
        assert (answer.status_code, answer.headers["location"]) == (308, "/effects/")


# Its document


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_route_is_described() -> None:
    routes = {(route.path, route.method) for route in BLUEPRINT.routes if route.path}
    assert {(path, method.upper()) for path, method, _ in operations()} == routes
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(set(ids)) == len(ids)
    for path, method, operation in operations():
        assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}, (path, method)
        assert all(parameter["description"] for parameter in operation["parameters"] if parameter["in"] == "path")


def test_every_example_fits_its_schema() -> None:
    for path, method, operation in operations():
        described = [
            *operation["responses"].values(),
            *([operation["requestBody"]] if "requestBody" in operation else []),
        ]
        for part in described:
            for form in part.get("content", {}).values():
                if "example" in form:
                    schema = {**form["schema"], "components": DOCUMENT["components"]}
                    assert jsonschema_rs.is_valid(schema, form["example"]), (path, method, form["example"])


def test_a_refusal_is_described_with_the_status_it_has_here() -> None:
    responses = DOCUMENT["paths"]["/api/ai-jobs"]["post"]["responses"]
    assert "402" not in responses
    form = responses["422"]["content"][problems.MEDIA_TYPE.decode()]
    assert "insufficient_credits" in form["examples"]
    assert form["schema"] == {"$ref": "#/components/schemas/Refusal"}
    example = DOCUMENT["components"]["examples"]["insufficient_credits"]["value"]
    assert (example["status"], example["message"]) == (422, "Insufficient token balance.")


# Which are served


def test_all_that_have_routes_are_served_beside_an_app() -> None:
    product = chosen(None, with_example=True)
    assert {"hello", "effects"} <= product.app.kinds.keys()
    assert [blueprint.name for blueprint in product.mounted] == [each.name for each in BLUEPRINTS if each.routes]
    assert "effects" not in __import__("penstock.cli.example", fromlist=["app"]).app.kinds


def test_one_can_be_served_alone() -> None:
    product = chosen(None, "effects", with_example=True)
    assert (list(product.app.kinds), product.mounted, product.alone) == (["effects"], (), BLUEPRINT)
    with pytest.raises(SettingsError, match="actions, effects, guard, partner, studio"):
        chosen(None, "nothing")


def test_one_whose_kind_the_app_has_itself_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "own_effects.py"
    file.write_text("from penstock import Penstock\napp = Penstock()\n@app.kind('effects')\ndef run(job): ...\n")
    product = chosen(str(file))
    assert product.app.kinds["effects"].runs == "handler"
    assert "effects" not in [blueprint.name for blueprint in product.mounted]


# Its tables


async def test_its_migrations_are_applied_once_and_booked_apart(empty_dsn: str) -> None:
    from penstock.store.migrate import migrate  # noqa: PLC0415 - beside the one that is looked at

    await migrate(empty_dsn)
    assert await books.migrate(empty_dsn, "effects", "penstock.blueprints.effects") == (1,)
    assert await books.migrate(empty_dsn, "effects", "penstock.blueprints.effects") == ()
    connection = await connect(empty_dsn)
    try:
        assert await connection.fetchval("select name from penstock.effects_migrations") == "effects"
        await connection.execute(
            "insert into penstock.effects_migrations (number, name, is_breaking, checksum) values (99, 'x', false, '')"
        )
        assert await books.migrate(empty_dsn, "effects", "penstock.blueprints.effects") == ()
        await connection.execute("update penstock.effects_migrations set is_breaking = true where number = 99")
        with pytest.raises(MigrationError, match="0099"):
            await books.migrate(empty_dsn, "effects", "penstock.blueprints.effects")
    finally:
        await connection.close()
