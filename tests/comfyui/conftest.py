"""A ComfyUI double and a Comfy Cloud double for all tests, with their switches off at the start of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millpond.integrations.comfyui.handler import Handler
from millpond.integrations.comfyui.server import ComfyServer
from tests.comfyui.jobs import FileJob, with_file
from tests.doubles.comfy_cloud import ComfyCloud, served_cloud
from tests.doubles.comfyui import ComfyUI, Served, Switches, sample, served
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def comfyui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    double = ComfyUI(tmp_path_factory.mktemp("comfyui"))
    with served(double) as running:
        yield running
    double.close()


@pytest.fixture
def double(comfyui: Served) -> Iterator[ComfyUI]:
    """The one that answers at the endpoint, as if just started; whatever it was told to suffer is over afterwards."""
    made: ComfyUI = comfyui.double
    made.switches = Switches()
    made.restart()
    made.asked.clear()
    made.runs.clear()
    yield made
    made.switches = Switches()
    made.restart()


@pytest.fixture
def job(tmp_path: Path) -> FileJob:
    """A job with a small picture."""
    with_file(tmp_path, "art_in", sample())
    return FileJob(tmp_path)


@pytest.fixture
async def endpoint(comfyui: Served, double: ComfyUI) -> AsyncIterator[ComfyServer]:
    made = ComfyServer(comfyui.url, patience=PATIENCE, stall=PATIENCE)
    made.look = 0.2
    yield made
    await made.close()


@pytest.fixture
def handler(endpoint: ComfyServer) -> Handler:
    return Handler(endpoint)


@pytest.fixture(scope="session")
def cloud_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ComfyCloud, Served]]:
    with served_cloud(tmp_path_factory.mktemp("cloud")) as running:
        yield running
