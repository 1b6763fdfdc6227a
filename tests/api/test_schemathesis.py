"""The OpenAPI document says what the server does: schemathesis tries to find where it does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec import Meta

from millpond.api.native import ROUTES
from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.outbound import Outbound
from millpond.settings import Settings
from millpond.storage.local import Local
from tests.api.documents import examined
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, TENANT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import DatabaseServer

EXAMPLES = 2
"""For each operation, beside those that its schema itself suggests. By hand, try more of them."""

app = Millpond()


@app.kind("postcard", price=2, stages=("painting", "printing"))
def postcard(
    job: Any,
    text: Annotated[str, Meta(max_length=200, pattern="^[ -~]*$")],
    copies: Annotated[int, Meta(ge=1, le=100)] = 1,
) -> None:
    """Paints a postcard."""


@app.kind("nap", expires_in="1h")
def nap(job: Any) -> None:
    """Takes nothing and costs nothing."""


@app.kind("film", runs="fleet")
def film(job: Any) -> None:
    """Is made by a fleet."""


@pytest.mark.slow
@pytest.mark.parametrize("scope", ["admin", "client", "worker"])
async def test_the_document_is_kept_to(server: DatabaseServer, empty_dsn: str, tmp_path: Path, scope: str) -> None:
    storage, vault = Local(tmp_path / "files", "http://127.0.0.1:1"), Vault([os.urandom(32)])
    engine = await Engine.open(empty_dsn, app, pool_size=8, storage=storage, vault=vault, outbound=Outbound("loopback"))
    await engine.grant(TENANT, ACCOUNT, 1_000_000)
    try:
        async with running_site(engine, settings=Settings(rate_limit=1_000_000, failure_limit=1_000_000)) as site:
            found, described = await examined(site.url, tmp_path, *await _means(site, scope), examples=EXAMPLES)
    finally:
        await engine.close()
    assert found == 0, described


async def _means(site: Site, scope: str) -> tuple[str, ...]:
    """The key, and what of the API is worth to be tried with it."""
    if scope == "client":  # what refuses every client is tried by test_scopes.py
        open_to_clients = {route.path for route in ROUTES if not route.who or scope in route.who}
        closed = {route.path for route in ROUTES} - open_to_clients
        return site.client_key, *(word for path in sorted(closed) for word in ("--exclude-path", path))
    if scope == "admin":
        return await site.key(scope="admin"), "--exclude-path-regex", "^/v1/worker/"
    fleet = await site.engine.access.authenticate(await site.key(scope="worker", tenant=None, account=None))
    _, token = await site.engine.workers.register(worker="w", routes=["film"], slots=100, fleet=fleet, address="here")
    return token, "--include-path-regex", "^/v1/worker/", "--exclude-path", "/v1/worker/deregister"
