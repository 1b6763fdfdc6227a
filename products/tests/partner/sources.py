"""What ingests read: a GitHub of one's own with repositories, pages, the App Store; and ways to have them read."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from products.tests.doubles.forge import API, Forge
from products.tests.doubles.github import TOKEN
from products.tests.doubles.itunes import ITunes
from products.tests.studio.shop import Shop

from millpond_products.partner import ingest_appstore, ingest_github, ingest_website
from millpond_products.settings import ProductSettings
from tests.doubles.comfyui import served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from products.tests.partner.deployments import Deployment, Partner

    from millpond_products.partner.orders import Name

HANDLERS = {
    "project_ingest_github": ingest_github.handler,
    "project_ingest_website": ingest_website.handler,
    "appstore_ingest": ingest_appstore.handler,
}
APP: dict[str | bytes, bytes | str] = {
    "package.json": '{"name": "lumen", "version": "2.1.0", "description": "A lamp for the web.", "license": "MIT",'
    ' "keywords": ["light", "lamp"], "dependencies": {"next": "15", "react": "^19"}}',
    "README.md": "[![CI](https://x.example/b.svg)](https://x.example)\n\n# Lumen *Lamp*\n\n"
    "Lumen puts a [lamp](https://lamp.example) on your page.\nIt dims by itself.\n\n## More\n",
    "LICENSE": "MIT License\n\nPermission is hereby granted, free of charge, to any person obtaining a copy of this",
    "src/lamp.ts": "export const lamp = 'on';\n" * 40,
    "src/style.css": "p{}" * 2_000,
    "node_modules/x/index.js": "x" * 90_000,
    "api/requirements.txt": "fastapi[standard]>=0.1  # web\n-r more.txt\n",
}


@dataclass
class Sources:
    """Where everything is, and how it is read."""

    forge: Forge
    forge_url: str
    shop: Shop
    shop_url: str
    itunes: ITunes
    itunes_url: str
    deployment: Deployment
    settings: ProductSettings = field(default_factory=ProductSettings)

    def use(self, **said: Any) -> None:
        """Have jobs done for real, with these settings."""
        self.settings = replace(
            ProductSettings(
                github_url=f"{self.forge_url}{API}",
                itunes_url=self.itunes_url,
                github_token=TOKEN,
                repositories="ada/*",
            ),
            **said,
        )
        for name, handler in HANDLERS.items():
            self.deployment.scripts[name] = handler(self.deployment.engine, self.settings)  # pyright: ignore[reportArgumentType]

    async def read(self, partner: Partner, name: Name, **body: Any) -> dict[str, Any]:
        """A job that went well: its result."""
        job = await partner.ended((await partner.start(name, **body))["jobId"])
        assert job["status"] == "completed", job
        return job["result"]

    async def failed(self, partner: Partner, name: Name, **body: Any) -> dict[str, Any]:
        """A job that did not: its error."""
        job = await partner.ended((await partner.start(name, **body))["jobId"])
        assert job["status"] == "failed", job
        return job["error"]

    def hold(self, name: Name, stage: str) -> Held:
        """Have the next jobs stop in a stage, until they are let go."""
        held = Held(stage)
        code = HANDLERS[name](self.deployment.engine, self.settings)

        async def run(job: Any, given: dict[str, Any]) -> Any:
            return await code(Holding(job, held), given)

        self.deployment.scripts[name] = run
        return held

    async def canceled(self, partner: Partner, job_id: str, held: Held, *, is_firm: bool = False) -> None:
        """Cancel a job in the stage in which it is held; where that is firm, it refuses and goes on."""
        await partner.until(job_id, held.stage)
        if is_firm:
            error = await partner.refused("POST", f"/v1/jobs/{job_id}/cancel", status=409, code="CONFLICT")
            assert error["details"]["subcode"] == "JOB_CANCEL_UNAVAILABLE"
            held.go.set()
        else:
            response = await partner.post(f"/v1/jobs/{job_id}/cancel", status=202)
            assert response == {"jobId": job_id, "accepted": True}
        assert (await partner.ended(job_id))["status"] == ("completed" if is_firm else "canceled")


@dataclass
class Held:
    """A stage in which jobs are held."""

    stage: str
    go: asyncio.Event = field(default_factory=asyncio.Event)


class Holding:
    """A job in the hands of its real code, which waits once it has entered a stage."""

    def __init__(self, job: Any, held: Held) -> None:
        self._job, self._held = job, held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._job, name)

    async def stage(self, name: str) -> None:
        await self._job.stage(name)
        while name == self._held.stage and not self._held.go.is_set():
            await self._job.log("waiting")
            await asyncio.sleep(0.05)


@contextmanager
def open_sources(deployment: Deployment, folder: Path) -> Iterator[Sources]:
    forge = Forge(folder)
    with served(forge) as forge_at, served(Shop()) as shop, served(ITunes()) as itunes:
        forge.url = forge_at.url
        forge.git.repository("ada/lumen", APP)
        forge.git.repository("ada/empty")
        yield Sources(forge, forge_at.url, shop.double, shop.url, itunes.double, itunes.url, deployment)
        forge.gate.set()
