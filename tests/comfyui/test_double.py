"""The double answers as the real ComfyUI was recorded to."""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest
from websockets.sync.client import connect

from tests.comfyui import recorded
from tests.doubles.comfyui import ComfyUI, Served, sample
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def http(comfyui: Served, double: ComfyUI) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=comfyui.url, timeout=PATIENCE) as client:
        for old in double.folders.of("input").iterdir():
            if old.is_file():
                old.unlink()
        client.post("/upload/image", files={"image": ("in.png", sample())})
        yield client


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return answer


def run(http: httpx2.Client, graph: Any, **more: Any) -> dict[str, Any]:
    """The entry of a run that has ended."""
    id = http.post("/prompt", json={"prompt": graph, "client_id": "me"} | more).json()["prompt_id"]
    return until(lambda: http.get(f"/history/{id}").json().get(id))


def alike(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without what is new in every run."""
    steady = copy.deepcopy(entry)
    steady["prompt"][0], steady["prompt"][1], steady["prompt"][3] = 0, "ID", sorted(steady["prompt"][3])
    for _, data in steady["status"]["messages"]:
        data["prompt_id"], data["timestamp"] = "ID", 0
        for name in ("exception_message", "traceback", "current_outputs"):
            if name in data:
                data[name] = type(data[name])()
    return steady


# /upload/image


def test_uploads_are_kept_by_their_bytes(http: httpx2.Client) -> None:
    other = sample((3, 3))
    response = [
        http.post("/upload/image", files={"image": ("in.png", content)}, data=data).json()
        for content, data in (
            (sample(), {}),
            (other, {}),
            (sample((4, 4)), {"overwrite": "true"}),
            (other, {"subfolder": "job123"}),
        )
    ]
    assert response == [
        {"name": "in.png", "subfolder": "", "type": "input"},
        {"name": "in (1).png", "subfolder": "", "type": "input"},
        {"name": "in.png", "subfolder": "", "type": "input"},
        {"name": "in.png", "subfolder": "job123", "type": "input"},
    ]


@pytest.mark.parametrize(
    ("files", "data", "status"),
    [
        ({"image": ("in.png", b"x")}, {"subfolder": "../../etc"}, 400),
        ({"other": ("in.png", b"x")}, {}, 400),
        ({"image": ("in.png", b"x")}, {"type": "bad"}, 500),
        ({"image": ("in.png", b"x" * 2_000)}, {}, 413),
    ],
    ids=["traversal", "no image", "bad type", "too large"],
)
def test_bad_uploads_are_refused(http: httpx2.Client, double: ComfyUI, files: Any, data: Any, status: int) -> None:
    double.switches.upload_max = 1_500
    answer = http.post("/upload/image", files=files, data=data)
    assert answer.status_code == status
    assert bool(answer.content) is (status != 400)


# /prompt


@pytest.mark.parametrize("name", recorded.REFUSALS)
def test_a_bad_graph_is_refused_word_for_word(http: httpx2.Client, name: str) -> None:
    graph, expected = recorded.REFUSALS[name]
    answer = http.post("/prompt", json={"prompt": graph})
    assert answer.status_code == 400
    assert in_order(answer.json()) == in_order(expected)


def in_order(body: Any) -> Any:
    """ComfyUI looks at a node's inputs in no order."""
    body = copy.deepcopy(body)
    for entry in body["node_errors"].values():
        entry["errors"].sort(key=lambda error: error["extra_info"]["input_name"])
    return body


def test_a_dangling_link_is_an_error_with_a_traceback(http: httpx2.Client) -> None:
    graph = recorded.graph(n2={"class_type": "ImageInvert", "inputs": {"image": ["7", 0]}})
    response = http.post("/prompt", json={"prompt": graph}).json()
    error = response["node_errors"]["2"]["errors"][0]
    assert error["type"] == "exception_during_inner_validation"
    assert error["extra_info"]["exception_type"] == "KeyError"
    assert error["extra_info"]["traceback"]


def test_what_is_not_json_is_not_a_400(http: httpx2.Client) -> None:
    answer = http.post("/prompt", content=b"{not json")
    assert answer.status_code == 500
    assert answer.headers["content-type"].startswith("text/plain")
    empty = http.post("/prompt", json={})
    assert (empty.status_code, empty.json()["error"]["type"]) == (400, "no_prompt")


def test_a_partly_valid_graph_runs_without_the_rest(http: httpx2.Client) -> None:
    answer = http.post("/prompt", json={"prompt": recorded.PARTLY, "client_id": "me"})
    assert answer.status_code == 200
    assert answer.json()["node_errors"] == recorded.PARTLY_ERRORS
    id = answer.json()["prompt_id"]
    entry = until(lambda: http.get(f"/history/{id}").json().get(id))
    assert list(entry["outputs"]) == ["3"]


def test_an_id_of_ones_own_is_taken_and_runs_twice(http: httpx2.Client, double: ComfyUI) -> None:
    for _ in range(2):
        response = http.post("/api/prompt", json={"prompt": recorded.INVERT, "prompt_id": "mine"}).json()
        assert response["prompt_id"] == "mine"
    until(lambda: double.runs == ["mine", "mine"] and not double._left())
    assert len(http.get("/history").json()) == 1


def test_another_origin_is_refused(http: httpx2.Client) -> None:
    assert http.get("/queue", headers={"Origin": "http://elsewhere.example"}).status_code == 403
    assert http.get("/queue", headers={"Origin": str(http.base_url)}).status_code == 200


# /history


def test_a_success_leaves_the_recorded_entry(http: httpx2.Client) -> None:
    entry = run(http, recorded.INVERT)
    entry["outputs"]["3"]["images"][0]["filename"] = "peer_00001_.png"
    assert alike(entry) == alike(recorded.SUCCESS)


def test_a_failure_leaves_the_recorded_entry(http: httpx2.Client) -> None:
    http.post("/upload/image", files={"image": ("corrupt.png", b"no picture")})
    entry = run(http, recorded.FAILURE["prompt"][2])
    assert alike(entry) == alike(recorded.FAILURE)
    message = entry["status"]["messages"][-1][1]["exception_message"]
    assert message.startswith("cannot identify image file")
    assert message.endswith("\n")


def test_one_output_of_two_may_fail(http: httpx2.Client) -> None:
    broken = {"class_type": "VHS_VideoCombine", "inputs": {"images": ["2", 0], "frame_rate": 8}}
    broken["inputs"]["filename_prefix"] = "../../out"  # type: ignore[index]
    entry = run(http, recorded.graph(n4=broken))
    assert entry["status"]["status_str"] == "error"
    assert list(entry["outputs"]) == ["3"]


def test_an_interrupt_leaves_the_recorded_entry_and_stops_its_own_prompt_alone(
    http: httpx2.Client, double: ComfyUI
) -> None:
    double.switches.slow = {"ImageInvert": 30}
    ids = [
        http.post("/prompt", json={"prompt": recorded.graph(), "prompt_id": str(uuid4())}).json()["prompt_id"]
        for _ in range(3)
    ]
    until(lambda: double.running)
    queue = http.get("/queue").json()
    assert [item[1] for item in queue["queue_running"]] == ids[:1]
    assert [item[1] for item in queue["queue_pending"]] == ids[1:]
    assert http.get("/prompt").json() == {"exec_info": {"queue_remaining": 3}}
    assert http.get(f"/history/{ids[0]}").json() == {}
    http.post("/queue", json={"delete": [ids[2]]})
    answer = http.post("/interrupt", json={"prompt_id": ids[1]})
    assert (answer.status_code, answer.content) == (200, b"")
    assert http.get("/queue").json()["queue_running"][0][1] == ids[0]
    http.post("/interrupt", json={"prompt_id": ids[0]})
    entry = until(lambda: http.get(f"/history/{ids[0]}").json().get(ids[0]))
    steady, expected = alike(entry), alike(recorded.INTERRUPTED)
    assert [event for event, _ in steady["status"]["messages"]] == [m[0] for m in expected["status"]["messages"]]
    assert set(steady["status"]["messages"][-1][1]) == set(expected["status"]["messages"][-1][1])
    assert (steady["status"]["status_str"], steady["status"]["completed"]) == ("error", False)
    until(lambda: double.running and double.running.prompt_id == ids[1])
    http.post("/interrupt")
    until(lambda: ids[1] in double.history)
    assert http.get(f"/history/{ids[2]}").json() == {}


def test_the_same_graph_again_has_the_old_files(http: httpx2.Client, double: ComfyUI) -> None:
    first = run(http, recorded.INVERT)
    again = run(http, recorded.INVERT)
    assert again["outputs"] == first["outputs"]
    assert again["status"]["messages"][1][1]["nodes"] == ["1", "2", "3"]
    double.switches.forgets_cached = True
    id = http.post("/prompt", json={"prompt": recorded.INVERT}).json()["prompt_id"]
    assert until(lambda: double.history.get(id))["outputs"] == {}
    changed = recorded.graph(
        n3={"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "peer", "unknown": 1}}
    )
    assert run(http, changed)["outputs"] != first["outputs"]


def test_jobs_are_listed_as_newer_versions_do(http: httpx2.Client, double: ComfyUI) -> None:
    double.switches.fail = {"ImageInvert": "no"}
    run(http, recorded.INVERT, prompt_id="bad")
    double.switches.fail = {}
    run(http, recorded.INVERT, prompt_id="good")
    jobs = http.get("/api/jobs").json()
    assert {job["id"]: job["status"] for job in jobs["jobs"]} == {"good": "completed", "bad": "failed"}
    assert jobs["pagination"] == {"offset": 0, "limit": None, "total": 2, "has_more": False}
    assert http.get("/api/jobs?status=nonsense").status_code == 400
    absent = http.get("/api/jobs/absent")
    assert (absent.status_code, absent.json()) == (404, {"error": "Job not found"})
    assert http.post("/api/jobs/absent/cancel").status_code == 200
    assert http.post("/api/jobs/cancel", json={"job_ids": ["absent"]}).status_code == 404


def test_files_are_shown_whole_and_in_part(http: httpx2.Client) -> None:
    file = run(http, recorded.INVERT)["outputs"]["3"]["images"][0]
    whole = http.get("/view", params=file)
    assert whole.headers["content-type"] == "image/png"
    assert whole.headers["etag"]
    part = http.get("/view", params=file, headers={"Range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"\x89PNG")
    assert http.get("/view?filename=absent.png").status_code == 404
    bad = http.get("/view?filename=../../x.png")
    assert (bad.status_code, bad.content) == (400, b"")


def test_the_websocket_says_what_was_recorded(http: httpx2.Client, comfyui: Served) -> None:
    with connect(f"{comfyui.url.replace('http', 'ws')}/ws?clientId=me") as socket:
        assert json.loads(socket.recv(5))["data"]["sid"] == "me"
        id = http.post("/prompt", json={"prompt": recorded.INVERT, "client_id": "me"}).json()["prompt_id"]
        heard: list[Any] = []
        while not heard or heard[-1] != {"type": "executing", "data": {"node": None, "prompt_id": id}}:
            heard.append(json.loads(socket.recv(5)))
    states = [frame["data"]["nodes"] for frame in heard if frame["type"] == "progress_state"]
    assert states[0]["1"]["state"] == "running"
    assert {node["state"] for node in states[-1].values()} == {"finished"}
    listed = [frame for frame in heard if frame["type"] != "progress_state"]
    assert [steady(frame, id) for frame in listed] == [steady(frame, "ID") for frame in recorded.FRAMES]


def steady(frame: dict[str, Any], id: str) -> dict[str, Any]:
    data = frame["data"] | ({"timestamp": 0} if "timestamp" in frame["data"] else {})
    if "output" in data:
        data["output"]["images"][0]["filename"] = "FILE"
    return json.loads(json.dumps({"type": frame["type"], "data": data}).replace(id, "ID"))


def test_the_websocket_shows_previews(http: httpx2.Client, comfyui: Served, double: ComfyUI) -> None:
    double.switches.slow = {"ImageInvert": 0.1}
    with connect(f"{comfyui.url.replace('http', 'ws')}/ws?clientId=me") as socket:
        http.post("/prompt", json={"prompt": recorded.INVERT, "client_id": "me"})
        while isinstance(frame := socket.recv(5), str):
            pass
    assert frame[:8] == b"\0\0\0\1\0\0\0\1"
    assert frame[8:10] == b"\xff\xd8"


def test_a_restart_forgets_all_but_files(http: httpx2.Client, double: ComfyUI) -> None:
    run(http, recorded.INVERT)
    http.post("/_double/switch", json={"restart": True})
    assert http.get("/history").json() == {}
    assert double.folders.of("input").joinpath("in.png").exists()
    assert http.post("/_double/switch", json={"nonsense": True}).status_code == 400


def test_it_describes_itself(http: httpx2.Client) -> None:
    assert http.get("/system_stats").json()["system"]["comfyui_version"] == "0.7.0"
    assert http.get("/object_info/ImageInvert").json()["ImageInvert"]["output"] == ["IMAGE"]
    assert "SaveImage" in http.get("/api/object_info").json()
    assert http.post("/free", json={"unload_models": True}).status_code == 200
