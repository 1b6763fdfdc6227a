"""A full deployment: two API servers, a file server, workers on the database and workers over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.acceptance.processes import free_port
from tests.chaos.faults.wires import Wire
from tests.children import descendants, start

if TYPE_CHECKING:
    from tests.chaos.faults.postgres import Postgres

APP = Path(__file__).with_name("app.py")
SKEW = Path(__file__).with_name("skew")
_SECONDS = {"LEASE": 3, "HEARTBEAT": 1, "FLEET_LEASE": 4, "FLEET_HEARTBEAT": 1, "WORKER_SILENCE": 3, "GRACE": 2}
_START_SECONDS = 120.0


@dataclass(slots=True)
class Program:
    """A process that is started again whenever it has ended; its output is a pipe that somebody must read."""

    name: str
    words: list[str]
    env: dict[str, str]
    log: Path
    starts: int = 0
    process: subprocess.Popen[bytes] | None = None
    is_read: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    async def keep(self) -> None:
        if self.is_running:
            return
        await self._end_reading()
        self.starts += 1
        self.process = start(
            self.words, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reading = asyncio.create_task(self._read(self.process))

    async def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        try:
            with self.log.open("ab") as log:
                while data := await reader.read(1 << 16):
                    log.write(data)
                    log.flush()
                    await self.is_read.wait()
        finally:
            transport.close()

    async def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and all that it has started."""
        if self.process is not None and self.process.poll() is None:
            for pid in [self.process.pid, *(each.pid for each in descendants(self.process.pid))]:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    async def close(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            await asyncio.to_thread(self.process.wait)
        await self._end_reading()


@dataclass(slots=True)
class Deployment:
    """The processes, the wires between them, and the file that sets their clocks."""

    folder: Path
    postgres: Postgres
    encryption_key: str
    programs: dict[str, Program] = field(default_factory=dict)
    ports: list[int] = field(default_factory=list)
    to_database: Wire | None = None
    to_server: Wire | None = None

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    @property
    def wires(self) -> list[Wire]:
        return [wire for wire in (self.to_database, self.to_server) if wire is not None]

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    async def start(self, fleet_secret: str) -> None:
        sockets = self.folder / "sockets"
        sockets.mkdir()
        self.to_database = await Wire.to_socket(self.postgres.socket_dir / ".s.PGSQL.5432", sockets / ".s.PGSQL.5432")
        dsn = f"postgresql://millpond@/millpond?host={sockets}&port=5432"
        files_port, *self.ports = (free_port() for _ in range(3))
        self.to_server = await Wire.to_port(self.ports[0])
        env = self._environment(dsn, f"http://127.0.0.1:{files_port}")
        serve = [sys.executable, "-m", "millpond", "serve"]
        self._add("files", [*serve, "--role", "files", "--port", str(files_port)], env)
        for number, port in enumerate(self.ports, 1):
            words = [*serve, str(APP), "--role", "api,services", "--port", str(port)]
            self._add(f"api-{number}", words, env)
        for number in (1, 2):
            words = [
                sys.executable,
                "-m",
                "millpond",
                "worker",
                str(APP),
                "--slots",
                "8",
                "--name",
                f"database-{number}",
            ]
            self._add(f"database-worker-{number}", words, env)
        remote = env | {"MILLPOND_FLEET_SECRET": fleet_secret}
        for number in (1, 2):
            words = [sys.executable, "-m", "millpond.worker", str(APP), "--name", f"fleet-{number}"]
            self._add(f"fleet-worker-{number}", [*words, "--url", f"http://127.0.0.1:{self.to_server.port}"], remote)
        await self.keep()

    def _environment(self, dsn: str, files_url: str) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "DATABASE_"))
        }
        seconds = {f"MILLPOND_{name}": f"{value}s" for name, value in _SECONDS.items()}
        return (
            inherited
            | seconds
            | {
                "FAULTS_CLOCK": str(self.clock),
                "MILLPOND_DATABASE_URL": dsn,
                "MILLPOND_DATA_DIR": str(self.folder / "unused"),
                "MILLPOND_ENCRYPTION_KEY": self.encryption_key,
                "MILLPOND_FILES_URL": files_url,
                "MILLPOND_FLEET_MAX": "1000",
                "MILLPOND_LOG_FORMAT": "json",
                "MILLPOND_OUTBOUND_ALLOW": "loopback",
                "MILLPOND_RATE_LIMIT": "100000",
                "MILLPOND_STORAGE": str(self.folder / "files"),
                "PYTHONPATH": os.pathsep.join(filter(None, [str(SKEW), os.environ.get("PYTHONPATH")])),
            }
        )

    def _add(self, name: str, words: list[str], env: dict[str, str]) -> None:
        made = Program(name, words, env, self.folder / f"{name}.log")
        made.is_read.set()
        self.programs[name] = made

    async def keep(self) -> None:
        """As a supervisor does: what has ended is started again."""
        for program in self.programs.values():
            await program.keep()

    async def heal(self) -> None:
        """Everything runs, everything passes, and all clocks are right."""
        self.clock.write_text("")
        for wire in self.wires:
            wire.heal()
        for program in self.programs.values():
            program.is_read.set()
            program.signal(signal.SIGCONT)
        await self.keep()

    async def close(self) -> None:
        for program in self.programs.values():
            await program.close()
        for wire in self.wires:
            await wire.close()

    def trace(self, lines: int = 5) -> dict[str, Any]:
        """The last words of each program, for a report."""
        found: dict[str, Any] = {}
        for name, program in self.programs.items():
            text = program.log.read_text("utf-8", "replace") if program.log.exists() else ""
            found[name] = {"starts": program.starts, "log": text.splitlines()[-lines:]}
        return json.loads(json.dumps(found))
