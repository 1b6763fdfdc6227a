"""What a real ComfyUI 0.7.0 answered, word for word; the graphs are those that it was asked for."""

from __future__ import annotations

import copy
from typing import Any

INVERT: dict[str, Any] = {
    "1": {"class_type": "LoadImage", "inputs": {"image": "in.png"}},
    "2": {"class_type": "ImageInvert", "inputs": {"image": ["1", 0]}},
    "3": {"class_type": "SaveImage", "inputs": {"images": ["2", 0], "filename_prefix": "peer"}},
}


def graph(**changes: Any) -> dict[str, Any]:
    """The usual graph with other nodes in it; none takes one out."""
    made = copy.deepcopy(INVERT) | {id.removeprefix("n"): node for id, node in changes.items()}
    return {id: node for id, node in made.items() if node is not None}


SIZE = ["INT", {"default": 512, "min": 0, "max": 16384, "step": 1}]
FAILED = {
    "type": "prompt_outputs_failed_validation",
    "message": "Prompt outputs failed validation",
    "details": "",
    "extra_info": {},
}
MISSING = {
    "type": "required_input_missing",
    "message": "Required input is missing",
    "details": "images",
    "extra_info": {"input_name": "images"},
}

REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "absent file": (
        graph(n1={"class_type": "LoadImage", "inputs": {"image": "absent.png"}}),
        {
            "error": FAILED,
            "node_errors": {
                "1": {
                    "errors": [
                        {
                            "type": "custom_validation_failed",
                            "message": "Custom validation failed for node",
                            "details": "image - Invalid image file: absent.png",
                            "extra_info": {"input_name": "image"},
                        }
                    ],
                    "dependent_outputs": ["3"],
                    "class_type": "LoadImage",
                }
            },
        },
    ),
    "bad values": (
        graph(
            n2={
                "class_type": "ImageScale",
                "inputs": {
                    "image": ["1", 0],
                    "upscale_method": "bogus",
                    "width": -5,
                    "height": "abc",
                    "crop": "disabled",
                },
            }
        ),
        {
            "error": FAILED,
            "node_errors": {
                "2": {
                    "errors": [
                        {
                            "type": "invalid_input_type",
                            "message": "Failed to convert an input value to a INT value",
                            "details": "height, abc, invalid literal for int() with base 10: 'abc'",
                            "extra_info": {
                                "input_name": "height",
                                "input_config": SIZE,
                                "received_value": "abc",
                                "exception_message": "invalid literal for int() with base 10: 'abc'",
                            },
                        },
                        {
                            "type": "value_smaller_than_min",
                            "message": "Value -5 smaller than min of 0",
                            "details": "width",
                            "extra_info": {"input_name": "width", "input_config": SIZE, "received_value": -5},
                        },
                        {
                            "type": "value_not_in_list",
                            "message": "Value not in list",
                            "details": (
                                "upscale_method: 'bogus' not in"
                                " ['nearest-exact', 'bilinear', 'area', 'bicubic', 'lanczos']"
                            ),
                            "extra_info": {
                                "input_name": "upscale_method",
                                "input_config": [["nearest-exact", "bilinear", "area", "bicubic", "lanczos"], {}],
                                "received_value": "bogus",
                            },
                        },
                    ],
                    "dependent_outputs": ["3"],
                    "class_type": "ImageScale",
                }
            },
        },
    ),
    "unknown node": (
        graph(n1={"class_type": "NoSuchNode", "inputs": {}}),
        {
            "error": {
                "type": "invalid_prompt",
                "message": "Cannot execute because node NoSuchNode does not exist.",
                "details": "Node ID '#1'",
                "extra_info": {},
            },
            "node_errors": {},
        },
    ),
    "no outputs": (
        graph(n3=None),
        {
            "error": {
                "type": "prompt_no_outputs",
                "message": "Prompt has no outputs",
                "details": "",
                "extra_info": {},
            },
            "node_errors": {},
        },
    ),
    "wrong link": (
        graph(n2={"class_type": "ImageInvert", "inputs": {"image": ["1", 1]}}),
        {
            "error": FAILED,
            "node_errors": {
                "2": {
                    "errors": [
                        {
                            "type": "return_type_mismatch",
                            "message": "Return type mismatch between linked nodes",
                            "details": "image, received_type(MASK) mismatch input_type(IMAGE)",
                            "extra_info": {
                                "input_name": "image",
                                "input_config": ["IMAGE", {}],
                                "received_type": "MASK",
                                "linked_node": ["1", 1],
                            },
                        }
                    ],
                    "dependent_outputs": ["3"],
                    "class_type": "ImageInvert",
                }
            },
        },
    ),
    "missing input": (
        graph(n3={"class_type": "SaveImage", "inputs": {"filename_prefix": "peer"}}),
        {
            "error": FAILED | {"details": "Required input is missing: images"},
            "node_errors": {
                "3": {"errors": [MISSING], "dependent_outputs": ["3"], "class_type": "SaveImage"},
            },
        },
    ),
}
"""By what is wrong: the graph, and the body of the 400."""

PARTLY = graph(n4={"class_type": "SaveImage", "inputs": {"filename_prefix": "peer"}})
PARTLY_ERRORS = {"4": {"errors": [MISSING], "dependent_outputs": ["4"], "class_type": "SaveImage"}}
"""A 200 that leaves one output out."""

SUCCESS: dict[str, Any] = {
    "prompt": [
        0,
        "ea0be984-abe4-4bfa-b45b-8067810aafd1",
        INVERT,
        {"client_id": "c5dac0724fc444c188f753b1e5a61e68", "create_time": 1794764576027},
        ["3"],
    ],
    "outputs": {"3": {"images": [{"filename": "peer_00001_.png", "subfolder": "", "type": "output"}]}},
    "status": {
        "status_str": "success",
        "completed": True,
        "messages": [
            [
                "execution_start",
                {"prompt_id": "ea0be984-abe4-4bfa-b45b-8067810aafd1", "timestamp": 1794764576028},
            ],
            [
                "execution_cached",
                {"nodes": [], "prompt_id": "ea0be984-abe4-4bfa-b45b-8067810aafd1", "timestamp": 1794764576038},
            ],
            [
                "execution_success",
                {"prompt_id": "ea0be984-abe4-4bfa-b45b-8067810aafd1", "timestamp": 1794764576086},
            ],
        ],
    },
    "meta": {"3": {"node_id": "3", "display_node": "3", "parent_node": None, "real_node_id": "3"}},
}

_FAILED_ID = "fb59a919-ba08-476b-866d-68045f8a4622"
FAILURE: dict[str, Any] = {
    "prompt": [
        16,
        _FAILED_ID,
        graph(n1={"class_type": "LoadImage", "inputs": {"image": "corrupt.png"}}),
        {"client_id": "c5dac0724fc444c188f753b1e5a61e68", "create_time": 1794764578025},
        ["3"],
    ],
    "outputs": {},
    "status": {
        "status_str": "error",
        "completed": False,
        "messages": [
            ["execution_start", {"prompt_id": _FAILED_ID, "timestamp": 1794764578039}],
            ["execution_cached", {"nodes": [], "prompt_id": _FAILED_ID, "timestamp": 1794764578040}],
            [
                "execution_error",
                {
                    "prompt_id": _FAILED_ID,
                    "node_id": "1",
                    "node_type": "LoadImage",
                    "executed": [],
                    "exception_message": "cannot identify image file '…/input/corrupt.png'\n",
                    "exception_type": "PIL.UnidentifiedImageError",
                    "traceback": [
                        '  File "…/PIL/Image.py", line 3730, in open\n    raise UnidentifiedImageError(msg)\n'
                    ],
                    "current_inputs": {"image": ["corrupt.png"]},
                    "current_outputs": ["3", "2", "1"],
                    "timestamp": 1794764578223,
                },
            ],
        ],
    },
    "meta": {},
}

_STOPPED_ID = "87981132-794d-497f-b9d2-4dbe671e50b5"
INTERRUPTED: dict[str, Any] = {
    "prompt": [17, _STOPPED_ID, {}, {"client_id": "c5", "create_time": 1794764578563}, ["9"]],
    "outputs": {},
    "status": {
        "status_str": "error",
        "completed": False,
        "messages": [
            ["execution_start", {"prompt_id": _STOPPED_ID, "timestamp": 1794764578564}],
            ["execution_cached", {"nodes": [], "prompt_id": _STOPPED_ID, "timestamp": 1794764578752}],
            [
                "execution_interrupted",
                {
                    "prompt_id": _STOPPED_ID,
                    "node_id": "14",
                    "node_type": "ImageScale",
                    "executed": ["11", "1", "13", "12", "10"],
                    "timestamp": 1794764581196,
                },
            ],
        ],
    },
    "meta": {},
}

FRAMES: list[dict[str, Any]] = [
    {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 1}}}},
    {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 1}}}},
    {"type": "execution_start", "data": {"prompt_id": "ID", "timestamp": 1794764576028}},
    {"type": "execution_cached", "data": {"nodes": [], "prompt_id": "ID", "timestamp": 1794764576038}},
    {"type": "executing", "data": {"node": "1", "display_node": "1", "prompt_id": "ID"}},
    {"type": "executing", "data": {"node": "2", "display_node": "2", "prompt_id": "ID"}},
    {"type": "executing", "data": {"node": "3", "display_node": "3", "prompt_id": "ID"}},
    {
        "type": "executed",
        "data": {
            "node": "3",
            "display_node": "3",
            "output": {"images": [{"filename": "peer_00001_.png", "subfolder": "", "type": "output"}]},
            "prompt_id": "ID",
        },
    },
    {"type": "execution_success", "data": {"prompt_id": "ID", "timestamp": 1794764576086}},
    {"type": "status", "data": {"status": {"exec_info": {"queue_remaining": 0}}}},
    {"type": "executing", "data": {"node": None, "prompt_id": "ID"}},
]
"""The websocket of one run, without progress_state."""


def _file(name: str, subfolder: str = "", type: str = "output") -> dict[str, str]:
    return {"filename": name, "subfolder": subfolder, "type": type}


OUTPUTS: dict[str, tuple[dict[str, Any], str | None]] = {
    "SaveImage": ({"images": [_file("a_00001_.png"), _file("a_00002_.png")]}, "a_00001_.png"),
    "PreviewImage": ({"images": [_file("t_00001_.png", type="temp")]}, "t_00001_.png"),
    "SaveAnimatedWEBP": ({"images": [_file("a_00001_.webp")], "animated": [True]}, "a_00001_.webp"),
    "SaveVideo": ({"images": [_file("a_00001_.mp4", "video")], "animated": [True]}, "a_00001_.mp4"),
    "SaveAudio": ({"audio": [_file("a_00001_.flac", "audio")]}, "a_00001_.flac"),
    "SaveLatent": ({"latents": [_file("a_00001_.latent", "latents")]}, "a_00001_.latent"),
    "VHS_VideoCombine": ({"gifs": [_file("a_00001.mp4") | {"format": "video/h264-mp4"}]}, "a_00001.mp4"),
    "both": ({"images": [_file("p.png")], "videos": [_file("v.mp4")]}, "v.mp4"),
    "kept before thrown away": ({"gifs": [_file("t.gif", type="temp")], "images": [_file("k.png")]}, "k.png"),
    "PreviewAny": ({"text": ["hello"]}, None),
}
"""By node: what it leaves, and the file that is taken."""
