"""Ends a process when its parent is gone, for whatever reason.

The parent alone holds the writing end of a pipe, and its children inherit the reading end. Nothing is written: end of
file means that the parent is gone. Standard input is not used for this, because it is closed or empty if a shell or a
service manager starts Millpond. Neither is PR_SET_PDEATHSIG: it fires when the *thread* that started the process ends,
misses a parent that ends before the call of prctl, and exists on Linux only.

A program of Millpond calls :func:`stop_with_parent`. For any other program, a shell watches the pipe: see
:class:`Guard`.
"""

from __future__ import annotations

import os
import signal
import stat
import threading
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VARIABLE: Final = "_MILLPOND_LIFELINE"  # not a setting: set by a parent for its children
_SECONDS: Final = 60.0
"""The time for an orderly shutdown after the parent is gone: longer than the grace of running jobs."""

WATCHER: Final = "( ( trap '' HUP INT QUIT TERM; read -r _ <&4 || kill {} ) </dev/null >/dev/null 2>&1 & )"
"""Shell code that kills a process at the end of file of descriptor 4; after a line, it exits without doing so.

It forks twice, so that the program that replaces the shell has no unknown child process.
"""
_GUARD: Final = f"""
exec 4<"/dev/fd/$1"
shift
{WATCHER.format("-KILL 0")}
unset OLDPWD PWD SHLVL
exec "$@" 4<&-
"""

_reading: Final[list[int]] = []
"""The reading end of the pipe that all child programs of Millpond share."""
_writing: Final[set[int]] = set()
"""The writing ends: the children of a pipe end when its writing end is closed."""


# For the parent


def descriptor() -> int:
    """The descriptor that a process must inherit to end with this one."""
    if not _reading:
        reading, writing = os.pipe()
        _writing.add(writing)
        _reading.append(reading)  # two threads may add one each; all use the first
    return _reading[0]


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a program of Millpond that ends with this one; it must inherit the descriptor too."""
    return {**(os.environ if given is None else given), _VARIABLE: _name(descriptor())}


class Guard:
    """Watches this process for one other program, and kills the program's process group when this process is gone.

    The watcher is a member of the group: the group's id is not reused while it runs, and killing the group ends it
    too. It inherits the descriptors of the program and, if uvloop starts that, copies of its standard streams. So a
    caller that reads these to their end must dismiss the watcher when the program has ended.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        _writing.add(self._writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def words(self, words: Sequence[str]) -> list[str]:
        """The command line that starts the program. It must inherit the descriptor and start a new session."""
        return ["/bin/sh", "-c", _GUARD, "sh", str(self.descriptor), *words]

    def dismiss(self) -> None:
        writing, self._writing = self._writing, -1  # the number may be reused
        if writing in _writing:
            os.write(writing, b"\n")
            _writing.discard(writing)
            os.close(writing)
            os.close(self.descriptor)


def _name(end: int) -> str:
    """The descriptor and the inode of its pipe: a program in between may close the pipe and pass the variable on."""
    return f"{end}:{os.fstat(end).st_ino}"


def _forget() -> None:
    """Close the writing ends in a fork of this process: its copies would keep the children alive.

    The reading ends stay open: uvloop also calls this in a process that is about to execute a child program.
    """
    for writing in _writing:
        os.close(writing)
    _writing.clear()
    _reading.clear()


os.register_at_fork(after_in_child=_forget)


# For the child


def stop_with_parent() -> None:
    """Send this process a SIGTERM when its parent ends, if the parent asked for that, and SIGKILL a minute later."""
    name = os.environ.pop(_VARIABLE, "")
    end = _found(name)
    if end is not None:
        os.set_inheritable(end, False)  # noqa: FBT003 - positional only
        threading.Thread(target=_watch, args=(end,), name="lifeline", daemon=True).start()


def _found(name: str) -> int | None:
    try:
        end = int(name.partition(":")[0])
        is_it = stat.S_ISFIFO(os.fstat(end).st_mode) and _name(end) == name
    except (OSError, ValueError):
        return None
    return end if is_it else None


def _watch(end: int) -> None:
    os.read(end, 1)
    main = threading.main_thread().ident
    if main is not None:
        signal.pthread_kill(main, signal.SIGTERM)
    time.sleep(_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)
