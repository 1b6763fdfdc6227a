"""What operators do over HTTP, and that it is written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond import ids
from millpond.worker.worker import Worker
from tests.factories import ACCOUNT, TENANT, Factory

if TYPE_CHECKING:
    from tests.api.sites import Site


async def actions(site: Site) -> list[str]:
    return [entry["action"] for entry in (await site.order("GET", "/v1/audit")).json()["data"]]


async def test_a_grant_is_posted_once_for_a_reference(site: Site) -> None:
    post = {"tenant": TENANT, "account": ACCOUNT, "amount": 70, "reference": "invoice-7"}
    for _ in range(2):
        assert (await site.order("POST", "/v1/grants", post)).json()["available"] == 70
    other = await site.order("POST", "/v1/grants", {**post, "amount": 71})
    assert (other.status_code, other.json()["field"]) == (409, "reference")
    assert (await actions(site))[0] == "credits.granted"


async def test_an_adjustment_has_a_reason_and_never_goes_below_zero(site: Site, make: Factory) -> None:
    await make.credits(10)
    post = {"tenant": TENANT, "account": ACCOUNT, "amount": -4}
    assert (await site.order("POST", "/v1/adjustments", post)).json()["field"] == "reason"
    assert (await site.order("POST", "/v1/adjustments", {**post, "reason": "slip"})).json()["available"] == 6
    short = await site.order("POST", "/v1/adjustments", {**post, "amount": -7, "reason": "slip"})
    assert (short.status_code, short.json()["available"]) == (402, 6)
    zero = await site.order("POST", "/v1/adjustments", {**post, "amount": 0, "reason": "slip"})
    assert (zero.status_code, zero.json()["code"]) == (422, "invalid_amount")


async def test_the_ledger_comes_in_pages(site: Site, make: Factory) -> None:
    for _ in range(3):
        await make.credits(10)
    first = (await site.get("/v1/wallet/entries?limit=2")).json()
    second = (await site.get(f"/v1/wallet/entries?limit=2&cursor={first['next_cursor']}")).json()
    assert [entry["seq"] for entry in first["data"] + second["data"]] == [3, 2, 1]
    assert second["next_cursor"] is None


async def test_a_quote_reports_the_price_and_whether_it_can_be_paid(site: Site, make: Factory) -> None:
    await make.credits(4)
    ask = {"kind": "metered", "input": {"units": 4}}
    assert (await site.post("/v1/quotes", ask)).json() == {
        "kind": "metered",
        "price": 4,
        "available": 4,
        "can_pay": True,
    }
    assert not (await site.post("/v1/quotes", {"kind": "priced"})).json()["can_pay"]
    wrong = await site.post("/v1/quotes", {"kind": "metered"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_input")


async def test_a_cap_stops_the_next_job(site: Site) -> None:
    path = f"/v1/tenants/{TENANT}/accounts/{ACCOUNT}/cap"
    assert (await site.order("PUT", path, {"active_max": 1})).json()["active_max"] == 1
    await site.submitted()
    full = await site.post("/v1/jobs", {"kind": "free"})
    assert (full.status_code, full.json()["code"]) == (429, "too_many_active_jobs")
    assert (await site.order("PUT", path, {"active_max": None})).json()["active_max"] is None
    await site.submitted()
    assert (await actions(site))[:2] == ["account.capped", "account.capped"]


async def test_a_name_with_a_slash_is_one_part_of_a_path(site: Site) -> None:
    made = await site.order("POST", "/v1/tenants/a%2Fb/accounts", {"account": "c/d"})
    assert (made.status_code, made.json()["tenant"]) == (201, "a/b")
    capped = await site.order("PUT", "/v1/tenants/a%2Fb/accounts/c%2Fd/cap", {"active_max": 5})
    assert (capped.json()["account"], capped.json()["active_max"]) == ("c/d", 5)


async def test_a_paused_queue_says_so_and_moves_again(site: Site) -> None:
    await site.submitted()
    paused = (await site.order("POST", "/v1/queues/free/pause")).json()
    assert (paused["verdict"], paused["ready"]) == ("paused", 1)
    assert (await site.order("POST", "/v1/queues/free/resume")).json()["paused_at"] is None
    assert (await site.order("POST", "/v1/queues/absent/pause")).status_code == 404
    assert (await actions(site))[:2] == ["queue.resumed", "queue.paused"]


async def test_workers_with_leases_are_listed(site: Site, make: Factory) -> None:
    await make.leased()
    (worker,) = (await site.order("GET", "/v1/workers")).json()["data"]
    assert (worker["worker"], worker["jobs"]) == ("w", 1)


async def test_a_key_is_made_used_rotated_and_revoked(site: Site) -> None:
    made = (await site.order("POST", "/v1/keys", {"scope": "client", "tenant": "new", "account": "fresh"})).json()
    assert (await site.get("/v1/wallet", key=made["key"])).json()["account"] == "fresh"
    rotated = (await site.order("POST", f"/v1/keys/{made['id']}/rotate", {"overlap": "1h"})).json()
    assert (await site.get("/v1/wallet", key=made["key"])).status_code == 200
    assert (await site.get("/v1/wallet", key=rotated["key"])).status_code == 200
    revoked = await site.order("DELETE", f"/v1/keys/{rotated['id']}")
    assert revoked.json()["revoked_at"]
    assert (await site.get("/v1/wallet", key=rotated["key"])).status_code == 401
    read = (await site.order("GET", f"/v1/keys/{made['id']}")).json()
    assert (read["hint"], "key" in read) == (made["hint"], False)
    other = await site.key(scope="viewer", tenant=TENANT, account=None)
    assert (await site.get(f"/v1/keys/{made['id']}", key=other)).status_code == 404
    listed = (await site.order("GET", "/v1/keys?tenant=new")).text
    assert made["key"] not in listed
    assert made["hint"] in listed
    assert (await site.order("GET", "/v1/audit")).text.count(made["key"]) == 0


async def test_tenants_and_accounts_are_listed_by_name(site: Site) -> None:
    for name in ("zeta", "beta"):
        await site.order("POST", "/v1/tenants", {"tenant": name})
    first = (await site.order("GET", "/v1/tenants?limit=2")).json()
    second = (await site.order("GET", f"/v1/tenants?limit=2&cursor={first['next_cursor']}")).json()
    assert [tenant["tenant"] for tenant in first["data"] + second["data"]] == [TENANT, "beta", "zeta"]
    assert (await site.order("GET", "/v1/tenants/zeta")).json() == second["data"][-1]
    assert (await site.order("GET", "/v1/tenants/nobody")).status_code == 404
    own = await site.key(scope="viewer", tenant=TENANT, account=None)
    assert (await site.get(f"/v1/tenants/{TENANT}", key=own)).status_code == 200
    assert (await site.get("/v1/tenants/zeta", key=own)).status_code == 404
    accounts = (await site.order("GET", f"/v1/tenants/{TENANT}/accounts")).json()["data"]
    assert [account["account"] for account in accounts] == [ACCOUNT]


async def test_verify_finds_nothing_in_a_sound_database(site: Site) -> None:
    await site.submitted()
    assert (await site.order("GET", "/v1/verify")).json() == {"ok": True, "violations": []}
    viewer = await site.key(scope="viewer", tenant=None, account=None)
    assert (await site.get("/v1/verify", key=viewer)).status_code == 403
    async with site.app.state.verifying:
        second = await site.order("GET", "/v1/verify")
        assert (second.status_code, second.json()["code"]) == (429, "rate_limited")
        assert int(second.headers["retry-after"]) >= 1
    assert (await site.order("GET", "/v1/verify")).status_code == 200


async def test_what_an_operator_does_to_a_job_is_written_down(site: Site, make: Factory) -> None:
    operator = await site.key(scope="operator", tenant=None, account=None)
    own = (await site.order("POST", f"/v1/jobs?tenant={TENANT}", {"kind": "free", "account": ACCOUNT})).json()["id"]
    theirs, parked = await site.submitted(), await make.leased("brief")
    asked = ids.text("job", parked.job_id)
    await make.engine.park(parked, None)
    answers = [
        await site.post(f"/v1/jobs/{path}", body, key=key)
        for path, body, key in (
            (f"{theirs}/cancel", None, site.client_key),
            (f"{own}/cancel", None, operator),
            (f"{own}/cancel", None, operator),  # once more, which does nothing
            (f"{asked}/answer", {"answer": {"private": 1}}, operator),
            (f"{own}/retry", None, operator),
        )
    ]
    assert {answer.status_code for answer in answers} <= {200, 202}, answers
    audited = (await site.order("GET", "/v1/audit?action=job.")).json()["data"]
    assert [(each["action"], each["subject"], each["tenant"], each["data"]) for each in reversed(audited)] == [
        ("job.canceled", own, TENANT, None),
        ("job.answered", asked, TENANT, None),
        ("job.retried", own, TENANT, {"job_id": answers[-1].json()["id"]}),
    ]
    assert len({each["actor"] for each in audited}) == 1


async def test_a_kind_reports_what_it_takes_and_how_it_lives(site: Site) -> None:
    response = (await site.get("/v1/kinds/staged")).json()
    assert (response["price"], response["stages"][-1:], response["firm_stages"]) == (5, ["uploading"], ["uploading"])
    diagram = await site.get("/v1/kinds/staged/diagram")
    assert diagram.text == response["lifecycle"]["mermaid"]
    assert diagram.headers["content-type"].startswith("text/plain")
    assert (await site.get("/v1/kinds/absent")).status_code == 404


async def test_health_is_for_everybody_and_metrics_for_keys_that_may_read(site: Site) -> None:
    await site.submitted()
    assert (await site.get("/healthz", key=None)).json()["status"] == "ok"
    assert (await site.get("/readyz", key=None)).json()["checks"] == {"database": "ok", "streams": "ok"}
    metrics = await site.order("GET", "/metrics")
    assert 'millpond_jobs_submitted_total{kind="free"} 1.0' in metrics.text
    assert 'millpond_queue_depth{phase="ready",queue="free"} 1.0' in metrics.text
    assert (await site.get("/metrics", key=None)).status_code == 401, "to be on this machine is no permission"
    assert (await site.get("/metrics")).status_code == 403


async def test_jobs_are_counted_when_they_end(site: Site) -> None:
    line = 'millpond_jobs_finished_total{kind="free",outcome="succeeded"} '

    async def counted() -> float:
        text = (await site.order("GET", "/metrics")).text
        return sum(float(row.removeprefix(line)) for row in text.splitlines() if row.startswith(line))

    before = await counted()
    await site.submitted()
    await Worker(site.engine.source(), site.engine.app).drain()
    assert await counted() == before + 1


async def test_without_its_hub_it_is_not_ready(site: Site) -> None:
    site.hub.is_alive = False
    answer = await site.get("/readyz", key=None)
    assert (answer.status_code, answer.json()["status"]) == (503, "unavailable")
