"""Mounted: the API inside a host, under a prefix, with the host's own users."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest
from fastapi import FastAPI

from millpond import Engine, logs
from millpond.api.mount import Mount
from millpond.errors import SettingsError
from millpond.settings import Settings
from tests.api.hosts import product, served, shop, who
from tests.checks import until
from tests.children import running_other
from tests.databases import plain_user
from tests.docs.blocks import ROOT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.databases import DatabaseServer

ENCRYPTION_KEYS = [base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2)]
HERE = "/shop/jobs"
ANN = {"x-user": "ann"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.configure("warning", as_json=True, stream=stream)
    yield stream
    logs.silence()


@pytest.fixture
async def jobs(empty_dsn: str) -> Mount:
    return Mount(product, settings=Settings(database_url=empty_dsn))


@pytest.fixture
async def client(jobs: Mount) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(shop(jobs)) as made:
        await jobs.engine.grant("shop", "ann", 100)
        yield made


async def ended(client: httpx2.AsyncClient, path: str) -> dict[str, Any]:
    answer = await client.get(path, params={"wait": 20}, headers=ANN)
    assert answer.status_code == 200, answer.text
    return answer.json()


# Under a prefix


async def test_a_job_is_submitted_run_and_read_under_the_prefix(client: httpx2.AsyncClient) -> None:
    answer = await client.post(f"{HERE}/v1/jobs", json={"kind": "wrap", "input": {"paper": "blue"}}, headers=ANN)
    assert answer.status_code == 202, answer.text
    response = answer.json()
    assert answer.headers["location"] == response["links"]["self"] == f"{HERE}/v1/jobs/{response['id']}"
    assert (response["price"], response["available"]) == (2, 98)
    job = await ended(client, response["links"]["self"])
    assert (job["state"], job["tenant"], job["account"], job["output"]) == (
        "succeeded",
        "shop",
        "ann",
        {"paper": "blue"},
    )
    assert all(link.startswith(f"{HERE}/v1/jobs/") for link in job["links"].values())
    page = await client.get(f"{HERE}/v1/jobs", headers=ANN)
    assert [each["links"] for each in page.json()["data"]] == [job["links"]]
    events = await client.get(response["links"]["events"], headers=ANN)
    assert [event["type"] for event in events.json()["data"]] == ["submitted", "started", "succeeded"]


async def test_the_stream_is_where_the_links_say(client: httpx2.AsyncClient) -> None:
    response = (await client.post(f"{HERE}/v1/jobs", json={"kind": "wrap"}, headers=ANN)).json()
    async with client.stream("GET", response["links"]["stream"], headers=ANN) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        text = "".join([part async for part in stream.aiter_text()])
    assert "succeeded" in text


async def test_the_openapi_document_names_the_prefix(client: httpx2.AsyncClient) -> None:
    document = (await client.get(f"{HERE}/openapi.json")).json()
    assert [server["url"] for server in document["servers"]] == [HERE]
    assert "/v1/jobs" in document["paths"]


async def test_the_docs_page_works_under_the_prefix(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{HERE}/docs")
    assert answer.status_code == 200
    assert 'href="/v1' not in answer.text


async def test_a_problem_points_to_its_page_under_the_prefix(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{HERE}/v1/nothing", headers=ANN)
    assert (answer.status_code, answer.json()["type"]) == (404, f"{HERE}/docs/problems/not_found")
    assert (await client.get(answer.json()["type"])).status_code == 200


async def test_the_hosts_own_routes_are_its_own(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/hello")).json() == "hello"
    assert (await client.get("/v1/jobs", headers=ANN)).status_code == 404


# The host's users


async def test_a_stranger_is_refused(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{HERE}/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_the_hosts_own_refusal_is_reported_as_a_problem(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{HERE}/v1/jobs", headers={"x-user": "banned"})
    assert (answer.status_code, answer.json()["code"], answer.json()["detail"]) == (403, "forbidden", "You are banned.")


async def test_an_error_of_the_host_is_a_500_without_its_inside(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{HERE}/v1/jobs", headers={"x-user": "broken"})
    assert (answer.status_code, answer.json()["code"]) == (500, "error")
    assert "418" not in answer.text


async def test_one_user_does_not_see_the_jobs_of_another(client: httpx2.AsyncClient) -> None:
    response = (await client.post(f"{HERE}/v1/jobs", json={"kind": "wrap"}, headers=ANN)).json()
    assert (await client.get(response["links"]["self"], headers={"x-user": "bob"})).status_code == 404
    assert (await client.get(response["links"]["self"], headers={"x-user": "boss"})).status_code == 200
    assert (await client.post(f"{HERE}/v1/grants", json={}, headers=ANN)).status_code == 403


async def test_a_browser_token_is_good_beside_the_hosts_users(client: httpx2.AsyncClient) -> None:
    response = (await client.post(f"{HERE}/v1/jobs", json={"kind": "nap"}, headers=ANN)).json()
    here = response["links"]["self"]
    made = await client.post(f"{here}/tokens", json={"scopes": ["read", "cancel"]}, headers=ANN)
    assert made.status_code == 201, made.text
    token = made.json()["token"]
    assert (await client.get(here, params={"token": token})).json()["id"] == response["id"]
    assert (await client.get(here, headers={"authorization": f"Bearer {token}"})).status_code == 200
    assert (await client.get(f"{HERE}/v1/jobs", params={"token": token})).status_code in (401, 403)
    assert (await client.get(here, params={"token": f"{token}x"})).status_code == 401
    assert (await client.post(f"{here}/cancel", params={"token": token})).status_code in (200, 202)


async def test_a_key_is_asked_for_where_the_host_does_not_say_who_it_is(
    client: httpx2.AsyncClient, jobs: Mount
) -> None:
    assert (await client.get("/keys/v1/jobs", headers=ANN)).status_code == 401
    _, key = await jobs.engine.access.make_key(scope="client", tenant="shop", account="ann", actor="test")
    answer = await client.get("/keys/v1/jobs", headers={"authorization": f"Bearer {key}"})
    assert (answer.status_code, answer.json()["data"]) == (200, [])


async def test_who_may_be_a_plain_function_and_must_say_a_principal(jobs: Mount) -> None:
    host = FastAPI(lifespan=jobs.lifespan)
    host.mount("/wrong", jobs.asgi(authenticate=lambda _: "ann"))  # pyright: ignore[reportArgumentType]
    host.mount("/nobody", jobs.asgi(authenticate=lambda _: None))
    async with served(host) as client:
        assert (await client.get("/wrong/v1/jobs")).status_code == 500
        assert (await client.get("/nobody/v1/jobs")).status_code == 401


# The lifespan


async def test_without_its_lifespan_it_says_what_is_missing(jobs: Mount) -> None:
    with pytest.raises(RuntimeError, match=r"FastAPI\(lifespan=jobs\.lifespan\)"):
        _ = jobs.engine
    host = FastAPI()
    host.mount("/jobs", jobs.asgi(authenticate=who))
    transport = httpx2.ASGITransport(app=host)
    async with httpx2.AsyncClient(transport=transport, base_url="http://host") as client:
        with pytest.raises(RuntimeError, match="lifespan"):
            await client.get("/jobs/v1/jobs")


async def test_it_may_run_again_after_it_has_ended(jobs: Mount) -> None:
    for _ in range(2):
        async with served(shop(jobs)) as client:
            assert (await client.get(f"{HERE}/v1/jobs", headers=ANN)).status_code == 200
    with pytest.raises(RuntimeError):
        _ = jobs.engine


async def test_worker_and_services_may_live_elsewhere(empty_dsn: str) -> None:
    jobs = Mount(product, settings=Settings(database_url=empty_dsn), worker=False, services=False)
    async with served(shop(jobs)) as client:
        response = (await client.post(f"{HERE}/v1/jobs", json={"kind": "nap"}, headers=ANN)).json()
        job = await client.get(response["links"]["self"], params={"wait": 1}, headers=ANN)
        assert job.json()["phase"] == "ready"


async def test_the_embedded_database_is_used_where_none_is_named(tmp_path: Any) -> None:
    jobs = Mount(product, settings=Settings(data_dir=tmp_path), worker=False)
    async with jobs.running():
        assert (await jobs.engine.balance("shop", "ann")).available == 0
    assert (tmp_path / "postgres").is_dir()


async def test_what_does_not_isolate_tenants_is_logged_when_it_starts(
    server: DatabaseServer, empty_dsn: str, tmp_path: Path, log: io.StringIO
) -> None:
    async with plain_user(server) as dsn:
        given = [Settings(database_url=url) for url in (dsn, empty_dsn)]
        for settings in (*given, Settings(data_dir=tmp_path)):
            async with Mount(product, settings=settings, worker=False, services=False).running():
                pass
    events = [line["event"] for line in map(msgspec.json.decode, log.getvalue().splitlines())]
    assert [event for event in events if event.startswith(("isolation.", "vault."))] == [
        *("isolation.incomplete", "vault.missing"),
        *("isolation.superuser", "vault.missing"),
    ]


async def test_an_encryption_key_that_is_not_the_one_in_use_is_refused_when_it_starts(empty_dsn: str) -> None:
    right, wrong = (
        Mount(product, settings=Settings(database_url=empty_dsn, encryption_key=key), worker=False, services=False)
        for key in ENCRYPTION_KEYS
    )
    async with right.running():
        await right.engine.endpoints.make("shop", url="https://1.1.1.1/")
    with pytest.raises(SettingsError, match="encrypted with another key"):
        async with wrong.running():
            pass
    async with right.running():
        pass


# A process of its own


@pytest.fixture
def process(empty_dsn: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The shop under uvicorn's own command line."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running_other(
        [sys.executable, "-m", "uvicorn", "tests.api.hosts:app", "--port", str(port), "--log-level", "warning"],
        cwd=ROOT,
        env=os.environ | {"DATABASE_URL": empty_dsn, "SHOP_PORT": str(port), "MILLPOND_GRACE": "1s"},
    ) as made:
        yield made, f"http://127.0.0.1:{port}"


async def test_an_open_stream_does_not_keep_a_host_from_stopping(
    process: tuple[subprocess.Popen[bytes], str], empty_dsn: str
) -> None:
    """Uvicorn waits for its streams before it ends the lifespan: they must hear of the signal themselves."""
    running, url = process
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:

        async def is_up() -> bool:
            try:
                return (await client.get("/hello")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(is_up)
        response = (await client.post(f"{HERE}/v1/jobs", json={"kind": "nap"}, headers=ANN)).json()
        async with client.stream("GET", response["links"]["stream"], headers=ANN) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines)
            running.send_signal(signal.SIGTERM)
            async for _ in lines:
                pass
    await asyncio.to_thread(running.wait, PATIENCE)
    assert running.returncode in (0, -signal.SIGTERM)
    engine = await Engine.open(empty_dsn, product)
    job = await engine.read("shop", response["id"])
    await engine.close()
    assert job.phase == "ready", "its worker gave it back"
