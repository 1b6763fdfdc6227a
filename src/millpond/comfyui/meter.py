"""How far a run is, from what ComfyUI says on its websocket."""

from __future__ import annotations

import re
from typing import Any, Final, cast

_HEAVY: Final = re.compile(r"sampl|upscal|interpolat|decode|combine|video", re.IGNORECASE)
_WEIGHT: Final = 10.0
"""How much more than another a node counts that does the work."""


class Meter:
    """Adds up the nodes of one prompt: the finished ones, and of the running ones as much as is done."""

    def __init__(self, prompt_id: str, graph: dict[str, Any]) -> None:
        self.prompt_id = prompt_id
        self.moves = 0
        """Grows with everything that says that the prompt, or the queue before it, goes on."""
        self.has_ended = False
        self._weights = {id: _WEIGHT if _HEAVY.search(node["class_type"]) else 1.0 for id, node in graph.items()}
        self._done = dict.fromkeys(graph, 0.0)
        self._current: str | None = None

    @property
    def value(self) -> float:
        """From 0 to 1."""
        whole = sum(self._weights.values()) or 1.0
        return min(sum(self._weights[id] * share for id, share in self._done.items()) / whole, 1.0)

    def take(self, frame: Any) -> None:
        """Read a frame; what is about other prompts, or cannot be understood, is passed over."""
        if not isinstance(frame, dict):
            return
        told = cast("dict[str, Any]", frame)
        type, data = told.get("type"), told.get("data")
        if not isinstance(data, dict):
            return
        about = cast("dict[str, Any]", data)
        if type == "status":
            self.moves += 1
        elif about.get("prompt_id") == self.prompt_id:
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
        """The next node begins, or none: the one before it is done."""
        if self._current is not None:
            self._set(self._current, 1.0)
        self._current = str(node) if node is not None else None
        self.has_ended = self.has_ended or node is None

    def _set(self, id: Any, share: float) -> None:
        if str(id) in self._done:
            self._done[str(id)] = max(self._done[str(id)], share)


def _share(value: Any, most: Any) -> float:
    if not isinstance(value, int | float) or not isinstance(most, int | float) or most <= 0:
        return 0.0
    return min(max(value / most, 0.0), 1.0)
