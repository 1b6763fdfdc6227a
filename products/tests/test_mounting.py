"""Products beside the native API, or one alone in front of it: one set of checks, documents of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import msgspec
import pytest
from products.tests.deployments import NOWHERE, Deployment, running_deployment

from millpond.api import problems
from millpond.api.documents import openapi
from millpond.errors import MigrationError
from millpond.store import plugin_migrations
from millpond.store.db import connect
from millpond_products.catalog import PRODUCTS
from tests.factories import ACCOUNT, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    import httpx2

    from millpond.api.product import Product
    from tests.databases import DatabaseServer

DOCUMENTS = {each.name: msgspec.to_builtins(openapi.document(each.routes, {}, product=each)) for each in PRODUCTS}
PAGES = {each.name for each in PRODUCTS if any(route.path == "/" for route in each.routes)}
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
LOCATED = {"actions", "guard", "partner", "studio"}
"""Those whose contract has a Location."""


@dataclass(frozen=True, slots=True)
class MountedProduct:
    """A product where it is served, and a user of it."""

    deployment: Deployment
    product: Product
    root: str
    key: str

    @property
    def name(self) -> str:
        return self.product.name

    async def send(self, method: str, path: str, json: Any = None, *, with_key: bool = True) -> httpx2.Response:
        """A request below where the product is."""
        return await self.beside(method, f"{self.root}{path}", json, with_key=with_key)

    async def beside(self, method: str, path: str, json: Any = None, *, with_key: bool = True) -> httpx2.Response:
        """A request to the same server."""
        headers = {"Authorization": f"Bearer {self.key}"} if with_key else {}
        body = {} if json is None else {"json": json}
        return await self.deployment.http.request(method, path, headers=headers, **body)


def links(page: str) -> set[str]:
    """Where a page leads to, but for its own places."""
    found = set(re.findall(r"""href=["']([^"'#]+)""", page))
    assert found
    return found


@pytest.fixture(scope="module")
async def own_dsn(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[str]:
    async with server.database(template) as dsn:
        yield dsn


@pytest.fixture(scope="module")
async def together(own_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with running_deployment(own_dsn, tmp_path_factory.mktemp("files")) as running:
        yield running


@pytest.fixture(scope="module", params=[f"{each.name}-{way}" for each in PRODUCTS for way in ("mounted", "alone")])
async def mounted(
    own_dsn: str, together: Deployment, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[MountedProduct]:
    name, _, way = request.param.partition("-")
    (product,) = (each for each in PRODUCTS if each.name == name)
    await together.engine.grant(TENANT, ACCOUNT, 100)
    key = await together.key(scope="client", tenant=TENANT, account=ACCOUNT)
    if way == "mounted":
        yield MountedProduct(together, product, f"/{name}", key)
    else:
        async with running_deployment(own_dsn, tmp_path_factory.mktemp("files"), alone=name) as running:
            yield MountedProduct(running, product, "", key)


async def test_it_is_served_with_the_native_api_below(mounted: MountedProduct) -> None:
    assert (await mounted.send("GET", FIRST[mounted.name])).status_code == 200
    assert (await mounted.beside("GET", "/v1/wallet")).json()["available"] >= 100
    assert (await mounted.beside("GET", "/healthz")).json()["status"] == "ok"
    assert (await mounted.beside("GET", "/v1/nothing")).status_code == 404
    if not mounted.root:
        assert (await mounted.beside("GET", "/native/openapi.json")).json()["servers"] == [{"url": "/native"}]


async def test_it_has_a_document_of_its_own(mounted: MountedProduct) -> None:
    document = (await mounted.send("GET", "/openapi.json", with_key=False)).json()
    assert document["info"]["title"] == mounted.product.title
    assert document["servers"] == [{"url": mounted.root or "/"}]
    assert set(document["paths"]) == {route.path for route in mounted.product.routes if route.path}
    page = (await mounted.send("GET", "/docs", with_key=False)).text
    assert all(re.sub(r"{(\w+)}.*", "", path) in page for path in document["paths"])
    for link in links(page):
        assert link.startswith(f"{mounted.root}/")
        assert (await mounted.beside("GET", link, with_key=False)).status_code == 200, link


async def test_it_has_a_page_if_it_has_one(mounted: MountedProduct) -> None:
    page = await mounted.send("GET", "/", with_key=False)
    if mounted.name not in PAGES:
        assert page.status_code == 404
        return
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert re.search(r"connect-src 'self'( http://127\.0\.0\.1:\d+)?;", policy)
    for part in re.findall(r'(?:src|href)="(static/[^"]+)"', page.text):
        assert (await mounted.send("GET", f"/{part}", with_key=False)).status_code == 200
    assert (await mounted.send("GET", "/static/nothing.js", with_key=False)).status_code == 404
    assert not re.search(r'(?:src|href|action)="https?://', page.text)


async def test_it_refuses_in_its_own_words(mounted: MountedProduct) -> None:
    for path in ("/nothing", "/api/nothing"):
        answer = await mounted.send("GET", path, with_key=False)
        assert answer.status_code == 404
        assert jsonschema_rs.is_valid(_schema(mounted.name, mounted.product.refusal.__name__), answer.json())
        assert answer.headers["content-type"] == mounted.product.refusal_form.decode()
        if mounted.product.refusal_form == problems.MEDIA_TYPE:
            assert answer.json()["type"] == f"{mounted.root}/docs/problems/not_found"
    page = await mounted.send("GET", "/docs/problems/not_found", with_key=False)
    assert page.status_code == 200
    assert all(link.startswith(f"{mounted.root}/") for link in links(page.text))
    wrong = await mounted.send("DELETE", FIRST[mounted.name])
    assert (wrong.status_code, "GET" in wrong.headers["allow"]) == (405, True)
    unknown = await mounted.send("GET", FIRST[mounted.name], with_key=False)
    assert (unknown.status_code, unknown.headers["www-authenticate"]) == (401, 'Bearer realm="millpond"')


async def test_nothing_of_it_is_open_that_needs_a_key(mounted: MountedProduct) -> None:
    for route in mounted.product.routes:
        if route.who:
            path = re.sub(r"{\w+}", "x", route.path)
            answer = await mounted.send(route.method, path, with_key=False)
            assert answer.status_code == 401, (route.method, route.path)


async def test_its_requests_are_counted_by_where_they_are_served(mounted: MountedProduct) -> None:
    await mounted.send("GET", FIRST[mounted.name])
    reader = replace(mounted, key=await mounted.deployment.key(scope="viewer"))
    metrics = (await reader.beside("GET", "/metrics")).text
    assert f'route="{mounted.root}{FIRST[mounted.name]}"' in metrics


async def test_what_it_starts_is_found_where_it_says(mounted: MountedProduct) -> None:
    path, body, found = STARTS[mounted.name]
    if "{project}" in path:
        project = (await mounted.send("POST", "/v1/projects", {"name": "Lumen"})).json()
        path = path.format(project=project["projectId"])
    answer = await mounted.send("POST", path, body)
    assert answer.status_code in (201, 202), answer.text
    there = f"{mounted.root}{found.format(**answer.json())}"
    assert answer.headers.get("location") == (there if mounted.name in LOCATED else None)
    assert answer.json().get("locationUrl", there) == there
    assert (await mounted.beside("GET", there)).status_code == 200


async def test_its_kinds_are_nobody_elses_to_submit(mounted: MountedProduct) -> None:
    """What stands in such a job's input is trusted: the price, and the paths of files."""
    native = "" if mounted.root else "/native"
    own = {kind.name for kind in mounted.product.kinds if not kind.is_open}
    for name in own:
        answer = await mounted.beside("POST", f"{native}/v1/jobs", {"kind": name, "input": {}})
        assert (answer.status_code, answer.json()["field"]) == (403, "kind")
        given = {"jobs": [{"kind": name, "input": {}}]}
        many = (await mounted.beside("POST", f"{native}/v1/jobs/bulk", given)).json()
        assert (many["accepted"], many["results"][0]["status"]) == (0, 403)
    known = (await mounted.beside("GET", f"{native}/v1/kinds")).json()["data"]
    assert not own & {kind["name"] for kind in known}


@pytest.mark.parametrize("name", FIRST)
async def test_a_mount_without_its_slash_leads_to_the_page(together: Deployment, name: str) -> None:
    answer = await together.http.get(f"/{name}")
    if name in PAGES:
        assert (answer.status_code, answer.headers["location"]) == (308, f"/{name}/")
    else:
        assert answer.status_code == 404


# Its document


def _schema(product: str, name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", "components": DOCUMENTS[product]["components"]}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda each: each.name)
def test_every_route_is_described(product: Product) -> None:
    document = DOCUMENTS[product.name]
    routes = {(route.path, route.method) for route in product.routes if route.path}
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
async def test_a_page_reports_the_status_that_a_problem_has_here(
    together: Deployment, name: str, code: str, status: int
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
    assert form["schema"] == {"$ref": "#/components/schemas/ErrorBody"}
    example = document["components"]["examples"]["insufficient_credits"]["value"]
    assert (example["status"], example["message"]) == (422, "Insufficient token balance.")


# Its tables


async def test_its_migrations_are_applied_once_and_booked_apart(empty_dsn: str) -> None:
    from millpond.store.migrate import migrate  # noqa: PLC0415 - beside the one that is looked at

    await migrate(empty_dsn)
    assert await plugin_migrations.migrate(empty_dsn, "effects", "millpond_products.effects") == (1,)
    assert await plugin_migrations.migrate(empty_dsn, "effects", "millpond_products.effects") == ()
    connection = await connect(empty_dsn)
    try:
        assert await connection.fetchval("select name from millpond.effects_migrations") == "effects"
        await connection.execute(
            "insert into millpond.effects_migrations (number, name, is_breaking, checksum) values (99, 'x', false, '')"
        )
        assert await plugin_migrations.migrate(empty_dsn, "effects", "millpond_products.effects") == ()
        await connection.execute("update millpond.effects_migrations set is_breaking = true where number = 99")
        with pytest.raises(MigrationError, match="0099"):
            await plugin_migrations.migrate(empty_dsn, "effects", "millpond_products.effects")
    finally:
        await connection.close()
