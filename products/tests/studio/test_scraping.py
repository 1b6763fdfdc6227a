"""Pages as they are on the web: well made, badly made, elsewhere, gone, slow, or none at all."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import Response

from millpond.errors import TransientError
from millpond.outbound import Outbound, OutboundResponse
from millpond_products.pages import fetching
from millpond_products.studio import chat, markup

if TYPE_CHECKING:
    from products.tests.studio.deployments import Deployment


async def page_of(deployment: Deployment, path: str) -> dict[str, Any]:
    user = await deployment.user()
    return (await user.made("scrape", url=f"{deployment.shop_url}{path}"))["output"]


async def failure_of(deployment: Deployment, path: str) -> tuple[str, int]:
    """What a user reads, and how often it was tried."""
    user = await deployment.user()
    job = await user.ended((await user.generate("scrape", url=f"{deployment.shop_url}{path}"))["job_id"])
    assert (job["status"], await user.balance()) == ("failed", 100)
    return job["error"], job["attempts"]


async def test_json_ld_is_believed_first(deployment: Deployment) -> None:
    page = await page_of(deployment, "/good")
    assert page["url"] == f"{deployment.shop_url}/good"
    assert (page["title"], page["brand"]) == ("Lumen Desk Lamp", "Ohm")
    assert page["description"] == "A lamp that follows the sun. It dims by itself when evening comes."
    assert (page["price"], page["currency"], page["rating"], page["reviews"]) == ("89.5", "EUR", 4.6, 1204)
    assert page["features"] == ["Dims by itself", "Ten years of light"]
    assert page["json_ld"]["name"] == "Lumen Desk Lamp"
    assert page["open_graph"]["og:title"] == "From OpenGraph"


async def test_images_are_absolute_and_none_of_them_leads_inside(deployment: Deployment) -> None:
    page = await page_of(deployment, "/good")
    assert page["images"] == [f"{deployment.shop_url}/lamp-2.png", f"{deployment.shop_url}/lamp.png"]


async def test_open_graph_and_plain_html_are_read_where_there_is_no_more(deployment: Deployment) -> None:
    page = await page_of(deployment, "/open-graph")
    assert (page["title"], page["description"], page["price"], page["currency"]) == (
        "Plain Mug",
        "A mug.",
        "12.00",
        "GBP",
    )
    assert page["images"] == [f"{deployment.shop_url}/m.jpg"]
    page = await page_of(deployment, "/plain")
    assert (page["title"], page["description"], page["price"]) == ("Oak Stool", "Stands by itself.", "€ 120")


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/latin", "Café crème"),
        ("/undeclared", "急須"),
        ("/compressed", "Lumen Desk Lamp"),
        ("/huge", "Lumen Desk Lamp"),
        ("/round/5", "Lumen Desk Lamp"),
    ],
)
async def test_odd_pages_are_read_all_the_same(deployment: Deployment, path: str, title: str) -> None:
    assert (await page_of(deployment, path))["title"] == title


async def test_a_broken_page_is_read_as_far_as_it_goes(deployment: Deployment) -> None:
    page = await page_of(deployment, "/broken")
    assert page["title"].startswith("Torn & Mended")
    assert page["json_ld"] is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/gone", "The page answered 404."),
        ("/pdf", "The URL is not an HTML page but application/pdf."),
        ("/empty", "The page is empty."),
        ("/untitled", "The page has no title"),
        ("/round/6", "The page was redirected more than 5 times."),
        ("/to-inside", "The page cannot be fetched"),
    ],
)
async def test_what_will_not_get_better_fails_at_once(deployment: Deployment, path: str, expected: str) -> None:
    error, attempts = await failure_of(deployment, path)
    assert error.startswith(expected)
    assert attempts == 1


async def test_what_may_get_better_is_tried_again(deployment: Deployment) -> None:
    deployment.shop.troubles["/good"] = deque([Response(status_code=503), Response(status_code=429)])
    user = await deployment.user()
    job = await deployment.ended_soon(
        user, (await user.generate("scrape", url=f"{deployment.shop_url}/good"))["job_id"]
    )
    assert (job["status"], job["attempts"]) == ("completed", 3)


async def test_nobody_at_home_is_tried_three_times(deployment: Deployment) -> None:
    user = await deployment.user()
    job = await deployment.ended_soon(user, (await user.generate("scrape", url="http://127.0.0.1:9/p"))["job_id"])
    assert (job["status"], job["attempts"]) == ("failed", 3)
    assert job["error"].startswith("The page could not be fetched")


def test_pages_of_hostile_sizes_and_shapes_are_read_quickly() -> None:
    deep = '<script type="application/ld+json">' + "[" * 100_000 + "]" * 100_000 + "</script><title>T</title>"
    assert markup.read(deep, "https://s.example/").title == "T"
    wide = '{"@type": "Product", "name": "' + "n" * 5_000 + '", "offers": ' + "[{}," * 500 + "1" + "]" * 500 + "}"
    page = markup.read(f'<script type="application/ld+json">{wide}</script>', "https://s.example/")
    assert len(page.title) == 200
    odd = '<title>\x00\ud800 x</title><meta property="og:image" content="http://[bad">'
    assert markup.read(odd.encode("utf-8", "replace").decode(), "https://s.example/").images == []


def test_amounts_of_every_kind_are_read() -> None:
    def price(offers: str) -> tuple[str, str]:
        html = f'<script type="application/ld+json">{{"@type": "Product", "name": "P", "offers": {offers}}}</script>'
        page = markup.read(html, "https://s.example/")
        return page.price, page.currency

    assert price('{"price": 10, "priceCurrency": "usd"}') == ("10", "USD")
    assert price('{"lowPrice": "9.99", "highPrice": 20, "priceCurrency": "EUR"}') == ("9.99", "EUR")
    assert price('{"offers": [{"price": ""}, {"price": "3,50"}]}') == ("3,50", "")
    assert price('"none"') == ("", "")


async def test_in_production_this_machine_is_not_read(deployment: Deployment) -> None:
    """The guard is the engine's: what nobody has opened is refused before anything is charged."""
    opened, deployment.engine.outbound = deployment.engine.outbound, Outbound()
    user = await deployment.user()
    try:
        problem = await user.refused("POST", "/api/generate/scrape", {"url": f"{deployment.shop_url}/good"}, status=422)
    finally:
        await deployment.engine.outbound.close()
        deployment.engine.outbound = opened
    assert (problem["code"], problem["field"], await user.balance()) == ("url_refused", "url", 100)


@pytest.mark.parametrize("check", [chat._check_status, lambda answer: fetching._check_status(answer, "http://x.test/")])
@pytest.mark.parametrize(("said", "seconds"), [("9" * 5_000, 3_600), ("7", 7), ("", None), ("soon", None)])
def test_a_server_may_ask_for_time_but_not_for_ever(check: Any, said: str, seconds: int | None) -> None:
    answer = OutboundResponse(
        status=503, headers={"retry-after": said}, body=b"", is_cut=False, address="", seconds=0.0
    )
    with pytest.raises(TransientError) as failed:
        check(answer)
    assert failed.value.retry_after == (None if seconds is None else timedelta(seconds=seconds))
