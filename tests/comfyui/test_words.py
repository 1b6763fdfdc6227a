"""Graphs, files, errors and progress, without any ComfyUI."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import PermanentError, TransientError
from millpond.integrations.comfyui import faults, graph
from millpond.integrations.comfyui.cache import Uploads
from millpond.integrations.comfyui.meter import Meter
from tests.comfyui import recorded
from tests.comfyui.jobs import task

# Graphs


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ([], "input", "must be an object"),
        ({"workflow": "{not json", "output_node_id": "1"}, "workflow", "not valid JSON"),
        ({"workflow": [], "output_node_id": "1"}, "workflow", "must be an object of nodes"),
        ({"workflow": {}, "output_node_id": "1"}, "workflow", "must be an object of nodes"),
        ({"workflow": {"nodes": [], "links": []}, "output_node_id": "1"}, "workflow", "editor"),
        ({"workflow": {"1": {"inputs": {}}}, "output_node_id": "1"}, "workflow", "'1' has no class_type"),
        ({"workflow": {"1": {"class_type": "A"}}, "output_node_id": "1"}, "workflow", "'1' has no inputs"),
        ({"workflow": recorded.INVERT, "output_node_id": "9"}, "output_node_id", "output node '9'"),
        ({"workflow": recorded.INVERT}, "input", "output_node_id"),
        ({"workflow": recorded.INVERT, "output_node_id": "3", "assets": [{"name": "x"}]}, "input", "placeholder"),
    ],
    ids=["list", "text", "array", "empty", "editor", "no class", "no inputs", "no node", "no output", "bad asset"],
)
def test_an_input_that_does_not_fit_is_reported_by_its_field(given: Any, field: str, expected: str) -> None:
    with pytest.raises(PermanentError, match=expected) as refused:
        graph.read(given)
    assert (refused.value.field, refused.value.details["reason"]) == (field, "input")


def test_a_workflow_may_come_as_text() -> None:
    read = graph.read({"workflow": json.dumps(recorded.INVERT), "output_node_id": 3})
    assert read.workflow == recorded.INVERT
    assert read.output_node_id == "3"


def test_placeholders_that_stand_nowhere_are_found() -> None:
    assert graph.absent(graph.read(task(recorded.INVERT))) == ["{{input}}"]
    within = recorded.graph(n1={"class_type": "LoadImage", "inputs": {"deep": [{"x": "a/{{input}}"}]}})
    assert graph.absent(graph.read(task(within))) == []
    named = recorded.graph(n1={"class_type": "{{input}}", "inputs": {}, "_meta": {"title": "{{input}}"}})
    assert graph.absent(graph.read(task(named))) == ["{{input}}"]


NASTY = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ['"}, "9": {"class_type": "Evil"', "\\", "\x00\x1f\n", "{{b}}", "]}", "'\"`"]
)


@given(a=NASTY, b=NASTY)
def test_no_name_changes_the_structure_of_a_graph(a: str, b: str) -> None:
    workflow = {"1": {"class_type": "T", "inputs": {"x": "{{a}}", "y": ["{{b}}", 1], "{{a}}": 3, "z": "1{{a}}{{b}}2"}}}
    filled = graph.fill(workflow, {"{{a}}": a, "{{b}}": b})
    expected = {"1": {"class_type": "T", "inputs": {"x": a, "y": [b, 1], "{{a}}": 3, "z": f"1{a}{b}2"}}}
    assert json.loads(json.dumps(filled)) == expected
    assert workflow["1"]["inputs"]["x"] == "{{a}}"


def test_the_longer_placeholder_wins() -> None:
    workflow = {"1": {"class_type": "T", "inputs": {"x": "$in $input"}}}
    assert graph.fill(workflow, {"$in": "A", "$input": "B"})["1"]["inputs"]["x"] == "A B"


def test_each_attempt_has_names_of_its_own() -> None:
    first = graph.own(recorded.INVERT, "3", "job-1")
    second = graph.own(recorded.INVERT, "3", "job-2")
    assert first["3"]["inputs"]["filename_prefix"] == "peer_job-1"
    assert second["3"]["inputs"]["filename_prefix"] == "peer_job-2"
    preview = recorded.graph(n3={"class_type": "PreviewImage", "inputs": {"images": ["2", 0]}})
    assert graph.own(preview, "3", "job-1")["3"]["inputs"] != graph.own(preview, "3", "job-2")["3"]["inputs"]
    linked = recorded.graph(n3={"class_type": "SaveImage", "inputs": {"filename_prefix": ["2", 0]}})
    assert graph.own(linked, "3", "job-1")["3"]["inputs"][graph.ATTEMPT_INPUT] == "job-1"


@pytest.mark.parametrize("node", recorded.OUTPUTS)
def test_the_file_of_every_node_is_found(node: str) -> None:
    made, expected = recorded.OUTPUTS[node]
    if expected is None:
        with pytest.raises(PermanentError, match="Node 3 produced no file"):
            graph.pick({"3": made}, "3")
    else:
        assert graph.pick({"3": made, "4": {"images": [{"filename": "other.png"}]}}, "3").filename == expected


def test_where_files_are_is_shown_when_the_wanted_node_has_none() -> None:
    with pytest.raises(PermanentError) as refused:
        graph.pick({"4": {"images": [{"filename": "a.png"}]}}, "3")
    assert refused.value.hint == "Files were produced by: 4."


# Errors

REPORTED = {
    "absent file": (
        "node 1 (LoadImage), input image: Custom validation failed for node (image - Invalid image file: absent.png)."
    ),
    "bad values": (
        "node 2 (ImageScale), input height: Failed to convert an input value to a INT value (height, abc, invalid"
        " literal for int() with base 10: 'abc'); node 2 (ImageScale), input width: Value -5 smaller than min of 0;"
        " node 2 (ImageScale), input upscale_method: Value not in list (upscale_method: 'bogus' not in"
        " ['nearest-exact', 'bilinear', 'area', 'bicubic', 'lanczos'])."
    ),
    "unknown node": "Cannot execute because node NoSuchNode does not exist. (Node ID '#1')",
    "no outputs": "Prompt has no outputs",
    "wrong link": (
        "node 2 (ImageInvert), input image: Return type mismatch between linked nodes"
        " (image, received_type(MASK) mismatch input_type(IMAGE))."
    ),
    "missing input": "node 3 (SaveImage), input images: Required input is missing.",
}


@pytest.mark.parametrize("name", recorded.REFUSALS)
def test_a_refusal_can_be_read(name: str) -> None:
    error = faults.refused(400, json.dumps(recorded.REFUSALS[name][1]).encode())
    assert error.message == f"ComfyUI rejected the workflow: {REPORTED[name]}"
    assert error.details["reason"] == "validation"


def test_flaws_are_reported_by_node_class_input_and_message() -> None:
    error = faults.refused(400, json.dumps(recorded.REFUSALS["missing input"][1]).encode())
    assert error.details["flaws"] == [
        {"node": "3", "type": "SaveImage", "input": "images", "message": "Required input is missing"}
    ]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"error": "no", "node_errors": []}', b'{"node_errors": {"1": null}}']
)
def test_a_refusal_of_any_shape_is_an_error_and_no_crash(body: bytes) -> None:
    assert faults.refused(400, body).details["reason"] == "validation"


def test_an_output_that_is_left_out_is_noticed_only_if_it_is_wanted() -> None:
    assert faults.dropped(recorded.PARTLY_ERRORS, "3") is None
    error = faults.dropped(recorded.PARTLY_ERRORS, "4")
    assert error is not None
    assert "node 4 (SaveImage), input images" in error.message


def test_an_end_is_read_from_its_messages() -> None:
    assert faults.ending(recorded.SUCCESS) is None
    failed = faults.ending(recorded.FAILURE)
    assert isinstance(failed, PermanentError)
    assert failed.message == (
        "Node 1 (LoadImage) failed: PIL.UnidentifiedImageError: cannot identify image file '…/input/corrupt.png'"
    )
    assert failed.details["reason"] == "execution"
    interrupted = faults.ending(recorded.INTERRUPTED)
    assert isinstance(interrupted, TransientError)
    assert interrupted.details["reason"] == "interrupted"
    stale = {"status": {"status_str": "success", "completed": True, "messages": [["execution_start", {}]]}}
    assert isinstance(faults.ending(stale), PermanentError)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("torch.OutOfMemoryError", "Allocation on device"),
        ("torch.cuda.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("RuntimeError", "CUDA error: out of memory"),
        ("OOMError", "too big"),
    ],
    ids=["torch", "cuda", "runtime", "cloud"],
)
def test_a_full_card_is_distinguished(kind: str, message: str) -> None:
    fields = {"node_id": "5", "node_type": "KSampler", "exception_type": kind, "exception_message": message}
    error = faults.failed(fields)
    assert isinstance(error, TransientError)
    assert error.details["reason"] == "out_of_memory"


def test_a_hundred_megabytes_of_error_are_cut() -> None:
    fields = {"node_id": "5", "node_type": "K", "exception_type": "E", "exception_message": "x\0" * 50_000_000}
    assert len(faults.failed(fields).message) < 1_000
    assert "\0" not in faults.failed(fields).message


# Progress


def test_progress_follows_the_recorded_frames_and_never_falls() -> None:
    meter = Meter("ID", recorded.INVERT)
    steps = list[float]()
    for frame in recorded.FRAMES:
        meter.take(frame)
        steps.append(round(meter.value, 3))
    assert steps == [0, 0, 0, 0, 0, 0.333, 0.667, 1, 1, 1, 1]
    assert meter.has_ended
    assert meter.moves == sum(frame["type"] != "status" for frame in recorded.FRAMES)


def test_a_node_that_works_counts_more_and_by_its_steps() -> None:
    nodes = {"1": {"class_type": "LoadImage"}, "2": {"class_type": "KSampler"}}
    meter = Meter("ID", nodes)
    meter.take({"type": "execution_cached", "data": {"prompt_id": "ID", "nodes": ["1"]}})
    state = {"value": 5, "max": 10, "state": "running", "display_node_id": "2"}
    meter.take({"type": "progress_state", "data": {"prompt_id": "ID", "nodes": {"2.0.1": state}}})
    assert meter.value == pytest.approx(6 / 11)
    meter.take({"type": "progress", "data": {"prompt_id": "ID", "node": "2", "value": 8, "max": 10}})
    assert meter.value == pytest.approx(9 / 11)


@pytest.mark.parametrize(
    "frame",
    [
        None,
        {"type": "progress"},
        {"type": "progress", "data": {"prompt_id": "other", "node": "2", "value": 1, "max": 1}},
        {"type": "progress", "data": {"prompt_id": "ID", "node": "2", "value": "x", "max": 0}},
        {"type": "progress", "data": {"prompt_id": "ID", "node": "77", "value": 1, "max": 1}},
        {"type": "notification", "data": {"prompt_id": "ID", "value": "hello"}},
    ],
    ids=["nothing", "no data", "another's", "nonsense", "unknown node", "unknown type"],
)
def test_frames_about_something_else_change_nothing(frame: Any) -> None:
    meter = Meter("ID", recorded.INVERT)
    meter.take(frame)
    assert meter.value == 0


# The cache


def test_the_least_used_file_is_forgotten_first() -> None:
    uploads = Uploads(limit=2)
    uploads.put("e", "a", "a.png")
    uploads.put("e", "b", "b.png")
    assert uploads.get("e", "a") == "a.png"
    uploads.put("e", "c", "c.png")
    assert (uploads.get("e", "a"), uploads.get("e", "b"), len(uploads)) == ("a.png", None, 2)


def test_files_are_known_by_endpoint_and_content() -> None:
    uploads = Uploads()
    uploads.put("here", "a", "a.png")
    assert uploads.get("there", "a") is None
    assert uploads.get("here", None) is None
    uploads.forget("there", {"a.png"})
    assert uploads.get("here", "a") == "a.png"
    uploads.forget("here", {"a.png"})
    assert uploads.get("here", "a") is None
