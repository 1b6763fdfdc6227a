"""The one path by which jobs come in: keys, metrics, closed kinds and headers, for the native API and for a product."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from millpond.app import Millpond
from millpond.engine.engine import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.errors import InvalidError
from millpond.kinds import Kind
from millpond.outbound import Outbound
from millpond.product import Product, Route, accept, accept_retry, lifecycle, owner, reply
from millpond.wire import JobWebhook, Request
from tests.api.sites import Site, running_site
from tests.checks import submitted_jobs
from tests.factories import ACCOUNT, OWNER, TENANT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from millpond.product import Call, Reply, Submitted

URL = "http://203.0.113.9/hook"
SHOP = lifecycle(
    "shop",
    """
    *       -> asked   submitted
    asked   -> making  started
    asked   -> gone    canceled failed expired
    making  -> made    succeeded
    making  -> gone    failed canceled expired
    """,
    ends="made=succeeded gone=canceled",
)
HAT = Kind(name="shop.hat", lifecycle=SHOP, is_open=False, price=2)
COAT = Kind(name="shop.coat", lifecycle=SHOP, is_open=False)
ELSEWHERE = Kind(name="elsewhere", is_open=False)
"""A closed kind of no product that is served."""
PLAIN = Kind(name="plain", price=3)


class Order(Request):
    """What the shop is asked for."""

    size: int = 1
    key: str | None = None


def to_body(job: Submitted) -> dict[str, Any]:
    return {"order": job.id, "status": job.state, "secret": job.webhook_secret}


async def by_header(call: Call) -> Reply:
    return await accept(call, HAT.name, {"size": call.body.size}, shape=to_body, location="/orders/{id}")


async def by_member(call: Call) -> Reply:
    """The key alone makes a repeat, which is answered 200 with the job as it stands."""

    async def build() -> dict[str, Any]:
        if call.body.size > 9:
            raise InvalidError("There is no such size.", field="size")
        return {"size": call.body.size}

    async def shape(job: Submitted) -> dict[str, Any]:
        view = await call.engine.views.job(*owner(call), job.job_id)
        return {"order": view.id, "status": view.state}

    return await accept(
        call,
        COAT.name,
        build=build,
        shape=shape,
        location="/orders/{id}",
        replay_status=200,
        key=call.body.key,
        compare_key_only=True,
    )


async def by_request(call: Call) -> Reply:
    """Its input is never the same twice: what was asked for makes a repeat."""

    async def build() -> dict[str, Any]:
        if call.body.size > 9:
            raise InvalidError("There is no such size.", field="size")
        return {"size": call.body.size, "at": call.request_id}

    request = {"size": call.body.size % 100}
    return await accept(call, HAT.name, build=build, shape=to_body, location="/orders/{id}", request=request)


async def with_webhook(call: Call) -> Reply:
    webhook = JobWebhook(url=URL)
    return await accept(call, COAT.name, {}, shape=to_body, location="/orders/{id}", webhook=webhook)


async def not_ours(call: Call) -> Reply:
    return await accept(call, ELSEWHERE.name, {}, shape=to_body, location="/orders/{id}")


async def again(call: Call) -> Reply:
    view = await call.engine.views.job(*owner(call), call.params["id"])
    return await accept_retry(call, view, shape=to_body, location="/orders/{id}")


async def look(call: Call) -> Reply:
    view = await call.engine.views.job(*owner(call), call.params["id"])
    return reply({"order": view.id, "status": view.state})


def route(path: str, handle: Any, *, method: str = "POST", body: Any = Order) -> Route:
    return Route(method=method, path=path, handle=handle, summary="Part of a shop.", body=body, answers={202: dict})


PRODUCT = Product(
    lifecycle=SHOP,
    kinds=(HAT, COAT),
    title="Shop",
    routes=(
        route("/hats", by_header),
        route("/coats", by_member),
        route("/fitted", by_request),
        route("/with-webhook", with_webhook),
        route("/others", not_ours),
        route("/orders/{id}", look, method="GET", body=None),
        route("/orders/{id}/retry", again),
    ),
)


@pytest.fixture
async def shop(new_dsn: str) -> AsyncIterator[Site]:
    """The native API, and a product beside it."""
    app = Millpond()
    for kind in (HAT, COAT, ELSEWHERE, PLAIN):
        app.add(kind)
    vault = Vault([b"0123456789abcdef0123456789abcdef"])
    engine = await Engine.open(new_dsn, app, vault=vault, outbound=Outbound("203.0.113.0/24"), pool_size=4)
    await engine.grant(TENANT, ACCOUNT, 1_000)
    async with running_site(engine, products=[PRODUCT]) as site:
        yield site
    await engine.close()


async def counted(site: Site) -> dict[str, int]:
    return submitted_jobs((await site.order("GET", "/metrics")).text)


def check_headers(answer: httpx2.Response, place: str, *, is_replay: bool) -> None:
    assert answer.headers["location"] == place
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers.get("idempotency-replayed") == ("true" if is_replay else None)


@dataclass(frozen=True)
class Way:
    """A route that submits: how a key is sent, and where the answer has the job."""

    path: str
    is_in_body: bool = False
    repeated: int = 202

    @property
    def is_native(self) -> bool:
        return self.path.startswith("/v1")

    def id_in(self, answer: httpx2.Response) -> str:
        return answer.json()["id" if self.is_native else "order"]

    def place(self, answer: httpx2.Response) -> str:
        return f"{'/v1/jobs' if self.is_native else '/shop/orders'}/{self.id_in(answer)}"

    async def send(self, site: Site, key: str) -> httpx2.Response:
        body = {"kind": "plain"} if self.is_native else {}
        if self.is_in_body:
            return await site.post(self.path, body | {"key": key})
        return await site.post(self.path, body, headers={"Idempotency-Key": key})


WAYS = [
    Way("/v1/jobs"),
    Way("/shop/hats"),
    Way("/shop/fitted"),
    Way("/shop/with-webhook"),
    Way("/shop/coats", is_in_body=True, repeated=200),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.path)
async def test_a_replay_has_the_headers_of_the_first_answer_and_is_not_counted(shop: Site, way: Way) -> None:
    first, replay = [await way.send(shop, "k") for _ in range(2)]
    assert (first.status_code, replay.status_code) == (202, way.repeated)
    assert replay.json() == first.json()
    check_headers(first, way.place(first), is_replay=False)
    check_headers(replay, way.place(first), is_replay=True)
    assert (await shop.get(first.headers["location"])).status_code == 200
    assert sum((await counted(shop)).values()) == 1
    await way.send(shop, "another")
    assert sum((await counted(shop)).values()) == 2


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.path)
async def test_two_at_once_with_one_key_are_one_job_counted_once(shop: Site, way: Way) -> None:
    answers = await asyncio.gather(way.send(shop, "k"), way.send(shop, "k"))
    first, replay = sorted(answers, key=lambda answer: "idempotency-replayed" in answer.headers)
    assert (first.status_code, replay.status_code) == (202, way.repeated)
    assert way.id_in(first) == way.id_in(replay)
    check_headers(first, way.place(first), is_replay=False)
    check_headers(replay, way.place(first), is_replay=True)
    assert sum((await counted(shop)).values()) == 1


async def test_each_new_job_of_many_is_counted_and_no_replay_is(shop: Site) -> None:
    jobs = [{"kind": "plain", "idempotency_key": "a"}, {"kind": "plain"}, {"kind": "absent"}, {"kind": HAT.name}]
    response = (await shop.post("/v1/jobs/bulk", {"jobs": jobs})).json()
    assert [result["status"] for result in response["results"]] == [202, 202, 422, 403]
    assert await counted(shop) == {"plain": 2}
    await shop.post("/v1/jobs/bulk", {"jobs": jobs[:1] * 3})
    assert await counted(shop) == {"plain": 2}


async def test_what_is_wrong_with_one_of_many_is_no_matter_of_the_others(shop: Site) -> None:
    jobs = [{"kind": "plain"}, {"kind": "plain", "account": "bob"}]
    answer = await shop.post("/v1/jobs/bulk", {"jobs": jobs})
    assert [result["status"] for result in answer.json()["results"]] == [202, 403]


@pytest.mark.parametrize("way", WAYS[:2], ids=lambda way: way.path)
async def test_a_retry_as_a_new_job_is_counted_once(shop: Site, way: Way) -> None:
    ended = await way.send(shop, "k")
    await shop.engine.cancel(TENANT, way.id_in(ended))
    path, headers = f"{way.place(ended)}/retry", {"Idempotency-Key": "again"}
    first, replay = [await shop.post(path, {}, headers=headers) for _ in range(2)]
    assert (first.status_code, replay.status_code, replay.content) == (202, 202, first.content)
    assert way.id_in(first) != way.id_in(ended)
    check_headers(first, way.place(first), is_replay=False)
    check_headers(replay, way.place(first), is_replay=True)
    assert sum((await counted(shop)).values()) == 2


async def test_a_closed_kind_is_submitted_and_retried_by_its_own_product_alone(shop: Site) -> None:
    answer = await shop.post("/v1/jobs", {"kind": HAT.name})
    assert (answer.status_code, answer.json()["field"]) == (403, "kind")
    assert (await shop.post("/shop/others", {})).status_code == 403
    job_id = (await shop.post("/shop/hats", {})).json()["order"]
    await shop.engine.cancel(TENANT, job_id)
    assert (await shop.post(f"/v1/jobs/{job_id}/retry")).status_code == 403
    assert (await shop.post(f"/shop/orders/{job_id}/retry", {})).status_code == 202


async def test_a_repeat_needs_nothing_that_its_input_was_made_from(shop: Site) -> None:
    """Nothing is built for it, and it is known by what was asked for."""
    headers = {"Idempotency-Key": "k"}
    first = await shop.post("/shop/fitted", {"size": 7}, headers=headers)
    replay = await shop.post("/shop/fitted", {"size": 107}, headers=headers)  # which could not be built
    assert (replay.status_code, replay.json()) == (202, first.json())
    other = await shop.post("/shop/fitted", {"size": 8}, headers=headers)
    assert (other.status_code, other.json()["code"], other.json()["job_id"]) == (
        409,
        "idempotency_conflict",
        first.json()["order"],
    )
    assert (await shop.post("/shop/fitted", {"size": 107})).json()["field"] == "size"


async def test_where_the_key_is_enough_any_request_with_it_is_a_repeat(shop: Site) -> None:
    first = await shop.post("/shop/coats", {"size": 1, "key": "k"})
    for size in (2, 100):
        replay = await shop.post("/shop/coats", {"size": size, "key": "k"})
        assert (replay.status_code, replay.json()) == (200, first.json())
    await shop.post("/v1/jobs", {"kind": "plain", "idempotency_key": "native"})
    other = await shop.post("/shop/coats", {"key": "native"})  # no job of the shop's
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


async def test_the_secret_that_is_made_for_a_webhook_is_reported_again(shop: Site) -> None:
    headers = {"Idempotency-Key": "k"}
    first, replay = [(await shop.post("/shop/with-webhook", {}, headers=headers)).json() for _ in range(2)]
    assert first["secret"].startswith("whsec_")
    assert replay["secret"] == first["secret"]
    submitted = msgspec.structs.replace(await shop.engine.submit("plain", **OWNER), webhook_secret=first["secret"])
    assert first["secret"] not in repr(submitted)


async def test_a_key_that_is_none_is_refused_before_anything_is_built(shop: Site) -> None:
    for path in ("/shop/hats", "/shop/fitted"):
        answer = await shop.post(path, {"size": 100}, headers={"Idempotency-Key": "two words"})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_idempotency_key")
