"""A real S3 server on this machine: SeaweedFS from its wheel, on free ports, for one run of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from millpond.storage.s3 import S3
from millpond.storage.sigv4 import SigningKeys
from tests.children import running_other
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "artifacts"
KEYS = SigningKeys("testkey", "testsecret")
_MINUTE = timedelta(minutes=1)
_PORTS = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")
_OFF = ("-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0", "-s3.port.lance=0")


@dataclass(frozen=True, slots=True)
class SeaweedFS:
    """A server that runs."""

    endpoint: str

    def store(self, prefix: str = "", **options: object) -> S3:
        given = {"endpoint": self.endpoint, "keys": KEYS} | options
        return S3(BUCKET, prefix, **given)  # pyright: ignore[reportArgumentType]

    def url(self, prefix: str = "") -> str:
        """As the settings name it."""
        return f"s3://{BUCKET}/{prefix}?endpoint={self.endpoint}"


@contextmanager
def running_seaweedfs() -> Iterator[SeaweedFS]:
    folder = Path(tempfile.mkdtemp(prefix="millpond-seaweedfs-"))
    ports = free_ports(2 * len(_PORTS))
    words = [f"-{name}={ports.pop()}" for name in (*_PORTS, *(f"{name}.grpc" for name in _PORTS))]
    port = next(word.partition("=")[2] for word in words if word.startswith("-s3.port="))
    command = [
        str(Path(sys.executable).with_name("weed")),
        "mini",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-bucket={BUCKET}",
        f"-filer.localSocket={folder}/filer.sock",
        f"-s3.localSocket={folder}/s3.sock",
        *words,
        *_OFF,
    ]
    environment = os.environ | {"AWS_ACCESS_KEY_ID": KEYS.access_key, "AWS_SECRET_ACCESS_KEY": KEYS.secret_key}
    try:
        with (
            (folder / "log").open("wb") as log,
            running_other(command, cwd=folder, env=environment, stdout=log, stderr=log) as process,
        ):
            seaweedfs = SeaweedFS(f"http://127.0.0.1:{port}")
            _until_ready(seaweedfs, process, folder / "log")
            yield seaweedfs
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Ports that are free at this moment; all are taken at once, so that none comes twice."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in socks]


def _until_ready(seaweedfs: SeaweedFS, process: subprocess.Popen[bytes], log: Path) -> None:
    """It serves once the bucket is there and takes a file."""
    store = seaweedfs.store()
    deadline = time.monotonic() + PATIENCE
    while True:
        assert process.poll() is None, log.read_text("utf-8")[-2000:]
        assert time.monotonic() < deadline, log.read_text("utf-8")[-2000:]
        try:
            signed = store.sign_put("ready", lifetime=_MINUTE, content_type="text/plain", size=2)
            if httpx2.put(signed.url, content=b"ok", headers=signed.headers).status_code == 200:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.05)
