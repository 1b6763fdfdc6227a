"""The inbox of development, over real HTTP and in a real browser. Pictures of it lie in build/inbox afterwards."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import expect

from millpond import webhooks
from millpond.api.inbox import KEPT_MAX, SIZE_MAX
from tests.api.posts import new_post, post_site
from tests.api.sites import Site, running_site
from tests.browsers import fits, opened, photograph

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from playwright.async_api import Browser

    from millpond.engine.engine import Engine
    from tests.databases import Server

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
async def running(anyio_backend: str, server: Server, template: str) -> AsyncIterator[Site]:
    async with post_site(server, template) as made:
        yield made


@pytest.fixture
def site(running: Site) -> Site:
    """One server for all; its inbox is as new."""
    running.app.desk.inbox.__init__()
    return running


async def deliver(site: Site, secret: str, body: bytes, name: str = "mine", **changed: str) -> None:
    headers = webhooks.headers("msg_1", int(time.time()), body, [secret]) | changed
    answer = await site.send("POST", f"/inbox/{name}", key=None, content=body, headers=headers)
    assert answer.status_code == 200, answer.text


async def contents(site: Site, after: int = 0) -> dict[str, Any]:
    answer = await site.get(f"/inbox.json?after={after}", key=None)
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
    inbox = site.app.desk.inbox
    for number in range(KEPT_MAX + 5):
        inbox.keep("many", [], b"%d" % number, 200)
    found = await contents(site)
    assert (len(found["data"]), found["last"]) == (KEPT_MAX, KEPT_MAX + 5)
    assert found["data"][-1]["body"] == "5"


@pytest.mark.parametrize("status", [204, 410, 503])
async def test_it_answers_as_it_is_told(site: Site, status: int) -> None:
    answer = await site.send("POST", f"/inbox/sick?status={status}&retry_after=7", key=None, content=b"{}")
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert (await contents(site))["data"][0]["answered"] == status


async def test_a_signature_is_judged_by_every_secret_that_is_known(site: Site) -> None:
    known, typed = webhooks.new_secret(), webhooks.new_secret()
    site.app.desk.inbox.learn(known)
    await deliver(site, known, b'{"type":"job.succeeded"}')
    await deliver(site, typed, b'{"type":"job.succeeded"}')
    await deliver(site, known, b'{"type":"forged"}', **{"webhook-id": "msg_2"})
    assert [item["signature"] for item in (await contents(site))["data"]] == ["bad", "bad", "good"]
    answer = await site.send("POST", "/inbox.json", key=None, json={"secret": typed})
    assert answer.status_code == 204
    forged, second, first = (await contents(site))["data"]
    assert (first["signature"], second["signature"], forged["signature"]) == ("good", "good", "bad")
    assert "No signature fits" in forged["reason"]
    assert typed not in (await site.get("/inbox.json", key=None)).text


async def test_a_signature_is_judged_once_and_not_whenever_somebody_looks(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send much that takes long to check, and the page looks every second."""
    secret = webhooks.new_secret()
    site.app.desk.inbox.learn(secret)
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
    answer = await site.send("POST", "/inbox.json", key=None, json={"secret": "whsec_short"})
    assert (answer.status_code, answer.json()["field"]) == (422, "secret")


async def test_it_can_be_emptied(site: Site) -> None:
    await site.send("POST", "/inbox/one", key=None, content=b"{}")
    assert (await site.send("DELETE", "/inbox.json", key=None)).status_code == 204
    assert await contents(site) == {"data": [], "last": 1}


@pytest.mark.parametrize("path", ["/inbox", "/inbox.json"])
async def test_only_this_machine_sees_it_under_a_name_that_no_other_site_can_take(site: Site, path: str) -> None:
    for host in ("localhost:8686", "127.0.0.1", "[::1]:8686"):
        assert (await site.get(path, key=None, headers={"Host": host})).status_code == 200
    for host in ("evil.example", "localhost.evil.example:8686", "127.0.0.1.evil.example"):
        assert (await site.get(path, key=None, headers={"Host": host})).status_code == 403
    assert (await site.get(path, key=None, headers={"X-Forwarded-For": "8.8.8.8"})).status_code == 401
    assert (await site.get(path, headers={"X-Forwarded-For": "8.8.8.8"})).status_code == 403


async def test_the_page_may_talk_to_nobody_but_us(site: Site) -> None:
    answer = await site.get("/inbox", key=None)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "://" not in answer.text
    assert (await site.get("/inbox/static/nothing.js", key=None)).status_code == 404


async def test_without_an_inbox_there_is_nothing(engine: Engine) -> None:
    async with running_site(engine) as site:
        assert (await site.get("/inbox")).status_code == 404
        assert (await site.send("POST", "/inbox/one", key=None, content=b"{}")).status_code == 404


# In a browser


async def test_the_page_shows_what_comes_as_text(browser: Browser, site: Site) -> None:
    secret = webhooks.new_secret()
    async with opened(browser, f"{site.url}/inbox") as page:
        await expect(page).to_have_title("DEV · Inbox")
        await expect(page.get_by_text("Nothing came yet")).to_be_visible()
        await photograph(page, "inbox/1-empty")
        body = b'{"type":"job.succeeded","data":{"id":"job_1","output":{"text":"%s"}}}' % NASTY.encode()
        await deliver(site, secret, body, **{"x-nasty": NASTY})
        row = page.locator("#list > li").first
        await expect(row).to_contain_text("job.succeeded")
        await expect(row.locator(".badge")).to_have_text("signature bad")
        await page.get_by_label("Secret to check").fill(secret)
        await page.get_by_role("button", name="Check").click()
        await expect(row.locator(".badge")).to_have_text("signature good")
        await row.locator("summary").click()
        await expect(row.locator(".body")).to_contain_text(f'"text": "{NASTY}"')
        await expect(row.locator("table")).to_contain_text(NASTY)
        assert await page.locator("#list img").count() == 0
        await photograph(page, "inbox/2-open")
        await page.get_by_role("button", name="Empty it").click()
        await expect(page.get_by_text("Nothing came yet")).to_be_visible()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_the_page_fits_a_telephone(browser: Browser, site: Site, *, dark: bool) -> None:
    secret = webhooks.new_secret()
    site.app.desk.inbox.learn(secret)
    async with opened(browser, f"{site.url}/inbox", narrow=True, dark=dark) as page:
        await deliver(site, secret, b'{"type":"job.failed","data":{"id":"job_%s"}}' % (b"x" * 80), "a-name-" * 9)
        await site.send("POST", "/inbox/other", key=None, content=b"plain text, not signed")
        row = page.locator("#list > li").last
        await expect(row.locator(".badge")).to_have_text("signature good")
        await row.locator("summary").click()
        await photograph(page, f"inbox/3-{'dark' if dark else 'light'}")
        assert await fits(page)
