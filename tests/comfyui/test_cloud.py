"""Jobs on Comfy Cloud, over real sockets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from millpond.errors import CanceledError, PermanentError, SettingsError, StalledError, TransientError
from millpond.integrations.comfyui.cloud import UPLOAD_MAX, Cloud
from millpond.integrations.comfyui.handler import Handler
from tests.comfyui import recorded
from tests.comfyui.jobs import FileJob, task
from tests.doubles.comfy_cloud import KEY, ComfyCloud
from tests.doubles.comfyui import Served, Switches
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INVERT = recorded.graph(n1={"class_type": "LoadImage", "inputs": {"image": "{{input}}"}})


@pytest.fixture
def double(cloud_api: tuple[ComfyCloud, Served]) -> ComfyCloud:
    made, _ = cloud_api
    made.comfy.switches = Switches()
    made.comfy.restart()
    made.has_credits = made.is_active = made.has_history = True
    made.first_words = ["submitted", "queued_waiting", "allocated", "preparing"]
    made.last_word = None
    made.uploads = 0
    made.asked.clear()
    made.storage.asked.clear()
    return made


@pytest.fixture
async def handler(cloud_api: tuple[ComfyCloud, Served], double: ComfyCloud) -> AsyncIterator[Handler]:
    endpoint = Cloud(KEY, cloud_api[1].url, patience=PATIENCE, stall=PATIENCE)
    endpoint.look = 0.1
    yield Handler(endpoint)
    await endpoint.close()


async def test_efx_20_a_job_runs_on_the_cloud_and_the_key_stays_there(
    handler: Handler, double: ComfyCloud, job: FileJob
) -> None:
    output = await handler.handle(job, task(INVERT))
    with Image.open(job.made) as picture:
        assert picture.getpixel((0, 0)) == (55, 225, 195)
    id = output["prompt_id"]
    assert id != f"{job.id}-1", "the id is the cloud's own"
    asked = list(dict.fromkeys(double.asked))
    assert asked == [
        ("POST", "/api/upload/image"),
        ("POST", "/api/prompt"),
        ("GET", f"/api/job/{id}/status"),
        ("GET", f"/api/history_v2/{id}"),
        ("GET", "/api/view"),
    ]
    assert len(double.storage.asked) == 1
    assert "x-api-key" not in double.storage.asked[0].headers
    assert KEY not in str(double.storage.asked[0].headers)
    assert KEY not in str(double.comfy.history[id]), "the key is sent along for partner nodes only"
    assert job.steps == sorted(job.steps)


async def test_without_a_history_the_job_itself_is_asked(handler: Handler, double: ComfyCloud, job: FileJob) -> None:
    double.has_history = False
    output = await handler.handle(job, task(INVERT))
    assert ("GET", f"/api/jobs/{output['prompt_id']}") in double.asked
    assert job.made.exists()


async def test_efx_21_a_file_that_the_cloud_has_is_not_sent_again(
    handler: Handler, double: ComfyCloud, job: FileJob
) -> None:
    for epoch in (1, 2):
        job.epoch = epoch
        await handler.handle(job, task(INVERT, asset={"content_hash": "v1"}))
    assert double.uploads == 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"has_credits": False}, "not have enough credits"),
        ({"is_active": False}, "Comfy Cloud subscription is not active"),
    ],
    ids=["402", "429"],
)
async def test_an_account_that_will_not_do_is_reported(
    handler: Handler, double: ComfyCloud, job: FileJob, change: Any, expected: str
) -> None:
    for name, value in change.items():
        setattr(double, name, value)
    with pytest.raises(PermanentError, match=expected) as refused:
        await handler.handle(job, task(INVERT))
    assert refused.value.details["reason"] == "account"


async def test_a_wrong_key_is_reported_and_not_shown(cloud_api: tuple[ComfyCloud, Served], job: FileJob) -> None:
    endpoint = Cloud("wrong-key", cloud_api[1].url)
    with pytest.raises(PermanentError, match="rejected the key") as refused:
        await Handler(endpoint).handle(job, task(INVERT))
    await endpoint.close()
    assert "wrong-key" not in f"{refused.value!r} {endpoint!r}"
    with pytest.raises(SettingsError):
        Cloud(" ")


async def test_a_graph_that_is_refused_is_reported(handler: Handler, job: FileJob) -> None:
    with pytest.raises(PermanentError, match=r"node 3 \(SaveImage\), input images: Required input is missing"):
        await handler.handle(job, task(INVERT | {"3": recorded.PARTLY["4"]}))
    with pytest.raises(PermanentError, match=r"node 4 \(SaveImage\)"):
        await handler.handle(job, task(INVERT | {"4": recorded.PARTLY["4"]}, node="4"))


async def test_a_node_that_raises_is_named(handler: Handler, double: ComfyCloud, job: FileJob) -> None:
    double.comfy.switches.fail = {"ImageInvert": "the tensor is tired"}
    with pytest.raises(PermanentError, match=r"Node 2 \(ImageInvert\) failed: RuntimeError: the tensor is tired"):
        await handler.handle(job, task(INVERT))


@pytest.mark.parametrize(
    ("word", "error", "reason"),
    [
        ("lost", TransientError, "lost"),
        ("cancelled", TransientError, "interrupted"),
        ("non_retryable_error", PermanentError, "execution"),
        ("completed", None, ""),
    ],
)
async def test_every_word_for_an_end_is_known(
    handler: Handler, double: ComfyCloud, job: FileJob, word: str, error: Any, reason: str
) -> None:
    double.last_word = word
    double.first_words = ["cancel_pending", "erroring", "something_new"]
    if error is None:
        await handler.handle(job, task(INVERT))
        return
    with pytest.raises(error) as raised:
        await handler.handle(job, task(INVERT))
    assert raised.value.details["reason"] == reason


async def test_efx_23_a_canceled_job_leaves_the_others_of_the_account_alone(
    handler: Handler, double: ComfyCloud, job: FileJob, tmp_path: Any
) -> None:
    double.comfy.switches.hang = ["ImageInvert"]
    runs = [asyncio.create_task(handler.handle(one, task(INVERT))) for one in (FileJob(tmp_path, id="job_9"), job)]
    async with asyncio.timeout(PATIENCE):
        while double.comfy._left() < 2:
            await asyncio.sleep(0.01)
    job.is_canceled = True
    with pytest.raises(CanceledError):
        await runs[1]
    double.comfy.switches.hang = []
    await runs[0]
    assert ("POST", "/api/queue") in double.asked
    assert ("POST", "/api/interrupt") not in double.asked


async def test_a_run_without_a_sign_of_life_is_given_up(handler: Handler, double: ComfyCloud, job: FileJob) -> None:
    double.comfy.switches.hang = ["ImageInvert"]
    handler.endpoint.stall = 0.5  # type: ignore[attr-defined]
    with pytest.raises(StalledError, match="made no progress") as raised:
        await handler.handle(job, task(INVERT))
    assert raised.value.details["reason"] == "stalled"
    assert ("POST", "/api/queue") in double.asked


async def test_a_file_too_large_for_the_cloud_is_not_sent(handler: Handler, double: ComfyCloud, job: FileJob) -> None:
    with (job.folder / "in" / "art_in").open("r+b") as file:
        file.truncate(UPLOAD_MAX + 1)
    with pytest.raises(PermanentError, match="the limit is 52,428,800"):
        await handler.handle(job, task(INVERT))
    assert double.asked == []
