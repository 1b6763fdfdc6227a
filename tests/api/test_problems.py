"""Whatever comes in that is wrong gets a precise refusal, and nothing is written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from millpond.api.calls import BODY_MAX
from millpond.store.db import Database
from tests.databases import DatabaseServer

if TYPE_CHECKING:
    from millpond.engine.engine import Engine
    from tests.api.sites import Site

JSON = {"Content-Type": "application/json"}


def _nested(depth: int) -> bytes:
    return b'{"kind": "free", "input": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}"


BAD_BODIES: dict[str, tuple[bytes, int, str, str | None]] = {
    "nothing": (b"", 422, "invalid", "kind"),
    "no JSON": (b"kind=free", 400, "malformed", None),
    "half of it": (b'{"kind": "free"', 400, "malformed", None),
    "more than one": (b'{"kind": "free"}{}', 400, "malformed", None),
    "a list": (b"[]", 422, "invalid", None),
    "null": (b"null", 422, "invalid", None),
    "a wrong type": (b'{"kind": 7}', 422, "invalid", "kind"),
    "an unknown field": (b'{"kind": "free", "inptu": {}}', 422, "invalid", "inptu"),
    "a bad name": (b'{"kind": "no spaces"}', 422, "invalid", "kind"),
    "an unknown kind": (b'{"kind": "absent"}', 422, "unknown_kind", "kind"),
    "a wrong input": (b'{"kind": "priced", "input": {"size": "big"}}', 422, "invalid_input", "input.size"),
    "an input that is no object": (b'{"kind": "free", "input": [1]}', 422, "invalid", "input"),
    "bad UTF-8": (b'{"kind": "free", "input": {"a": "\xff\xfe"}}', 400, "malformed", "input.a"),
    "bad UTF-8 in a name": (b'{"kind": "free", "input": {"\xff": 1}}', 400, "malformed", "input"),
    "NUL": (b'{"kind": "free", "input": {"a": "x\\u0000"}}', 422, "invalid_input", "input.a"),
    "a lone surrogate": (b'{"kind": "free", "input": {"a": "\\ud800"}}', 400, "malformed", "input.a"),
    "a huge number": (b'{"kind": "free", "input": {"a": 1e999}}', 422, "invalid", "input[...]"),
    "a number of many digits": (
        b'{"kind": "free", "input": {"a": 123456789012345678901}}',
        422,
        "invalid_input",
        "input.a",
    ),
    "too deep": (_nested(40), 422, "invalid_input", "input" + ".a" * 32),
    "far too deep": (_nested(100_000), 422, "invalid_input", None),
    "a priority out of bounds": (b'{"kind": "free", "priority": 101}', 422, "invalid", "priority"),
    "a time without a zone": (b'{"kind": "free", "run_at": "2030-01-01T00:00:00"}', 422, "invalid", "run_at"),
    "a time that is none": (b'{"kind": "free", "run_at": "soon"}', 422, "invalid", "run_at"),
    "a length that is none": (b'{"kind": "free", "expires_in": "soon"}', 422, "invalid", "expires_in"),
    "an endless length": (b'{"kind": "free", "expires_in": 1e300}', 422, "invalid", "expires_in"),
    "a bad key": (b'{"kind": "free", "idempotency_key": "a b"}', 422, "invalid", "idempotency_key"),
    "a large input": (
        b'{"kind": "free", "input": {"a": "' + b"x" * 300_000 + b'"}}',
        422,
        "invalid_input",
        "input",
    ),
}


@pytest.mark.parametrize("what", BAD_BODIES)
async def test_a_bad_body_is_refused_with_the_place(still_site: Site, what: str) -> None:
    body, status, code, field = BAD_BODIES[what]
    answer = await still_site.send("POST", "/v1/jobs", content=body, headers=JSON)
    response = answer.json()
    assert (answer.status_code, response["code"], response.get("field")) == (status, code, field), response
    assert answer.headers["content-type"] == "application/problem+json"
    assert response["status"] == status
    assert response["type"] == f"/docs/problems/{code}"
    assert response["request_id"] == answer.headers["request-id"]
    assert (await still_site.get("/v1/jobs")).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=ten", "limit"),
        ("limit=1&limit=2", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=%00", "cursor"),
        ("phase=asleep", "phase"),
        ("sort=asc", "sort"),
        ("kind=", "kind"),
    ],
)
async def test_a_bad_query_is_refused_with_the_parameter(still_site: Site, query: str, field: str) -> None:
    answer = await still_site.get(f"/v1/jobs?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, field), answer.text


async def test_a_query_that_is_not_utf_8_is_malformed(still_site: Site) -> None:
    answer = await still_site.get("/v1/jobs?kind=%ff")
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=latin-1"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
    ],
)
async def test_a_body_in_another_form_is_refused(still_site: Site, headers: dict[str, str]) -> None:
    answer = await still_site.send("POST", "/v1/jobs", content=b'{"kind": "free"}', headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_the_form_of_a_body_may_be_left_unsaid(site: Site) -> None:
    sent = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.client_key}\r\nContent-Length: 16\r\n"
    answer = await site.raw(sent.encode() + b'Connection: close\r\n\r\n{"kind": "free"}')
    assert answer.startswith(b"HTTP/1.1 202 ")


@pytest.mark.parametrize("accept", ["text/html", "application/json;q=0", "image/*, text/plain;q=0.5"])
async def test_a_form_that_is_not_there_is_refused(still_site: Site, accept: str) -> None:
    answer = await still_site.get("/v1/wallet", headers={"Accept": accept})
    assert (answer.status_code, answer.json()["code"]) == (406, "not_acceptable")


@pytest.mark.parametrize("accept", ["*/*", "application/*", "text/html, application/json;q=0.1", "application/json"])
async def test_a_form_that_is_there_is_given(still_site: Site, accept: str) -> None:
    assert (await still_site.get("/v1/wallet", headers={"Accept": accept})).status_code == 200


async def test_a_path_that_leads_nowhere_is_not_found(still_site: Site) -> None:
    for path in ("/", "/v1", "/v2/jobs", "/v1/jobs/", "/v1/jobs/a/b/c", "/v1/jobs//cancel", "/V1/jobs", "/%00"):
        answer = await still_site.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


async def test_a_wrong_method_is_shown_the_right_ones(still_site: Site) -> None:
    answer = await still_site.send("PATCH", "/v1/jobs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


@pytest.mark.parametrize(
    "job_id", ["nonsense", "job_1", "key_01k9w3v6m2f4tb8r0e5s7q1xzc", "job_zzzzzzzzzzzzzzzzzzzzzzzzzz", "%00"]
)
async def test_an_id_that_cannot_be_one_is_simply_not_found(still_site: Site, job_id: str) -> None:
    for path in ("", "/events", "/stream", "/logs"):
        assert (await still_site.get(f"/v1/jobs/{job_id}{path}")).status_code == 404


async def test_a_body_that_says_it_is_too_large_is_refused_unread(site: Site) -> None:
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.client_key}\r\nContent-Length: {10**12}\r\n"
    )
    answer = await site.raw(head.encode() + b"Expect: 100-continue\r\n\r\n", until_closed=False)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in answer


async def test_a_body_that_grows_too_large_is_refused_on_its_way(site: Site) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nAuthorization: Bearer {site.client_key}\r\nTransfer-Encoding: chunked\r\n"
    chunk = b"%x\r\n%s\r\n" % (65_536, b"x" * 65_536)
    answer = await site.raw(head.encode() + b"\r\n" + chunk * (BODY_MAX // 65_536 + 2), until_closed=False)
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_many_jobs_may_be_larger_than_one(site: Site) -> None:
    jobs = [{"kind": "free", "input": {"a": "x" * 200_000}} for _ in range(10)]
    assert (await site.post("/v1/jobs/bulk", {"jobs": jobs})).json()["accepted"] == 10


async def test_what_breaks_inside_is_not_reported_outside(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(site.engine.views, "wallet", broken)
    answer = await site.get("/v1/wallet")
    assert (answer.status_code, answer.json()["code"]) == (500, "error")
    assert "hunter2" not in answer.text


async def test_a_database_that_is_away_is_reported_as_such_and_nothing_else(
    site: Site, server: DatabaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    unreachable = await Database.open(server.dsn, size=1)
    unreachable.dsn = "postgresql://127.0.0.1:1/nowhere"
    monkeypatch.setattr(site.engine.tenant_databases, "of", lambda _: unreachable)
    answer = await site.get("/v1/wallet")
    response = answer.json()
    assert (answer.status_code, response["code"], response["retryable"]) == (503, "unavailable", True)
    assert answer.headers["retry-after"] == "1"
    assert "127.0.0.1" not in answer.text
    assert (await site.get("/healthz", key=None)).status_code == 200
    await unreachable.close()


async def test_a_sane_request_id_and_a_trace_come_back(site: Site) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    answer = await site.get("/v1/wallet", headers={"Request-Id": "my.id-1", "traceparent": trace})
    assert (answer.headers["request-id"], answer.headers["traceparent"]) == ("my.id-1", trace)
    for bad in ("x" * 65, "a b", "<script>", ""):
        answer = await site.get("/v1/wallet", headers={"X-Request-Id": bad, "traceparent": bad})
        assert answer.headers["request-id"].startswith("req_")
        assert "traceparent" not in answer.headers


async def test_every_answer_to_a_json_request_is_json(site: Site, engine: Engine) -> None:
    answer = await site.get("/v1/kinds")
    assert {kind["name"] for kind in json.loads(answer.content)["data"]} == set(engine.app.kinds)
