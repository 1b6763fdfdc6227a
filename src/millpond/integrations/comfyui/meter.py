"""Computes the progress of a run from the messages of ComfyUI's websocket."""

from __future__ import annotations

import re
from typing import Any, Final, cast

_HEAVY: Final = re.compile(r"sampl|upscal|interpolat|decode|combine|video", re.IGNORECASE)
_WEIGHT: Final = 10.0
"""The weight of a node that does heavy work; others have 1."""


class Meter:
    """Adds up the nodes of one prompt: the finished ones, and the finished share of the running ones."""

    def __init__(self, prompt_id: str, graph: dict[str, Any]) -> None:
        self.prompt_id = prompt_id
        self.moves = 0
        """Counts the messages about the prompt."""
        self.has_ended = False
        self._weights = {id: _WEIGHT if _HEAVY.search(node["class_type"]) else 1.0 for id, node in graph.items()}
        self._done = dict.fromkeys(graph, 0.0)
        self._current: str | None = None

    @property
    def value(self) -> float:
        """The progress from 0 to 1."""
        whole = sum(self._weights.values()) or 1.0
        return min(sum(self._weights[id] * share for id, share in self._done.items()) / whole, 1.0)

    def take(self, frame: Any) -> None:
        """Read a frame. Frames of other prompts, of the queue and unknown frames are ignored."""
        if not isinstance(frame, dict):
            return
        message = cast("dict[str, Any]", frame)
        type, data = message.get("type"), message.get("data")
        if not isinstance(data, dict):
            return
        about = cast("dict[str, Any]", data)
        if about.get("prompt_id") == self.prompt_id:
            self.moves += 1
            self._read(str(type), about)

    def _read(self, type: str, data: dict[str, Any]) -> None:
        match type:
            case "execution_cached":
                for id in cast("list[Any]", data.get("nodes") or []):
                    self._set(id, 1.0)
            case "progress_state":
                for id, state in cast("dict[str, Any]", data.get("nodes") or {}).items():
                    share = 1.0 if state.get("state") == "finished" else _share(state.get("value"), state.get("max"))
                    self._set(state.get("display_node_id") or id, share)
            case "progress":
                self._set(data.get("node"), _share(data.get("value"), data.get("max")))
            case "executing":
                self._leave(data.get("node"))
            case "executed":
                self._set(data.get("node"), 1.0)
            case "execution_success" | "execution_error" | "execution_interrupted":
                self.has_ended = True
            case _:
                pass

    def _leave(self, node: Any) -> None:
        """The next node, or none, begins, so the one before it is done."""
        if self._current is not None:
            self._set(self._current, 1.0)
        self._current = str(node) if node is not None else None
        self.has_ended = self.has_ended or node is None

    def _set(self, id: Any, share: float) -> None:
        if str(id) in self._done:
            self._done[str(id)] = max(self._done[str(id)], share)


def _share(value: Any, limit: Any) -> float:
    if not isinstance(value, int | float) or not isinstance(limit, int | float) or limit <= 0:
        return 0.0
    return min(max(value / limit, 0.0), 1.0)
