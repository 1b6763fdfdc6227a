"""Jobs over HTTP, from their submission to their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.queue.leases import Note
from tests.api.sites import running_site
from tests.factories import ACCOUNT, HOUR, TENANT, Factory, progress, stage

if TYPE_CHECKING:
    from tests.api.sites import Site


# Submit


async def test_a_submit_is_accepted_with_a_place_to_look(site: Site, make: Factory) -> None:
    await make.credits(12)
    answer = await site.post("/v1/jobs", {"kind": "priced", "input": {"product": "hat"}})
    response = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == response["links"]["self"] == f"/v1/jobs/{response['id']}"
    assert answer.headers["retry-after"] == "1"
    assert (response["kind"], response["state"], response["price"], response["available"]) == ("priced", "queued", 5, 7)
    assert (await site.get(response["links"]["self"])).json()["input"] == {"product": "hat"}


@pytest.mark.parametrize(
    ("header", "body"), [("order-1", None), (None, "order-1"), ("order-1", "order-1")], ids=["header", "body", "both"]
)
async def test_a_repeat_gets_the_first_answer_byte_for_byte(
    site: Site, make: Factory, header: str | None, body: str | None
) -> None:
    await make.credits(100)
    request: dict[str, Any] = {"kind": "priced"} | ({"idempotency_key": body} if body else {})
    headers = {"Idempotency-Key": header} if header else {}
    first = await site.post("/v1/jobs", request, headers=headers)
    again = await site.post("/v1/jobs", request, headers=headers)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert (await site.get("/v1/wallet")).json()["held"] == 5


async def test_a_key_used_for_something_else_is_a_conflict(site: Site) -> None:
    headers = {"Idempotency-Key": "order-1"}
    first = await site.post("/v1/jobs", {"kind": "free", "input": {"a": 1}}, headers=headers)
    other = await site.post("/v1/jobs", {"kind": "free", "input": {"a": 2}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert other.json()["job_id"] == first.json()["id"]


async def test_two_different_keys_in_one_request_are_refused(site: Site) -> None:
    answer = await site.post("/v1/jobs", {"kind": "free", "idempotency_key": "a"}, headers={"Idempotency-Key": "b"})
    assert (answer.status_code, answer.json()["field"]) == (422, "idempotency_key")


async def test_an_empty_wallet_is_shown_what_is_missing(site: Site, make: Factory) -> None:
    await make.credits(3)
    answer = await site.post("/v1/jobs", {"kind": "priced"})
    response = answer.json()
    assert (answer.status_code, response["code"], response["required"], response["available"]) == (
        402,
        "insufficient_credits",
        5,
        3,
    )


async def test_of_many_jobs_each_has_its_own_outcome(site: Site, make: Factory) -> None:
    await make.credits(5)
    jobs = [{"kind": "priced"}, {"kind": "absent"}, {"kind": "priced"}, {"kind": "free"}]
    response = (await site.post("/v1/jobs/bulk", {"jobs": jobs})).json()
    assert [result["status"] for result in response["results"]] == [202, 422, 402, 202]
    assert [(result["problem"] or {}).get("code") for result in response["results"]] == [
        None,
        "unknown_kind",
        "insufficient_credits",
        None,
    ]
    assert (response["accepted"], response["refused"]) == (2, 2)


async def test_many_jobs_do_not_share_a_key(site: Site) -> None:
    answer = await site.post("/v1/jobs/bulk", {"jobs": [{"kind": "free"}]}, headers={"Idempotency-Key": "a"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


async def test_an_operator_submits_for_an_account_by_name(site: Site) -> None:
    body = {"kind": "free", "account": ACCOUNT}
    assert (await site.order("POST", "/v1/jobs", body)).json()["field"] == "tenant"
    accepted = await site.order("POST", f"/v1/jobs?tenant={TENANT}", body)
    assert (await site.get(accepted.headers["location"])).json()["account"] == ACCOUNT


# Read


async def test_what_has_not_changed_is_not_reported_again(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    first = await site.get(f"/v1/jobs/{job_id}")
    tag = first.headers["etag"]
    same = await site.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": f'"other", {tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    (lease,) = await make.claimed("free")
    await make.engine.note(progress(lease, 1, 0.5))
    changed = await site.get(f"/v1/jobs/{job_id}", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["progress"]) == (200, 0.5)


async def test_an_end_that_nothing_can_change_may_be_kept_forever(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    running = await site.get(f"/v1/jobs/{job_id}")
    assert running.headers["cache-control"] == "private, no-cache"
    assert int(running.headers["retry-after"]) >= 1
    await make.serve("free")
    ended = await site.get(f"/v1/jobs/{job_id}")
    assert ended.headers["cache-control"] == "private, max-age=31536000, immutable"
    assert "retry-after" not in ended.headers


async def test_an_end_that_can_be_retried_in_place_may_not_be_kept(site: Site, make: Factory) -> None:
    kinds = make.engine.app.kinds.values()
    kind = next(k for k in kinds if any(m.event == "retried" and m.source for m in k.lifecycle.transitions))
    lease = await make.leased(kind.name)
    await make.finish(lease, "failed")
    ended = await site.get(f"/v1/jobs/{(await make.read(lease.job_id)).id}")
    assert ended.json()["outcome"] == "failed"
    assert ended.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize(("path", "headers"), [("?wait=60", {}), ("", {"Prefer": "respond-async, wait=60"})])
async def test_a_reader_may_wait_for_the_end(site: Site, make: Factory, path: str, headers: dict[str, str]) -> None:
    job_id = await site.submitted()
    reading = asyncio.create_task(site.get(f"/v1/jobs/{job_id}{path}", headers=headers))
    while not site.hub._watches:
        await asyncio.sleep(0.01)
    await make.serve("free")
    answer = await reading
    assert answer.json()["outcome"] == "succeeded"
    assert answer.headers.get("preference-applied") == ("wait=60" if headers else None)


async def test_a_reader_who_waited_long_enough_gets_what_there_is(site: Site) -> None:
    answer = await site.get(f"/v1/jobs/{await site.submitted()}?wait=0.05")
    assert (answer.status_code, answer.json()["outcome"]) == (200, None)


async def test_a_preference_for_too_long_a_wait_is_cut(site: Site, make: Factory) -> None:
    job = await make.ended()
    answer = await site.get(f"/v1/jobs/{job.id}", headers={"Prefer": "wait=3600"})
    assert answer.headers["preference-applied"] == "wait=60"


async def test_jobs_come_in_pages_and_by_filter(site: Site, make: Factory) -> None:
    await make.credits(10)
    wanted = [await site.submitted("free") for _ in range(3)]
    await site.submitted("priced")
    first = (await site.get("/v1/jobs?kind=free&limit=2")).json()
    second = (await site.get(f"/v1/jobs?kind=free&limit=2&cursor={first['next_cursor']}")).json()
    assert [job["id"] for job in first["data"] + second["data"]] == wanted[::-1]
    assert second["next_cursor"] is None
    await make.serve("priced")
    assert [job["kind"] for job in (await site.get("/v1/jobs?phase=ended")).json()["data"]] == ["priced"]


async def test_a_list_of_jobs_has_the_filters_of_bulk_operations(site: Site, make: Factory) -> None:
    waiting = await site.submitted("free")
    failed = await make.ended("priced", "failed")
    for query in ("outcome=failed", "outcome=failed&error=boom&since=1h", "kind=pri*"):
        page = (await site.order("GET", f"/v1/jobs?{query}")).json()
        assert [(job["id"], job["outcome"]) for job in page["data"]] == [(failed.id, "failed")]
    assert (await site.get("/v1/jobs?until=1h")).json() == {"data": [], "next_cursor": None}
    newest = (await site.get("/v1/jobs?since=1h&kind=free")).json()["data"]
    assert [job["id"] for job in newest] == [waiting]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/board/jobs"])
async def test_a_state_that_no_kind_has_is_refused_with_the_valid_ones(site: Site, path: str) -> None:
    wrong = await site.order("GET", f"{path}?state=nonsense")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "state")
    hint = wrong.json()["hint"]
    assert hint.startswith("Valid states: ")
    assert {"queued", "running", "succeeded"} <= set(hint.removeprefix("Valid states: ").rstrip(".").split(", "))
    assert (await site.order("GET", f"{path}?state=queued")).status_code == 200


async def test_a_server_that_knows_no_kinds_has_the_states_of_the_database(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_kinds = (await site.order("GET", "/v1/jobs?state=nonsense")).json()["hint"]
    monkeypatch.setattr(site.engine, "app", Millpond())
    assert (await site.order("GET", "/v1/jobs?state=nonsense")).json()["hint"] == with_kinds
    assert (await site.order("GET", "/v1/jobs?state=queued")).status_code == 200


# Act


async def test_a_waiting_job_is_canceled_at_once_and_a_running_one_is_asked(site: Site, make: Factory) -> None:
    waiting = await site.submitted()
    first = await site.post(f"/v1/jobs/{waiting}/cancel")
    assert (first.status_code, first.json()["is_accepted"], first.json()["state"]) == (200, True, "canceled")
    again = await site.post(f"/v1/jobs/{waiting}/cancel")
    assert (again.status_code, again.json()["is_accepted"]) == (200, False)
    running = (await make.read((await make.leased()).job_id)).id
    asked = await site.post(f"/v1/jobs/{running}/cancel")
    assert (asked.status_code, asked.json()["is_accepted"], asked.json()["state"]) == (202, True, "running")


async def test_a_stage_that_cannot_be_interrupted_says_so(site: Site, make: Factory) -> None:
    lease = await make.leased("staged")
    await make.engine.note(stage(lease, 1, "uploading"))
    answer = await site.post(f"/v1/jobs/{(await make.read(lease.job_id)).id}/cancel")
    assert (answer.status_code, answer.json()["code"], answer.json()["stage"]) == (
        409,
        "cancel_unavailable",
        "uploading",
    )


async def test_an_ended_job_is_retried_as_a_new_one(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    assert (await site.post(f"/v1/jobs/{job_id}/retry")).json()["code"] == "retry_unavailable"
    await make.serve("free")
    again = await site.post(f"/v1/jobs/{job_id}/retry", {"even_if_succeeded": True})
    assert again.status_code == 202
    assert (await site.get(again.headers["location"])).json()["retry_of"] == job_id


async def test_a_parked_job_takes_its_answer_once(site: Site, make: Factory) -> None:
    lease = await make.parked()
    job_id = (await make.read(lease.job_id)).id
    answer = await site.post(f"/v1/jobs/{job_id}/answer", {"answer": {"yes": True}})
    assert (answer.status_code, answer.json()["state"]) == (200, "queued")
    other = await site.post(f"/v1/jobs/{job_id}/answer", {"answer": {"yes": False}})
    assert (other.status_code, other.json()["code"]) == (409, "answer_unavailable")


async def test_a_client_cannot_answer_a_question_to_an_operator(site: Site, make: Factory) -> None:
    lease = await make.parked("vetted")
    path = f"/v1/jobs/{(await make.read(lease.job_id)).id}/answer"
    refused = await site.post(path, {"answer": "approved"})
    assert (refused.status_code, refused.json()["code"], refused.json()["needed"]) == (403, "forbidden", "operator")
    own = await site.key(scope="admin")
    operator = await site.key(scope="operator", account=None)
    assert (await make.read(lease.job_id)).state == "parked"
    assert (await site.post(path, {"answer": "approved"}, key=operator)).status_code == 200
    assert (await site.post(path, {"answer": "approved"}, key=own)).status_code == 200  # the same answer again


async def test_a_client_cannot_answer_where_the_kind_is_unknown(site: Site, make: Factory) -> None:
    lease = await make.parked()
    path = f"/v1/jobs/{(await make.read(lease.job_id)).id}/answer"
    async with running_site(Engine(make.engine.db, Millpond())) as other:
        assert (await other.post(path, {"answer": 1})).status_code == 403
        assert (await other.order("POST", f"{path}?tenant={TENANT}", {"answer": 1})).status_code == 200


async def test_a_job_that_succeeded_is_retried_only_with_a_flag(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    await make.serve("free")
    for body in (None, {}, {"even_if_succeeded": False}):
        refused = await site.post(f"/v1/jobs/{job_id}/retry", body)
        assert (refused.status_code, refused.json()["code"]) == (409, "retry_unavailable")
        assert "even_if_succeeded" in refused.json()["hint"]
    assert (await site.post(f"/v1/jobs/{job_id}/retry", {"even_if_succeeded": 1})).status_code == 422
    again = await site.post(f"/v1/jobs/{job_id}/retry", {"even_if_succeeded": True})
    assert (await site.get(again.headers["location"])).json()["retry_of"] == job_id
    failed = await make.ended("priced", "failed")
    assert (await site.post(f"/v1/jobs/{failed.id}/retry")).status_code == 202


async def test_an_operator_transitions_a_job_and_is_audited(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    denied = await site.order("POST", f"/v1/jobs/{job_id}/transition", {"state": "succeeded"})
    assert (denied.status_code, denied.json()["code"]) == (409, "transition_denied")
    transitioned = await site.order("POST", f"/v1/jobs/{job_id}/transition", {"state": "failed"})
    assert transitioned.json() == {"id": job_id, "state": "failed"}
    audit = (await site.order("GET", "/v1/audit")).json()["data"]
    assert [(entry["action"], entry["subject"]) for entry in audit][:1] == [("job.transitioned", job_id)]


# Events and logs


async def test_events_come_in_pages_without_a_gap(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    await make.serve("free")
    seen, after = [], 0
    while after is not None:
        page = (await site.get(f"/v1/jobs/{job_id}/events?after={after}&limit=1")).json()
        seen += [(event["seq"], event["type"]) for event in page["data"]]
        after = page["next"]
    assert [seq for seq, _ in seen] == list(range(1, len(seen) + 1))
    assert (seen[0][1], seen[-1][1]) == ("submitted", "succeeded")


@pytest.mark.parametrize(("path", "accept"), [("stream", "*/*"), ("events", "text/event-stream")])
async def test_a_stream_reports_the_same_events_and_ends_with_the_job(
    site: Site, make: Factory, path: str, accept: str
) -> None:
    job_id = await site.submitted()
    await make.serve("free")
    answer = await site.get(f"/v1/jobs/{job_id}/{path}", headers={"Accept": accept})
    assert answer.headers["content-type"] == "text/event-stream"
    types = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    page = (await site.get(f"/v1/jobs/{job_id}/events")).json()
    assert types == [*(event["type"] for event in page["data"]), "end"]


@pytest.mark.parametrize("how", ["header", "query"])
async def test_a_stream_goes_on_after_the_last_event_seen(site: Site, make: Factory, how: str) -> None:
    job_id = await site.submitted()
    await make.serve("free")
    query, headers = ("?last_event_id=1", {}) if how == "query" else ("", {"Last-Event-ID": "1"})
    answer = await site.get(f"/v1/jobs/{job_id}/stream{query}", headers=headers)
    assert "id: 1\n" not in answer.text
    assert "id: 2\n" in answer.text


@pytest.mark.parametrize(("given", "status"), [("999", 409), ("-1", 422), ("one", 422), ("1e3", 422), ("9" * 30, 422)])
async def test_an_event_that_never_was_is_refused_before_the_stream(site: Site, given: str, status: int) -> None:
    answer = await site.get(f"/v1/jobs/{await site.submitted()}/stream", headers={"Last-Event-ID": given})
    assert (answer.status_code, answer.json()["field"]) == (status, "Last-Event-ID")


async def test_a_reader_that_goes_is_let_go(site: Site) -> None:
    job_id = await site.submitted()
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(
        f"GET /v1/jobs/{job_id}/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {site.client_key}\r\n\r\n".encode()
    )
    await reader.readuntil(b"event: submitted")
    assert site.hub.streams == 1
    writer.close()
    while site.hub.streams:
        await asyncio.sleep(0.01)


async def test_log_lines_are_read_apart_from_the_other_events(site: Site, make: Factory) -> None:
    job_id = await site.submitted()
    (lease,) = await make.claimed("free")
    await make.engine.note(Note(lease, 1, "log", '{"text": "Loaded.", "level": "info"}'))
    response = (await site.get(f"/v1/jobs/{job_id}/logs")).json()
    assert [(line["text"], line["level"]) for line in response["data"]] == [("Loaded.", "info")]


async def test_times_to_come_are_taken_over(site: Site, make: Factory) -> None:
    at = (await make.clock.now()) + HOUR
    job_id = await site.submitted(run_at=at.isoformat(), expires_in="15m", priority=7)
    response = (await site.get(f"/v1/jobs/{job_id}")).json()
    assert (response["phase"], response["priority"]) == ("waiting", 7)
    assert response["run_at"] < response["expires_at"]


async def test_a_retry_with_a_key_makes_one_job_and_answers_as_the_first_did(site: Site, make: Factory) -> None:
    old, other = await make.ended("free", "failed"), await make.ended("free", "failed")
    keyed = {"Idempotency-Key": "again"}
    first = await site.post(f"/v1/jobs/{old.id}/retry", headers=keyed)
    again = await site.post(f"/v1/jobs/{old.id}/retry", headers=keyed)
    assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)
    assert ("idempotency-replayed" in first.headers, again.headers["idempotency-replayed"]) == (False, "true")
    assert (await site.get(f"/v1/jobs/{first.json()['id']}")).json()["retry_of"] == old.id
    refused = await site.post(f"/v1/jobs/{other.id}/retry", headers=keyed)
    assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_conflict")
