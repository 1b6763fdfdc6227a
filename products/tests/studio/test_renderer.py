"""With no account anywhere: the local renderer makes a real ad. The studio cannot tell it from Replicate."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import av
import pytest
from PIL import Image
from products.tests.renderer.renderers import TOKEN, renderer
from products.tests.studio.deployments import running_deployment

from millpond.integrations.replicate import Replicate

if TYPE_CHECKING:
    from tests.databases import DatabaseServer

pytestmark = pytest.mark.slow

PRICES = 1 + 1 + 5 + 2 + 20


async def test_from_a_product_page_to_a_film(server: DatabaseServer, template: str, tmp_path_factory: Any) -> None:
    with renderer("--allow", "loopback") as running:
        provider = Replicate(running.url, TOKEN)
        folder = tmp_path_factory.mktemp("files")
        async with server.database(template) as dsn, running_deployment(dsn, folder, provider=provider) as deployment:
            user = await deployment.user(100)
            page = await user.made("scrape", url=f"{deployment.url}/studio/sample")
            copy = await user.made("copy", product_id=page["id"], seed=1)
            both = {"product_id": page["id"], "copy_id": copy["id"]}
            accepted = [
                await user.generate("static-ad", **both, aspect_ratio="4:5", seed=1),
                await user.generate("tts", text="A kettle, and a good one."),
                await user.generate("video", **both, script="A kettle.", aspect_ratio="1:1", seed=1),
                await user.generate("tts", text="Hello.", voice="klingon"),
            ]
            jobs = [await user.ended(described["job_id"], patience=120) for described in accepted]
            assert [job["status"] for job in jobs] == ["completed", "completed", "completed", "failed"], jobs
            assert "voice" in jobs[3]["error"]
            assert jobs[3]["attempts"] == 1
            files = [job["output"]["files"][0] for job in jobs[:3]]
            picture, voice, film = [(await deployment.http.get(file["url"])).content for file in files]
            with Image.open(io.BytesIO(picture)) as image:
                image.load()
                assert image.width * 5 == image.height * 4
                assert (files[0]["width"], files[0]["height"]) == image.size
            with av.open(io.BytesIO(voice), "r") as container:
                assert sum(1 for _ in container.decode(audio=0)) > 10
            with av.open(io.BytesIO(film), "r") as container:
                assert next(container.decode(video=0)).width == files[2]["width"]
            assert files[1]["seconds"] > 1
            assert files[2]["seconds"] > 1
            assert await user.balance() == 100 - PRICES
