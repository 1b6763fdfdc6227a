"""run-command: runs an allowed program, and logs its output line by line while it runs.

There is no shell: arguments reach the program unchanged. Of the worker's environment it gets only PATH. It has its own
folder and its own process group; when the job or the worker ends, all processes of that group are killed.
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
from millpond.errors import InputError, PermanentError
from millpond.product import Folders
from millpond_products.actions import commands, once
from millpond_products.actions.lines import OutputBudget, OutputLogger, Pipe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Sequence

    from millpond.kinds import Handler
    from millpond.product import Engine
    from millpond_products.actions.inputs import RunCommand
    from millpond_products.settings import ProductSettings

TERM_SECONDS: Final = 2.0
"""Seconds between SIGTERM and SIGKILL."""
LINGER: Final = 1.0
"""Seconds for which other processes may keep the output open after the program has ended."""
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


async def check(engine: Engine, settings: ProductSettings, given: RunCommand) -> None:  # noqa: ARG001 - the signature of all checks
    """Refuse an input that could only fail."""
    commands.find(commands.read(settings.commands), given.command)
    _check(given)


def _check(given: RunCommand) -> None:
    for n, argument in enumerate(given.arguments):
        if "\0" in argument:
            raise InputError("The argument contains a NUL character.", field=f"input.arguments[{n}]")


def handler(settings: ProductSettings) -> Handler:
    """Parse the setting here, so that a worker with an invalid setting does not start."""
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
    budget = OutputBudget()
    is_late = False
    async with _started(words, given.stdin, folder) as (process, pipes, guard):
        outputs = [OutputLogger(job, *pipe) for pipe in ((pipes[0], budget, "info"), (pipes[1], budget, "error"))]
        try:
            async with asyncio.timeout(given.timeout_seconds):
                await once.watched(job, _until_over(process, guard, outputs))
        except TimeoutError:
            is_late = True
    return _result(given, process.returncode, outputs, _summary(process.returncode, budget), is_late=is_late)


@asynccontextmanager
async def _started(
    words: Sequence[str], stdin: str | None, folder: Path
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, list[Pipe], lifeline.Guard]]:
    """Start the program; yield its process, its two outputs, and the guard that kills it if the worker is gone.

    The program's process group is always killed at the end of the block.
    """
    with contextlib.ExitStack() as stack:
        guard = stack.enter_context(lifeline.Guard())
        ends = [os.pipe(), os.pipe()]
        readers = [await _reader(stack, read) for read, _ in ends]
        try:
            _check_program(words[0], folder)
            with _stdin(stdin) as source:
                process = await asyncio.create_subprocess_exec(
                    *guard.words(words),
                    stdin=source,
                    stdout=ends[0][1],
                    stderr=ends[1][1],
                    cwd=folder,
                    env=_environment(folder),
                    pass_fds=(guard.descriptor,),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
            raise PermanentError(f"The program {words[0]!r} cannot be started: {reason}.") from None
        finally:
            for _, write in ends:
                os.close(write)
        try:
            yield process, readers, guard
        finally:
            await _end(process)


def _check_program(name: str, folder: Path) -> None:
    """Look for the program as the guard's shell will: the shell would report a missing one only by its exit status."""
    place = str(folder / name) if os.sep in name else name
    if shutil.which(place, path=_environment(folder)["PATH"]) is None:
        number = errno.EACCES if Path(place).is_absolute() and Path(place).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number))


async def _reader(stack: contextlib.ExitStack, descriptor: int) -> Pipe:
    """Read a pipe in the event loop. It can be closed even if another process still has the other end open."""
    reader = Pipe(descriptor)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    stack.callback(transport.close)
    return reader


@contextlib.contextmanager
def _stdin(stdin: str | None) -> Generator[Any]:
    """The standard input of the program: a file, so that nothing has to be written while it runs."""
    if stdin is None:
        yield asyncio.subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(stdin.encode("utf-8", "replace"))
        file.seek(0)
        yield file


def _environment(folder: Path) -> dict[str, str]:
    """Only PATH is inherited, because the environment contains settings and secrets."""
    home = str(folder)
    return {"PATH": os.environ.get("PATH", _PATH), "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home}


async def _until_over(
    process: asyncio.subprocess.Process, guard: lifeline.Guard, outputs: Sequence[OutputLogger]
) -> None:
    """Wait until the program has ended and all of its output is logged.

    Processes that it has left behind may keep its output open. After :data:`LINGER` seconds, its process group is
    killed, and later output is ignored.
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
    """End the whole process group: SIGTERM, a moment to wait, and SIGKILL."""
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


def _summary(status: int | None, budget: OutputBudget) -> dict[str, Any]:
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


def _result(
    given: RunCommand, status: int | None, outputs: Sequence[OutputLogger], summary: dict[str, Any], *, is_late: bool
) -> dict[str, Any]:
    if status == 0 and not is_late:
        return summary
    last = outputs[1].last_lines or outputs[0].last_lines
    if is_late:
        message = f"The command ran longer than {given.timeout_seconds:g} s."
    elif summary["signal"] is not None:
        message = f"The command was ended by {summary['signal']}."
    else:
        message = f"The command ended with status {status}."
    raise PermanentError(message, **summary, lastLines=last)
