"""A double of EC2's instance metadata service, version 2: tokens, the paths that a worker reads, and what is not there.

It speaks as the real one does: a token is made by PUT with a lifetime and must be shown, a forwarded request is
refused, what does not exist is 404, and every answer carries the time of its own clock. A test announces things on the
object; a process (``python -m tests.doubles.ec2_metadata --port N``) is told over ``PUT /control/NAME``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SPOT = "meta-data/spot/instance-action"
REBALANCE = "meta-data/events/recommendations/rebalance"
TARGET_STATE = "meta-data/autoscaling/target-lifecycle-state"
DOCUMENT = "dynamic/instance-identity/document"
SIGNATURE = "dynamic/instance-identity/signature"
TOKEN_SECONDS_MAX = 21_600


@dataclass
class Machine:
    """An instance, as its metadata tells of it. Its clock may be off from ours."""

    instance_id: str = "i-0123456789abcdef0"
    region: str = "eu-central-1"
    clock_offset: timedelta = timedelta(0)
    files: dict[str, str] = field(default_factory=dict[str, str])
    tokens: dict[str, float] = field(default_factory=dict[str, float])
    asked: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    faults: list[int] = field(default_factory=list[int])
    """The next answers are these errors."""
    redirect_to: str | None = None

    def __post_init__(self) -> None:
        self.files |= {
            "meta-data/instance-id": self.instance_id,
            "meta-data/instance-life-cycle": "spot",
            "meta-data/instance-type": "g5.xlarge",
            "meta-data/placement/availability-zone": f"{self.region}a",
            "meta-data/placement/region": self.region,
            TARGET_STATE: "InService",
        }

    def now(self) -> datetime:
        return datetime.now(UTC) + self.clock_offset

    def interrupt(self, action: str = "terminate", seconds: float = 120.0) -> None:
        at = (self.now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.files[SPOT] = json.dumps({"action": action, "time": at})

    def advise_to_leave(self) -> None:
        self.files[REBALANCE] = json.dumps({"noticeTime": self.now().strftime("%Y-%m-%dT%H:%M:%SZ")})

    def scale_in(self) -> None:
        self.files[TARGET_STATE] = "Terminated"

    def forget_tokens(self) -> None:
        self.tokens.clear()

    def control(self, name: str, expected: dict[str, Any]) -> None:
        match name:
            case "interrupt":
                self.interrupt(**expected)
            case "rebalance":
                self.advise_to_leave()
            case "scale-in":
                self.scale_in()
            case _:
                self.files[expected["path"]] = expected["text"]

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, str]:
        self.asked.append((method, path))
        if self.faults:
            return self.faults.pop(0), ""
        if headers.get("X-Forwarded-For"):
            return 403, ""
        if (method, path) == ("PUT", "/latest/api/token"):
            return self._token(headers.get("X-aws-ec2-metadata-token-ttl-seconds", ""))
        token = headers.get("Authorization") or headers.get("X-aws-ec2-metadata-token", "")  # the former to containers
        if self.tokens.get(token, 0.0) < time.monotonic():
            return 401, ""
        found = self.files.get(path.removeprefix("/latest/"))
        return (404, "") if found is None else (200, found)

    def _token(self, seconds: str) -> tuple[int, str]:
        if not seconds.isdigit() or not 1 <= int(seconds) <= TOKEN_SECONDS_MAX:
            return 400, ""
        token = secrets.token_urlsafe(40) + "=="
        self.tokens[token] = time.monotonic() + int(seconds)
        return 200, token


@contextlib.contextmanager
def served(machine: Machine, port: int = 0) -> Iterator[str]:
    """The address at which the machine's metadata is."""
    server = make_server(machine, port)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_server(machine: Machine, port: int = 0) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        server_version = "EC2ws"
        sys_version = ""

        def do_GET(self) -> None:
            self._reply(*machine.answer("GET", self.path, self.headers))

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path.startswith("/control/"):
                machine.control(self.path.removeprefix("/control/"), json.loads(body or b"{}"))
                self._reply(204, "")
            else:
                self._reply(*machine.answer("PUT", self.path, self.headers))

        def _reply(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            if machine.redirect_to:
                self.send_header("Location", machine.redirect_to)
            self.end_headers()
            self.wfile.write(body)

        def date_time_string(self, timestamp: float | None = None) -> str:  # noqa: ARG002 - the library's
            return format_datetime(machine.now(), usegmt=True)

        def log_message(self, format: str, *args: Any) -> None: ...  # noqa: A002 - as above

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    return server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--instance-id", default="i-0123456789abcdef0")
    given = parser.parse_args()
    server = make_server(Machine(given.instance_id), given.port)
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)  # noqa: T201 - for whoever started it
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
