"""A full deployment: two API servers, a file server, workers on the database and workers over HTTP."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from tests.acceptance.processes import free_port
from tests.chaos.faults.wires import Wire
from tests.children import descendants, start

if TYPE_CHECKING:
    from tests.chaos.faults.postgres import Postgres, SmallDisk

APP = Path(__file__).with_name("app.py")
SKEW = Path(__file__).with_name("skew")
PIPE_BYTES = 4_096
_SECONDS = {"LEASE": 3, "HEARTBEAT": 1, "FLEET_LEASE": 4, "FLEET_HEARTBEAT": 1, "WORKER_SILENCE": 3, "GRACE": 2}


@dataclass(slots=True)
class Program:
    """A process that is started again whenever it has ended; its output is a small pipe that somebody must read."""

    name: str
    words: list[str]
    env: dict[str, str]
    folder: Path
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    _reading: asyncio.ReadTransport | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def clock(self) -> Path:
        """By how many seconds its clock is off."""
        return self.folder / f"{self.name}.clock"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pids(self) -> list[int]:
        """The process and all that it has started."""
        if self.process is None or not self.is_running:
            return []
        return [self.process.pid, *(each.pid for each in descendants(self.process.pid))]

    async def keep(self) -> None:
        if self.is_running:
            return
        self._end_reading()
        self.starts += 1
        env = self.env | {"FAULTS_CLOCK": str(self.clock)}
        self.process = start(
            self.words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        fcntl.fcntl(self.process.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._reading, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: _LogWriter(self.log), self.process.stdout
        )

    def stop_reading(self) -> None:
        assert self._reading is not None
        self._reading.pause_reading()

    def go_on_reading(self) -> None:
        if self._reading is not None:
            self._reading.resume_reading()

    def unread_bytes(self) -> int:
        """How much of its output is in the pipe."""
        assert self.process is not None
        assert self.process.stdout is not None
        return int.from_bytes(fcntl.ioctl(self.process.stdout, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)
        self._end_reading()


class _LogWriter(asyncio.Protocol):
    """Keeps what a program prints."""

    def __init__(self, log: Path) -> None:
        self._file = log.open("ab", buffering=0)

    def data_received(self, data: bytes) -> None:
        self._file.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as in the protocol
        self._file.close()


@dataclass(slots=True)
class Deployment:
    """The processes, the wires between them, and the disks that they fill."""

    folder: Path
    postgres: Postgres
    encryption_key: str
    disk: SmallDisk
    """Of the database."""
    storage: SmallDisk
    programs: dict[str, Program] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    files_url: str = ""
    to_database: Wire | None = None
    to_server: Wire | None = None

    @property
    def wires(self) -> list[Wire]:
        return [wire for wire in (self.to_database, self.to_server) if wire is not None]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def health_urls(self) -> list[str]:
        return [f"{self.files_url}/healthz", *(f"{url}/readyz" for url in self.urls)]

    async def start(self, fleet_secret: str) -> None:
        sockets = self.folder / "sockets"
        sockets.mkdir()
        self.to_database = await Wire.to_socket(self.postgres.socket_dir / ".s.PGSQL.5432", sockets / ".s.PGSQL.5432")
        dsn = f"postgresql://millpond@/millpond?host={sockets}&port=5432"
        files_port, *self.ports = (free_port() for _ in range(3))
        self.files_url = f"http://127.0.0.1:{files_port}"
        self.to_server = await Wire.to_port(self.ports[0])
        env = self._environment(dsn)
        serve = [sys.executable, "-m", "millpond", "serve"]
        self._add("files", [*serve, "--role", "files", "--port", str(files_port)], env)
        for number, port in enumerate(self.ports, 1):
            words = [*serve, str(APP), "--role", "api,services", "--port", str(port)]
            self._add(f"api-{number}", words, env)
        for number in (1, 2):
            words = [sys.executable, "-m", "millpond", "worker", str(APP), "--slots", "8"]
            self._add(f"database-worker-{number}", [*words, "--name", f"database-{number}"], env)
        remote = env | {"MILLPOND_FLEET_SECRET": fleet_secret}
        for number in (1, 2):
            words = [sys.executable, "-m", "millpond.worker", str(APP), "--name", f"fleet-{number}"]
            self._add(f"fleet-worker-{number}", [*words, "--url", f"http://127.0.0.1:{self.to_server.port}"], remote)
        await self.keep()

    def _environment(self, dsn: str) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "DATABASE_"))
        }
        seconds = {f"MILLPOND_{name}": f"{value}s" for name, value in _SECONDS.items()}
        return (
            inherited
            | seconds
            | {
                "MILLPOND_DATABASE_URL": dsn,
                "MILLPOND_DATA_DIR": str(self.folder / "unused"),
                "MILLPOND_ENCRYPTION_KEY": self.encryption_key,
                "MILLPOND_FILES_URL": self.files_url,
                "MILLPOND_FLEET_MAX": "1000",
                "MILLPOND_LOG_FORMAT": "json",
                "MILLPOND_LOG_LEVEL": "debug",
                "MILLPOND_OUTBOUND_ALLOW": "loopback",
                "MILLPOND_RATE_LIMIT": "100000",
                "MILLPOND_STORAGE": str(self.storage.folder / "files"),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(SKEW), os.environ.get("PYTHONPATH")])),
            }
        )

    def _add(self, name: str, words: list[str], env: dict[str, str]) -> None:
        self.programs[name] = Program(name, words, env, self.folder)

    async def keep(self) -> None:
        """As a supervisor does: what has ended is started again."""
        for program in self.programs.values():
            await program.keep()

    async def heal(self) -> None:
        """Everything runs, everything passes, and all clocks are right."""
        for wire in self.wires:
            wire.heal()
        for program in self.programs.values():
            program.clock.write_text("0")
            program.go_on_reading()
            program.signal(signal.SIGCONT)
        await self.keep()

    async def close(self) -> None:
        for program in self.programs.values():
            await program.close()
        for wire in self.wires:
            await wire.close()


async def until_ready(http: httpx2.AsyncClient, url: str) -> None:
    """Wait until a server says that it is well."""
    while True:
        with suppress(httpx2.TransportError):
            if (await http.get(url)).status_code == 200:
                return
        await asyncio.sleep(0.1)
