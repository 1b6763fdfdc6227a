"""A running ``millpond up`` or ``millpond serve``, found by its ready file."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from tests.acceptance.processes import BRISK, Command, Shell, until
from tests.waiting import PATIENCE


@dataclass(slots=True)
class Up:
    """What a test knows of it, and how it speaks to it: plain HTTP, as curl would."""

    command: Command
    ready_file: Path
    ready: dict[str, Any]

    @property
    def url(self) -> str:
        return self.ready["url"]

    async def request(self, method: str, path: str, body: Any = None, *, key: str = "client_key") -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.ready[key]}"} if key in self.ready else {}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE) as http:
            return await http.request(method, path, json=body)

    async def submit(self, kind: str, given: Any = None) -> str:
        answer = await self.request("POST", "/v1/jobs", {"kind": kind, "input": given or {}})
        assert answer.status_code == 202, answer.text
        return answer.json()["id"]

    async def job(self, job_id: str) -> dict[str, Any]:
        answer = await self.request("GET", f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def until(self, phase: str, job_id: str) -> dict[str, Any]:
        async def is_there() -> bool:
            return (await self.job(job_id))["phase"] == phase

        await until(is_there)
        return await self.job(job_id)

    async def until_waiting(self, reason: str, job_id: str) -> None:
        """Until the job is parked, and waits for this."""

        async def is_there() -> bool:
            return (await self.job(job_id))["waits_for"] == reason

        await until(is_there)

    async def is_serving(self) -> bool:
        with suppress(httpx2.TransportError):
            return (await self.request("GET", "/healthz")).status_code == 200
        return False


async def up(sh: Shell, *words: str | Path, verb: str = "up", **environment: str) -> Up:
    """Start one on a port of its own, and wait until it says that it serves."""
    file = sh.folder / f"ready-{len(sh.commands)}.json"
    command = sh.start(verb, *words, "--port", "0", "--ready-file", file, **BRISK | environment)
    await serving(command, file)
    if verb == "up":
        await until(lambda: has_welcomed(command))
    return Up(command, file, msgspec.json.decode(file.read_bytes()))


async def has_welcomed(command: Command) -> bool:
    """It writes its welcome after its ready file."""
    return "Press Ctrl-C to stop." in command.stderr


async def serving(command: Command, file: Path) -> None:
    async def is_there() -> bool:
        assert command.is_running, command.stderr
        return file.exists()

    await until(is_there)


def write_app(folder: Path, text: str) -> Path:
    app = folder / "app.py"
    app.write_text(f"import asyncio\nfrom millpond import Job, Millpond\napp = Millpond()\n{text}", "utf-8")
    return app


SLOW = """
@app.kind("slow", price=1)
async def slow(job: Job, seconds: float = 3600) -> dict:
    await asyncio.sleep(seconds)
    return {"done": True}
"""
