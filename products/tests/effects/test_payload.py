"""The payload, and what users read of a failure: plain functions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import InputError, InvalidError
from millpond_products.effects import failures, payload
from millpond_products.effects.payload import SourceFile
from millpond_products.effects.wire import Property

GRAPH: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "{{input}}"}},
    "2": {"class_type": "Paint", "inputs": {"text": "{{prompt}}, {{ prompt }}!", "size": ["{{n}}", 1], "on": ["1", 0]}},
}


def built(**made: Any) -> dict[str, Any]:
    sources = {"input": SourceFile("art_1", "art_1.png", None)}
    return payload.build(GRAPH, output_node_id="2", extension="png", made=made, sources=sources)


# Graphs


@pytest.mark.parametrize(
    ("graph", "field"),
    [
        ([], "workflow"),
        ({}, "workflow"),
        ("{}", "workflow"),
        ({"nodes": [], "links": []}, "workflow"),
        ({"1": "LoadImage"}, "workflow.1"),
        ({"1": {"inputs": {}}}, "workflow.1.class_type"),
        ({"1": {"class_type": 7, "inputs": {}}}, "workflow.1.class_type"),
        ({"1": {"class_type": "X"}}, "workflow.1.inputs"),
        ({"1": {"class_type": "X", "inputs": []}}, "workflow.1.inputs"),
        ({"1": {"class_type": "X", "inputs": {"a": ["9", 0]}}}, "workflow.1.inputs.a"),
        ({"1": {"class_type": "X", "inputs": {"a": "\0"}}}, "workflow.1.inputs.a"),
        ({"1": {"class_type": "X", "inputs": {"a": "x" * 300_000}}}, "workflow"),
        ({str(n): {"class_type": "X", "inputs": {}} for n in range(2_001)}, "workflow"),
        ({"2": {"class_type": "X", "inputs": {}}}, "output_node_id"),
    ],
    ids=[f"graph-{n}" for n in range(14)],
)
def test_efx_05_what_is_no_graph_is_refused_where_it_goes_wrong(graph: Any, field: str) -> None:
    with pytest.raises(InputError) as refusal:
        payload.check_graph(graph, "1")
    assert refusal.value.field == field


def test_efx_05_a_placeholder_that_nobody_declared_is_named() -> None:
    with pytest.raises(InputError) as refusal:
        payload.check_placeholders(GRAPH, ["prompt"])
    assert (refusal.value.field, "'n'" in str(refusal.value)) == ("workflow.2.inputs.size[0]", True)
    payload.check_placeholders(GRAPH, ["prompt", "n"])


def test_efx_05_a_graph_must_use_what_is_uploaded() -> None:
    with pytest.raises(InputError, match="does not contain"):
        payload.check_placeholders({"1": {"class_type": "X", "inputs": {}}}, [])


# Filling in


def test_efx_05_a_number_stays_a_number_where_it_stands_alone() -> None:
    node = built(prompt="cat", n=3)["workflow"]["2"]["inputs"]
    assert node == {"text": "cat, cat!", "size": [3, 1], "on": ["1", 0]}


@given(st.text(max_size=60))
def test_efx_05_no_text_can_change_the_graph(text: str) -> None:
    made = built(prompt=text, n=1)
    again = msgspec.json.decode(msgspec.json.encode(made)) if text.isprintable() else made
    node = again["workflow"]["2"]
    assert node["inputs"]["text"] == f"{text}, {text}!"
    assert again["workflow"].keys() == GRAPH.keys()
    (asset,) = again["assets"]
    assert asset["placeholder"] not in text
    assert again["workflow"]["1"]["inputs"]["image"] == asset["placeholder"]


def test_efx_05_the_template_is_left_as_it_is() -> None:
    before = msgspec.json.encode(GRAPH)
    built(prompt="x", n=1)
    assert msgspec.json.encode(GRAPH) == before


# Properties


def declared(**about: Any) -> Property:
    return msgspec.convert({"name": "p"} | about, Property)


@pytest.mark.parametrize(
    ("about", "value"),
    [
        ({"type": "text"}, 7),
        ({"type": "text"}, "x" * 2_001),
        ({"type": "text", "max_length": 3}, "four"),
        ({"type": "text"}, "bell\x07"),
        ({"type": "text"}, "nul\0"),
        ({"type": "text"}, "half \ud800"),
        ({"type": "number"}, "7"),
        ({"type": "number"}, True),
        ({"type": "number"}, float("nan")),
        ({"type": "number"}, 10**30),
        ({"type": "number", "integer": True}, 1.5),
        ({"type": "number", "min": 2}, 1),
        ({"type": "number", "max": 2}, 3),
        ({"type": "choice", "choices": ["a"]}, "b"),
        ({"type": "choice", "choices": ["a"]}, ["a"]),
        ({"type": "image"}, 1),
    ],
    ids=[f"value-{n}" for n in range(16)],
)
def test_efx_05_a_value_that_does_not_fit_is_refused(about: dict[str, Any], value: Any) -> None:
    with pytest.raises(InputError) as refusal:
        payload.resolve([declared(**about)], {}, {"p": value})
    assert refusal.value.field == "input.p"


@pytest.mark.parametrize("kind", ["number", "choice", "image", "video"])
def test_efx_05_what_has_no_value_at_all_is_required(kind: str) -> None:
    about = {"type": kind, **({"choices": ["a"]} if kind == "choice" else {})}
    with pytest.raises(InputError, match="required"):
        payload.resolve([declared(**about)], {}, {})
    assert payload.resolve([declared(type="text")], {}, {})[0] == {"p": ""}


@pytest.mark.parametrize(
    ("about", "field"),
    [
        ({"name": "input", "type": "text"}, "name"),
        ({"name": "shared", "type": "text"}, "name"),
        ({"type": "choice"}, "choices"),
        ({"type": "text", "min": 1}, "min"),
        ({"type": "number", "choices": ["a"]}, "choices"),
        ({"type": "number", "max_length": 3}, "max_length"),
        ({"type": "number", "min": 3, "max": 1}, "max"),
        ({"type": "number", "max": 1, "default": 2}, "default"),
        ({"type": "image", "default": "nowhere"}, "default"),
    ],
    ids=[f"declaration-{n}" for n in range(9)],
)
def test_a_declaration_that_cannot_work_is_refused(about: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidError) as refusal:
        payload.check_properties([declared(**about)], ["shared"])
    assert refusal.value.field == f"properties[0].{field}"


@pytest.mark.parametrize(
    ("name", "content_type", "expected"),
    [
        ("holiday.JPG", "image/jpeg", "art_1.jpg"),
        ("../../etc/passwd", "image/png", "art_1.png"),
        ("x.tar.gz; rm -rf", "video/mp4", "art_1.mp4"),
        ("", "application/x-nothing", "art_1.bin"),
    ],
    ids=["plain", "path", "shell", "nothing"],
)
def test_a_files_name_in_comfyui_has_nothing_of_the_users_but_its_end(
    name: str, content_type: str, expected: str
) -> None:
    assert payload.file_name("art_1", name, content_type) == expected


# Failures


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ('{"exception_message": "Out of memory", "traceback": []}', "Out of memory"),
        ('{"error_message": "Bad node"}', "Bad node"),
        ('{"exception_message": "", "error_message": "Second"}', "Second"),
        ('[["execution_error", {"exception_message": "Deep"}]]', "Deep"),
        ({"exception_message": "Given as JSON"}, "Given as JSON"),
        ("Prompt failed: {'exception_message': 'It\\'s full', 'x': 1}", "It's full"),
        ('RuntimeError: {"exception_message": "Cut off', "Cut off"),
        ("error_message=disk full; more", "disk full"),
        ("First line\nTraceback (most recent call last):", "First line"),
        ("\n\n  \nThird line", "Third line"),
        ("with \x00 NUL \x1b[31mred\x1b[0m", "with NUL [31mred [0m"),
        ('{"exception_message": "line\\nnext"}', "line"),
        ("", "Processing failed."),
        (" \n\t", "Processing failed."),
        (None, "Processing failed."),
        ({}, "Processing failed."),
        (17, "Processing failed."),
        ("[" * 100_000, "[" * 499 + "…"),
        ("\ud800", "Processing failed."),
    ],
    ids=[f"error-{n}" for n in range(19)],
)
def test_efx_16_of_what_a_worker_says_a_user_reads_one_line(error: Any, expected: str) -> None:
    assert failures.describe(error) == expected


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_efx_16_whatever_it_is_something_short_and_clean_is_reported(error: Any) -> None:
    described = failures.describe(error)
    assert 0 < len(described) <= 500
    assert described.isprintable() or all(ord(letter) >= 32 for letter in described)
