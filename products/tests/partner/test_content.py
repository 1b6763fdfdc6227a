"""Content: plans, and jobs that make pictures and a film, whatever the provider does."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import av
import msgspec
import pytest
from PIL import Image
from products.tests.partner.makers import CONTEXT, app, content, influencer, stages, submit
from products.tests.renderer.renderers import TOKEN, renderer

from millpond.engine.providers.breakers import Breaker
from millpond.errors import SettingsError
from millpond.integrations.replicate import Replicate as Provider
from millpond.storage.local import Local
from millpond_products.models import models
from millpond_products.partner import planning, routes
from millpond_products.settings import ProductSettings
from tests.doubles.replicate import Refusal, Replicate, Script, served_replicate
from tests.factories import TENANT
from tests.providers.deployments import Deployment, running_deployment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.databases import DatabaseServer

FOREVER = 3600.0
PRODUCT: dict[str, Any] = {"product": routes.PRODUCT, "settings": ProductSettings()}
STAGES = ["planning", "generating_visuals", "assembling", "rendering"]
_numbers = count(1)


# Plans


def test_the_same_seed_plans_the_same_and_another_seed_something_else() -> None:
    assert planning.plan(content(seed=3)) == planning.plan(content(seed=3))
    assert len({planning.plan(content(seed=seed)).script for seed in range(8)}) > 4


def test_a_plan_is_about_the_project_and_says_what_the_brief_wants() -> None:
    plans = [planning.plan(content(seed=seed, images=4)) for seed in range(12)]
    assert all("Lumen" in plan.script for plan in plans)
    assert {plan.product for plan in plans} == {"Lumen"}  # what is behind the dash is for search engines
    assert {plan.description for plan in plans} == {"Lumen is a focus timer that blocks distractions."}
    assert any("busy students" in text for plan in plans for text in plan.headlines)
    assert all(len(set(plan.headlines)) == 4 and plan.headline == plan.headlines[0] for plan in plans)
    assert all(len(plan.script) <= planning.SCRIPT_MAX for plan in plans)


def test_what_the_brief_puts_in_quotes_is_the_headline() -> None:
    assert planning.plan(content(brief='Use the line "Back to work" please')).headline == "Back to work"


@pytest.mark.parametrize(
    "brief", ['Say "   " loudly', 'A 5" screen and a 6" phone', 'Say "Back to', '"' * 9, 'It "---" is', 'a "b', "“« »”"]
)
def test_marks_that_quote_nothing_make_no_headline(brief: str) -> None:
    for seed in range(6):
        made = planning.plan(content(brief=brief, seed=seed, images=4)).headlines
        assert all(text.strip(' -"“”«»') and '"' not in text for text in made), made


def test_a_quote_is_taken_between_its_own_marks() -> None:
    brief = 'For a 5" screen: "Back to work", “Dim the sun”, « Allez »'
    assert planning.plan(content(brief=brief, images=3)).headlines == ["Back to work", "Dim the sun", "Allez"]


def test_a_clone_has_the_beats_of_its_source_and_other_words() -> None:
    source = planning.plan(content(seed=1))
    for seed in range(2, 12):
        clone = planning.plan(content(seed=seed, plan=msgspec.to_builtins(source)))
        assert (clone.angle, [s.beat for s in clone.scenes]) == (source.angle, [s.beat for s in source.scenes])
        assert clone.script != source.script
        assert not set(clone.headlines) & set(source.headlines)
        assert clone.call_to_action != source.call_to_action


@pytest.mark.parametrize("plan", [{"scenes": 1}, {}, {"angle": "x", "scenes": [{"beat": "gone"}]}])
def test_a_plan_that_is_not_ours_is_made_again(plan: dict[str, Any]) -> None:
    assert planning.plan(content(plan=plan)) == planning.plan(content())


@pytest.mark.parametrize(
    "summary", [{}, {"name": "{0} {x}", "description": "{y} is {z} and so on.", "keywords": [None, 3, "{k}"]}]
)
def test_whatever_is_known_a_plan_can_be_made(summary: dict[str, Any]) -> None:
    for seed in range(10):
        made = planning.plan(content(context={"summary": summary}, brief="{brief} for {audience}s", seed=seed))
        assert made.script.strip()
        assert all(text.strip() for text in made.headlines)


def test_an_operator_names_other_models() -> None:
    assert models("static_ad=acme/painter")["static_ad"] == "acme/painter"
    assert models("static_ad=acme/painter")["ugc_video"] == "millpond/ugc-video"
    for wrong in ("static_ad", "static_ad=painter", "poster=acme/painter"):
        with pytest.raises(SettingsError, match="MILLPOND_MODELS"):
            models(wrong)


# For real


@pytest.mark.slow
async def test_the_renderer_makes_pictures_a_film_and_a_person(dsn: str, tmp_path_factory: Any) -> None:
    files = Local(tmp_path_factory.mktemp("files"), "http://files.test")
    with renderer() as one:
        options: dict[str, Any] = {"provider": Provider(one.url, TOKEN), **PRODUCT}
        async with running_deployment(dsn, files, None, app(), **options) as here:  # type: ignore[arg-type] - nothing is doubled
            person = influencer()
            who = await here.ended(await submit(here, person), 120)
            order = content(influencer_id=person.influencer_id)
            job_id = await submit(here, order)
            job = await here.ended(job_id, 120)
            assert await stages(here, job_id) == STAGES
            assert who.state == job.state == "completed", (who.error, job.error)
            await _check_person(here, who.output)
            await _check_content(here, job.output, who.output)


async def _check_person(here: Deployment, output: dict[str, Any]) -> None:
    assert [asset["name"] for asset in output["assets"]] == ["reference-1.png", "reference-2.png"]
    one, other = [await _file(here, asset) for asset in output["assets"]]
    assert one != other
    for data, asset in zip((one, other), output["assets"], strict=True):
        with Image.open(io.BytesIO(data)) as image:
            assert (image.format, image.size) == ("PNG", (asset["width"], asset["height"])) == ("PNG", (1_080, 1_350))


async def _check_content(here: Deployment, output: dict[str, Any], who: dict[str, Any]) -> None:
    assert [asset["type"] for asset in output["assets"]] == ["image", "image", "video"]
    assert output["influencerId"] == who["influencerId"]
    assert output["plan"]["presenter"] == who["name"]
    assert output["script"].startswith(f"Hi, I'm {who['name'].partition(' ')[0]}.")
    *pictures, film = output["assets"]
    for asset in pictures:
        with Image.open(io.BytesIO(await _file(here, asset))) as image:
            assert image.size == (asset["width"], asset["height"]) == (1_080, 1_080)
    with av.open(io.BytesIO(await _file(here, film)), "r") as container:
        assert {stream.type for stream in container.streams} == {"video", "audio"}
    assert (film["width"], film["height"]) == (720, 720)
    assert 3 < film["seconds"] < 60


async def _file(here: Deployment, asset: dict[str, Any]) -> bytes:
    data = await here.engine.artifacts.fetch(await here.engine.artifacts.read(TENANT, asset["assetId"]))
    assert len(data) == asset["bytes"]
    return data


# With a provider that is not well


@pytest.fixture(scope="module")
async def shared(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployment]:
    files = Local(tmp_path_factory.mktemp("files"), "http://files.test")
    with served_replicate() as running:
        async with (
            server.database(template) as dsn,
            running_deployment(dsn, files, running.double, app(), **PRODUCT) as made,
        ):
            yield made


@pytest.fixture
def double(shared: Deployment) -> Replicate:
    made: Replicate = shared.double
    made.reset()
    made.plan = lambda _: Script()
    return made


@pytest.fixture
def here(shared: Deployment, double: Replicate) -> Deployment:
    line = shared.engine.providers.client("replicate")
    line.breaker = Breaker(line.name)
    return replace(shared, account=f"partner-{next(_numbers)}")


def is_film(given: dict[str, Any]) -> bool:
    return "script" in given


async def test_the_result_names_what_was_made_in_its_order(here: Deployment, double: Replicate) -> None:
    order = content(images=3)
    job_id = await submit(here, order)
    job = await here.ended(job_id)
    assert (job.state, job.captured, job.attempts) == ("completed", 10, 0)
    assert await stages(here, job_id) == STAGES
    output = job.output
    assert output["projectId"] == f"prj_{order.project_id}"
    assert output["containerId"] == f"cnt_{order.container_id}"
    assert [asset["name"] for asset in output["assets"]] == [
        "image-1.png",
        "image-2.png",
        "image-3.png",
        "video.png",
    ]  # the double makes nothing but pictures
    asked = [body["input"] for body in double.bodies]
    assert [is_film(given) for given in asked] == [False, False, False, True]
    assert [given["headline"] for given in asked] == [*output["plan"]["headlines"], output["headline"]]
    assert [given["seed"] for given in asked] == [7, 8, 9, 7]
    assert asked[3]["script"] == output["script"]


@pytest.mark.parametrize("stage", ["generating_visuals", "rendering"])
async def test_a_cancel_while_the_provider_works_stops_it_there(
    here: Deployment, double: Replicate, stage: str
) -> None:
    double.plan = lambda given: Script(seconds=FOREVER if is_film(given) == (stage == "rendering") else 0.01)
    job_id = await submit(here, content())
    await here.until(job_id, lambda job: job.phase == "parked" and job.stage == stage)
    assert (await here.engine.cancel(TENANT, job_id)).is_accepted
    assert (await here.ended(job_id)).state == "canceled"
    await here.settled()
    assert all(made["status"] in ("canceled", "succeeded") for made in double.predictions.values())
    assert any(made["status"] == "canceled" for made in double.predictions.values())
    assert await here.balance() == (10, 0)


async def test_a_cancel_in_line_asks_for_nothing(here: Deployment, double: Replicate) -> None:
    await here.engine.pause("partner.content_generate")
    try:
        job_id = await submit(here, content())
        assert (await here.engine.cancel(TENANT, job_id)).is_accepted
        assert (await here.read(job_id)).state == "canceled"
    finally:
        await here.engine.resume("partner.content_generate")
    assert double.bodies == []


async def test_what_fails_there_is_reported_as_the_platform_said_it(here: Deployment, double: Replicate) -> None:
    double.plan = lambda given: Script(status="failed", error="Out of ink.") if is_film(given) else Script()
    job = await here.ended(await submit(here, content()))
    assert (job.state, job.captured) == ("failed", 0)
    fields = {name: job.error[name] for name in ("platform", "platformCode", "platformMessage")}
    assert fields == {"platform": "renderer", "platformCode": "failed", "platformMessage": "Out of ink."}
    assert await here.balance() == (10, 0)


async def test_what_it_refuses_is_reported_with_its_status(here: Deployment, double: Replicate) -> None:
    double.refusals.append(Refusal(422, "- input.style: unknown"))
    job = await here.ended(await submit(here, content()))
    assert (job.state, job.error["platformCode"]) == ("failed", "422")
    assert "input.style" in job.error["platformMessage"]


async def test_a_provider_that_rests_is_waited_for(here: Deployment, double: Replicate) -> None:
    double.refusals.append(Refusal(429, headers={"Retry-After": "1"}))
    job = await here.ended(await submit(here, content()))
    assert (job.state, job.attempts) == ("completed", 0)
    assert len(double.predictions) == 3


async def test_a_prediction_that_is_lost_fails_the_job_and_stops_the_others(
    here: Deployment, double: Replicate
) -> None:
    double.plan = lambda _: Script(seconds=FOREVER)
    job_id = await submit(here, content())
    await here.until(job_id, lambda job: job.phase == "parked" and len(double.predictions) == 2)
    first, second = double.predictions
    del double.predictions[first]
    await here.poll_now()
    job = await here.ended(job_id)
    assert (job.state, job.error["platform"]) == ("failed", "renderer")
    await here.settled()
    assert double.predictions[second]["status"] == "canceled"


async def test_a_model_without_files_fails_the_job(here: Deployment, double: Replicate) -> None:
    double.plan = lambda _: Script(output="no picture")
    job = await here.ended(await submit(here, content()))
    assert (job.state, job.error["platformCode"]) == ("failed", "no_output")


async def test_models_of_others_are_asked_in_words(dsn: str, files: Local, double: Replicate) -> None:
    chosen = ProductSettings(models="static_ad=acme/painter, ugc_video=acme/filmer, persona=acme/painter")
    async with running_deployment(dsn, files, double, app(), product=routes.PRODUCT, settings=chosen) as here:
        job = await here.ended(await submit(here, content(images=1)))
        assert job.state == "completed"
        who = await here.ended(await submit(here, influencer(references=1)))
        assert who.state == "completed"
        assert [made["model"] for made in double.predictions.values()] == [
            "acme/painter",
            "acme/filmer",
            "acme/painter",
        ]
        prompts = [body["input"]["prompt"] for body in double.bodies]
        assert all(CONTEXT["summary"]["name"].partition(" ")[0] in prompt for prompt in prompts[:2])
        assert job.output["script"] in prompts[1]
        assert who.output["name"] in prompts[2]
