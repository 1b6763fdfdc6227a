"""The OpenAPI document says what the server does: schemathesis tries to find where it does not."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec import Meta

from penstock.app import Penstock
from penstock.engine.engine import Engine
from penstock.engine.vault import Vault
from penstock.outbound import Outbound
from penstock.settings import Settings
from penstock.storage.local import Local
from tests.api.sites import Site, running_site
from tests.factories import ACCOUNT, TENANT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import Server

EXAMPLES = 8
CONFIG = """
[generation]
allow-x00 = false

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "402", "403", "404", "409", "429"]
"""
HOOKS = """
from datetime import datetime

import schemathesis
from hypothesis import strategies as st

# What no schema can tell: a job can be put off to the year 9000, not to any year; two keys must agree; a client's key
# is for an account; a whole number in an input is written as one (30, not 30.0); how large a file may be is a setting;
# which URLs may be called is one too; and nobody here has the patience to wait a minute.
times = st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1))
schemathesis.openapi.format("date-time", times.map(lambda moment: moment.isoformat() + "Z"))
schemathesis.openapi.format("uri", st.just("http://127.0.0.1:9/hooks"))


@schemathesis.hook
def filter_case(context, case):
    body = case.body if isinstance(case.body, dict) else {}
    if case.path == "/v1/keys" and case.method == "POST":
        return bool(body.get("tenant") and body.get("account"))
    if case.path in ("/v1/artifacts", "/v1/worker/upload") and isinstance(body.get("size"), (int, float)):
        return body["size"] <= 5 * 1024**3
    if any(is_pointed(job.get("input")) for job in (body, *jobs_of(body)) if isinstance(job, dict)):
        return False
    return "Idempotency-Key" not in (case.headers or {}) or "idempotency_key" not in body


def jobs_of(body):
    return body["jobs"] if isinstance(body.get("jobs"), list) else []


def is_pointed(given):
    members = given.values() if isinstance(given, dict) else ()
    return any(isinstance(value, float) and value.is_integer() for value in members)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.path.endswith("/stream"):  # which goes on for as long as its job does
        kwargs["timeout"] = 0.2
    try:
        if 0 < float((case.query or {})["wait"]) <= 60:
            case.query["wait"] = 0.1
    except (KeyError, TypeError, ValueError):
        pass
    if isinstance(case.body, dict) and isinstance(case.body.get("wait"), (int, float)):
        case.body["wait"] = min(case.body["wait"], 0.1)
"""

app = Penstock()


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
async def test_the_document_is_kept_to(server: Server, empty_dsn: str, tmp_path: Path, scope: str) -> None:
    storage, vault = Local(tmp_path / "files", "http://127.0.0.1:1"), Vault([os.urandom(32)])
    engine = await Engine.open(empty_dsn, app, pool_size=8, storage=storage, vault=vault, outbound=Outbound("loopback"))
    await engine.grant(TENANT, ACCOUNT, 1_000_000)
    (tmp_path / "hooks.py").write_text(HOOKS)
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    try:
        async with running_site(engine, settings=Settings(rate_limit=1_000_000)) as site:
            found, told = await _examined(site.url, tmp_path, *await _means(site, scope))
    finally:
        await engine.close()
    assert found == 0, told


async def _means(site: Site, scope: str) -> tuple[str, ...]:
    """The key, and what of the API is worth to be tried with it."""
    if scope == "client":
        return site.client_key, "--exclude-path-regex", "^/v1/worker/"
    if scope == "admin":
        return await site.key(scope="admin"), "--exclude-path-regex", "^/v1/worker/"
    fleet = await site.engine.access.authenticate(await site.key(scope="worker", tenant=None, account=None))
    _, token = await site.engine.workers.register(worker="w", routes=["film"], slots=100, fleet=fleet, address="here")
    return token, "--include-path-regex", "^/v1/worker/", "--exclude-path", "/v1/worker/deregister"


async def _examined(url: str, folder: Path, key: str, *more: str) -> tuple[int | None, str]:
    command = ["-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all", "--mode", "all"]
    command += ["--max-examples", str(EXAMPLES), "--seed", "1", "--no-color", "--generation-database", "none"]
    command += ["--header", f"Authorization: Bearer {key}", "--request-timeout", "10", "--continue-on-failure", *more]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "SCHEMATHESIS_HOOKS": "hooks", "PYTHONPATH": str(folder)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    return process.returncode, told.decode()
