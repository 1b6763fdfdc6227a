"""Influencers: personas that fit their project, and pictures of one and the same person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.partner.makers import app, influencer, stages, submit

from millpond_products.partner import personas, routes
from millpond_products.settings import ProductSettings
from tests.doubles.replicate import Replicate, Script, served_replicate
from tests.factories import TENANT
from tests.providers.deployments import running_deployment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millpond.storage.local import Local


def test_the_same_seed_is_the_same_person_and_another_seed_another() -> None:
    assert personas.persona(influencer(seed=3)) == personas.persona(influencer(seed=3))
    assert len({personas.persona(influencer(seed=seed)).name for seed in range(20)}) > 12


def test_a_persona_fits_its_project() -> None:
    for seed in range(20):
        made = personas.persona(influencer(seed=seed))
        assert made.interests[:2] == ["productivity", "focus"]
        assert len(re.findall(r"[.!?](?:\s|$)", made.bio)) == 3
        assert "Lumen" in made.bio
        minimum, maximum = map(int, made.age_band.split("-"))
        assert minimum <= made.age <= maximum
        assert made.voice.endswith(made.presents)


@pytest.mark.parametrize(
    ("said", "presents", "age"),
    [
        ({"brief": "A 34 years old mother of two"}, "woman", 34),
        ({"brief": "He is a barista in his 20s"}, "man", 20),
        ({"brief": "A 75-year-old woman who codes"}, "woman", 60),
        ({"name": "Kofi Brown"}, "man", None),
    ],
)
def test_what_the_brief_says_holds(said: dict[str, Any], presents: str, age: int | None) -> None:
    for seed in range(5):
        made = personas.persona(influencer(seed=seed, **said))
        assert made.presents == presents
        assert age is None or made.age == age
        assert made.name == said.get("name", made.name)


def test_nothing_need_be_known() -> None:
    made = personas.persona(influencer(context={}))
    assert "the project" in made.bio
    assert len(made.interests) == 3


@pytest.fixture
def double() -> Iterator[Replicate]:
    with served_replicate() as running:
        running.double.plan = lambda _: Script()
        yield running.double


async def test_all_pictures_are_asked_for_at_once_and_are_of_one_person(
    dsn: str, files: Local, double: Replicate
) -> None:
    async with running_deployment(
        dsn, files, double, app(), product=routes.PRODUCT, settings=ProductSettings()
    ) as here:
        order = influencer(references=4, seed=11)
        double.plan = lambda _: Script(seconds=3600)
        job_id = await submit(here, order)
        await here.until(job_id, lambda job: job.phase == "parked")
        asked = [body["input"] for body in double.bodies]
        assert [given["shot"] for given in asked] == [1, 2, 3, 4]
        assert {(given["seed"], given["presents"], given["age"]) for given in asked} == {
            (11, asked[0]["presents"], asked[0]["age"])
        }
        for made in list(double.predictions.values()):
            double.end(made, "succeeded")
        await here.poll_now()
        job = await here.ended(job_id)
        assert (job.state, job.captured) == ("completed", 5)
        assert await stages(here, job_id) == ["generating", "rendering_references"]
        assert [asset["name"] for asset in job.output["assets"]] == [f"reference-{n}.png" for n in range(1, 5)]
        assert job.output["influencerId"] == f"inf_{order.influencer_id}"
        assert job.output["name"] == job.output["persona"]["name"]

        double.plan = lambda _: Script(seconds=3600)
        job_id = await submit(here, influencer())
        await here.until(job_id, lambda job: job.phase == "parked" and job.stage == "rendering_references")
        await here.engine.cancel(TENANT, job_id)
        assert (await here.ended(job_id)).state == "canceled"
        await here.settled()
        assert [made["status"] for made in double.predictions.values()][4:] == ["canceled"] * 2
