"""What ``up`` and ``serve`` expose of an app: its own kinds, routes, queues and pages, whatever else is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from millpond.api.native import ROUTES
from tests.cli.ups import SLOW, Up, up, write_app
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.acceptance.processes import Shell

PRODUCTS = ("actions", "effects", "guard", "partner", "studio")
"""Those that millpond-products brings, where it is installed; and any other's would be no different."""
FORWARD = ("http-request", "actions.http-request", "scrape", "studio.scrape")
"""Kinds by which a client could have the server fetch a URL."""


@pytest.fixture(params=["up", "serve"])
async def served(sh: Shell, empty_dsn: str, request: pytest.FixtureRequest) -> Up:
    sh.dsn = empty_dsn
    app = write_app(sh.folder, SLOW)
    made = await up(sh, app)  # the keys and the kinds are kept, and `serve` finds them
    if request.param == "up":
        return made
    made.command.terminate()
    assert made.command.wait() == 0
    running = await up(sh, app, "--role", "api,services", verb="serve", MILLPOND_STORAGE=str(sh.folder / "files"))
    running.ready = made.ready | running.ready
    return running


async def test_an_app_is_served_alone(served: Up) -> None:
    for query in ("", "?closed=true"):
        kinds = (await served.request("GET", f"/v1/kinds{query}", key="admin_key")).json()["data"]
        assert [kind["name"] for kind in kinds] == ["slow"], query
    queues = (await served.request("GET", "/v1/queues", key="admin_key")).json()["data"]
    assert [queue["queue"] for queue in queues] == ["slow"]
    document = (await served.request("GET", "/openapi.json")).json()
    inbox = {path for path in document["paths"] if path.startswith("/inbox")}  # of `up` alone, for development
    assert set(document["paths"]) - inbox == {route.path for route in ROUTES if route.path}
    for name in PRODUCTS:
        for path in (f"/{name}", f"/{name}/", f"/{name}/openapi.json", f"/{name}/docs"):
            assert (await served.request("GET", path)).status_code == 404, path
    await _has_no_pages_of_products(served)
    output = served.command.stderr
    assert [name for name in (*PRODUCTS, "renderer") if name in output] == []


async def _has_no_pages_of_products(served: Up) -> None:
    async with httpx2.AsyncClient(base_url=f"{served.url}/ui", timeout=PATIENCE) as http:
        session = await http.post("/session", json={"key": served.ready["admin_key"]})
        assert session.status_code == 201, session.text
        assert session.json()["products"] == []


async def test_no_key_of_a_client_has_the_server_fetch_a_url(served: Up) -> None:
    for kind in FORWARD:
        answer = await served.request("POST", "/v1/jobs", {"kind": kind, "input": {"url": served.url}})
        assert (answer.status_code, answer.json()["field"]) == (422, "kind"), answer.text
    answer = await served.request("POST", "/actions/api/jobs", {"action": "http-request", "input": {"url": served.url}})
    assert answer.status_code == 404
