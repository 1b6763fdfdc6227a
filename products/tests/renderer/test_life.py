"""What goes wrong, and what comes after: cancellation, deadlines, crashes, a new start, the hour that is over."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest
from products.tests.renderer.renderers import LONG, Renderer, is_alive, renderer

from millpond_products.renderer.folder import Folder
from tests.acceptance.processes import until
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

HELLO = {"text": "Hello there.", "format": "wav", "seed": 1}


async def test_a_canceled_prediction_is_stopped_for_real() -> None:
    with renderer("--presses", "1") as one:
        prediction_id = (await one.create("ugc-video", LONG)).json()["id"]
        await one.until("processing", prediction_id)
        await until(lambda: _are(len(one.presses) == 1))
        (press,) = one.presses
        await one.http.post(f"/v1/predictions/{prediction_id}/cancel")
        await until(lambda: _are(not is_alive(press)))
        ended = await one.get(prediction_id)
        assert (ended["status"], ended["output"]) == ("canceled", None)
        assert (await one.made("tts", HELLO))["status"] == "succeeded"  # by a new press


async def test_a_press_that_dies_fails_its_prediction_and_nothing_else() -> None:
    with renderer("--presses", "1") as one:
        prediction_id = (await one.create("ugc-video", LONG)).json()["id"]
        await one.until("processing", prediction_id)
        await until(lambda: _are(len(one.presses) == 1))
        os.kill(one.presses.pop(), signal.SIGSEGV)
        ended = await one.until("failed", prediction_id)
        assert "died" in ended["error"]
        assert (await one.made("tts", HELLO))["status"] == "succeeded"


async def test_what_waits_is_bounded_and_ends_by_its_deadline() -> None:
    with renderer("--presses", "1", "--waiting-max", "2") as one:
        first = (await one.create("ugc-video", LONG)).json()
        await one.until("processing", first["id"])
        second = (await one.create("ugc-video", LONG, headers={"Cancel-After": "5s"})).json()
        assert second["deadline"] is not None
        refused = await one.create("tts", HELLO)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) > 0
        aborted = await one.until("aborted", second["id"])
        assert (aborted["started_at"], "predict_time" in aborted["metrics"]) == (None, False)
        await one.http.post(first["urls"]["cancel"])
        assert (await one.until("canceled", first["id"]))["output"] is None
        for seconds in (5, 25):  # on a busy machine it is not begun at once
            late = (await one.create("ugc-video", LONG, headers={"Cancel-After": f"{seconds}s"})).json()
            await until(lambda late=late: is_over(one, late["id"]))
            if (ended := await one.get(late["id"]))["status"] == "canceled":
                break
        assert (ended["status"], ended["output"]) == ("canceled", None)
        assert (await one.made("tts", HELLO))["status"] == "succeeded"


async def is_over(one: Renderer, prediction_id: str) -> bool:
    return (await one.get(prediction_id))["completed_at"] is not None


async def test_a_renderer_that_was_killed_takes_its_presses_along_and_the_next_one_has_forgotten() -> None:
    with renderer() as one:
        prediction_id = (await one.create("ugc-video", LONG)).json()["id"]
        await one.until("processing", prediction_id)
        await until(lambda: _are(bool(one.presses)))
        presses = one.presses
        secret = (await one.http.get("/v1/webhooks/default/secret")).json()
        one.process.kill()
        one.process.wait(PATIENCE)
        await until(lambda: _are(not any(map(is_alive, presses))))
    with renderer() as other:
        answer = await other.http.get(f"/v1/predictions/{prediction_id}")
        assert (answer.status_code, answer.json()["title"]) == (404, "Not found")
        assert (await other.http.post(f"/v1/predictions/{prediction_id}/cancel")).status_code == 404
        assert (await other.http.get("/v1/webhooks/default/secret")).json() == secret


async def test_after_its_time_the_data_of_a_prediction_is_removed() -> None:
    with renderer("--lifetime", "2") as one:
        prediction = await one.made("tts", HELLO)
        assert (await one.http.get(prediction["output"])).status_code == 200

        async def is_removed() -> bool:
            return (await one.get(prediction["id"]))["data_removed"]

        await until(is_removed)
        left = await one.get(prediction["id"])
        assert (left["status"], left["output"], left["input"], left["logs"]) == ("succeeded", None, {}, "")
        assert (await one.http.get(prediction["output"])).status_code == 404


async def test_it_answers_while_it_works(running: Renderer) -> None:
    prediction_id = (await running.create("ugc-video", LONG)).json()["id"]
    await running.until("processing", prediction_id)
    for _ in range(20):
        assert (await running.http.get("/healthz")).json() == {"status": "ok"}
    assert (await running.get(prediction_id))["status"] == "processing"
    await running.http.post(f"/v1/predictions/{prediction_id}/cancel")


# The folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next(temporary: Path) -> None:
    living, dead = Folder(), temporary / "millpond-renderer-dead"
    dead.mkdir()
    (dead / "output.png").write_bytes(b"left")
    for path in (living.path, dead):
        os.utime(path, (time.time() - 3_600, time.time() - 3_600))
    third = Folder()
    assert sorted(temporary.iterdir()) == sorted([living.path, third.path])
    living.close()
    third.close()
    assert not list(temporary.iterdir())


def test_a_folder_is_for_its_owner_alone(temporary: Path) -> None:
    folder = Folder()
    assert folder.path.stat().st_mode & 0o077 == 0
    folder.close()


async def _are(given: bool) -> bool:  # noqa: FBT001 - a question as until() asks it
    return given
