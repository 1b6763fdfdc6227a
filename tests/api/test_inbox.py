"""The inbox of development, over real HTTP. The page that shows it is a page of the dashboard."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from millpond import webhooks
from millpond.api.webhooks.inbox import BYTES_MAX, KEPT_MAX, SIZE_MAX
from tests.api.posts import new_post, post_site
from tests.api.sites import Site, running_site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from millpond.engine.engine import Engine
    from tests.databases import DatabaseServer


@pytest.fixture(scope="module")
async def running(anyio_backend: str, server: DatabaseServer, template: str) -> AsyncIterator[Site]:
    async with post_site(server, template) as made:
        yield made


@pytest.fixture
def site(running: Site) -> Site:
    """One server for all; its inbox is as new."""
    running.app.state.inbox.__init__()
    return running


async def deliver(site: Site, secret: str, body: bytes, name: str = "mine", **changed: str) -> None:
    headers = webhooks.headers("msg_1", int(time.time()), body, [secret]) | changed
    answer = await site.send("POST", f"/inbox/{name}", key=None, content=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def contents(site: Site, after: int = 0) -> dict[str, Any]:
    answer = await site.get(f"/inbox.json?after={after}", key=site.admin_key)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_anything_is_taken_and_shown_the_newest_first(site: Site) -> None:
    await site.send("POST", "/inbox/one", key=None, content=b"\xff\x00 not text", headers={"X-Much": "a"})
    await site.send("POST", "/inbox/two?colour=red", key=None, json={"type": "job.failed", "data": {"id": "x"}})
    found = await contents(site)
    assert [(item["name"], item["event"], item["signature"]) for item in found["data"]] == [
        ("two", "job.failed", "unsigned"),
        ("one", None, "unsigned"),
    ]
    assert found["data"][1]["body"] == "\ufffd\0 not text"
    assert ["x-much", "a"] in found["data"][1]["headers"]
    assert found["last"] == 2
    assert [item["number"] for item in (await contents(site, after=1))["data"]] == [2]


async def test_it_is_bounded(site: Site) -> None:
    answer = await site.send("POST", "/inbox/big", key=None, content=b"x" * (SIZE_MAX + 1))
    assert answer.status_code == 413
    inbox = site.app.state.inbox
    for number in range(KEPT_MAX + 5):
        inbox.keep("many", [], b"%d" % number, 200)
    found = await contents(site)
    assert (len(found["data"]), found["last"]) == (KEPT_MAX, KEPT_MAX + 5)
    assert found["data"][-1]["body"] == "5"


@pytest.mark.parametrize("byte", [b"x", b"\x01"], ids=["plain", "escaped in JSON"])
async def test_its_contents_fit_into_one_response(site: Site, byte: bytes) -> None:
    inbox = site.app.state.inbox
    for _ in range(KEPT_MAX // 2):
        inbox.keep("large", [("x-much", "a")], byte * SIZE_MAX, 200)
    answer = await site.get("/inbox.json", key=site.admin_key)
    assert BYTES_MAX / 2 < len(answer.content) <= BYTES_MAX * 1.05
    numbers = [item["number"] for item in answer.json()["data"]]
    assert numbers == list(range(KEPT_MAX // 2, KEPT_MAX // 2 - len(numbers), -1)), "the newest are kept"


@pytest.mark.parametrize("status", [204, 410, 503])
async def test_it_answers_as_it_is_configured(site: Site, status: int) -> None:
    answer = await site.send("POST", f"/inbox/sick?status={status}&retry_after=7", key=None, content=b"{}")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert (await contents(site))["data"][0]["answered"] == status


async def test_a_signature_is_judged_by_every_secret_that_is_known(site: Site) -> None:
    known, typed = webhooks.new_secret(), webhooks.new_secret()
    site.app.state.inbox.learn(known)
    await deliver(site, known, b'{"type":"job.succeeded"}')
    await deliver(site, typed, b'{"type":"job.succeeded"}')
    await deliver(site, known, b'{"type":"forged"}', **{"webhook-id": "msg_2"})
    assert [item["signature"] for item in (await contents(site))["data"]] == ["bad", "bad", "good"]
    answer = await site.send("POST", "/inbox.json", key=site.admin_key, json={"secret": typed})
    assert answer.status_code == 204
    forged, second, first = (await contents(site))["data"]
    assert (first["signature"], second["signature"], forged["signature"]) == ("good", "good", "bad")
    assert "No signature matches" in forged["reason"]
    assert typed not in (await site.get("/inbox.json", key=site.admin_key)).text


async def test_a_signature_is_judged_once_and_not_whenever_somebody_looks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send much that takes long to check, and the page looks every second."""
    secret = webhooks.new_secret()
    site.app.state.inbox.learn(secret)
    signed: list[str] = []
    sign = webhooks.sign
    monkeypatch.setattr(webhooks, "sign", lambda *given: signed.append(given[0]) or sign(*given))
    await deliver(site, secret, b"{}")
    before = len(signed)
    for _ in range(5):
        assert [item["signature"] for item in (await contents(site))["data"]] == ["good"]
    assert len(signed) == before
    await deliver(site, secret, b"{}", **{"webhook-signature": " ".join(["v1,aGVsbG8="] * 11)})
    (many, _) = (await contents(site))["data"]
    assert (many["signature"], many["reason"]) == ("bad", "It has more than 10 signatures.")
    assert len(signed) == before + 1  # by this test alone


async def test_the_secrets_of_endpoints_and_jobs_made_here_are_known(site: Site) -> None:
    async with new_post(site) as post:
        endpoint = await post.endpoint()
        rotated = await post.good("POST", f"/v1/endpoints/{endpoint['id']}/rotate", {})
        submitted = (await post.submit(webhook={"url": f"{site.url}/inbox/own"})).json()
    for secret in (endpoint["secret"], rotated["secret"], submitted["webhook_secret"]):
        await deliver(site, secret, b"{}")
    assert [item["signature"] for item in (await contents(site))["data"]] == ["good"] * 3


async def test_a_secret_that_is_none_is_refused(site: Site) -> None:
    answer = await site.send("POST", "/inbox.json", key=site.admin_key, json={"secret": "whsec_short"})
    assert (answer.status_code, answer.json()["field"]) == (422, "secret")


async def test_it_can_be_emptied(site: Site) -> None:
    await site.send("POST", "/inbox/one", key=None, content=b"{}")
    assert (await site.send("DELETE", "/inbox.json", key=site.admin_key)).status_code == 204
    assert await contents(site) == {"data": [], "last": 1}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_it_needs_a_key_of_all_tenants_wherever_the_caller_is(site: Site, method: str) -> None:
    """A proxy on this machine makes every request a local one."""
    body: dict[str, Any] = {"json": {"secret": webhooks.new_secret()}} if method == "POST" else {}
    assert (await site.send(method, "/inbox.json", key=None, **body)).status_code == 401
    assert (await site.send(method, "/inbox.json", **body)).status_code == 403
    tenant_admin = await site.key(scope="admin", account=None)
    assert (await site.send(method, "/inbox.json", key=tenant_admin, **body)).status_code == 403
    assert (await site.send(method, "/inbox.json", key=site.admin_key, **body)).status_code in {200, 204}


async def test_without_an_inbox_there_is_nothing(engine: Engine) -> None:
    async with running_site(engine) as site:
        assert (await site.get("/inbox.json", key=site.admin_key)).status_code == 404
        assert (await site.send("POST", "/inbox/one", key=None, content=b"{}")).status_code == 404
