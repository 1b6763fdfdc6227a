"""A process ends when the one that started it is gone, whatever ended that.

The starter holds the writing end of a pipe, and nobody else does; whom it starts, it gives the reading end. Nothing is
ever written: the end of the file means that the starter is gone. That is not asked of standard input, which is closed
or empty where a shell or a service manager starts us. And not by PR_SET_PDEATHSIG: that fires when the *thread* that
started the process ends, is lost in the moment before prctl, and is Linux only.

A program of ours :func:`heeds <heed>` the lifeline that it is given. Beside any other program a shell does so,
see :class:`Guard`.
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

_VARIABLE: Final = "_MILLPOND_LIFELINE"  # not a setting: between a process and the one that it starts
_SECONDS: Final = 60.0
"""How long a process whose starter is gone may take to end in order: longer than the grace of running jobs."""

WATCHER: Final = "( ( trap '' HUP INT QUIT TERM; read -r _ <&4 || kill {} ) </dev/null >/dev/null 2>&1 & )"
"""Shell that kills what it is told to at the end of descriptor 4; a line means that there is no need any more.

It is forked twice, so that what the shell becomes has no child it does not know.
"""
_GUARD: Final = f"""
exec 4<"/dev/fd/$1"
shift
{WATCHER.format("-KILL 0")}
unset OLDPWD PWD SHLVL
exec "$@" 4<&-
"""

_reading: Final[list[int]] = []
"""Of the pipe that all programs of ours share."""
_writing: Final[set[int]] = set()
"""What keeps others alive."""


# Who starts others


def descriptor() -> int:
    """What a process that is to end with this one inherits."""
    if not _reading:
        reading, writing = os.pipe()
        _writing.add(writing)
        _reading.append(reading)  # two threads at once add two; all use the first
    return _reading[0]


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a program of ours that is to end with this one; it must inherit the descriptor too."""
    return {**(os.environ if given is None else given), _VARIABLE: _name(descriptor())}


class Guard:
    """Beside one program that knows nothing of this: kills what is left of its group when we are gone.

    The watcher is one of the group, so that nobody else bears the group's number while it lives, and who kills the
    group ends it too. It inherits what the program does, and where uvloop starts that, copies of its standard streams
    as well: who reads those to their end dismisses the watcher when the program has ended.
    """

    def __init__(self) -> None:
        self.descriptor, self._writing = os.pipe()
        _writing.add(self._writing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()

    def words(self, words: Sequence[str]) -> list[str]:
        """The command line that starts the program; it must inherit the descriptor and lead a session."""
        return ["/bin/sh", "-c", _GUARD, "sh", str(self.descriptor), *words]

    def dismiss(self) -> None:
        writing, self._writing = self._writing, -1  # the number may soon be another's
        if writing in _writing:
            os.write(writing, b"\n")
            _writing.discard(writing)
            os.close(writing)
            os.close(self.descriptor)


def _name(end: int) -> str:
    """Which descriptor it is, and of which pipe: a program between us may close it and pass on the name."""
    return f"{end}:{os.fstat(end).st_ino}"


def _forget() -> None:
    """A fork is not the process that the others were started by: its copy would keep them alive.

    The reading ends stay: uvloop calls this in a process that is about to become one of the others.
    """
    for writing in _writing:
        os.close(writing)
    _writing.clear()
    _reading.clear()


os.register_at_fork(after_in_child=_forget)


# Who is started


def heed() -> None:
    """From now on, the end of who started us counts as a SIGTERM, if he asked for it. Not to be ignored for long."""
    name = os.environ.pop(_VARIABLE, "")
    end = _found(name)
    if end is not None:
        os.set_inheritable(end, False)  # noqa: FBT003 - as the library has it
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
