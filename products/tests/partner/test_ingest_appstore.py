"""The App Store as it answers: well, oddly, not at all; and what it says of an app."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from products.tests.doubles.itunes import LAMP
from products.tests.partner.sources import Sources
from starlette.responses import Response

from millpond.errors import InvalidError
from millpond_products.partner import ingest_appstore, wire

if TYPE_CHECKING:
    from products.tests.partner.deployments import Deployment, Partner

NAME = "appstore_ingest"
STAGES = ("fetching", "parsing", "merging_context")


@pytest.fixture
def sources(sources: Sources, deployment: Deployment) -> Sources:
    sources.itunes.troubles.clear()
    sources.itunes.asked.clear()
    sources.itunes.apps = [LAMP]
    sources.use()
    return sources


async def test_what_the_store_says_is_found_and_merged(sources: Sources, partner: Partner) -> None:
    project = await partner.project()
    job = await partner.ended((await partner.start(NAME, project, appId="310633997", country="DE"))["jobId"])
    assert job["status"] == "completed", job
    assert sources.itunes.asked == [{"id": "310633997", "country": "de"}]
    facts = job["result"]["facts"]
    assert (facts["appId"], facts["bundleId"], facts["country"]) == ("310633997", "com.example.lumen", "de")
    assert facts["name"] == "Lumen: Light for your Desk"
    assert facts["description"] == "A lamp in your pocket. It dims by itself."
    assert (facts["category"], facts["genres"]) == ("Productivity", ["Productivity", "Utilities"])
    assert (facts["price"], facts["rating"], facts["ratings"]) == (0.0, 4.69, 12043)
    assert facts["screenshots"] == ["https://is1.mzstatic.example/1.png"]
    response = (await partner.get(f"/v1/projects/{project}"))["context"]
    assert response["appstore"] == facts
    assert response["summary"]["category"] == "Productivity"


async def test_an_app_is_found_by_its_bundle_id(sources: Sources, partner: Partner) -> None:
    await sources.read(partner, NAME, appId="com.example.lumen")
    assert sources.itunes.asked == [{"bundleId": "com.example.lumen", "country": "us"}]


async def test_an_app_is_found_by_its_page_as_the_schema_says(sources: Sources, partner: Partner) -> None:
    page = "https://apps.apple.com/de/app/lumen/id310633997"
    (schema,), parts = msgspec.json.schema_components([wire.IngestAppstore], ref_template="{name}")
    pattern = parts[schema["$ref"]]["properties"]["appId"]["pattern"]
    assert all(re.search(pattern, each) for each in (page, "310633997", "com.example.lumen"))
    assert not re.search(pattern, page.replace("apple", "apples"))
    await sources.read(partner, NAME, appId=page)
    assert sources.itunes.asked == [{"id": "310633997", "country": "de"}]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("310633997", ("310633997", "us")),
        ("id310633997", ("310633997", "us")),
        ("com.example.lumen", ("com.example.lumen", "us")),
        ("https://apps.apple.com/DE/app/l%C3%A4mp/id31?l=en", ("31", "de")),
        ("https://apps.apple.com/app/id31", ("31", "us")),
        ("https://itunes.apple.com/gb/app/lumen/id31#x", ("31", "gb")),
    ],
)
def test_an_app_can_be_named_in_many_ways(given: str, meant: tuple[str, str]) -> None:
    assert ingest_appstore.check(given, "US") == meant


@pytest.mark.parametrize(
    "given", ["", "x", "31&country=de", "https://evil.example/app/id31", "9" * 21, "../31", "https://apps.apple.com/us"]
)
def test_what_names_no_app_is_refused(given: str) -> None:
    with pytest.raises(InvalidError) as refused:
        ingest_appstore.check(given, "us")
    assert refused.value.field == "appId"


@pytest.mark.parametrize(
    "apps", [[], [{"trackId": 310633997}], [{"trackId": 310633997, "trackName": 7}], [LAMP | {"kind": "song"}]]
)
async def test_an_app_that_is_not_in_the_store_is_not_found(
    sources: Sources, partner: Partner, apps: list[dict[str, Any]]
) -> None:
    sources.itunes.apps = apps
    error = await sources.failed(partner, NAME, appId="310633997")
    assert (error["code"], error["details"]) == ("NOT_FOUND", {"field": "appId"})
    assert error["message"] == "There is no app 310633997 in the App Store of US."


async def test_members_of_the_wrong_type_are_passed_over(sources: Sources, partner: Partner) -> None:
    odd = {
        "trackId": 31,
        "trackName": "Odd",
        "price": "free",
        "genres": {"a": 1},
        "screenshotUrls": [None, {}],
        "averageUserRating": True,
        "userRatingCount": 10**300,
        "description": ["x"],
        "artworkUrl512": "file:///etc",
    }
    sources.itunes.apps = [odd]
    facts = (await sources.read(partner, NAME, appId="31"))["facts"]
    assert facts == {"appId": "31", "country": "us", "name": "Odd"}


@pytest.mark.parametrize(
    ("status", "body"),
    [(403, "<html>Access denied</html>"), (429, ""), (502, ""), (200, "<html>"), (200, "[1]"), (200, '{"results": 1}')],
)
async def test_what_may_get_better_is_tried_again(sources: Sources, partner: Partner, status: int, body: str) -> None:
    sources.itunes.troubles.append(Response(body, status, headers={"retry-after": "0"}))
    await sources.read(partner, NAME)
    assert len(sources.itunes.asked) == 2


@pytest.mark.parametrize(("status", "code", "body"), [(403, "403", ""), (503, "503", ""), (200, "answer", "<html>")])
async def test_what_stays_bad_is_reported_with_the_platform(
    sources: Sources, partner: Partner, status: int, code: str, body: str
) -> None:
    sources.itunes.troubles.extend(Response(body, status, headers={"retry-after": "0.2"}) for _ in range(3))
    error = await sources.failed(partner, NAME)
    assert (error["code"], error["details"]["platform"]) == ("PLATFORM_ERROR", "appstore")
    assert error["details"]["platformCode"] == code
    assert error["details"]["retryAfterMs"] == (None if status == 200 else 200)


async def test_a_request_that_it_does_not_like_is_not_repeated(sources: Sources, partner: Partner) -> None:
    sources.itunes.troubles.append(Response("Bad", 400))
    error = await sources.failed(partner, NAME)
    assert (error["code"], error["details"]["platformCode"]) == ("PLATFORM_ERROR", "400")
    assert len(sources.itunes.asked) == 1


@pytest.mark.parametrize("stage", STAGES)
async def test_it_is_canceled_in_every_stage_that_is_not_firm(sources: Sources, partner: Partner, stage: str) -> None:
    held = sources.hold(NAME, stage)
    job_id = (await partner.start(NAME))["jobId"]
    await sources.canceled(partner, job_id, held, is_firm=stage == "merging_context")
