"""The dashboard's server, as a browser finds it and as an attacker would try it."""

from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI

from millpond import logs, webhooks
from millpond.api import principals
from millpond.api.app import create_app
from millpond.api.jobs.streams import Hub
from millpond.api.mount import Mount
from millpond.api.server import listen, serve
from millpond.api.webhooks.inbox import Inbox
from millpond.engine.engine import Engine
from millpond.kinds import Kind
from millpond.product import Call, Product, Reply, Route, lifecycle, playground, reply
from millpond.services.pruner import pruner
from millpond.settings import Settings
from millpond.store.db import Database, connect
from millpond.ui import dashboard, pages
from millpond.ui.pages import PATHS
from tests.api.hosts import product, served, who
from tests.api.sites import running_site
from tests.checks import until
from tests.clocks import Clock
from tests.factories import TENANT
from tests.ui.servers import STORAGE, DashboardServer, Visitor, dashboard_server
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from playwright.async_api import Browser

    from tests.databases import DatabaseServer

EVIL = "https://evil.example"


@pytest.fixture(scope="module")
async def step(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DashboardServer]:
    """One server for all tests of this file that leave it as it was."""
    async with server.database(template) as dsn, dashboard_server(dsn, tmp_path_factory.mktemp("files")) as opened:
        yield opened


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    lines = io.StringIO()
    before = logs._threshold, logs._logger
    logs.configure("debug", as_json=True, stream=lines)
    yield lines
    logs._threshold, logs._logger = before


async def is_paused(step: DashboardServer, queue: str = "free") -> bool:
    (found,) = [each for each in (await step.site.order("GET", "/v1/queues")).json()["data"] if each["queue"] == queue]
    return found["verdict"] == "paused"


# Coming and going


async def test_a_key_is_traded_for_a_session(step: DashboardServer) -> None:
    async with step.visitor() as visitor:
        missing = (await visitor.get("/session")).json()
        assert missing["code"] == "session_missing"
        assert "Sign in" in (await visitor.http.get(missing["type"])).text
        answer = await visitor.sign_in(f" {step.keys['viewer']}\n")
        response = answer.json()
        assert answer.status_code == 201
        assert (response["scope"], response["tenant"], response["is_development"]) == ("viewer", None, False)
        assert step.keys["viewer"] not in answer.text
        again = await visitor.get("/session")
        assert (again.status_code, again.json()) == (200, response)
        assert (await visitor.get("/api/v1/queues")).status_code == 200
        assert (await visitor.act("DELETE", "/session")).status_code == 204
        assert not list(visitor.http.cookies.jar)
        assert (await visitor.get("/api/v1/queues")).json()["code"] == "session_missing"
        audited = (await step.site.order("GET", "/v1/audit?limit=20")).json()["data"]
        mine = [each for each in audited if each["actor"] == response["actor"]]
        assert [each["action"] for each in mine[:2]] == ["session.closed", "session.opened"]
        assert mine[1]["data"] == {"address": "127.0.0.1"}


async def test_a_session_that_was_ended_is_ended_for_whoever_has_its_cookie(step: DashboardServer) -> None:
    async with step.visitor("viewer") as visitor:
        cookie = visitor.cookie
        await visitor.act("DELETE", "/session")
        answer = await visitor.get("/api/v1/queues", Cookie=cookie)
        assert (answer.status_code, answer.json()["code"]) == (401, "session_missing")
        assert (await visitor.act("DELETE", "/session", Cookie=cookie)).status_code == 204


async def test_who_signs_in_again_has_one_session(step: DashboardServer) -> None:
    async with step.visitor("viewer") as visitor:
        old = visitor.cookie
        await visitor.sign_in(step.keys["operator"])
        assert visitor.cookie != old
        assert (await visitor.get("/session")).json()["scope"] == "operator"
        assert (await visitor.get("/session", Cookie=old)).status_code == 401


async def test_the_cookie_is_for_the_dashboard_alone(step: DashboardServer) -> None:
    async with step.visitor() as visitor:
        plain = (await visitor.sign_in(step.keys["viewer"])).headers["set-cookie"]
        name, *traits = plain.split("; ")
        assert name.startswith(f"millpond_session_{step.site.port}=")
        assert traits == ["Path=/ui", "Max-Age=43200", "HttpOnly", "SameSite=Strict"]
        headers = {"X-Forwarded-Proto": "https"}
        secure = (await visitor.sign_in(step.keys["viewer"], **headers)).headers["set-cookie"]
        assert secure.endswith("; SameSite=Strict; Secure")


async def test_roles_are_those_of_the_key(step: DashboardServer) -> None:
    async with step.visitor("viewer") as viewer, step.visitor("operator") as operator:
        denied = await viewer.act("POST", "/api/v1/queues/free/pause")
        assert (denied.status_code, denied.json()["needed"]) == (403, "admin or operator")
        assert not await is_paused(step)
        assert (await operator.act("POST", "/api/v1/queues/free/pause")).status_code == 200
        assert await is_paused(step)
        assert (await operator.act("POST", "/api/v1/queues/free/resume")).status_code == 200
        assert (await operator.act("POST", "/api/v1/keys", {"scope": "viewer"})).status_code == 403


async def test_a_tenants_admin_sees_that_tenant(step: DashboardServer) -> None:
    async with step.visitor("tenant") as visitor:
        assert (await visitor.get("/session")).json()["tenant"] == TENANT
        response = (await visitor.get("/api/v1/tenants")).json()["data"]
        assert [each["tenant"] for each in response] == [TENANT]
        assert (await visitor.get("/api/v1/keys?tenant=other")).status_code == 403
        made = await visitor.act("POST", "/api/v1/keys", {"scope": "viewer"})
        assert made.json()["tenant"] == TENANT


async def test_what_is_shown_of_a_job_leads_back_through_the_dashboard(step: DashboardServer) -> None:
    job_id = await step.site.submitted()
    async with step.visitor("viewer") as visitor:
        job = (await visitor.get(f"/api/v1/jobs/{job_id}?tenant={TENANT}")).json()
        assert job["links"]["self"] == f"/ui/api/v1/jobs/{job_id}"
        absent = (await visitor.get("/api/v1/jobs/job_nothing")).json()
        assert absent["type"] == "/ui/api/docs/problems/not_found"
        assert (await visitor.http.get(absent["type"])).status_code == 200


# Whose keys do not


@pytest.mark.parametrize("scope", ["client", "worker"])
async def test_a_key_of_no_operator_is_refused_in_so_many_words(
    step: DashboardServer, scope: str, logged: io.StringIO
) -> None:
    async with step.visitor() as visitor:
        answer = await visitor.sign_in(step.keys[scope])
        response = answer.json()
        assert (answer.status_code, response["code"], response["field"], response["scope"]) == (
            403,
            "forbidden",
            "key",
            scope,
        )
        assert "viewer" in response["hint"]
        assert "set-cookie" not in answer.headers
    assert '"session.refused"' in logged.getvalue()
    assert step.keys[scope] not in logged.getvalue()


async def test_what_is_no_key_is_refused_and_not_repeated(step: DashboardServer, logged: io.StringIO) -> None:
    job_id = await step.site.submitted()
    token = (await step.site.post(f"/v1/jobs/{job_id}/tokens", {"scopes": ["read"], "expires_in": "5m"})).json()
    wrong = step.keys["admin"][:-1] + ("x" if step.keys["admin"][-1] != "x" else "y")
    async with step.visitor() as visitor:
        for given, status in ((wrong, 401), ("hello", 401), (token["token"], 403)):
            answer = await visitor.sign_in(given)
            assert answer.status_code == status, answer.text
            assert given not in answer.text
            assert given not in logged.getvalue()
        for body in ({}, {"key": ""}, {"key": "x" * 300}, {"key": 5}, {"key": "x", "more": 1}):
            answer = await visitor.http.post("/ui/session", json=body)
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), body
        assert (await visitor.http.post("/ui/session", json={"key": "x" * 9_000})).status_code == 413


async def test_a_key_is_not_guessed_too_fast(dsn: str, tmp_path: Any) -> None:
    """The right one is refused too while its address is: who guesses learns nothing by it."""
    async with dashboard_server(dsn, tmp_path) as step:
        async with step.visitor() as visitor:
            wrong = "mp_admin_" + "0" * 49
            answers = [await visitor.sign_in(wrong) for _ in range(14)]
            assert [answer.status_code for answer in answers[:10]] == [401] * 10
            assert answers[-1].status_code == 429
            assert int(answers[-1].headers["retry-after"]) >= 1
            assert (await visitor.sign_in(step.keys["admin"])).status_code == 429
        elsewhere = httpx2.AsyncHTTPTransport(local_address="127.0.0.2")
        async with httpx2.AsyncClient(base_url=step.site.url, transport=elsewhere) as http:
            assert (await Visitor(http).sign_in(step.keys["admin"])).status_code == 201
            for number in range(20):
                answer = await Visitor(http).sign_in(wrong, **{"X-Forwarded-For": f"10.0.0.{number}"})
                assert answer.status_code == 401, "behind a proxy each has a turn"
            for _ in range(30):
                answer = await Visitor(http).sign_in(step.keys["admin"])
                assert answer.status_code == 201, "who is let in is not counted"


async def test_a_cookie_is_not_guessed_too_fast(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(dsn, tmp_path) as step, step.visitor("viewer") as visitor, step.visitor() as stranger:
        assert (await visitor.get("/session")).status_code == 200
        name = visitor.cookie.partition("=")[0]
        paths = ("/session", "/api/v1/queues")
        answers = [await stranger.get(paths[n % 2], Cookie=f"{name}=guess{n}") for n in range(20)]
        assert [answer.status_code for answer in answers[:10]] == [401] * 10
        assert (answers[-1].status_code, answers[-1].json()["code"]) == (429, "rate_limited")
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert (await stranger.get("/session")).status_code == 401, "who shows none has guessed none"
        for _ in range(20):
            assert (await visitor.get("/session")).status_code == 200, "who has signed in is not kept out"
        headers = {"Cookie": f"{name}=guess"}
        assert (await stranger.act("DELETE", "/session", **headers)).status_code == 204
        assert (await stranger.sign_in(step.keys["viewer"], **headers)).status_code == 201


async def test_what_is_done_to_jobs_by_hand_is_written_down(step: DashboardServer) -> None:
    async with step.visitor("operator") as visitor:
        job = {"kind": "free", "account": "ann"}
        for key in ("order-1", "order-2", "order-2"):
            made = await visitor.act("POST", f"/api/v1/jobs?tenant={TENANT}", job | {"idempotency_key": key})
            assert made.status_code == 202, made.text
        many = {"jobs": [job, job, job | {"kind": "none"}]}
        assert (await visitor.act("POST", f"/api/v1/jobs/bulk?tenant={TENANT}", many)).json()["accepted"] == 2
        assert (await visitor.act("POST", f"/api/v1/jobs/{made.json()['id']}/cancel")).status_code == 200
        audited = (await visitor.get("/api/v1/audit?action=job.")).json()["data"]
        who = (await visitor.get("/session")).json()["actor"]
    assert [(each["action"], each["tenant"], each["data"]) for each in audited[:4]] == [
        ("job.canceled", TENANT, None),
        ("job.submitted", TENANT, {"kinds": ["free"], "count": 2}),
        ("job.submitted", TENANT, {"kind": "free"}),
        ("job.submitted", TENANT, {"kind": "free"}),
    ]
    assert [each["subject"] for each in audited[:3]] == [made.json()["id"], None, made.json()["id"]]
    assert {each["actor"] for each in audited[:4]} == {who}


# Keys do not open the dashboard, nor cookies the API


async def test_a_stolen_cookie_opens_nothing_of_the_api(step: DashboardServer) -> None:
    async with step.visitor("admin") as visitor:
        for path in ("/v1/queues", "/v1/keys", "/v1/jobs"):
            answer = await visitor.http.get(path, headers={"Cookie": visitor.cookie, "Millpond-Csrf": visitor.csrf})
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_a_key_opens_nothing_in_the_dashboard(step: DashboardServer) -> None:
    async with step.visitor() as visitor:
        for path in ("/api/v1/queues", "/api/v1/keys", "/session"):
            answer = await visitor.get(path, Authorization=f"Bearer {step.keys['admin']}")
            assert (answer.status_code, answer.json()["code"]) == (401, "session_missing")
    job_id = await step.site.submitted()
    made = await step.site.post(f"/v1/jobs/{job_id}/tokens", {"scopes": ["read"], "expires_in": "5m"})
    async with step.visitor() as visitor:
        assert (await visitor.get(f"/api/v1/jobs/{job_id}?token={made.json()['token']}")).status_code == 401


async def test_a_browser_learns_nothing_of_other_origins(step: DashboardServer) -> None:
    job_id = await step.site.submitted()
    async with step.visitor("viewer") as visitor:
        answer = await visitor.get(f"/api/v1/jobs/{job_id}?tenant={TENANT}", Origin=EVIL)
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        asked = {"Origin": EVIL, "Access-Control-Request-Method": "GET"}
        preflight = await visitor.http.request("OPTIONS", f"/ui/api/v1/jobs/{job_id}", headers=asked)
        assert preflight.status_code == 405


async def test_what_is_no_operators_is_not_in_the_dashboard(step: DashboardServer) -> None:
    async with step.visitor("admin") as visitor:
        for path in ("/api/metrics", "/api/docs", "/api/openapi.json", "/api/healthz", "/api/v1/nothing", "/api/inbox"):
            assert (await visitor.get(path)).status_code == 404, path
        for path in ("/api/v1/worker/poll", "/api/v1/worker/register", "/api/v1/callbacks/replicate/token"):
            assert (await visitor.act("POST", path, {})).status_code == 404, path


# Pages of others

ATTACKS: list[dict[str, str | None]] = [
    {"Millpond-Csrf": None},
    {"Millpond-Csrf": ""},
    {"Millpond-Csrf": "A" * 43},
    {"Millpond-Csrf": "é"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://["},
]


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
async def test_what_another_page_sends_does_nothing(step: DashboardServer, attack: dict[str, str | None]) -> None:
    async with step.visitor("operator") as visitor:
        given = {"Millpond-Csrf": visitor.csrf, "Sec-Fetch-Site": "same-origin"} | attack
        headers = [(name.encode(), value.encode("latin-1")) for name, value in given.items() if value is not None]
        answer = await visitor.http.post("/ui/api/v1/queues/free/pause", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
        assert answer.json()["field"] in ("Millpond-Csrf", "Sec-Fetch-Site", "Origin")
        assert (await visitor.http.delete("/ui/session", headers=headers)).status_code == 403
        assert (await visitor.get("/session")).status_code == 200
    assert not await is_paused(step)


async def test_another_sessions_token_is_no_token(step: DashboardServer) -> None:
    async with step.visitor("operator") as one, step.visitor("operator") as other:
        assert one.csrf != other.csrf
        one.csrf = other.csrf
        assert (await one.act("POST", "/api/v1/queues/free/pause")).json()["code"] == "csrf"
    assert not await is_paused(step)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:{port}", "https://127.0.0.1:{port}"])
async def test_what_our_own_page_sends_is_done(step: DashboardServer, origin: str) -> None:
    """Also where a proxy in front speaks https: only the browser knows."""
    async with step.visitor("operator") as visitor:
        own = origin.format(port=step.site.port)
        assert (await visitor.act("POST", "/api/v1/queues/free/resume", Origin=own)).status_code == 200


async def test_nobody_is_signed_in_by_another_page(step: DashboardServer) -> None:
    """As whom somebody is signed in without knowing it, they work for the attacker."""
    key = step.keys["operator"]
    async with step.visitor() as visitor:
        form = await visitor.http.post("/ui/session", data={"key": key}, headers={"Origin": EVIL})
        assert form.status_code == 415
        for headers in ({"Origin": EVIL}, {"Sec-Fetch-Site": "cross-site"}):
            assert (await visitor.sign_in(key, **headers)).json()["code"] == "csrf"
        bare = visitor.http.build_request("POST", "/ui/session", content=b'{"key": "%s"}' % key.encode())
        bare.headers.pop("content-type", None)
        answer = await visitor.http.send(bare)
        assert (answer.status_code, answer.json()["field"]) == (415, "Content-Type")
        assert not list(visitor.http.cookies.jar)


# Its end


async def test_a_key_that_is_revoked_ends_its_sessions_at_once(step: DashboardServer) -> None:
    made = (await step.site.order("POST", "/v1/keys", {"scope": "admin"})).json()
    async with step.visitor(key=made["key"]) as visitor, step.visitor("admin") as other:
        assert (await other.act("DELETE", f"/api/v1/keys/{made['id']}")).status_code == 200
        answer = await visitor.get("/api/v1/queues")
        assert (answer.status_code, answer.json()["code"]) == (401, "session_expired")
        assert "revoked" in answer.json()["detail"]
        acted = await visitor.act("POST", "/api/v1/queues/free/pause")
        assert acted.json()["code"] == "session_expired"
        assert (await step.site.get("/v1/queues", key=made["key"])).status_code == 401, "and the API has heard of it"


async def test_what_is_watched_ends_with_the_session(dsn: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is let in once, and may be open for days."""
    monkeypatch.setattr(principals, "RECHECK_SECONDS", 0.05)
    async with dashboard_server(dsn, tmp_path) as step:
        made = (await step.site.order("POST", "/v1/keys", {"scope": "viewer"})).json()
        job_id = await step.site.submitted()
        async with step.visitor(key=made["key"]) as visitor:
            path = f"/ui/api/v1/jobs/{job_id}/stream?tenant={TENANT}"
            async with asyncio.timeout(PATIENCE), visitor.http.stream("GET", path) as stream:
                parts = stream.aiter_bytes()
                while b"submitted" not in await anext(parts):
                    pass
                await step.site.order("DELETE", f"/v1/keys/{made['id']}")
                rest = b"".join([part async for part in parts])
            assert b"event: end" not in rest, "the stream has ended, and the job has not"


async def test_a_session_has_an_end_and_none_lies_about(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(
        dsn, tmp_path, session_lifetime=timedelta(hours=3), session_idle=timedelta(hours=1)
    ) as step:
        clock = Clock(step.site.engine.db)
        async with step.visitor("viewer") as busy, step.visitor("viewer") as idle:
            for _ in range(4):
                await clock.advance(timedelta(minutes=40))
                assert (await busy.get("/session")).status_code == 200
            assert (await idle.get("/session")).json()["code"] == "session_expired"
            await clock.advance(timedelta(minutes=21))
            answer = await busy.get("/api/v1/queues")
            assert (answer.status_code, answer.json()["code"]) == (401, "session_expired")
            await pruner(step.site.engine).run_once()
            assert (await busy.get("/session")).json()["code"] == "session_missing"


async def test_a_key_that_expires_takes_its_session_along(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(dsn, tmp_path) as step:
        key = await step.site.key(scope="viewer", tenant=None, account=None, expires_in="10m")
        async with step.visitor(key=key) as visitor:
            await Clock(step.site.engine.db).advance(timedelta(minutes=11))
            answer = await visitor.get("/session")
            assert (answer.status_code, answer.json()["code"]) == (401, "session_expired")
            assert "expired on" in answer.json()["detail"]


async def test_a_session_is_written_once_a_minute(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(dsn, tmp_path) as step, step.visitor("viewer") as visitor:
        db = step.site.engine.db

        async def seen() -> Any:
            async with db.transaction() as tx:
                return await tx.fetchrow("select last_seen_at, xmin::text from millpond.sessions")

        first = await seen()
        await visitor.get("/session")
        assert await seen() == first
        await Clock(db).advance(timedelta(seconds=61))
        await visitor.get("/session")
        assert (await seen())["last_seen_at"] > first["last_seen_at"]


# Pages


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """A package with what a build makes."""
    package = tmp_path / f"ui_{uuid4().hex}"
    (package / "static").mkdir(parents=True)
    (package / "__init__.py").touch()
    shell = '<html data-root="{root}"><script type="module" src="{root}/static/app-1A.js"></script></html>'
    (package / "static" / "index.html").write_text(shell)
    (package / "static" / "app-1A.js").write_text("export {};")
    (package / "static" / "licenses.txt").write_text("free")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(pages, "PACKAGE", package.name)
    return package


async def test_every_path_of_the_dashboard_is_one_document(dsn: str, tmp_path: Any, built: Any) -> None:
    async with dashboard_server(dsn, tmp_path) as step, step.visitor() as visitor:
        for path in PATHS:
            answer = await visitor.get(path.replace("{", "").replace("}", ""))
            assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache"), path
            assert 'data-root="/ui"' in answer.text
            assert 'src="/ui/static/app-1A.js"' in answer.text
        moved = await visitor.http.get("/ui")
        assert (moved.status_code, moved.headers["location"]) == (308, "/ui/")
        for path in ("/jobs?x=%ff", "/jobs?a=1&a=2", "/?" + "&".join(f"p{n}=1" for n in range(200)), "/jobs/%ff?%ff"):
            assert (await visitor.get(path)).status_code == 200, path
        assert (await visitor.get("/nothing")).status_code == 404
        part = await visitor.get("/static/app-1A.js")
        assert (part.status_code, part.text) == (200, "export {};")
        assert part.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert part.headers["content-type"] == "text/javascript; charset=utf-8"
        for name in ("app-2B.js", "licenses.txt", "index.html", "..%2f__init__.py", "%2e%2e", "a%00.js"):
            assert (await visitor.get(f"/static/{name}")).status_code == 404, name


async def test_a_page_does_what_its_policy_says_and_no_more(dsn: str, tmp_path: Any, built: Any) -> None:
    async with dashboard_server(dsn, tmp_path) as step, step.visitor() as visitor:
        headers = (await visitor.get("/jobs/x")).headers
        policy = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert policy == {
            "default-src": "'none'",
            "base-uri": "'none'",
            "form-action": "'none'",
            "frame-ancestors": "'none'",
            "frame-src": "'self'",
            "script-src": "'self'",
            "style-src": "'self'",
            "connect-src": f"'self' {STORAGE}",
            "img-src": f"'self' blob: {STORAGE}",
            "media-src": f"blob: {STORAGE}",
        }
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"


async def test_where_it_was_not_built_the_page_says_so(step: DashboardServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PACKAGE", "millpond.wire")
    async with step.visitor() as visitor:
        answer = await visitor.get("/jobs")
        assert answer.status_code == 503
        assert "make ui" in answer.text
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_without_a_dashboard_there_is_no_such_path(engine: Engine) -> None:
    async with running_site(engine) as site:
        for path in ("/ui/", "/ui/session", "/ui/api/v1/queues"):
            assert (await site.get(path)).status_code == 404


async def test_a_developers_inbox_is_in_the_dashboard(engine: Engine) -> None:
    async with (
        running_site(engine, inbox=Inbox(), ui=dashboard) as site,
        httpx2.AsyncClient(base_url=site.url, timeout=PATIENCE) as http,
    ):
        visitor = Visitor(http)
        assert (await visitor.get("/api/inbox.json")).status_code == 401, "to be on this machine is no session"
        assert (await visitor.sign_in(site.admin_key)).json()["is_development"]
        assert (await visitor.get("/api/inbox.json")).status_code == 200
        await visitor.sign_in(await site.key(scope="admin", account=None))
        for method, body in (("GET", None), ("POST", {"secret": webhooks.new_secret()}), ("DELETE", None)):
            denied = await visitor.act(method, "/api/inbox.json", body)
            assert (denied.status_code, "covers all tenants" in denied.json()["detail"]) == (403, True), method


async def test_products_with_a_page_are_named(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "pictured_of_tests" / "static"
    folder.mkdir(parents=True)
    (folder / "page.html").write_text("<!doctype html><title>Pictured</title>")
    monkeypatch.syspath_prepend(tmp_path)
    pictured = replace(make_product("pictured", playground("pictured_of_tests")), page_scope="operator")
    plain = make_product(
        "plain", (Route(method="GET", path="/things", handle=_answer, summary="Things.", answers={200: dict}),)
    )
    hub = Hub(engine)
    for mounted, alone, path in (([pictured, plain], None, "/pictured/"), ([], pictured, "/")):
        app = create_app(engine, settings=Settings(), hub=hub, ui=dashboard, products=mounted, alone=alone)
        transport = httpx2.ASGITransport(app=app)
        key = (await engine.access.make_key(scope="viewer", actor="test"))[1]
        async with httpx2.AsyncClient(base_url="http://here.test", transport=transport) as http:
            response = (await Visitor(http).sign_in(key)).json()
            assert response["products"] == [
                {"name": "pictured", "title": "Pictured", "path": path, "scope": "operator"}
            ]
            policy = (await http.get(path)).headers["content-security-policy"]
            assert policy.endswith("frame-ancestors 'self'"), "the playground shows it in a frame"
        await app.aclose()


def make_product(name: str, routes: tuple[Route, ...]) -> Product:
    drawn = lifecycle(name, "* -> a submitted\n a -> b succeeded failed expired", ends="b=succeeded")
    return Product(lifecycle=drawn, kinds=(Kind(name=name, lifecycle=drawn),), title=name.capitalize(), routes=routes)


async def _answer(call: Call) -> Reply:
    return reply({})


# Under another's roof


async def test_it_works_inside_a_host(empty_dsn: str, built: Any) -> None:
    jobs = Mount(product, settings=Settings(database_url=empty_dsn), worker=False, services=False)
    host = FastAPI(lifespan=jobs.lifespan)
    host.mount("/shop/jobs", jobs.asgi(authenticate=who, ui=dashboard))
    async with served(host) as http:
        _, key = await jobs.engine.access.make_key(scope="operator", actor="test")
        visitor = Visitor(http, root="/shop/jobs/ui")
        assert 'data-root="/shop/jobs/ui"' in (await visitor.get("/jobs/x")).text
        assert (await http.get("/shop/jobs/ui")).headers["location"] == "/shop/jobs/ui/"
        assert "Path=/shop/jobs/ui;" in (await visitor.sign_in(key)).headers["set-cookie"]
        assert (await visitor.get("/api/v1/queues")).status_code == 200
        paused = await visitor.act("POST", "/api/v1/queues/wrap/pause")
        assert (paused.status_code, paused.json()["verdict"]) == (200, "paused")
        boss = {"x-user": "boss"}
        assert (await http.get("/shop/jobs/v1/queues", headers=boss)).status_code == 200
        assert (await http.get("/shop/jobs/ui/api/v1/queues", headers=boss | {"cookie": ""})).status_code == 401


# On connections of its own


async def test_a_statement_that_takes_too_long_is_cut_and_said_so(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(dsn, tmp_path, ui_timeout=timedelta(seconds=1)) as step:
        blocker = await connect(dsn)
        try:
            async with step.visitor("viewer") as visitor:
                async with blocker.transaction():
                    await blocker.execute("lock table millpond.queues in access exclusive mode")
                    native = asyncio.create_task(step.site.order("GET", "/v1/queues"))
                    answer = await visitor.get("/api/v1/queues")
                    response = answer.json()
                    assert (answer.status_code, response["code"], response["retryable"]) == (503, "overdue", True)
                    assert "Request less" in response["detail"]
                    assert "retry-after" in answer.headers
                assert (await native).status_code == 200, "the API has other connections, and more patience"
                assert (await visitor.get("/api/v1/queues")).status_code == 200
        finally:
            await blocker.close()


async def test_it_takes_few_connections_and_none_before_somebody_comes(dsn: str, tmp_path: Any) -> None:
    async with dashboard_server(dsn, tmp_path, ui_pool=2) as step:
        sessions = "select count(*) from pg_stat_activity where datname = current_database()"
        async with step.site.engine.db.transaction() as tx:
            before = await tx.fetchval(sessions)
        async with step.visitor("viewer") as visitor:
            answers = await asyncio.gather(*(visitor.get("/api/v1/queues") for _ in range(40)))
            assert {answer.status_code for answer in answers} == {200}
            async with step.site.engine.db.transaction() as tx:
                assert 1 <= await tx.fetchval(sessions) - before <= 2 + 3, "its own, and those of the API that grew"


async def test_an_engine_beside_another_is_the_same_engine(db: Database, engine: Engine) -> None:
    async with running_site(engine) as site:
        beside = await engine.beside(pool_size=1, cut=timedelta(seconds=1))
        async with beside.db.transaction() as tx:
            assert await tx.fetchval("show statement_timeout") == "1s"
        await beside.submit("free", {}, tenant=TENANT, account="ann")
        assert (await engine.views.jobs(TENANT)).data[0].kind == "free"
        made, secret = await engine.access.make_key(scope="viewer", actor="test")
        assert (await site.get("/v1/queues", key=secret)).status_code == 200
        await beside.access.revoke_key(made.id, actor="test")
        assert (await site.get("/v1/queues", key=secret)).status_code == 401, "it was heard"
        await beside.close()
        assert await engine.balance(TENANT, "ann")
        assert engine.outbound is beside.outbound


# In a real browser

ATTACK = """
<!doctype html><iframe name="away"></iframe>
<form id="form" method="post" target="away" enctype="text/plain"></form>
<iframe id="framed"></iframe>
<script>
  const target = new URLSearchParams(location.search).get("target");
  const act = target + "/ui/api/v1/queues/free/pause";
  document.getElementById("form").action = act;
  document.getElementById("form").submit();
  document.getElementById("framed").src = target + "/ui/";
  fetch(act, {method: "POST", mode: "no-cors", credentials: "include", body: "{}"})
    .then(() => fetch(target + "/ui/session", {credentials: "include"})).catch(() => null)
    .then((answer) => { document.title = answer ? "read" : "unread"; });
</script>
"""


@asynccontextmanager
async def evil_page() -> AsyncIterator[int]:
    """Another server on this machine, whose page sends to ours whatever a page can; its port."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/html"), (b"content-length", b"%d" % len(ATTACK))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": ATTACK.encode()})

    sock, stop, ready = listen("127.0.0.1", 0), asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(serve(app, host="", port=0, sock=sock, stop=stop, on_ready=ready.set, drain=1))
    await ready.wait()
    yield sock.getsockname()[1]
    stop.set()
    await serving


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1", 403), ("localhost", 401)])
async def test_a_browser_acts_for_no_other_page(
    step: DashboardServer, browser: Browser, host: str, status: int
) -> None:
    """One of another port is of the same site, and has the cookie sent along; one of another name has not even that."""
    answered = step.site.app.state.metrics.requests
    pause = "POST", "/ui/api/v1/queues/{queue}/pause"
    before = {code: answered[*pause, code] for code in (200, 401, 403)}
    context = await browser.new_context()
    try:
        made = await context.request.post(f"{step.site.url}/ui/session", data={"key": step.keys["operator"]})
        assert made.status == 201
        async with evil_page() as port:
            page = await context.new_page()
            await page.goto(f"http://{host}:{port}/?target={step.site.url}")
            await page.wait_for_function("document.title !== ''")

            async def both_were_answered() -> bool:
                return answered[*pause, status] - before[status] == 2

            await until(both_were_answered)
            assert await page.title() == "unread"
            framed = page.frame(url=f"{step.site.url}/ui/")
            assert framed is None or not await framed.query_selector("#app"), "it is shown in no frame"
        assert {code: answered[*pause, code] - before[code] for code in before if code != status} == {
            code: 0 for code in before if code != status
        }
    finally:
        await context.close()
    assert not await is_paused(step)
