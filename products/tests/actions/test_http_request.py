"""http-request: real servers, through the guard."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from millpond_products.actions.http_request import SIZE_MAX
from tests.doubles.comfyui import served
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from products.tests.actions.deployments import Deployment, User
    from starlette.requests import Request

METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD"]


@dataclasses.dataclass
class Web:
    """A server out there, and what it was asked."""

    url: str = ""
    asked: list[tuple[str, dict[str, str], bytes]] = dataclasses.field(default_factory=list)
    held: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def echo(self, request: Request) -> Response:
        self.asked.append((request.method, dict(request.headers), await request.body()))
        return JSONResponse({"method": request.method}, headers={"x-answered": "yes"})

    async def status(self, request: Request) -> Response:
        status = request.path_params["status"]
        return PlainTextResponse("the reason " * 400, status, headers={"location": "http://127.0.0.1:1/"})

    async def large(self, request: Request) -> Response:
        del request
        return Response(b"\xff" + b"z" * SIZE_MAX * 3)

    async def slow(self, request: Request) -> Response:
        self.asked.append((request.method, dict(request.headers), b""))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while not await request.is_disconnected():
                    await asyncio.sleep(0.02)
        return Response()


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    out_there = Web()
    routes = [
        Route("/echo", out_there.echo, methods=METHODS),
        Route("/status/{status:int}", out_there.status),
        Route("/large", out_there.large),
        Route("/slow", out_there.slow, methods=METHODS),
    ]
    with served(Starlette(routes=routes)) as running:
        out_there.url = running.url
        yield out_there


async def request(user: User, **given: Any) -> dict[str, Any]:
    return await user.done("http-request", **given)


async def test_act_11_a_request_is_made_and_its_answer_reported(user: User, web: Web) -> None:
    job = await request(user, url=f"{web.url}/echo?key=hidden", headers={"X-Asked": "yes"})
    described = job["output"]
    assert (job["state"], described["status"], described["body"], described["isCut"]) == (
        "success",
        200,
        '{"method":"GET"}',
        False,
    )
    assert described["headers"]["x-answered"] == "yes"
    assert web.asked[-1][1]["x-asked"] == "yes"
    assert (await user.texts(job["id"]))[0] == f"GET {web.url}/echo?…"


@pytest.mark.parametrize(
    ("given", "body", "form"),
    [
        ({"json": {"a": [1, None]}}, b'{"a":[1,null]}', "application/json"),
        ({"json": None}, b"null", "application/json"),
        ({"json": {}, "headers": {"Content-Type": "application/ld+json"}}, b"{}", "application/ld+json"),
        ({"body": "grüße", "headers": {"Content-Type": "text/plain"}}, "grüße".encode(), "text/plain"),
    ],
)
async def test_a_body_is_sent_as_it_was_given(user: User, web: Web, given: Any, body: bytes, form: str) -> None:
    job = await request(user, url=f"{web.url}/echo", method="POST", **given)
    assert job["state"] == "success"
    method, headers, sent = web.asked[-1]
    assert (method, sent, headers["content-type"]) == ("POST", body, form)


@pytest.mark.parametrize(
    ("status", "expect", "state"),
    [
        (204, None, "success"),
        (302, None, "success"),
        (404, None, "failed"),
        (500, None, "failed"),
        (404, 404, "success"),
        (201, [200, 204], "failed"),
        (200, [200, 204], "success"),
    ],
)
async def test_the_status_decides(user: User, web: Web, status: int, expect: Any, state: str) -> None:
    job = await request(user, url=f"{web.url}/status/{status}", expectStatus=expect)
    assert job["state"] == state
    if state == "failed":
        assert (job["error"]["status"], job["error"]["body"][:10]) == (status, "the reason")
        assert len(job["error"]["body"]) <= 1_000
    else:
        assert job["output"]["status"] == status


async def test_a_redirect_is_reported_and_not_followed(user: User, web: Web) -> None:
    job = await request(user, url=f"{web.url}/status/307")
    assert (job["output"]["status"], job["output"]["headers"]["location"]) == (307, "http://127.0.0.1:1/")
    assert (await user.texts(job["id"]))[-1].endswith("Redirects are not followed.")


async def test_a_large_answer_is_cut(user: User, web: Web) -> None:
    job = await request(user, url=f"{web.url}/large")
    assert (job["state"], job["output"]["isCut"], len(job["output"]["body"])) == ("success", True, SIZE_MAX)


async def test_a_url_that_leads_inside_is_refused_at_once_and_by_the_worker(deployment: Deployment, user: User) -> None:
    for url in (
        "http://169.254.169.254/latest",
        "http://10.0.0.1/",
        "file:///etc/passwd",
        "http://user:pw@example.com/",
    ):
        body = {"action": "http-request", "input": {"url": url}}
        problem = await user.refused("POST", "/api/jobs", body, status=422)
        assert (problem["code"], problem["field"]) == ("url_refused", "input.url")
        made = await deployment.engine.submit("actions.http-request", {"url": url}, tenant="acme", account=user.name)
        job = await user.until(made.id, "failed")
        assert job["error"]["message"].startswith("The URL may not be called:")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"headers": {"X-A": "one\r\nX-B: two"}}, "input.headers.X-A"),
        ({"headers": {"no name": "x"}}, "input.headers.no name"),
        ({"headers": {"Host": "elsewhere"}}, "input.headers.Host"),
        ({"body": "a", "json": {}}, "input.json"),
        ({"method": "BREW"}, "input.method"),
        ({"expectStatus": 99}, "input.expectStatus"),
    ],
)
async def test_what_could_not_be_sent_is_refused(user: User, web: Web, given: dict[str, Any], field: str) -> None:
    body = {"action": "http-request", "input": {"url": web.url, **given}}
    assert (await user.refused("POST", "/api/jobs", body, status=422))["field"] == field


async def test_secrets_of_a_request_are_in_no_line(deployment: Deployment, user: User, web: Web) -> None:
    secret = "s3cr3t-value"
    headers = {"Authorization": f"Bearer {secret}", "Cookie": f"session={secret}", "X-Api-Key": secret}
    for url in (f"{web.url}/echo?token={secret}", "http://127.0.0.1:1/"):
        job = await request(user, url=url, headers=headers, json={"password": secret}, method="POST")
        events = await deployment.engine.events("acme", job["id"])
        assert not any(secret in str(event.data) for event in events)
        assert secret not in str(job["error"])


async def test_a_password_in_a_url_is_in_no_line(deployment: Deployment, user: User, web: Web) -> None:
    """It is refused when it is sent here; another way may lead to the worker."""
    secret = "s3cr3t-value"
    url = web.url.replace("//", f"//ada:{secret}@")
    for given in (url, f"http://[{secret}", f"::{secret}::", f"https://a.example:99999999/{secret}"):
        asked = {"url": given, "method": "POST"}
        made = await deployment.engine.submit("actions.http-request", asked, tenant="acme", account=user.name)
        job = await user.until(made.id, "failed")
        assert job["error"]["message"].startswith("The URL may not be called:")
        assert secret not in str(job["error"])
        assert await user.texts(made.id) == []


async def test_nobody_at_the_url_is_a_failure_with_its_reason(user: User) -> None:
    job = await request(user, url="http://127.0.0.1:1/")
    assert (job["state"], job["error"]["reason"]) == ("failed", "connect")


async def test_a_request_ends_when_its_time_is_over_or_its_job_is_cancelled(user: User, web: Web) -> None:
    late = await request(user, url=f"{web.url}/slow", timeoutSeconds=0.2)
    assert (late["state"], late["error"]["reason"]) == ("failed", "timeout")
    count = len(web.asked)
    job_id = await user.submit("http-request", url=f"{web.url}/slow")
    async with asyncio.timeout(PATIENCE):
        while len(web.asked) == count:
            await asyncio.sleep(0.02)
    await user.send("POST", f"/api/jobs/{job_id}/cancel")
    assert (await user.until(job_id, "cancelled"))["error"] is None


@pytest.mark.parametrize(("method", "state"), [("GET", "success"), ("POST", "failed")])
async def test_only_what_changes_nothing_is_sent_again_by_who_takes_over(
    idle: Deployment, web: Web, method: str, state: str
) -> None:
    user = await idle.user()
    job_id = await user.submit("http-request", url=f"{web.url}/echo", method=method)
    lease = await idle.claimed("http-request")
    if method == "POST":
        await idle.engine.proceed(lease, {"begun": lease.epoch}, {"begun": lease.epoch})
    count = len(web.asked)
    await idle.died(lease)
    await idle.work()
    assert (await user.job(job_id))["state"] == state
    assert len(web.asked) - count == (state == "success")
