"""run-command: a program of the operator's list, with its output as lines of the log while it writes.

There is no shell: arguments reach the program as they are. It sees nothing of our environment, has a folder of its own
and a process group of its own; when the job is over, or we are, whatever is left of that group is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millpond import lifeline
from millpond.blueprints.actions import commands, once
from millpond.blueprints.actions.lines import Budget, Output, Pipe
from millpond.engine.folders import Folders
from millpond.errors import InputError, PermanentError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from millpond.blueprints.actions.inputs import RunCommand
    from millpond.engine.engine import Engine
    from millpond.kinds import Handler
    from millpond.settings import Settings

TERM_SECONDS: Final = 2.0
"""How long a program has to end by itself once it must, before it is killed."""
LINGER: Final = 1.0
"""How long others may hold on to the output of a program that has ended."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


async def check(engine: Engine, settings: Settings, given: RunCommand) -> None:  # noqa: ARG001 - as all checks
    """Refuse at once what could only fail."""
    commands.find(commands.read(settings.commands), given.command)
    _check(given)


def _check(given: RunCommand) -> None:
    for n, argument in enumerate(given.arguments):
        if "\0" in argument:
            raise InputError("A program cannot be given a NUL.", field=f"input.arguments[{n}]")


def handler(settings: Settings) -> Handler:
    """The list is read here: what is wrong with it is told when a worker starts."""
    allowed = commands.read(settings.commands)
    folders = Folders("millpond-command-")

    async def run(job: Any, given: RunCommand) -> dict[str, Any]:
        words = commands.find(allowed, given.command)
        _check(given)
        await once.begin(job, "The command")
        async with folders.new() as folder:
            return await _run(job, [*words, *given.arguments], given, folder)

    return run


async def _run(job: Any, words: Sequence[str], given: RunCommand, folder: Path) -> dict[str, Any]:
    budget = Budget()
    is_late = False
    async with _started(words, given.stdin, folder) as (process, pipes, guard):
        outputs = [Output(job, *pipe) for pipe in ((pipes[0], budget, "info"), (pipes[1], budget, "error"))]
        try:
            async with asyncio.timeout(given.timeout_seconds):
                await once.watched(job, _until_over(process, guard, outputs))
        except TimeoutError:
            is_late = True
    return _judged(given, process.returncode, outputs, _told(process.returncode, budget), is_late=is_late)


@asynccontextmanager
async def _started(
    words: Sequence[str], stdin: str | None, folder: Path
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, list[Pipe], lifeline.Guard]]:
    """The program, its two outputs, and who ends it should we be gone.

    However the block is left, nothing of the program's group is left behind.
    """
    with contextlib.ExitStack() as stack:
        guard = stack.enter_context(lifeline.Guard())
        sides = [os.pipe(), os.pipe()]
        readers = [await _reader(stack, read) for read, _ in sides]
        try:
            _check_program(words[0], folder)
            with _given(stdin) as source:
                process = await asyncio.create_subprocess_exec(
                    *guard.words(words),
                    stdin=source,
                    stdout=sides[0][1],
                    stderr=sides[1][1],
                    cwd=folder,
                    env=_environment(folder),
                    pass_fds=(guard.descriptor,),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise PermanentError(f"The program {words[0]!r} cannot be started: {reason}.") from None
        finally:
            for _, write in sides:
                os.close(write)
        try:
            yield process, readers, guard
        finally:
            await _end(process)


def _check_program(name: str, folder: Path) -> None:
    """Look for it as it will be looked for: the shell that guards it would only tell by a status of its own."""
    place = str(folder / name) if os.sep in name else name
    if shutil.which(place, path=_environment(folder)["PATH"]) is None:
        number = errno.EACCES if Path(place).is_absolute() and Path(place).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number))


async def _reader(stack: contextlib.ExitStack, side: int) -> Pipe:
    """A pipe of our own: it can be let go of, whoever else still holds its other end."""
    reader = Pipe(side)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(side, "rb", buffering=0)
    )
    stack.callback(transport.close)
    return reader


@contextlib.contextmanager
def _given(stdin: str | None) -> Generator[Any]:
    """What the program reads: a file, so that nobody need feed it."""
    if stdin is None:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode("utf-8", "replace"))
        file.seek(0)
        yield file


def _environment(folder: Path) -> dict[str, str]:
    """Nothing of ours but where programs are: settings and secrets stand in the rest."""
    home = str(folder)
    return {"PATH": os.environ.get("PATH", _PATH), "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home}


async def _until_over(process: asyncio.subprocess.Process, guard: lifeline.Guard, outputs: Sequence[Output]) -> None:
    """Until the program has ended and all of its output is told, however long that takes.

    What it has started and left behind may hold on to its output: not for long.
    """
    reading = asyncio.gather(*(output.run() for output in outputs))
    ended = asyncio.ensure_future(process.wait())
    try:
        await asyncio.wait([reading, ended], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
        await ended
        guard.dismiss()
        await asyncio.wait([reading], timeout=LINGER)
        if not reading.done():
            _signal(process.pid, signal.SIGKILL)
            for output in outputs:
                output.end()
        await reading
    finally:
        for task in (reading, ended):
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the whole group: ask, wait a moment, and kill."""
    try:
        if process.returncode is None:
            _signal(process.pid, signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TERM_SECONDS):
                    await process.wait()
    finally:
        _signal(process.pid, signal.SIGKILL)
    await process.wait()


def _signal(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _told(status: int | None, budget: Budget) -> dict[str, Any]:
    is_signal = status is not None and status < 0
    return {
        "exitStatus": None if is_signal else status,
        "signal": _signal_name(-status) if status is not None and is_signal else None,
        "droppedLines": budget.dropped_lines,
        "droppedBytes": budget.dropped_bytes,
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _judged(
    given: RunCommand, status: int | None, outputs: Sequence[Output], told: dict[str, Any], *, is_late: bool
) -> dict[str, Any]:
    if status == 0 and not is_late:
        return told
    last = outputs[1].last_lines or outputs[0].last_lines
    if is_late:
        message = f"The command ran longer than {given.timeout_seconds:g} s."
    elif told["signal"] is not None:
        message = f"The command was ended by {told['signal']}."
    else:
        message = f"The command ended with status {status}."
    raise PermanentError(message, **told, lastLines=last)
