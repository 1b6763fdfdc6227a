"""A renderer as its users run it: a process of its own. And what is on the other side of its calls."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from tests.acceptance.processes import until
from tests.children import running
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "r8_test"
LONG = {"product": "Aurora Lamp", "script": "One more word about this lamp. " * 19, "aspect_ratio": "9:16"}
"""A film that takes its time."""


@dataclass(slots=True)
class Renderer:
    """One that runs, and how a test speaks to it: plain HTTP, as curl would."""

    process: subprocess.Popen[bytes]
    url: str
    http: httpx2.AsyncClient

    async def create(self, model: str, given: dict[str, Any], *, headers: Any = None, **more: Any) -> httpx2.Response:
        body = {"input": given, **more}
        return await self.http.post(f"/v1/models/millpond/{model}/predictions", json=body, headers=headers)

    async def made(self, model: str, given: dict[str, Any], **more: Any) -> dict[str, Any]:
        """Made and over."""
        answer = await self.create(model, given, headers={"Prefer": "wait"}, **more)
        assert answer.status_code == 201, answer.text
        return answer.json()

    async def output(self, model: str, given: dict[str, Any]) -> bytes:
        prediction = await self.made(model, given)
        assert prediction["status"] == "succeeded", prediction
        return (await self.http.get(prediction["output"])).raise_for_status().content

    async def get(self, prediction_id: str) -> dict[str, Any]:
        return (await self.http.get(f"/v1/predictions/{prediction_id}")).raise_for_status().json()

    async def until(self, status: str, prediction_id: str) -> dict[str, Any]:
        async def is_so() -> bool:
            return (await self.get(prediction_id))["status"] == status

        await until(is_so)
        return await self.get(prediction_id)

    @property
    def presses(self) -> set[int]:
        """The processes that it has started."""
        folder = Path(f"/proc/{self.process.pid}/task/{self.process.pid}")
        return {int(pid) for pid in (folder / "children").read_text().split()}


@contextmanager
def renderer(*words: str) -> Iterator[Renderer]:
    environment = os.environ | {"MILLPOND_RENDERER_TOKEN": TOKEN}
    command = [sys.executable, "-m", "millpond_products.renderer", "--port", "0", *words]
    with running(command, stdout=subprocess.PIPE, env=environment, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        line = msgspec.json.decode(process.stdout.readline())
        headers = {"Authorization": f"Bearer {TOKEN}"}
        limits = httpx2.Limits(max_keepalive_connections=0)  # each test has a loop of its own
        http = httpx2.AsyncClient(base_url=line["url"], headers=headers, timeout=120, limits=limits)
        yield Renderer(process, line["url"], http)
        process.terminate()
        process.wait(PATIENCE)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@dataclass(slots=True)
class Receiver:
    """Takes webhooks, and answers as it is told; it also has files to fetch."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    """Statuses for the first calls; afterwards it is content."""
    calls: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def bodies(self) -> list[dict[str, Any]]:
        return [msgspec.json.decode(body) for _, body in self.calls]


@contextmanager
def receiver() -> Iterator[Receiver]:
    described = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = described.answers.pop(0) if described.answers else 200
            described.calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self._answer(status, b"")

        def do_GET(self) -> None:
            file = described.files.get(self.path)
            self._answer(404 if file is None else 200, file or b"")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        described.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield described
        finally:
            server.shutdown()
            thread.join()
