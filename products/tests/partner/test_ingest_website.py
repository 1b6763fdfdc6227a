"""Pages as they are on the web, and what they say of a project."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from products.tests.partner.sources import Sources
from starlette.responses import Response

from millpond_products.partner import ingest_website

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

NAME = "project_ingest_website"
STAGES = ("fetching", "parsing", "merging_context")
PAGE = """<!doctype html><html lang="en-GB"><head><title>Lumen — light for your desk</title>
<meta name="description" content="A lamp that &amp; dims."><meta name="keywords" content="lamp, light,, lamp">
<meta name="theme-color" content="#ff8800"><meta property="og:site_name" content="Lumen">
<meta property="og:image" content="/lamp.png"><link rel="icon" href="/i.svg"><link rel="canonical" href="/home"></head>
<body><nav><a href="/">Menu entry</a></nav><main><h1>Light</h1><h2>That dims</h2><h2>Light</h2>
<p>Lumen follows the sun over your desk, and dims by itself when evening comes; so that you see what you do.</p>
<script>var never = "shown"</script><style>p { color: red }</style></main>
<footer><a href="mailto:hi@lumen.example?subject=x">Mail</a> <a href="https://www.instagram.com/lumen">us</a>
<a href="tel:+4912345">call</a> <a href="https://elsewhere.example/">no</a> <a href="http://[bad">bad</a></footer>"""


@pytest.fixture
def sources(sources: Sources, deployment: Deployment) -> Sources:
    sources.shop.troubles.clear()
    sources.use()
    return sources


async def test_what_a_page_says_is_found_and_merged(sources: Sources, partner: Partner) -> None:
    project = await partner.project()
    sources.shop.troubles["/home"] = deque([Response(PAGE, media_type="text/html")])
    url = f"{sources.shop_url}/home"
    job = await partner.ended((await partner.start(NAME, project, url=url))["jobId"])
    assert job["status"] == "completed", job
    facts = job["result"]["facts"]
    assert facts == {
        "url": url,
        "title": "Lumen — light for your desk",
        "name": "Lumen",
        "description": "A lamp that & dims.",
        "language": "en-GB",
        "canonicalUrl": f"{sources.shop_url}/home",
        "icon": f"{sources.shop_url}/i.svg",
        "image": f"{sources.shop_url}/lamp.png",
        "themeColor": "#ff8800",
        "keywords": ["lamp", "light"],
        "openGraph": {"site_name": "Lumen", "image": "/lamp.png"},
        "headings": ["Light", "That dims"],
        "contacts": ["mailto:hi@lumen.example", "https://www.instagram.com/lumen", "tel:+4912345"],
        "excerpt": "Light That dims Light Lumen follows the sun over your desk, and dims by itself when evening"
        " comes; so that you see what you do.",
    }
    response = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert response["website"] == facts
    assert response["summary"]["description"] == "A lamp that & dims."


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/latin", "Café crème"),
        ("/undeclared", "急須"),
        ("/compressed", "Lumen Desk Lamp | Ohm"),
        ("/huge", "Lumen Desk Lamp | Ohm"),
        ("/round/5", "Lumen Desk Lamp | Ohm"),
    ],
)
async def test_odd_pages_are_read_all_the_same(sources: Sources, partner: Partner, path: str, title: str) -> None:
    assert (await sources.read(partner, NAME, url=f"{sources.shop_url}{path}"))["facts"]["title"] == title


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/pdf", "The URL is not an HTML page but application/pdf."),
        ("/empty", "The page is empty."),
        ("/round/6", "The page was redirected more than 5 times."),
        ("/to-inside", "The page cannot be fetched: The URL must be public; private addresses are rejected."),
    ],
)
async def test_a_url_that_is_no_page_is_whoever_gave_it_s_to_mend(
    sources: Sources, partner: Partner, path: str, expected: str
) -> None:
    error = await sources.failed(partner, NAME, url=f"{sources.shop_url}{path}")
    assert (error["code"], error["details"], error["message"]) == ("VALIDATION", {"field": "url"}, expected)


async def test_a_site_that_refuses_is_named_with_its_own_code(sources: Sources, partner: Partner) -> None:
    error = await sources.failed(partner, NAME, url=f"{sources.shop_url}/gone")
    assert (error["code"], error["message"]) == ("PLATFORM_ERROR", "The page answered 404.")
    assert error["details"] == {
        "platform": "website",
        "platformCode": "404",
        "platformMessage": "The page answered 404.",
        "retryAfterMs": None,
    }


async def test_what_may_get_better_is_tried_again(sources: Sources, partner: Partner) -> None:
    asked = Response(status_code=429, headers={"retry-after": "0"})
    sources.shop.troubles["/good"] = deque([Response(status_code=503), asked])
    assert (await sources.read(partner, NAME, url=f"{sources.shop_url}/good"))["facts"]["title"]


async def test_a_site_that_stays_away_is_reported_with_how_long_it_wants_to_be_left_alone(
    sources: Sources, partner: Partner
) -> None:
    unavailable = [Response(status_code=503, headers={"retry-after": "0.5"}) for _ in range(3)]
    sources.shop.troubles["/good"] = deque(unavailable)
    error = await sources.failed(partner, NAME, url=f"{sources.shop_url}/good")
    assert (error["code"], error["details"]["platformCode"], error["details"]["retryAfterMs"]) == (
        "PLATFORM_ERROR",
        "503",
        500,
    )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://10.0.0.1/", "http://0x7f.1/", "ftp://x.example/", "x"])
async def test_what_can_be_seen_to_lead_nowhere_is_refused_at_once(partner: Partner, url: str) -> None:
    project = await partner.project()
    error = await partner.refused(
        "POST", f"/v1/projects/{project}/ingest/website", {"url": url}, status=400, code="VALIDATION"
    )
    assert error["details"]["field"] == "url"


def test_pages_of_hostile_shapes_say_little_and_do_no_harm() -> None:
    deep = "<div>" * 2_000 + '<a href="mailto:"></a>' * 3_000 + "<h1>" * 2_000 + "x" * 100_000
    facts = ingest_website.read(f"<title>\x00 {'t' * 5_000}</title>{deep}", "https://s.example/a")
    assert (len(facts["title"]), facts["name"], len(facts["excerpt"])) == (200, facts["title"], 4_000)
    assert ingest_website.read("", "https://s.example/a") == {
        "url": "https://s.example/a",
        "name": "s.example",
        "icon": "https://s.example/favicon.ico",
    }


async def test_a_page_that_says_very_much_is_cut(sources: Sources, partner: Partner) -> None:
    said = "".join(f'<meta property="og:{n}" content="{"ü" * 5_000}">' for n in ["title", "type", *range(90)])
    sources.shop.troubles["/home"] = deque([Response(f"<title>Lamp</title>{said}", media_type="text/html")])
    facts = (await sources.read(partner, NAME, url=f"{sources.shop_url}/home"))["facts"]
    assert (facts["title"], sorted(facts["openGraph"])) == ("Lamp", ["title", "type"])
    assert len(facts["openGraph"]["type"]) == 2_048


@pytest.mark.parametrize("stage", STAGES)
async def test_it_is_canceled_in_every_stage_that_is_not_firm(sources: Sources, partner: Partner, stage: str) -> None:
    held = sources.hold(NAME, stage)
    job_id = (await partner.start(NAME, url=f"{sources.shop_url}/good"))["jobId"]
    await sources.canceled(partner, job_id, held, is_firm=stage == "merging_context")
