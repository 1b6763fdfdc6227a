"""A request that two readers could read differently is refused: a proxy, a gate and this server agree on each one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.api.sites import Site

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/jobs", '{"kind": "free", "kind": "priced"}', "kind"),
        ("/v1/jobs", '{"kind": "free", "input": {"size": 1, "size": 2}}', "input.size"),
        ("/v1/jobs", '{"kind": "free", "input": {"size": [{"a": ":", "a": "\\u003a"}]}}', "input.size[0].a"),
        ("/v1/jobs", '{"kind": "free", "input": {"a": 1, "\\u0061": 2}}', "input.a"),
        (
            "/v1/jobs/bulk",
            '{"jobs": [{"kind": "free"}, {"kind": "free", "account": "a", "account": "b"}]}',
            "jobs[1].account",
        ),
        ("/v1/quotes", '{"kind": "free", "kind": "free"}', "kind"),
    ],
)
async def test_a_member_that_is_given_twice_is_refused(still_site: Site, path: str, body: str, field: str) -> None:
    answer = await still_site.post(path, content=body, headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert answer.json()["detail"] == "The member was given more than once."


def request(site: Site, *headers: str) -> bytes:
    body = '{"kind": "free"}'
    lines = ("POST /v1/jobs HTTP/1.1", "Host: localhost", "Connection: close", *headers)
    return "\r\n".join([*lines, "Content-Type: application/json", f"Content-Length: {len(body)}", "", body]).encode()


@pytest.mark.parametrize(
    "repeated",
    [
        ["Authorization: Bearer {other}"],
        ["authorization: Bearer {key}"],
        ["Idempotency-Key: one", "Idempotency-Key: two"],
        ["Idempotency-Key: one", "idempotency-key: one"],
        ["Content-Type: text/plain"],
        ["Last-Event-ID: 1", "Last-Event-ID: 2"],
        ["X-Fleet-Secret: a", "X-Fleet-Secret: b"],
    ],
    ids=" and ".join,
)
async def test_a_header_with_one_value_that_is_given_twice_is_refused(still_site: Site, repeated: list[str]) -> None:
    sent = [line.format(key=still_site.client_key, other=still_site.admin_key) for line in repeated]
    answer = await still_site.raw(request(still_site, f"Authorization: Bearer {still_site.client_key}", *sent))
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert (problem["status"], problem["code"]) == (400, "malformed")
    assert problem["field"].lower() == repeated[-1].partition(":")[0].lower()
    assert problem["detail"] == "The header was given more than once."


async def test_a_header_that_is_a_list_may_be_given_in_parts(still_site: Site) -> None:
    lines = [f"Authorization: Bearer {still_site.client_key}", "Accept: text/html", "Accept: application/json"]
    answer = await still_site.raw(
        b"GET /v1/kinds HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        + "".join(f"{line}\r\n" for line in lines).encode()
        + b"\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("written", ["1e2", "1E2", "10e1", "100e-0", "1.0e2", "0.1e3"])
async def test_an_exponent_is_no_way_to_write_a_whole_number(still_site: Site, written: str) -> None:
    body = f'{{"kind": "free", "priority": {written}}}'
    answer = await still_site.post("/v1/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["field"]) == (422, "priority")
    body = f'{{"kind": "metered", "input": {{"units": {written}}}}}'
    for path in ("/v1/jobs", "/v1/quotes"):
        answer = await still_site.post(path, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["field"]) == (422, "input.units"), path
    listed = await still_site.get(f"/v1/jobs?limit={written}")
    assert (listed.status_code, listed.json()["field"]) == (422, "limit")


async def test_a_whole_number_may_have_a_fraction_of_zero(site: Site) -> None:
    answer = await site.post("/v1/jobs", content='{"kind": "free", "priority": -2.0}', headers=JSON)
    assert answer.status_code == 202
    assert (await site.get("/v1/jobs?limit=2.0")).status_code == 422


@pytest.mark.parametrize("written", ["\u0663m", "3\u00b2s", "\u0967h", "1\u0660s", "\U0001d7cfm"])
async def test_a_duration_has_digits_of_ascii(still_site: Site, written: str) -> None:
    answer = await still_site.post("/v1/jobs", {"kind": "free", "expires_in": written})
    assert (answer.status_code, answer.json()["field"]) == (422, "expires_in")


async def test_an_id_has_one_spelling(site: Site) -> None:
    job = await site.submitted()
    for other in (job.upper(), f"job_{job[4:].upper()}", f"JOB_{job[4:]}", f"{job[:-1]}{job[-1].upper()}"):
        assert (await site.get(f"/v1/jobs/{other}")).status_code == (200 if other == job else 404)


async def test_a_token_has_one_spelling(site: Site) -> None:
    job = await site.submitted()
    made = await site.post(f"/v1/jobs/{job}/tokens", {"scopes": ["read"], "expires_in": "1h"})
    token: str = made.json()["token"]
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    accepted = [
        letter for letter in letters if (await site.get(f"/v1/jobs/{job}", key=token[:-1] + letter)).status_code == 200
    ]
    assert accepted == [token[-1]]
