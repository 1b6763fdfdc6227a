"""The server's process: launched, and ended together with its opener."""

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

# Starts the server beside a watcher that ends it when the opener dies by any means.
#
# The lifeline is the server's own, so that a line may tell the watcher that the opener stopped the
# server itself. $$ is the server's own process id, because exec keeps it. The lock comes in as
# standard output: POSIX shells name only the descriptors 0 to 9, and the watcher must not keep it.
_LAUNCH = f"""
exec 4<&0 </dev/null
{WATCHER.format("-INT $$")}
exec "$@" 3>&1 4<&- >/dev/null
"""

# Servers not yet stopped. A forgotten handle must not be collected: Python would then reap the
# server some day, and its watcher would aim at a process id that may have a new bearer.
_running: dict[int, ServerProcess] = {}


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The running server as its opener holds it."""

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
        # A fork of the opener carries a copy of this object, and the server is not its child.
        if os.getpid() != self.opener or _running.pop(self.pid, None) is not self:
            return
        close(self.presence)  # first, so that nobody attaches to a server about to stop
        self.child.send_signal(signal.SIGINT)
        # Before the wait: once it is reaped, its process id may belong to somebody else.
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
    (socket_dir / f"{SOCKET}.lock").unlink(missing_ok=True)  # it is ours, and nobody answers
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
            env=environment() | _pardon(layout.data),
            start_new_session=True,  # a Ctrl-C is for the opener, who then stops the server
            umask=0o077,
            user=account.user,
            group=account.group,
            extra_groups=account.extra_groups,
        )
        undo.pop_all()
    return _running.setdefault(child.pid, ServerProcess(child, lifeline, presence))


def recorded(data: Path) -> tuple[int, str]:
    """The process id and the status in the pid file: a claim, never proof; 0 when unreadable."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        return abs(int(lines[0])), "".join(lines[7:8]).strip()
    except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
        return 0, ""


def _pardon(data: Path) -> dict[str, str]:
    """Lets the server start over a left pid file whose process id is a zombie's or a stranger's.

    PostgreSQL passes over a pid file that names its grandparent. It still refuses while the shared
    memory recorded there is in use, which is the safeguard that deleting the file would remove.
    """
    pid, _ = recorded(data)
    if pid == 0:
        (data / "postmaster.pid").unlink(missing_ok=True)  # empty after a power cut
        return {}
    return {"PG_GRANDPARENT_PID": str(pid)}
