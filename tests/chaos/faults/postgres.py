"""A PostgreSQL server that the program stops, kills, freezes, fills up and demotes as it likes.

The embedded server is made for one opener that wants it to run; so only its cluster is used, and the server is started
here.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from millpond.store.embedded import open_embedded
from millpond.store.embedded.account import choose_account, environment
from millpond.store.embedded.binaries import find_binaries
from millpond.store.embedded.folder import Layout
from tests.children import descendants

_START_SECONDS = 120.0
_STOP_SECONDS = 120.0
_FILL_TRIES = 100
_SEGMENT = re.compile(r"/dev/shm/PostgreSQL\.\d+")  # noqa: S108 - that is where PostgreSQL has it


class Postgres:
    """The server of a folder, and its socket."""

    def __init__(self, root: Path, log: Path, *, is_durable: bool) -> None:
        self.folder = root
        self._log = log
        self._is_durable = is_durable
        with open_embedded(root):
            pass  # creates the cluster
        self._layout = Layout(root)
        self._account = choose_account(root, self._layout.data)
        self._program = find_binaries(self._account).folder / "postgres"
        self._child: subprocess.Popen[bytes] | None = None
        self.socket_dir = Path(os.path.realpath(self._layout.run))

    @property
    def dsn(self) -> str:
        return f"postgresql://millpond@/millpond?host={self.socket_dir}&port=5432"

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    async def start(self) -> None:
        await asyncio.to_thread(self._start)
        async with asyncio.timeout(_START_SECONDS):
            while not await asyncio.to_thread(self._answers):
                if not self.is_running:  # it ran out of disk again, or the one before was still ending
                    await asyncio.sleep(0.2)
                    await asyncio.to_thread(self._start)
                await asyncio.sleep(0.05)

    def _start(self) -> None:
        log = self._log.open("ab")
        with self._account.entrances(self._layout.data, self.socket_dir) as ((data, run), descriptors), log:
            settings = {"listen_addresses": "", "unix_socket_directories": run, "max_connections": "300"}
            if not self._is_durable:
                settings |= {"synchronous_commit": "off", "wal_writer_delay": "10s", "fsync": "off"}
            words = [f"{name}={value}" for name, value in settings.items()]
            self._child = subprocess.Popen(
                [self._program, "-D", data, *(part for word in words for part in ("-c", word))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=descriptors,
                cwd="/",
                env=environment(),
                umask=0o077,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
                start_new_session=True,
            )

    def _answers(self) -> bool:
        with suppress(Exception):
            import psycopg  # noqa: PLC0415 - of the tests alone

            with psycopg.connect(self.dsn, connect_timeout=2) as connection:
                connection.execute("select 1")
            return True
        return False

    def execute(self, *statements: str) -> None:
        import psycopg  # noqa: PLC0415 - of the tests alone

        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
            for statement in statements:
                connection.execute(statement)  # pyright: ignore[reportArgumentType, reportCallIssue] - our own text

    async def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: a fast shutdown. SIGQUIT: an immediate one. SIGKILL: all of its processes at once."""
        child = self._child
        if child is None:
            return
        segments = self.segments()
        if number == signal.SIGKILL:
            self._signal_all(number)
        elif child.poll() is None:
            child.send_signal(number)
        await asyncio.to_thread(child.wait, _STOP_SECONDS)
        for segment in segments:
            segment.unlink(missing_ok=True)

    def segments(self) -> list[Path]:
        """The shared memory that the server leaves behind if it is killed."""
        with suppress(OSError):
            maps = Path(f"/proc/{self._child.pid}/maps").read_text() if self._child is not None else ""
            return [Path(each) for each in set(_SEGMENT.findall(maps))]
        return []

    def kill_backend(self, dice: random.Random) -> None:
        """Kill one of its processes, for which PostgreSQL ends all others and recovers."""
        if self._child is not None and (found := descendants(self._child.pid)):
            with suppress(ProcessLookupError):
                os.kill(dice.choice(found).pid, signal.SIGKILL)

    def freeze(self) -> None:
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        if self._child is not None:
            for pid in [self._child.pid, *(each.pid for each in descendants(self._child.pid))]:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)

    async def demote(self) -> None:
        """Start again as a standby of nobody: it answers reads, and refuses to write."""
        await self.stop()
        signal_file = self._layout.data / "standby.signal"
        signal_file.touch()
        with suppress(PermissionError):
            os.chown(signal_file, self._account.uid, self._account.gid)
        await self.start()

    async def promote(self) -> None:
        await asyncio.to_thread(self.execute, "select pg_promote(true, 60)")


class SmallDisk:
    """A file system in memory, which can be made as small as what it holds; only root may have one."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._megabytes = megabytes
        folder.mkdir()
        self.is_own = os.geteuid() == 0 and self._mount(f"size={megabytes}m,mode=0755")

    def fill(self) -> None:
        """Leave no room."""
        for _ in range(_FILL_TRIES):
            if self._mount(f"remount,size={shutil.disk_usage(self.folder).used}"):  # refused if it has grown since
                return
        raise RuntimeError("the disk could not be filled")

    def empty(self) -> None:
        if not self._mount(f"remount,size={self._megabytes}m"):
            raise RuntimeError("the disk could not be emptied")

    def close(self) -> None:
        if self.is_own:
            subprocess.run(["umount", "-l", self.folder], check=False)

    def _mount(self, options: str) -> bool:
        words = ["mount", "-t", "tmpfs", "-o", options, "millpond", self.folder]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
