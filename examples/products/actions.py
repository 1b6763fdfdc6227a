"""Actions in the demo: a command whose output is streamed, and an HTTP request that the server makes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from examples.products.part import Part
from examples.stage import FailedError


@dataclass(slots=True, kw_only=True)
class Actions(Part):
    name: ClassVar[str] = "actions"

    def play(self) -> tuple[str, ...]:
        lines, _ = self.follow("run-command", {"command": "count"})
        _, answer = self.follow("http-request", {"url": f"{self.stage.ready['url']}/healthz"})
        log = self.keep("count.log", "\n".join(lines))
        response = self.keep("response.json", json.dumps(answer, indent=2))
        return (
            "actions ran a command that the operator allows, line by line, and made a request",
            f"{'   '.join(lines)}   GET /healthz: {answer['status']}",
            self.kept(log, response),
        )

    def follow(self, action: str, given: dict[str, Any]) -> tuple[list[str], Any]:
        """Read a job's stream to its end: lines as they are written, then one status."""
        made = self.call("POST", "/api/jobs", {"action": action, "input": given})
        self.report(action, made["state"])
        url = f"{self.stage.ready['url']}/actions/api/jobs/{made['id']}/stream"
        lines: list[str] = []
        event = ""
        with self.stage.http.stream("GET", url, timeout=60) as stream:
            for line in stream.raise_for_status().iter_lines():
                name, _, text = line.partition(": ")
                event = text if name == "event" else event
                if name == "data" and event == "log":
                    lines.append(json.loads(text)["text"])
                    self.report(action, "running", lines[-1])
                elif name == "data" and event == "status":
                    end = json.loads(text)
                    self.report(action, end["state"], f"{len(lines)} lines")
                    if end["state"] == "success":
                        return lines, end["output"]
        raise FailedError(f"actions, {action}: {lines[-1:]}")
