"""Jobs on a self-hosted ComfyUI, over real sockets: what goes well, and all that can go wrong."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import tempfile
import time
import traceback
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from PIL import Image

from millpond import logs
from millpond.errors import CanceledError, HandlerError, PermanentError, SettingsError, StalledError, TransientError
from millpond.integrations.comfyui import program
from millpond.integrations.comfyui.disclosure import notes
from millpond.integrations.comfyui.handler import Handler
from millpond.integrations.comfyui.server import ComfyServer
from millpond.worker.calls import describe
from tests.comfyui import recorded
from tests.comfyui.jobs import FileJob, task, with_file
from tests.doubles.comfyui import ComfyUI, Served, sample
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

INPUT = {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}}
INVERT = recorded.graph(n1=INPUT)
DESCRIPTION = {"comfyui": "0.7.0", "devices": ["cpu"], "upload_max": 100 * 1024 * 1024}


@pytest.fixture(autouse=True)
def no_files_remain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whatever happens, temporary files are removed."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


async def until(found: Callable[[], Any]) -> Any:
    async with asyncio.timeout(PATIENCE):
        while not (answer := found()):
            await asyncio.sleep(0.01)
    return answer


@asynccontextmanager
async def another(url: str, **options: Any) -> AsyncIterator[Handler]:
    server = ComfyServer(url, **options)
    try:
        yield Handler(server)
    finally:
        await server.close()


def color(path: Path) -> Any:
    with Image.open(path) as picture:
        return picture.convert("RGB").getpixel((0, 0))


def bodies(double: ComfyUI, path: str) -> list[Any]:
    return [body for method, asked, body in double.asked if (method, asked) == ("POST", path)]


def fault(error: HandlerError) -> str:
    return error.details["reason"]


# What goes well


async def test_efx_19_a_job_runs_from_its_file_to_its_file(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    output = await handler.handle(job, task(INVERT, extension="png"))
    assert output["file"] == {
        "id": "art_1",
        "name": "output.png",
        "content_type": "image/png",
        "size": job.made.stat().st_size,
    }
    assert (output["node"], output["prompt_id"]) == ("3", f"{job.id}-1")
    assert color(job.made) == (55, 225, 195)
    assert job.steps == sorted(job.steps)
    assert bodies(double, "/prompt")[0]["client_id"]
    assert double.history == {}, "what ComfyUI keeps in memory is taken away"


@pytest.mark.parametrize("trouble", ["mute", "deaf", "absent"])
async def test_without_a_websocket_looking_is_enough(
    handler: Handler, double: ComfyUI, job: FileJob, trouble: str
) -> None:
    if trouble == "absent":
        handler.endpoint.has_socket = False  # type: ignore[attr-defined]
    else:
        setattr(double.switches, trouble, True)
    await handler.handle(job, task(INVERT))
    assert color(job.made) == (55, 225, 195)


async def test_the_websocket_reports_progress_and_may_break(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.slow = {"ImageInvert": 1.5}
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: [step for step in job.steps if step > 0.35])
    double.drop_sockets()
    await run
    between = [step for step in job.steps if 0.35 < step < 0.65]
    assert between
    assert job.steps == sorted(job.steps)


@pytest.mark.parametrize(
    ("node", "name"),
    [
        ({"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}}, "output.png"),
        (
            {
                "class_type": "SaveAnimatedWEBP",
                "inputs": {
                    "images": ["2", 0],
                    "filename_prefix": "x",
                    "fps": 6,
                    "lossless": True,
                    "quality": 80,
                    "method": "default",
                },
            },
            "output.webp",
        ),
        (
            {
                "class_type": "VHS_VideoCombine",
                "inputs": {"images": ["2", 0], "filename_prefix": "video/x", "frame_rate": 8},
            },
            "output.gif",
        ),
    ],
    ids=["temp", "images", "gifs in a folder"],
)
async def test_the_result_is_taken_from_wherever_the_node_put_it(
    handler: Handler, job: FileJob, node: Any, name: str
) -> None:
    output = await handler.handle(job, task(recorded.graph(n1=INPUT, n3=node), extension="png"))
    assert output["file"]["name"] == name
    assert [line for line in job.logs if "instead of .png" in line] == ([] if name == "output.png" else job.logs)


# The cache of ComfyUI


async def test_each_job_has_a_file_of_its_own_though_the_graph_is_the_same(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    double.switches.forgets_cached = True
    await handler.handle(job, task(INVERT))
    job.epoch = 2
    await handler.handle(job, task(INVERT))
    prefixes = [body["prompt"]["3"]["inputs"]["filename_prefix"] for body in bodies(double, "/prompt")]
    assert prefixes == [f"peer_{job.id}-1", f"peer_{job.id}-2"]


@pytest.mark.parametrize("lost", [1, 2])
async def test_a_file_that_is_gone_is_made_again_once(
    handler: Handler, double: ComfyUI, job: FileJob, lost: int
) -> None:
    double.switches.loses = lost
    if lost == 1:
        await handler.handle(job, task(INVERT))
    else:
        with pytest.raises(TransientError, match="of node 3 no longer exists"):
            await handler.handle(job, task(INVERT))
    assert double.runs == [f"{job.id}-1", f"{job.id}-1-again"]


async def test_a_result_that_breaks_off_is_fetched_again(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.stutters = 2
    await handler.handle(job, task(INVERT))
    assert color(job.made) == (55, 225, 195)
    assert len(double.runs) == 1


# What ComfyUI refuses


async def test_a_graph_that_is_refused_is_reported_and_not_tried_again(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    bad = recorded.graph(n1=INPUT, n2={"class_type": "ImageInvert", "inputs": {"image": ["1", 1]}})
    with pytest.raises(PermanentError, match=r"node 2 \(ImageInvert\), input image: Return type mismatch"):
        await handler.handle(job, task(bad))
    assert len(bodies(double, "/prompt")) == 1


async def test_a_result_that_was_left_out_is_an_error_and_the_rest_is_stopped(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    double.switches.slow = {"ImageInvert": 30}
    partly = recorded.graph(n1=INPUT, n4=recorded.PARTLY["4"])
    with pytest.raises(
        PermanentError, match=r"node 4 \(SaveImage\), input images: Required input is missing"
    ) as raised:
        await handler.handle(job, task(partly, node="4"))
    assert fault(raised.value) == "validation"
    await until(lambda: not double._left())


async def test_a_part_that_is_not_wanted_may_be_left_out(handler: Handler, job: FileJob) -> None:
    await handler.handle(job, task(recorded.graph(n1=INPUT, n4=recorded.PARTLY["4"])))
    assert color(job.made) == (55, 225, 195)


# What fails at run time


async def test_a_node_that_raises_is_named(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.fail = {"ImageInvert": "the tensor is tired"}
    with pytest.raises(
        PermanentError, match=r"Node 2 \(ImageInvert\) failed: RuntimeError: the tensor is tired"
    ) as raised:
        await handler.handle(job, task(INVERT))
    assert raised.value.details | {"exception": ""} == {
        "reason": "execution",
        "node": "2",
        "type": "ImageInvert",
        "exception": "",
    }
    assert double.history == {}


async def test_an_error_of_a_node_is_one_line_without_what_belongs_to_the_operator(
    handler: Handler, double: ComfyUI, job: FileJob, capsys: pytest.CaptureFixture[str]
) -> None:
    private = "cannot load\n'/opt/comfy ui/models/face.onnx' from http://10.1.2.3:8188/x"
    double.switches.fail = {"ImageInvert": f"{private}\n{'tips ' * 1000}"}
    logs.configure("info", as_json=True)
    try:
        with pytest.raises(PermanentError) as raised:
            await handler.handle(job, task(INVERT))
    finally:
        logs.silence()
    message = raised.value.message
    assert message.startswith("Node 2 (ImageInvert) failed: RuntimeError: cannot load 'face.onnx' from (address) tips")
    assert len(message) <= 500
    assert describe(raised.value)["message"] == message
    assert "/opt/comfy ui/models" in "".join(traceback.format_exception(raised.value))
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "comfyui.failed" in line]
    assert "/opt/comfy ui/models" in json.loads(line)["details"]
    assert "comfyui.py" in json.loads(line)["details"], "the traceback of the node"


async def test_an_error_about_a_file_has_the_users_name_of_it(handler: Handler, job: FileJob) -> None:
    with_file(job.folder, "art_in", b"no picture")
    with pytest.raises(PermanentError) as raised:
        await handler.handle(job, task(INVERT, asset={"filename": "my holiday.dat"}))
    assert raised.value.message == (
        "Node 1 (LoadImage) failed: PIL.UnidentifiedImageError: cannot identify image file 'my holiday.dat'"
    )


async def test_an_error_of_the_worker_itself_has_no_paths(
    handler: Handler, job: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/worker/in.png")

    monkeypatch.setattr("tests.comfyui.jobs.shutil.copyfile", full)
    with pytest.raises(TransientError) as raised:
        await handler.handle(job, task(INVERT))
    assert raised.value.message == "OSError: [Errno 28] No space left on device: 'in.png'"


async def test_an_end_without_a_word_is_no_success(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.unstaged = True
    with pytest.raises(PermanentError, match="ended without a result"):
        await handler.handle(job, task(INVERT))


async def test_a_full_card_is_emptied_and_tried_once_more(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.full = {"ImageInvert": 2}
    with pytest.raises(TransientError, match="ran out of memory") as raised:
        await handler.handle(job, task(INVERT))
    assert fault(raised.value) == "out_of_memory"
    assert bodies(double, "/free") == [{"unload_models": True, "free_memory": True}]
    job.epoch, job.attempt = 2, 2
    with pytest.raises(PermanentError, match="ran out of memory"):
        await handler.handle(job, task(INVERT))


async def test_somebody_elses_interrupt_is_no_fault_of_the_job(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.slow = {"ImageInvert": 30}
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: double.running)
    double._stop(None)
    with pytest.raises(TransientError, match=r"was interrupted at node \d") as raised:
        await run
    assert fault(raised.value) == "interrupted"


# ComfyUI goes away


@pytest.mark.parametrize("path", ["/nowhere", "/history"])
async def test_what_is_not_comfyui_is_no_fault_of_the_job(comfyui: Served, job: FileJob, path: str) -> None:
    async with another(f"{comfyui.url}{path}", patience=0.3) as handler:
        with pytest.raises(TransientError) as raised:
            await handler.handle(job, task(recorded.graph(n1={"class_type": "A", "inputs": {"x": "{{input}}"}})))
    assert fault(raised.value) == "unreachable"
    server = ComfyServer(f"{comfyui.url}{path}")
    assert await server.describe() is None
    await server.close()


async def test_it_reports_what_comfyui_it_has(endpoint: ComfyServer) -> None:
    assert await endpoint.describe() == DESCRIPTION


async def test_a_queue_that_is_lost_is_handed_in_again(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.slow = {"ImageInvert": 30}
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: double.running)
    double.switches.slow = {}
    double.forget_queue()
    await run
    assert double.runs == [f"{job.id}-1"] * 2
    assert "warning: ComfyUI lost the prompt; submitting it again." in job.logs


async def test_a_prompt_that_is_lost_again_and_again_is_given_up(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    double.switches.hang = ["ImageInvert"]
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    for times in range(1, 4):
        await until(lambda times=times: len(double.runs) == times and double.running)
        double.forget_queue()
    with pytest.raises(TransientError, match="lost the prompt 3 times") as raised:
        await run
    assert fault(raised.value) == "lost"


async def test_a_restart_in_mid_run_is_survived(handler: Handler, comfyui: Served, job: FileJob) -> None:
    double: ComfyUI = comfyui.double
    double.switches.slow = {"ImageInvert": 30}
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: double.running)
    await asyncio.to_thread(comfyui.stop)
    double.switches.slow = {}
    double.restart()
    await until(lambda: not run.done())
    await asyncio.to_thread(comfyui.start)
    await run
    assert color(job.made) == (55, 225, 195)
    assert double.runs == [f"{job.id}-1"] * 2


async def test_a_comfyui_that_stays_away_is_waited_for_only_so_long(comfyui: Served, job: FileJob) -> None:
    async with another("http://127.0.0.1:9", patience=0.3) as handler:
        with pytest.raises(TransientError, match=r"^ComfyUI cannot be reached: ") as raised:
            await handler.handle(job, task(INVERT))
    assert fault(raised.value) == "unreachable"


@pytest.mark.parametrize("asked", ["before the upload", "during the run"])
async def test_a_comfyui_that_hangs_is_waited_for_only_so_long(
    comfyui: Served, double: ComfyUI, job: FileJob, asked: str
) -> None:
    async with another(comfyui.url, patience=0.5) as handler, asyncio.timeout(PATIENCE / 2):
        if asked == "during the run":
            double.switches.hang = ["ImageInvert"]
            run = asyncio.create_task(handler.handle(job, task(INVERT)))
            await until(lambda: double.running)
            double.switches.hung = True
        else:
            double.switches.hung = True
            run = asyncio.create_task(handler.handle(job, task(INVERT)))
        with pytest.raises(TransientError, match="it did not respond in time") as raised:
            await run
    assert fault(raised.value) == "unreachable"


@pytest.mark.parametrize("asked", ["before the upload", "during the run"])
async def test_a_job_can_be_canceled_while_comfyui_hangs(
    comfyui: Served, double: ComfyUI, job: FileJob, asked: str
) -> None:
    async with another(comfyui.url, patience=600) as handler, asyncio.timeout(PATIENCE / 2):
        double.switches.hang = ["ImageInvert"]
        double.switches.hung = asked == "before the upload"
        run = asyncio.create_task(handler.handle(job, task(INVERT)))
        await until(lambda: job.downloads if double.switches.hung else double.running)
        double.switches.hung = True
        job.is_canceled = True
        with pytest.raises(CanceledError):
            await run


async def test_while_comfyui_is_waited_for_a_job_can_be_canceled(job: FileJob) -> None:
    async with another("http://127.0.0.1:9", patience=600) as handler:
        run = asyncio.create_task(handler.handle(job, task(INVERT)))
        await until(lambda: job.downloads)
        job.is_canceled = True
        with pytest.raises(CanceledError):
            await run


async def test_answers_of_500_pass_by_and_nothing_runs_twice(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.trouble = 3
    await handler.handle(job, task(INVERT))
    job.epoch = 2
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: f"{job.id}-2" in double.runs)
    double.switches.trouble = 3
    await run
    assert double.runs == [f"{job.id}-1", f"{job.id}-2"]


async def test_a_prompt_whose_answer_was_lost_is_not_handed_in_twice(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    double.switches.mumbles = 1
    await handler.handle(job, task(INVERT))
    assert double.runs == [f"{job.id}-1"]
    assert len(bodies(double, "/prompt")) == 1


# Hanging, canceling, leaving


async def test_a_run_without_a_sign_of_life_is_given_up(comfyui: Served, double: ComfyUI, job: FileJob) -> None:
    double.switches.hang = ["ImageInvert"]
    async with another(comfyui.url, stall=0.5) as handler:
        with pytest.raises(StalledError, match="made no progress") as raised:
            await handler.handle(job, task(INVERT))
    assert fault(raised.value) == "stalled"
    assert {"prompt_id": f"{job.id}-1"} in bodies(double, "/interrupt")
    double.switches.hang = []
    await until(lambda: not double._left())


async def test_a_slow_run_that_moves_is_not_given_up(
    comfyui: Served, double: ComfyUI, job: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock jumps with each step: by less than a run may show made no progress, and by more in all."""
    double.switches.slow = {"ImageInvert": 0.5}
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + PATIENCE * len(set(job.steps)))
    monkeypatch.setattr("millpond.integrations.comfyui.server.time", clock)
    async with another(comfyui.url, stall=2 * PATIENCE) as handler:
        await handler.handle(job, task(INVERT))
    assert len(set(job.steps)) > 3


class Clock:
    """The clock of the runs, which a test can move on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("millpond.integrations.comfyui.server.time", made)
    return made


async def queue_of_a_person(url: str, prompt_id: str) -> None:
    """Submit a prompt as the page of ComfyUI does; its second node may be made to hang."""
    node = {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": 0}}
    graph = {"a": node, "b": {"class_type": "PreviewImage", "inputs": {"images": ["a", 0]}}}
    async with httpx2.AsyncClient() as http:
        body = {"prompt": graph, "prompt_id": prompt_id, "client_id": "a person"}
        assert (await http.post(f"{url}/prompt", json=body)).is_success


async def looks(double: ComfyUI, times: int = 2) -> None:
    """Until ComfyUI was asked for its queue again."""
    before = len(double.asked)
    await until(lambda: double.asked[before:].count(("GET", "/queue", None)) >= times)


async def test_waiting_behind_the_prompt_of_a_person_is_not_a_stall(
    comfyui: Served, double: ComfyUI, job: FileJob, clock: Clock
) -> None:
    double.switches.hang = ["b"]
    await queue_of_a_person(comfyui.url, "person-1")
    async with another(comfyui.url, stall=PATIENCE) as handler:
        run = asyncio.create_task(handler.handle(job, task(INVERT)))
        await until(lambda: double._left() == 2)
        for _ in range(3):
            clock.ahead += 2 * PATIENCE
            await looks(double)
        assert not run.done()
        double.switches.hang = []
        await run


async def test_what_people_do_in_the_queue_does_not_make_a_hung_run_look_alive(
    comfyui: Served, double: ComfyUI, job: FileJob, clock: Clock
) -> None:
    double.switches.hang = ["ImageInvert"]
    stall = 10 * PATIENCE
    async with another(comfyui.url, stall=stall) as handler:
        run = asyncio.create_task(handler.handle(job, task(INVERT)))
        await until(lambda: double.running)
        await until(lambda: double.sockets)
        await looks(double)
        for number in (1, 2):
            clock.ahead += 0.6 * stall
            await queue_of_a_person(comfyui.url, f"person-{number}")
            if number == 1:
                await looks(double)
        with pytest.raises(StalledError, match="made no progress"):
            await asyncio.wait_for(run, PATIENCE)
    double.switches.hang = []
    await until(lambda: not double._left())


async def test_efx_23_a_canceled_job_stops_its_own_prompt_alone(
    handler: Handler, double: ComfyUI, job: FileJob, tmp_path: Path
) -> None:
    """Of three, one running and two waiting: the waiting one that is canceled goes, then the running one."""
    double.switches.slow = {"ImageInvert": 3600}
    jobs = [job, FileJob(tmp_path, id="job_2"), FileJob(tmp_path, id="job_3")]
    runs = list[asyncio.Task[Any]]()
    for number, one in enumerate(jobs, start=1):
        runs.append(asyncio.create_task(handler.handle(one, task(INVERT))))
        await until(lambda number=number: double._left() == number)
    jobs[1].is_canceled = True
    with pytest.raises(CanceledError):
        await runs[1]
    assert double.running is not None
    assert double.running.prompt_id == f"{job.id}-1"
    double.switches.slow = {}
    job.is_canceled = True
    with pytest.raises(CanceledError):
        await runs[0]
    await runs[2]
    assert bodies(double, "/queue") == [{"delete": ["job_2-1"]}]
    assert bodies(double, "/interrupt") == [{"prompt_id": f"{job.id}-1"}]
    assert double.runs == [f"{job.id}-1", "job_3-1"]


async def test_an_old_comfyui_that_takes_no_account_of_ids_is_asked_only_about_ours(
    handler: Handler, double: ComfyUI, job: FileJob, tmp_path: Path
) -> None:
    double.switches.takes_any = True
    double.switches.hang = ["ImageInvert"]
    first = asyncio.create_task(handler.handle(FileJob(tmp_path, id="job_1"), task(INVERT)))
    await until(lambda: double.running)
    second = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: double._left() == 2)
    job.is_canceled = True
    with pytest.raises(CanceledError):
        await second
    double.switches.hang = []
    await first
    assert bodies(double, "/interrupt") == []


async def test_a_worker_that_must_go_takes_its_prompt_along(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    double.switches.slow = {"ImageInvert": 30}
    run = asyncio.create_task(handler.handle(job, task(INVERT)))
    await until(lambda: double.running)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: not double._left())
    assert double.history == {} or list(double.history) == [f"{job.id}-1"]


# The files of a job


async def test_efx_21_a_file_that_comfyui_has_is_not_sent_again(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    known = {"content_hash": hashlib.sha256(sample()).hexdigest()}
    for epoch in (1, 2):
        job.epoch = epoch
        await handler.handle(job, task(INVERT, asset=known))
    assert job.downloads == ["art_in"]
    assert len(bodies(double, "/upload/image")) == 1


async def test_a_file_that_comfyui_has_lost_is_sent_again_once(handler: Handler, double: ComfyUI, job: FileJob) -> None:
    known = {"content_hash": "mask-7"}
    await handler.handle(job, task(INVERT, asset=known))
    for path in double.folders.of("input").iterdir():
        if path.is_file():
            path.unlink()
    job.epoch = 2
    await handler.handle(job, task(INVERT, asset=known))
    assert job.downloads == ["art_in", "art_in"]
    assert double.runs == [f"{job.id}-1", f"{job.id}-2"]


@pytest.mark.parametrize(
    ("content", "asset", "expected"),
    [
        (
            sample(),
            {"name": "art_absent"},
            "'in.png' for '{{input}}' cannot be downloaded: The job has no file 'art_absent'",
        ),
        (b"#!/bin/sh\n", {}, "is not a picture, although its name has that extension"),
        (b"", {}, "is empty"),
        (b"#!/bin/sh\n", {"filename": "in.mp4"}, "is not a video, although its name has that extension"),
        (sample(), {"content_hash": "0" * 64}, "does not match the given content hash"),
        (b"\x89PNG\r\n\x1a\n" + b"x" * 10_000, {}, "has 10,008 bytes; the limit is 8,192"),
        (sample(), {"placeholder": "{{mask}}"}, "The workflow does not contain the placeholder '{{mask}}'"),
    ],
    ids=["missing", "no picture", "empty", "no video", "another", "huge", "no placeholder"],
)
async def test_a_file_that_is_not_as_it_should_be_is_reported(
    handler: Handler, double: ComfyUI, job: FileJob, content: bytes, asset: Any, expected: str
) -> None:
    with_file(job.folder, "art_in", content)
    handler.asset_max = 8_192
    with pytest.raises(PermanentError) as refused:
        await handler.handle(job, task(INVERT, asset=asset))
    assert expected in refused.value.message
    assert refused.value.field == "assets"
    assert bodies(double, "/prompt") == []


async def test_a_truncated_picture_is_refused_before_it_is_sent(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    """ComfyUI itself would run it: it fills what is missing with one color."""
    with_file(job.folder, "art_in", sample((64, 64))[:-20])
    with pytest.raises(PermanentError, match=r"The file 'in.png' for '{{input}}' is truncated") as raised:
        await handler.handle(job, task(INVERT))
    assert fault(raised.value) == "asset"
    assert bodies(double, "/upload/image") == bodies(double, "/prompt") == []


async def test_comfyui_fills_what_is_missing_of_a_picture(
    handler: Handler, job: FileJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why a truncated picture must be refused before: the double behaves as ComfyUI."""
    monkeypatch.setattr("millpond.integrations.comfyui.handler.is_truncated", lambda _: False)
    with_file(job.folder, "art_in", sample((64, 64))[:-20])
    await handler.handle(job, task(INVERT))
    assert job.made.stat().st_size


async def test_comfyuis_own_limit_is_reported(
    handler: Handler, endpoint: ComfyServer, double: ComfyUI, job: FileJob
) -> None:
    double.switches.upload_max = 1024
    with_file(job.folder, "art_in", sample((64, 64), (1, 2, 3)) + bytes(2_000))
    with pytest.raises(PermanentError, match=r"ComfyUI rejected the file 'in.png' because of its size") as raised:
        await handler.handle(job, task(INVERT))
    assert fault(raised.value) == "asset"
    described = await endpoint.describe()
    assert described is not None
    assert described["upload_max"] == 1024
    before = len(bodies(double, "/upload/image"))
    with pytest.raises(PermanentError, match=r"The file 'in.png' has 2,\d+ bytes; the limit is 1,024") as raised:
        await handler.handle(job, task(INVERT))
    assert "--max-upload-size" in notes(raised.value)
    assert len(bodies(double, "/upload/image")) == before


async def test_names_with_quotes_and_folders_in_them_do_no_harm(
    handler: Handler, double: ComfyUI, job: FileJob
) -> None:
    evil = '../../"}, "9": {\x00.png'
    await handler.handle(job, task(INVERT, asset={"filename": evil}))
    sent = bodies(double, "/prompt")[0]["prompt"]
    assert list(sent) == ["1", "2", "3"]
    assert sent["1"]["inputs"]["image"].startswith("millpond-")


@pytest.mark.parametrize("url", ["127.0.0.1:8188", "ftp://x", "http://", "http://[::"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingsError):
        ComfyServer(url)


async def test_no_job_is_taken_before_comfyui_answers(
    comfyui: Served, endpoint: ComfyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_AGAIN", 0.05)
    stop = asyncio.Event()
    await asyncio.to_thread(comfyui.stop)
    try:
        waiting, leaving = (asyncio.create_task(program._ready(endpoint, event)) for event in (stop, asyncio.Event()))
        assert await endpoint.describe() is None
        stop.set()
        assert await waiting is None
        assert not leaving.done()
    finally:
        await asyncio.to_thread(comfyui.start)
    assert await leaving == DESCRIPTION


@pytest.mark.parametrize("trouble", ["hung", "trouble", "away"])
async def test_a_comfyui_that_does_not_respond_is_an_obstacle(
    comfyui: Served, endpoint: ComfyServer, double: ComfyUI, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr("millpond.integrations.comfyui.server._DESCRIBE_TIMEOUT", 0.2)
    if trouble == "away":
        await asyncio.to_thread(comfyui.stop)
    else:
        setattr(double.switches, trouble, 1_000)  # a client of another test may take some of it
    try:
        assert await program.find_obstacle(endpoint) == "ComfyUI does not respond."
    finally:
        double.switches.hung, double.switches.trouble = False, 0
        if trouble == "away":
            await asyncio.to_thread(comfyui.start)
    monkeypatch.undo()
    assert await program.find_obstacle(endpoint) is None
