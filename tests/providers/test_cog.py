"""A real Cog server as the side of the model: what it makes, and how it fails, comes to the job."""

from __future__ import annotations

import io
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from PIL import Image

from tests.children import running_other
from tests.doubles.replicate import Replicate
from tests.factories import TENANT
from tests.providers.deployments import PRICE, Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="Cog's server is for Linux")]


@pytest.fixture(scope="module")
def cog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    bin_ = Path(sys.executable).parent
    environment = os.environ | {
        "PORT": str(port),
        "COG_PREDICT_TYPE_STUB": "predict.py:Predictor",
        "PATH": f"{bin_}{os.pathsep}{os.environ['PATH']}",
    }
    log = tmp_path_factory.mktemp("cog") / "log"
    words = [sys.executable, "-m", "cog.server.http"]
    folder = Path(__file__).parent / "model"
    with log.open("wb") as out, running_other(words, cwd=folder, env=environment, stdout=out, stderr=out):
        url = f"http://127.0.0.1:{port}"
        _await_ready(url, log)
        yield url


def _await_ready(url: str, log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if httpx2.get(f"{url}/health-check").json()["status"] == "READY":
                return
        except httpx2.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError(log.read_text())


async def submit(here: Deployment, **given: Any) -> Any:
    await here.engine.grant(TENANT, here.account, PRICE)
    return (await here.engine.submit("paint", given, **here.owner)).job_id


async def test_what_a_model_makes_comes_to_the_job(here: Deployment, double: Replicate, cog: str) -> None:
    double.cog = cog
    job_id = await submit(here, color="blue")
    job = await here.ended(job_id)
    assert (job.state, job.captured) == ("succeeded", PRICE), job.error
    (made,) = await here.engine.artifacts.of_job(TENANT, job_id)
    assert made.content_type == "image/png"
    image = Image.open(io.BytesIO(await here.engine.artifacts.fetch(made)))
    assert image.getpixel((3, 3)) == (0, 0, 255)
    failed = await here.ended(await submit(here, error="There is no such colour."))
    assert failed.state == "failed"
    assert "There is no such colour" in failed.error["message"]
    assert await here.balance() == (PRICE, 0)
    assert all(status == 200 for _, status in double.reported)
