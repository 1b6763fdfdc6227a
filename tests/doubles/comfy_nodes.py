"""The nodes that the ComfyUI double really runs, with Pillow, and the check of a graph before it runs.

What a check answers is what ComfyUI answers, letter by letter: tests/comfyui/recorded.py has what was recorded.
"""

from __future__ import annotations

import hashlib
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageFile, ImageOps

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS_MAX = 20
"""A list longer than this is not told in an error."""

UPSCALE = ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"]
SIZE = {"default": 512, "min": 0, "max": 16384, "step": 1}
_RESAMPLE = {
    "nearest-exact": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "area": Image.Resampling.BOX,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(slots=True)
class Folders:
    """Where a ComfyUI keeps its files."""

    root: Path

    def of(self, type: str) -> Path:
        if type not in {"input", "output", "temp"}:
            raise ValueError(f"no folder of the type {type!r}")
        folder = self.root / type
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def inside(self, type: str, name: str) -> Path | None:
        """The path of a name, unless it leads out."""
        folder = self.of(type).resolve()
        path = (folder / name).resolve()
        return path if path.is_relative_to(folder) else None

    def next(self, type: str, prefix: str, extension: str) -> tuple[Path, dict[str, str]]:
        """The next free name of a prefix, numbered as ComfyUI numbers them."""
        subfolder, _, stem = prefix.rpartition("/")
        folder = self.inside(type, subfolder)
        if folder is None:
            raise ValueError("Saving image outside the output folder is not allowed.")
        folder.mkdir(parents=True, exist_ok=True)
        taken = [int(found[1]) for path in folder.iterdir() if (found := _number(stem).match(path.name))]
        name = f"{stem}_{max(taken, default=0) + 1:05}_.{extension}"
        return folder / name, {"filename": name, "subfolder": subfolder, "type": type}


def _number(stem: str) -> re.Pattern[str]:
    return re.compile(re.escape(stem) + r"_(\d+)_")


@dataclass(frozen=True, slots=True)
class Node:
    """A class of nodes: what it takes, what it gives, and what it does."""

    required: dict[str, list[Any]]
    gives: tuple[str, ...]
    run: Callable[..., Any]
    is_output: bool = False
    optional: dict[str, list[Any]] = field(default_factory=dict)
    check: Callable[..., str | None] | None = None
    """Takes the place of ComfyUI's checks for the inputs that it names."""
    checks: tuple[str, ...] = ()
    changed: Callable[..., str] | None = None

    @property
    def inputs(self) -> dict[str, list[Any]]:
        return self.required | self.optional


def load_image(folders: Folders, image: str) -> tuple[Any, ...]:
    with Image.open(folders.of("input") / image) as opened:
        picture = _leniently(ImageOps.exif_transpose, opened)
        mask = ImageOps.invert(picture.getchannel("A")) if "A" in picture.getbands() else Image.new("L", (64, 64))
        return [picture.convert("RGB")], [mask]


def _leniently(call: Callable[[Any], Any], given: Any) -> Any:
    """What is missing of a picture is filled with one color, as ComfyUI does."""
    try:
        return call(given)
    except (OSError, ValueError):
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        try:
            return call(given)
        finally:
            ImageFile.LOAD_TRUNCATED_IMAGES = False


def is_there(folders: Folders, image: str) -> str | None:
    path = folders.inside("input", image)
    return None if path is not None and path.is_file() else f"Invalid image file: {image}"


def digest(folders: Folders, image: str) -> str:
    return hashlib.sha256((folders.of("input") / image).read_bytes()).hexdigest()


def empty_image(_: Folders, width: int, height: int, batch_size: int, color: int) -> tuple[Any, ...]:
    rgb = (color >> 16 & 255, color >> 8 & 255, color & 255)
    return ([Image.new("RGB", (width, height), rgb) for _ in range(batch_size)],)


def invert(_: Folders, image: list[Image.Image]) -> tuple[Any, ...]:
    return ([ImageOps.invert(picture) for picture in image],)


def scale(
    _: Folders, image: list[Image.Image], upscale_method: str, width: int, height: int, crop: str
) -> tuple[Any, ...]:
    size = (width or image[0].width, height or image[0].height)
    fit = ImageOps.fit if crop == "center" else _stretch
    return ([fit(picture, size, _RESAMPLE[upscale_method]) for picture in image],)


def _stretch(picture: Image.Image, size: tuple[int, int], method: Image.Resampling) -> Image.Image:
    return picture.resize(size, method)


def save_image(folders: Folders, images: list[Image.Image], filename_prefix: str = "ComfyUI") -> dict[str, Any]:
    return {"images": [_saved(folders, "output", filename_prefix, picture) for picture in images]}


def preview_image(folders: Folders, images: list[Image.Image]) -> dict[str, Any]:
    return {"images": [_saved(folders, "temp", "ComfyUI_temp_abcde", picture) for picture in images]}


def _saved(folders: Folders, type: str, prefix: str, picture: Image.Image) -> dict[str, str]:
    path, reported = folders.next(type, prefix, "png")
    picture.save(path)
    return reported


def save_webp(
    folders: Folders,
    images: list[Image.Image],
    filename_prefix: str,
    fps: float,
    lossless: bool,  # noqa: FBT001 - the inputs are ComfyUI's
    quality: int,
    method: str,
) -> dict[str, Any]:
    path, reported = folders.next("output", filename_prefix, "webp")
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=int(1000 / fps), lossless=lossless, quality=quality
    )
    return {"images": [reported], "animated": [len(images) != 1]}


def combine(folders: Folders, images: list[Image.Image], frame_rate: float, filename_prefix: str) -> dict[str, Any]:
    """A node of a well-known extension, which puts its file under a word of its own."""
    path, reported = folders.next("output", filename_prefix, "gif")
    images[0].save(path, save_all=True, append_images=images[1:], duration=int(1000 / frame_rate), loop=0)
    return {"gifs": [reported | {"format": "image/gif", "frame_rate": frame_rate}]}


def preview_any(_: Folders, source: Any) -> dict[str, Any]:
    return {"text": [str(source)]}


NODES: dict[str, Node] = {
    "LoadImage": Node(
        {"image": [[], {"image_upload": True}]},
        ("IMAGE", "MASK"),
        load_image,
        check=is_there,
        checks=("image",),
        changed=digest,
    ),
    "EmptyImage": Node(
        {
            "width": ["INT", {"default": 512, "min": 1, "max": 16384, "step": 1}],
            "height": ["INT", {"default": 512, "min": 1, "max": 16384, "step": 1}],
            "batch_size": ["INT", {"default": 1, "min": 1, "max": 4096}],
            "color": ["INT", {"default": 0, "min": 0, "max": 0xFFFFFF, "step": 1, "display": "color"}],
        },
        ("IMAGE",),
        empty_image,
    ),
    "ImageInvert": Node({"image": ["IMAGE", {}]}, ("IMAGE",), invert),
    "ImageScale": Node(
        {
            "image": ["IMAGE", {}],
            "upscale_method": [UPSCALE, {}],
            "width": ["INT", SIZE],
            "height": ["INT", SIZE],
            "crop": [["disabled", "center"], {}],
        },
        ("IMAGE",),
        scale,
    ),
    "SaveImage": Node(
        {"images": ["IMAGE", {}], "filename_prefix": ["STRING", {"default": "ComfyUI"}]},
        (),
        save_image,
        is_output=True,
    ),
    "PreviewImage": Node({"images": ["IMAGE", {}]}, (), preview_image, is_output=True),
    "SaveAnimatedWEBP": Node(
        {
            "images": ["IMAGE", {}],
            "filename_prefix": ["STRING", {"default": "ComfyUI"}],
            "fps": ["FLOAT", {"default": 6.0, "min": 0.01, "max": 1000.0, "step": 0.01}],
            "lossless": ["BOOLEAN", {"default": True}],
            "quality": ["INT", {"default": 80, "min": 0, "max": 100}],
            "method": [["default", "fastest", "slowest"], {}],
        },
        (),
        save_webp,
        is_output=True,
    ),
    "VHS_VideoCombine": Node(
        {
            "images": ["IMAGE", {}],
            "frame_rate": ["FLOAT", {"default": 8, "min": 1, "step": 1}],
            "filename_prefix": ["STRING", {"default": "AnimateDiff"}],
        },
        (),
        combine,
        is_output=True,
    ),
    "PreviewAny": Node({"source": ["*", {}]}, (), preview_any, is_output=True),
}


def described(name: str, folders: Folders) -> dict[str, Any]:
    """A class of nodes as /object_info tells it."""
    node = NODES[name]
    inputs = {"required": node.required} | ({"optional": node.optional} if node.optional else {})
    if name == "LoadImage":
        files = sorted(path.name for path in folders.of("input").iterdir() if path.is_file())
        inputs = {"required": {"image": [files, {"image_upload": True}]}}
    return {
        "input": inputs,
        "input_order": {group: list(named) for group, named in inputs.items()},
        "output": list(node.gives),
        "output_is_list": [False] * len(node.gives),
        "output_name": list(node.gives),
        "name": name,
        "display_name": name,
        "description": "",
        "python_module": "nodes",
        "category": "image",
        "output_node": node.is_output,
    }


# The check of a graph


def is_link(value: Any) -> bool:
    return isinstance(value, list)


def error_of(type: str, message: str, details: str, **extra: Any) -> dict[str, Any]:
    return {"type": type, "message": message, "details": details, "extra_info": extra}


@dataclass(slots=True)
class Check:
    """One look at a graph: which of its outputs can run, and what is wrong with the others."""

    graph: dict[str, Any]
    folders: Folders
    error: dict[str, Any] | None = None
    good: list[str] = field(default_factory=list)
    node_errors: dict[str, Any] = field(default_factory=dict)
    _seen: dict[str, tuple[bool, list[dict[str, Any]]]] = field(default_factory=dict)

    def run(self, targets: list[str] | None = None) -> Check:
        outputs: list[str] = []
        for id, node in self.graph.items():
            where = f"Node ID '#{id}'"
            name = node.get("class_type")
            if name is None:
                message = "Cannot execute because a node is missing the class_type property."
                self.error = error_of("invalid_prompt", message, where)
                return self
            if name not in NODES:
                self.error = error_of("invalid_prompt", f"Cannot execute because node {name} does not exist.", where)
                return self
            if NODES[name].is_output and (targets is None or id in targets):
                outputs.append(id)
        if not outputs:
            self.error = error_of("prompt_no_outputs", "Prompt has no outputs", "")
            return self
        refused = [line for id in outputs for line in self._output(id)]
        if not self.good:
            message = "Prompt outputs failed validation"
            self.error = error_of("prompt_outputs_failed_validation", message, "\n".join(refused))
        return self

    def _output(self, id: str) -> list[str]:
        try:
            is_valid, reasons = self._node(id)
        except Exception as error:  # noqa: BLE001 - ComfyUI catches them all
            extra = {"exception_type": type(error).__name__, "traceback": traceback.format_tb(error.__traceback__)}
            reasons = [error_of("exception_during_validation", "Exception when validating node", str(error), **extra)]
            is_valid, self._seen[id] = False, (False, reasons)
        if is_valid:
            self.good.append(id)
            return []
        for seen, (_, errors) in self._seen.items():
            if errors:
                entry = {"errors": errors, "dependent_outputs": [], "class_type": self.graph[seen]["class_type"]}
                self.node_errors.setdefault(seen, entry)["dependent_outputs"].append(id)
        return [f"{reason['message']}: {reason['details']}" for reason in reasons]

    def _node(self, id: str) -> tuple[bool, list[dict[str, Any]]]:
        if id not in self._seen:
            node = NODES[self.graph[id]["class_type"]]
            given = self.graph[id]["inputs"]
            errors: list[dict[str, Any]] = []
            is_sound = True
            for name, config in node.inputs.items():
                if name not in given:
                    if name in node.required:
                        missing = error_of("required_input_missing", "Required input is missing", name, input_name=name)
                        errors.append(missing)
                elif is_link(given[name]):
                    is_sound &= self._link(name, config, given[name], errors)
                elif error := self._value(node, given, name, config):
                    errors.append(error)
            errors += self._own(node, given)
            self._seen[id] = (is_sound and not errors, errors)
        return self._seen[id]

    def _link(self, name: str, config: list[Any], link: list[Any], errors: list[dict[str, Any]]) -> bool:
        about = {"input_name": name, "input_config": config}
        if len(link) != 2:
            message = "Bad linked input, must be a length-2 list of [node_id, slot_index]"
            errors.append(error_of("bad_linked_input", message, name, **about, received_value=link))
            return True
        source, slot = link
        received = NODES[self.graph[source]["class_type"]].gives[slot]
        if config[0] not in (received, "*"):
            details = f"{name}, received_type({received}) mismatch input_type({config[0]})"
            message = "Return type mismatch between linked nodes"
            errors.append(
                error_of("return_type_mismatch", message, details, **about, received_type=received, linked_node=link)
            )
            return True
        try:
            return self._node(source)[0]
        except Exception as error:  # noqa: BLE001 - as above
            extra = about | {
                "exception_message": str(error),
                "exception_type": type(error).__name__,
                "traceback": traceback.format_tb(error.__traceback__),
                "linked_node": link,
            }
            reason = error_of(
                "exception_during_inner_validation", "Exception when validating inner node", str(error), **extra
            )
            self._seen[source] = (False, [reason])
            return False

    @staticmethod
    def _value(node: Node, given: dict[str, Any], name: str, config: list[Any]) -> dict[str, Any] | None:
        kind, limits = config
        value = given[name]
        about = {"input_name": name, "input_config": config, "received_value": value}
        convert = {"INT": int, "FLOAT": float, "STRING": str, "BOOLEAN": bool}.get(str(kind))
        if convert is not None:
            try:
                value = given[name] = about["received_value"] = convert(value)
            except Exception as error:  # noqa: BLE001 - as above
                message = f"Failed to convert an input value to a {kind} value"
                details = f"{name}, {value}, {error}"
                return error_of("invalid_input_type", message, details, **about, exception_message=str(error))
        if name in node.checks:
            return None
        if "min" in limits and value < limits["min"]:
            message = f"Value {value} smaller than min of {limits['min']}"
            return error_of("value_smaller_than_min", message, name, **about)
        if "max" in limits and value > limits["max"]:
            return error_of("value_bigger_than_max", f"Value {value} bigger than max of {limits['max']}", name, **about)
        if isinstance(kind, list) and value not in kind:
            is_long = len(kind) > OPTIONS_MAX
            options = f"(list of length {len(kind)})" if is_long else str(kind)
            about["input_config"] = None if is_long else config
            return error_of("value_not_in_list", "Value not in list", f"{name}: '{value}' not in {options}", **about)
        return None

    def _own(self, node: Node, given: dict[str, Any]) -> list[dict[str, Any]]:
        named = {name: given[name] for name in node.checks if name in given and not is_link(given[name])}
        if node.check is None or not named:
            return []
        refusal = node.check(self.folders, **named)
        return [
            error_of(
                "custom_validation_failed", "Custom validation failed for node", f"{name} - {refusal}", input_name=name
            )
            for name in named
            if refusal is not None
        ]


def signature(graph: dict[str, Any], id: str, folders: Folders) -> Any:
    """What a node's result depends on: every input that stands in the graph, known to the node or not."""
    node = graph[id]
    changed = NODES[node["class_type"]].changed
    parts: list[Any] = [node["class_type"]]
    for name, value in sorted(node["inputs"].items()):
        parts.append((name, (signature(graph, value[0], folders), value[1]) if is_link(value) else repr(value)))
    if changed is not None:
        known = {name: node["inputs"][name] for name in NODES[node["class_type"]].inputs}
        parts.append(changed(folders, **known))
    return tuple(parts)
