"""Git: runs the program in confinement.

Repositories are untrusted, and git has many entry points: hooks, filters, helpers, protocols, the configuration of the
machine. All of them are disabled. Its network traffic goes through a proxy in this process, and with that through the
outbound guard. Its resources are limited, and all processes that it starts end with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millpond import values
from millpond.errors import PermanentError, TransientError

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from millpond.product import Proxy

    _Take = Callable[[bytes], Awaitable[None]]

SIZE_MAX: Final = 200 * 1024 * 1024
"""Bytes that a repository may send."""
SECONDS_MAX: Final = 120.0
"""How long a clone may take."""
_SECONDS: Final = 30.0
_OUTPUT_MAX: Final = 16 * 1024 * 1024
_STDERR_MAX: Final = 4_096
_PIECE: Final = 64 * 1024
_CPU_SECONDS: Final = 90
_FILE_BLOCKS: Final = 2 * SIZE_MAX // 512
_MEMORY_KIB: Final = 1024 * 1024
# The limits also apply to all processes that git starts. Not every system can limit memory.
_BOUNDED: Final = 'ulimit -c 0; ulimit -t "$1"; ulimit -f "$2"; ulimit -v "$3" 2>/dev/null || true; shift 3; exec "$@"'
_CONFIG: Final = {
    "core.bigFileThreshold": "1m",  # larger files are streamed, never held in memory
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # one pack rather than a file for each object
    "gc.auto": "0",
    "http.followRedirects": "initial",
    "http.proxyAuthMethod": "basic",
    "init.defaultBranch": "main",
    "maintenance.auto": "false",
    "pack.threads": "1",
    "receive.shallowUpdate": "true",
    "submodule.recurse": "false",
    "transfer.bundleURI": "false",
}
_TRUST: Final = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""The machine decides which certificates to trust; nothing else of its environment is passed on."""


class GitError(Exception):
    """A command of git failed; ``stderr`` is what it printed."""

    def __init__(self, stderr: str) -> None:
        super().__init__(stderr)
        self.stderr = stderr


@dataclass(frozen=True, slots=True)
class GitOutput:
    """What git printed to its standard output."""

    output: bytes
    is_cut: bool
    """There was more than the limit."""

    @property
    def line(self) -> str:
        return self.output.decode("utf-8", "replace").strip()


class Git:
    """Git for one bare repository, in a folder of its own."""

    def __init__(self, folder: Path, proxy: Proxy | None = None) -> None:
        found = shutil.which("git")
        if found is None:
            raise PermanentError("git is not installed on the worker.", hint="Install git on the worker machines.")
        self._program = found
        self._proxy = proxy
        self.folder = folder
        self.repository = folder / "repository.git"

    async def run(
        self,
        *words: str,
        given: bytes = b"",
        more: Mapping[str, str] | None = None,
        protocols: str = "",
        seconds: float = _SECONDS,
        output_max: int = _OUTPUT_MAX,
        take: _Take | None = None,
    ) -> GitOutput:
        """Run one command to its end. It may use only the given ``protocols``; by default, none.

        A command that prints more than ``output_max`` is stopped. After ``seconds``, :class:`TimeoutError` is raised.
        The output is passed to ``take`` as it arrives, or else returned.
        """
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", _BOUNDED, "sh", str(_CPU_SECONDS), str(_FILE_BLOCKS), str(_MEMORY_KIB)),
            *(self._program, *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(protocols) | dict(more or {}),
            cwd=self.folder,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(seconds):
                output, stderr = await _exchanged(process, given, output_max, take)
                status = 0 if output.is_cut else await process.wait()
        finally:
            await _end(process)
        if status:
            raise GitError(self._plain(stderr))
        return output

    def _environment(self, protocols: str) -> dict[str, str]:
        config = _CONFIG | ({} if self._proxy is None else {"http.proxy": self._proxy.url})
        environment = {
            "GIT_ALLOW_PROTOCOL": protocols or "none",
            "GIT_ASKPASS": "",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": str(len(config)),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_DIR": str(self.repository),
            "GIT_TERMINAL_PROMPT": "0",
            "HOME": str(self.folder),
            "LC_ALL": "C",
            "PATH": os.environ.get("PATH", os.defpath),
            "SSH_ASKPASS": "",
            "TZ": "UTC",
        }
        for number, (name, value) in enumerate(config.items()):
            environment[f"GIT_CONFIG_KEY_{number}"], environment[f"GIT_CONFIG_VALUE_{number}"] = name, value
        return environment | {name: os.environ[name] for name in _TRUST if name in os.environ}

    def _plain(self, stderr: bytes) -> str:
        """What git printed, without the path of the folder and the password of the proxy."""
        text = stderr.decode("utf-8", "replace").replace(str(self.folder), "…")
        return values.printable(text if self._proxy is None else self._proxy.hide(text), _STDERR_MAX).strip()


async def _exchanged(process: Process, given: bytes, limit: int, take: _Take | None) -> tuple[GitOutput, bytes]:
    """Write the input and read the output concurrently: otherwise each side could wait for the other forever."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise TransientError("Git was started without its pipes.")
    writing = asyncio.ensure_future(_write(process.stdin, given))
    reading = asyncio.ensure_future(_last(process.stderr))
    try:
        output = await _first(process.stdout, limit, take)
        if output.is_cut:
            return output, b""
        await writing
        return output, await reading
    finally:
        for task in (writing, reading):
            task.cancel()
        await asyncio.gather(writing, reading, return_exceptions=True)


async def _write(stream: asyncio.StreamWriter, given: bytes) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # git may end before it has read all; uvloop raises the latter
        stream.write(given)
        await stream.drain()
        stream.close()


async def _first(stream: asyncio.StreamReader, limit: int, take: _Take | None) -> GitOutput:
    content, size = bytearray(), 0
    while piece := await stream.read(_PIECE):
        size += len(piece)
        piece = piece[: len(piece) - max(0, size - limit)]
        if take is None:
            content += piece
        else:
            await take(piece)
        if size > limit:
            break
    return GitOutput(bytes(content), is_cut=size > limit)


async def _last(stream: asyncio.StreamReader) -> bytes:
    content = b""
    while piece := await stream.read(_PIECE):
        content = (content + piece)[-_STDERR_MAX:]
    return content


async def _end(process: Process) -> None:
    """Kill the process and all that it has started. It only ends once its pipes are empty, so they are drained."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_PIECE):
            pass
    await process.wait()
