"""The server's process: started by its opener, and stopped when the opener ends."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millpond.lifeline import WATCHER
from millpond.store.embedded.account import Account, environment
from millpond.store.embedded.locks import close, hold, opened, unshare
from millpond.store.embedded.settings import flags
from millpond.store.embedded.wire import SOCKET

if TYPE_CHECKING:
    from pathlib import Path

    from millpond.store.embedded.binaries import Binaries
    from millpond.store.embedded.folder import Layout

_STOP_SECONDS = 20.0

# Starts the server, and a watcher that stops it when the opener is gone for whatever reason.
#
# The server has a pipe of its own as its lifeline, so that the opener can dismiss the watcher by writing a line when
# it stops the server itself. $$ is the process id of the server, because exec keeps it. The lock is passed as standard
# output, because POSIX shells can only name the descriptors 0 to 9; the watcher must not keep it.
_LAUNCH = f"""
exec 4<&0 </dev/null
{WATCHER.format("-INT $$")}
exec "$@" 3>&1 4<&- >/dev/null
"""

# Servers that are not stopped. Handles that the caller drops must not be garbage-collected: Python would reap the
# server when it ends, and its watcher would send the signal to a process id that may have been reused.
_running: dict[int, ServerProcess] = {}


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The running server, as a child process of its opener."""

    child: subprocess.Popen[bytes]
    lifeline: int
    presence: int
    opener: int = field(default_factory=os.getpid)

    @property
    def pid(self) -> int:
        return self.child.pid

    def is_alive(self) -> bool:
        return self.child.poll() is None

    def stop(self) -> None:
        # A fork of the opener has a copy of this object, but the server is not its child.
        if os.getpid() != self.opener or _running.pop(self.pid, None) is not self:
            return
        close(self.presence)  # first, so that no process attaches to a server that is about to stop
        self.child.send_signal(signal.SIGINT)
        # Before the wait: once the server is reaped, its process id may be reused.
        self._dismiss_watcher()
        try:
            self.child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.child.send_signal(signal.SIGQUIT)
            self.child.wait()

    def _dismiss_watcher(self) -> None:
        with suppress(BrokenPipeError):
            os.write(self.lifeline, b"\n")
        close(self.lifeline)


def launch(layout: Layout, account: Account, binaries: Binaries, socket_dir: Path, lock: int) -> ServerProcess:
    (socket_dir / f"{SOCKET}.lock").unlink(missing_ok=True)  # this process holds the lock, so no server uses it
    with ExitStack() as stack:
        (data, run), descriptors = stack.enter_context(account.entrances(layout.data, socket_dir))
        log = stack.enter_context(opened(layout.log.path))
        watched, lifeline = os.pipe()
        unshare(lifeline)
        stack.callback(os.close, watched)
        undo = stack.enter_context(ExitStack())
        undo.callback(close, lifeline)
        undo.callback(close, presence := hold(layout.opener))
        child = subprocess.Popen(
            ["/bin/sh", "-c", _LAUNCH, "sh", str(binaries.folder / "postgres"), "-D", data, *flags(data, run)],
            stdin=watched,
            stdout=lock,
            stderr=log,
            pass_fds=descriptors,
            cwd="/",
            env=environment() | _environment_for_stale_pid(layout.data),
            start_new_session=True,  # Ctrl-C must reach the opener alone, which then stops the server
            umask=0o077,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        undo.pop_all()
    return _running.setdefault(child.pid, ServerProcess(child, lifeline, presence))


def recorded(data: Path) -> tuple[int, str]:
    """The process id and the status in the pid file, which may be outdated; 0 if it cannot be read."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        return abs(int(lines[0])), "".join(lines[7:8]).strip()
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return 0, ""


def _environment_for_stale_pid(data: Path) -> dict[str, str]:
    """Let the server start if a stale pid file has the process id of a zombie or of another program.

    PostgreSQL ignores a pid file that contains the process id of its grandparent. It still refuses to start while the
    shared memory recorded there is in use; deleting the file would remove this safeguard.
    """
    pid, _ = recorded(data)
    if pid == 0:
        (data / "postmaster.pid").unlink(missing_ok=True)  # empty after a power cut
        return {}
    return {"PG_GRANDPARENT_PID": str(pid)}
