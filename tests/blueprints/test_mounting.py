"""Blueprints beside the native API, or one alone in front of it: one set of checks, documents of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec
import pytest

from millpond.api import openapi, problems
from millpond.blueprints.catalog import BLUEPRINTS
from millpond.blueprints.effects.routes import BLUEPRINT
from millpond.cli.apps import chosen
from millpond.errors import MigrationError, SettingsError
from millpond.store import books
from millpond.store.db import connect
from tests.blueprints.places import NOWHERE, Place, running_place
from tests.factories import ACCOUNT, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    import httpx2

    from millpond.api.blueprint import Blueprint
    from tests.databases import Server

DOCUMENTS = {each.name: msgspec.to_builtins(openapi.document(each.routes, {}, blueprint=each)) for each in BLUEPRINTS}
PAGES = {each.name for each in BLUEPRINTS if any(route.path == "/" for route in each.routes)}
FIRST = {
    "actions": "/api/actions",
    "effects": "/api/effects",
    "guard": "/api/v1/health/queues",
    "partner": "/v1/projects",
    "studio": "/api/credits",
}
"""What a user may read there, and nobody may delete."""
STARTS: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "actions": ("/api/jobs", {"action": "http-request", "input": {"url": NOWHERE}}, "/api/jobs/{id}"),
    "effects": (
        "/api/videos/uploads",
        {"filename": "in.png", "mime_type": "image/png", "size": 1},
        "/api/files/{file[id]}",
    ),
    "guard": ("/v1/jobs", {"message_input": "Hello!", "webhook_url": NOWHERE}, "/v1/jobs/{job_id}"),
    "partner": ("/v1/projects/{project}/ingest/website", {"url": NOWHERE}, "/v1/jobs/{jobId}"),
    "studio": ("/api/generate/copy", {"product": {"name": "Lumen Desk Lamp"}}, "/api/jobs/{job_id}"),
}
"""What can be begun, and where it is then, by what the answer says."""
LOCATED = {"actions", "guard", "partner"}
"""Those whose contract has a Location."""


@dataclass(frozen=True, slots=True)
class Door:
    """A blueprint where it is served, and a user of it."""

    place: Place
    blueprint: Blueprint
    root: str
    key: str

    @property
    def name(self) -> str:
        return self.blueprint.name

    async def send(self, method: str, path: str, json: Any = None, *, with_key: bool = True) -> httpx2.Response:
        """A request below where the blueprint is."""
        return await self.beside(method, f"{self.root}{path}", json, with_key=with_key)

    async def beside(self, method: str, path: str, json: Any = None, *, with_key: bool = True) -> httpx2.Response:
        """A request to the same server."""
        headers = {"Authorization": f"Bearer {self.key}"} if with_key else {}
        body = {} if json is None else {"json": json}
        return await self.place.http.request(method, path, headers=headers, **body)


def links(page: str) -> set[str]:
    """Where a page leads to, but for its own places."""
    found = set(re.findall(r"""href=["']([^"'#]+)""", page))
    assert found
    return found


@pytest.fixture(scope="module")
async def own_dsn(anyio_backend: str, server: Server, template: str) -> AsyncIterator[str]:
    async with server.database(template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
async def together(own_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with running_place(own_dsn, tmp_path_factory.mktemp("files")) as running:
        yield running


@pytest.fixture(scope="module", params=[f"{each.name}-{way}" for each in BLUEPRINTS for way in ("mounted", "alone")])
async def door(
    own_dsn: str, together: Place, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Door]:
    name, _, way = request.param.partition("-")
    (blueprint,) = (each for each in BLUEPRINTS if each.name == name)
    await together.engine.grant(TENANT, ACCOUNT, 100)
    key = await together.key(scope="client", tenant=TENANT, account=ACCOUNT)
    if way == "mounted":
        yield Door(together, blueprint, f"/{name}", key)
    else:
        async with running_place(own_dsn, tmp_path_factory.mktemp("files"), alone=name) as running:
            yield Door(running, blueprint, "", key)


async def test_it_is_served_with_the_native_api_below(door: Door) -> None:
    assert (await door.send("GET", FIRST[door.name])).status_code == 200
    assert (await door.beside("GET", "/v1/wallet")).json()["available"] >= 100
    assert (await door.beside("GET", "/healthz")).json()["status"] == "ok"
    assert (await door.beside("GET", "/v1/nothing")).status_code == 404
    if not door.root:
        assert (await door.beside("GET", "/native/openapi.json")).json()["servers"] == [{"url": "/native"}]


async def test_it_has_a_document_of_its_own(door: Door) -> None:
    document = (await door.send("GET", "/openapi.json", with_key=False)).json()
    assert document["info"]["title"] == door.blueprint.title
    assert document["servers"] == [{"url": door.root or "/"}]
    assert set(document["paths"]) == {route.path for route in door.blueprint.routes if route.path}
    page = (await door.send("GET", "/docs", with_key=False)).text
    assert all(re.sub(r"{(\w+)}.*", "", path) in page for path in document["paths"])
    for link in links(page):
        assert link.startswith(f"{door.root}/")
        assert (await door.beside("GET", link, with_key=False)).status_code == 200, link


async def test_it_has_a_page_if_it_has_one(door: Door) -> None:
    page = await door.send("GET", "/", with_key=False)
    if door.name not in PAGES:
        assert page.status_code == 404
        return
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert re.search(r"connect-src 'self'( http://127\.0\.0\.1:\d+)?;", policy)
    for part in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
        assert (await door.send("GET", f"/{part}", with_key=False)).status_code == 200
    assert (await door.send("GET", "/static/nothing.js", with_key=False)).status_code == 404
    assert not re.search(r'(?:src|href|action)="https?://', page.text)


async def test_it_refuses_in_its_own_words(door: Door) -> None:
    for path in ("/nothing", "/api/nothing"):
        answer = await door.send("GET", path, with_key=False)
        assert answer.status_code == 404
        assert jsonschema_rs.is_valid(_schema(door.name, door.blueprint.refusal.__name__), answer.json())
        assert answer.headers["content-type"] == door.blueprint.refusal_form.decode()
        if door.blueprint.refusal_form == problems.MEDIA_TYPE:
            assert answer.json()["type"] == f"{door.root}/docs/problems/not_found"
    page = await door.send("GET", "/docs/problems/not_found", with_key=False)
    assert page.status_code == 200
    assert all(link.startswith(f"{door.root}/") for link in links(page.text))
    wrong = await door.send("DELETE", FIRST[door.name])
    assert (wrong.status_code, "GET" in wrong.headers["allow"]) == (405, True)
    unknown = await door.send("GET", FIRST[door.name], with_key=False)
    assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, 'Bearer realm="millpond"')


async def test_nothing_of_it_is_open_that_needs_a_key(door: Door) -> None:
    for route in door.blueprint.routes:
        if route.who:
            path = re.sub(r"{\w+}", "x", route.path)
            answer = await door.send(route.method, path, with_key=False)
            assert answer.status_code == 401, (route.method, route.path)


async def test_its_requests_are_counted_by_where_they_are_served(door: Door) -> None:
    await door.send("GET", FIRST[door.name])
    metrics = (await door.beside("GET", "/metrics", with_key=False)).text
    assert f'route="{door.root}{FIRST[door.name]}"' in metrics


async def test_what_it_starts_is_found_where_it_says(door: Door) -> None:
    path, body, found = STARTS[door.name]
    if "{project}" in path:
        project = (await door.send("POST", "/v1/projects", {"name": "Lumen"})).json()
        path = path.format(project=project["projectId"])
    answer = await door.send("POST", path, body)
    assert answer.status_code in (201, 202), answer.text
    there = f"{door.root}{found.format(**answer.json())}"
    assert answer.headers.get("location") == (there if door.name in LOCATED else None)
    assert answer.json().get("locationUrl", there) == there
    assert (await door.beside("GET", there)).status_code == 200


async def test_its_kinds_are_nobody_elses_to_submit(door: Door) -> None:
    """What stands in such a job's input is trusted: the price, and the paths of files."""
    native = "" if door.root else "/native"
    own = {kind.name for kind in door.blueprint.kinds if not kind.is_open}
    for name in own:
        answer = await door.beside("POST", f"{native}/v1/jobs", {"kind": name, "input": {}})
        assert (answer.status_code, answer.json()["field"]) == (403, "kind")
        given = {"jobs": [{"kind": name, "input": {}}]}
        many = (await door.beside("POST", f"{native}/v1/jobs/bulk", given)).json()
        assert (many["accepted"], many["results"][0]["status"]) == (0, 403)
    known = (await door.beside("GET", f"{native}/v1/kinds")).json()["data"]
    assert not own & {kind["name"] for kind in known}


@pytest.mark.parametrize("name", FIRST)
async def test_a_mount_without_its_slash_leads_to_the_page(together: Place, name: str) -> None:
    answer = await together.http.get(f"/{name}")
    if name in PAGES:
        assert (answer.status_code, answer.headers["location"]) == (308, f"/{name}/")
    else:
        assert answer.status_code == 404


# Its document


def _schema(blueprint: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENTS[blueprint]["components"]}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.mark.parametrize("blueprint", BLUEPRINTS, ids=lambda each: each.name)
def test_every_route_is_described(blueprint: Blueprint) -> None:
    document = DOCUMENTS[blueprint.name]
    routes = {(route.path, route.method) for route in blueprint.routes if route.path}
    assert {(path, method.upper()) for path, method, _ in operations(document)} == routes
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)
    for path, method, operation in operations(document):
        assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}, (path, method)
        assert all(parameter["description"] for parameter in operation["parameters"] if parameter["in"] == "path")


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    seen = 0
    for path, method, operation in operations(document):
        asked = [operation["requestBody"]] if "requestBody" in operation else []
        for part in (*operation["responses"].values(), *asked):
            for form in part.get("content", {}).values():
                if "example" in form:
                    seen += 1
                    schema = {**form["schema"], "components": document["components"]}
                    assert jsonschema_rs.is_valid(schema, form["example"]), (path, method, form["example"])
    assert seen > 8


@pytest.mark.parametrize(
    ("name", "code", "status"), [("effects", "insufficient_credits", 422), ("partner", "invalid", 400)]
)
async def test_a_page_tells_the_status_that_a_problem_has_here(
    together: Place, name: str, code: str, status: int
) -> None:
    page = (await together.http.get(f"/{name}/docs/problems/{code}")).text
    assert f"HTTP status {status}." in page
    every = (await together.http.get(f"/{name}/docs")).text
    assert f"<code>{code}</code></a></td><td>{status}</td>" in every


def test_a_refusal_is_described_with_the_status_it_has_here() -> None:
    document = DOCUMENTS["effects"]
    responses = document["paths"]["/api/ai-jobs"]["post"]["responses"]
    assert "402" not in responses
    form = responses["422"]["content"][problems.MEDIA_TYPE.decode()]
    assert "insufficient_credits" in form["examples"]
    assert form["schema"] == {"$ref": "#/components/schemas/Refusal"}
    example = document["components"]["examples"]["insufficient_credits"]["value"]
    assert (example["status"], example["message"]) == (422, "Insufficient token balance.")


# Which are served


def test_all_that_have_routes_are_served_beside_an_app() -> None:
    product = chosen(None, with_example=True)
    assert {"hello", "effects"} <= product.app.kinds.keys()
    assert [blueprint.name for blueprint in product.mounted] == [each.name for each in BLUEPRINTS if each.routes]
    assert "effects" not in __import__("millpond.cli.example", fromlist=["app"]).app.kinds


def test_one_can_be_served_alone() -> None:
    product = chosen(None, "effects", with_example=True)
    assert (list(product.app.kinds), product.mounted, product.alone) == (["effects"], (), BLUEPRINT)
    with pytest.raises(SettingsError, match="actions, effects, guard, partner, studio"):
        chosen(None, "nothing")


def test_one_whose_kind_the_app_has_itself_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "own_effects.py"
    file.write_text("from millpond import Millpond\napp = Millpond()\n@app.kind('effects')\ndef run(job): ...\n")
    product = chosen(str(file))
    assert product.app.kinds["effects"].runs == "handler"
    assert "effects" not in [blueprint.name for blueprint in product.mounted]


# Its tables


async def test_its_migrations_are_applied_once_and_booked_apart(empty_dsn: str) -> None:
    from millpond.store.migrate import migrate  # noqa: PLC0415 - beside the one that is looked at

    await migrate(empty_dsn)
    assert await books.migrate(empty_dsn, "effects", "millpond.blueprints.effects") == (1,)
    assert await books.migrate(empty_dsn, "effects", "millpond.blueprints.effects") == ()
    connection = await connect(empty_dsn)
    try:
        assert await connection.fetchval("select name from millpond.effects_migrations") == "effects"
        await connection.execute(
            "insert into millpond.effects_migrations (number, name, is_breaking, checksum) values (99, 'x', false, '')"
        )
        assert await books.migrate(empty_dsn, "effects", "millpond.blueprints.effects") == ()
        await connection.execute("update millpond.effects_migrations set is_breaking = true where number = 99")
        with pytest.raises(MigrationError, match="0099"):
            await books.migrate(empty_dsn, "effects", "millpond.blueprints.effects")
    finally:
        await connection.close()
