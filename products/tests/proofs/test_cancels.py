"""A cancel at every stage of every kind, with the code that really does the work; and around entering firm ones."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from products.tests.doubles.forge import API, Forge
from products.tests.doubles.github import TOKEN as GITHUB_TOKEN
from products.tests.doubles.itunes import ITunes
from products.tests.partner.deployments import ENDED, STARTS, kind_names
from products.tests.partner.sources import APP
from products.tests.proofs.deployments import TENANT, Deployment, User, running_deployment
from products.tests.studio.shop import Shop

from millpond import ids
from millpond.engine.verify import verify
from millpond_products.partner.kinds import KINDS
from millpond_products.partner.orders import Name
from millpond_products.partner.routes import _MAKERS, PRODUCT, bound
from tests.doubles.comfyui import served
from tests.doubles.replicate import served_replicate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import httpx2

    from millpond.api.product import Code, Product
    from millpond.engine.engine import Engine
    from millpond_products.settings import ProductSettings
    from tests.databases import DatabaseServer

STAGES = [(name, stage) for name in kind_names() for stage in KINDS[name].stages]
SOURCES = {"project_ingest_github": "github", "project_ingest_website": "website", "appstore_ingest": "appstore"}
TRIES = {"project_ingest_github": 8, "content_generate": 8, "influencer_create": 12}
"""How often the moment is tried for: less where much is done before it comes."""
USUAL = 40
TOGETHER = 4


@dataclass(slots=True)
class Valve:
    """Where a job of a project stops, or what is done when it is about to go on."""

    stage: str
    is_race: bool = False
    pause: float = 0.0
    """How long, in seconds, it stays near in a race."""
    near: asyncio.Event = field(default_factory=asyncio.Event)
    """It is about to enter the stage; or, where that is none of its kind's, it is about to end."""
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)


class Piped:
    """A job in the hands of its real code, which passes a valve with each stage."""

    def __init__(self, job: Any, valve: Valve) -> None:
        self._job, self._valve = job, valve

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    async def stage(self, name: str) -> None:
        if name != self._valve.stage:
            await self._job.stage(name)
            return
        await self.come_near()
        await self._job.stage(name)
        self._valve.entered.set()
        while not (self._valve.is_race or self._valve.go.is_set()):
            await self._job.log("waiting")
            await asyncio.sleep(0.02)

    async def come_near(self) -> None:
        self._valve.near.set()
        if self._valve.is_race:
            await asyncio.sleep(self._valve.pause)


@dataclass(slots=True)
class Scene:
    """Where it all happens: the server, and what its jobs read."""

    deployment: Deployment
    bodies: dict[Name, dict[str, Any]]
    valves: dict[str, Valve]

    @asynccontextmanager
    async def started(self, partner: User, name: Name, valve: Valve) -> AsyncIterator[Running]:
        project = await partner.new_project()
        self.valves[project.removeprefix("prj_")] = valve
        path = f"/partner/v1/projects/{project}"
        job = await partner.request("POST", f"{path}/{STARTS[name][0]}", self.bodies[name])
        yield Running(self.deployment, partner, name, path, job)
        del self.valves[project.removeprefix("prj_")]


@dataclass(slots=True)
class Running:
    """A job, its project and its partner."""

    deployment: Deployment
    partner: User
    name: Name
    project: str
    job: dict[str, Any]

    async def cancel(self) -> httpx2.Response:
        return await self.partner.send("POST", f"{self.job['locationUrl']}/cancel")

    async def ended(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while (job := await self.partner.request("GET", f"{self.job['locationUrl']}?wait=10"))[
                "status"
            ] not in ENDED:
                pass
        return job

    async def is_made(self) -> bool:
        """Whether its project shows what it did."""
        if self.name in SOURCES:
            return SOURCES[self.name] in (await self.partner.request("GET", self.project))["context"]
        part, field_ = (
            ("containers", "containerId") if self.name == "content_generate" else ("influencers", "influencerId")
        )
        made = await self.partner.request("GET", f"{self.project}/{part}/{self.job[field_]}")
        assert made["status"] == (await self.partner.request("GET", self.job["locationUrl"]))["status"]
        return "result" in made

    async def ends(self) -> list[str]:
        """What its history says of its end."""
        events = await self.deployment.engine.events(TENANT, ids.parse("job", self.job["jobId"].lower()))
        return [event.type for event in events if event.state in ENDED]


def piped(valves: dict[str, Valve]) -> Product:
    def handlers(engine: Engine, settings: ProductSettings) -> Code:
        def through(name: Name) -> Any:
            code = _MAKERS[name](engine, settings)

            async def run(job: Any, given: dict[str, Any]) -> Any:
                valve = valves[str(given["project_id"])]
                output = await code(Piped(job, valve), given)
                if valve.stage not in KINDS[name].stages:
                    await Piped(job, valve).come_near()
                return output

            return run

        return bound(engine, {name: through(name) for name in KINDS})

    return replace(PRODUCT, handlers=handlers)


@pytest.fixture(scope="module")
async def scene(
    anyio_backend: str, server: DatabaseServer, template: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    folder: Path = tmp_path_factory.mktemp("cancels")
    forge, valves = Forge(folder / "repositories"), dict[str, Valve]()
    with (
        served(forge) as github_server,
        served(Shop()) as shop,
        served(ITunes()) as itunes,
        served_replicate() as double,
    ):
        forge.url = github_server.url
        forge.git.repository("ada/lumen", APP)
        said = {
            "github_url": f"{github_server.url}{API}",
            "github_token": GITHUB_TOKEN,
            "itunes_url": itunes.url,
            "slots": 20,
        }
        said["repositories"] = "ada/lumen"
        bodies: dict[Name, dict[str, Any]] = {
            "project_ingest_github": {"repoUrl": f"{github_server.url}/ada/lumen"},
            "project_ingest_website": {"url": f"{shop.url}/good"},
            "appstore_ingest": {"appId": "310633997"},
            "content_generate": {"brief": "Summer", "images": 1},
            "influencer_create": {"brief": "A cook", "references": 1},
        }
        roles = ("api", "services", "worker")
        async with (
            server.database(template) as dsn,
            running_deployment(
                dsn, folder, [piped(valves)], roles=roles, provider_url=double.url, **said
            ) as deployment,
        ):
            yield Scene(deployment, bodies, valves)
            assert await verify(deployment.engine.db) == []
        forge.gate.set()


@pytest.mark.parametrize(("name", "stage"), STAGES)
async def test_a_cancel_at_every_stage_of_what_is_done_for_real(scene: Scene, name: Name, stage: str) -> None:
    partner = await scene.deployment.user()
    before = await scene.deployment.engine.balance(TENANT, partner.account)
    valve = Valve(stage)
    async with scene.started(partner, name, valve) as running:
        await asyncio.wait_for(valve.entered.wait(), 60)
        answer = await running.cancel()
        if stage in KINDS[name].firm_stages:
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (409, "CONFLICT")
            assert (error["details"]["subcode"], error["details"]["stage"]) == ("JOB_CANCEL_UNAVAILABLE", stage)
            valve.go.set()
            assert (await running.ended())["status"] == "completed"
            assert await running.is_made()
        else:
            assert (answer.status_code, answer.json()) == (202, {"jobId": running.job["jobId"], "accepted": True})
            assert (await running.ended())["status"] == "canceled"
            assert not await running.is_made()
            assert await scene.deployment.engine.balance(TENANT, partner.account) == before
        assert len(await running.ends()) == 1


@pytest.mark.parametrize("name", kind_names())
async def test_a_cancel_around_the_time_from_which_there_is_no_way_back(scene: Scene, name: Name) -> None:
    """The entry of the firm stage, or the end where there is none: who comes first wins, and never both.

    Who has lost is given more time in the next race: so the two meet however long a cancel takes on this machine.
    """
    stage = (*KINDS[name].firm_stages, "the end")[0]
    partner, outcomes, lead = await scene.deployment.user(), Counter[tuple[int, str]](), 0.01

    async def race() -> None:
        nonlocal lead
        valve = Valve(stage, is_race=True, pause=random.uniform(0, 2) * lead)
        async with scene.started(partner, name, valve) as running:
            await asyncio.wait_for(valve.near.wait(), 60)
            answer = await running.cancel()
            end = await running.ended()
            lead *= 1.4 if end["status"] == "completed" else 1 / 1.4
            outcomes[answer.status_code, end["status"]] += 1
            _check(name, stage, answer, end)
            assert await running.is_made() == (end["status"] == "completed")
            again = await running.cancel()
            assert (again.status_code, again.json()["reason"]) == (200, f"ALREADY_{end['status'].upper()}")
            assert await running.ended() == end
            assert len(await running.ends()) == 1

    for _ in range(TRIES.get(name, USUAL) // TOGETHER):
        await asyncio.gather(*(race() for _ in range(TOGETHER)))
    if name not in TRIES:
        assert {end for _, end in outcomes} == {"completed", "canceled"}, outcomes


def _check(name: Name, stage: str, answer: httpx2.Response, end: dict[str, Any]) -> None:
    """What was answered to the cancel is what came of it."""
    response = answer.json()
    match answer.status_code:
        case 202 if stage in KINDS[name].firm_stages:
            assert end["status"] == "canceled"
        case 202:  # it leaves at its next checkpoint, and may have passed its last one
            assert end["status"] in {"canceled", "completed"}
        case 200:
            assert (response["accepted"], response["reason"], end["status"]) == (
                False,
                "ALREADY_COMPLETED",
                "completed",
            )
        case 409:
            assert (response["error"]["details"]["stage"], end["status"]) == (stage, "completed")
            assert stage in KINDS[name].firm_stages
        case strange:
            raise AssertionError(f"{strange} {answer.text}")
