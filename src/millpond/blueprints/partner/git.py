"""Git: the program of that name, kept on a short lead.

A repository is somebody else's, and git has many doors: hooks, filters, helpers, protocols, the settings of the
machine. All are shut. What it asks of the network goes through a proxy of ours, and with that through the outbound
guard; what it may use of the machine is bounded, and whatever it has started ends with it.
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

    from millpond.outbound.proxy import Proxy

    _Take = Callable[[bytes], Awaitable[None]]

SIZE_MAX: Final = 200 * 1024 * 1024
"""Bytes that a repository may send."""
SECONDS_MAX: Final = 120.0
"""How long a clone may take."""
_SECONDS: Final = 30.0
_OUTPUT_MAX: Final = 16 * 1024 * 1024
_SAID_MAX: Final = 4_096
_PIECE: Final = 64 * 1024
_CPU_SECONDS: Final = 90
_FILE_BLOCKS: Final = 2 * SIZE_MAX // 512
_MEMORY_KIB: Final = 1024 * 1024
# What `exec` starts is bounded from its first step on, and so is all that it starts. Not every system bounds memory.
_BOUNDED: Final = 'ulimit -c 0; ulimit -t "$1"; ulimit -f "$2"; ulimit -v "$3" 2>/dev/null || true; shift 3; exec "$@"'
_CONFIG: Final = {
    "core.bigFileThreshold": "1m",  # what is larger is passed through, never held whole
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
"""Which certificates are good is the machine's to say; nothing else of its environment is passed on."""


class GitError(Exception):
    """Git did not do it; ``said`` is what it told."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


@dataclass(frozen=True, slots=True)
class Told:
    """What git printed."""

    output: bytes
    is_cut: bool
    """There was more than was asked for."""

    @property
    def line(self) -> str:
        return self.output.decode("utf-8", "replace").strip()


class Git:
    """Git for one bare repository, in a folder that is there for it alone."""

    def __init__(self, folder: Path, proxy: Proxy | None = None) -> None:
        found = shutil.which("git")
        if found is None:
            raise PermanentError(
                "There is no git where this worker runs.", hint="Install git on the machines of the workers."
            )
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
    ) -> Told:
        """Run one command to its end. ``protocols`` are those that it may speak; by itself, none.

        One that prints more than ``output_max`` is stopped there. Time that runs out is a :class:`TimeoutError`. What
        is printed is given to ``take`` as it comes, or else kept.
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
                output, said = await _exchanged(process, given, output_max, take)
                status = 0 if output.is_cut else await process.wait()
        finally:
            await _ended(process)
        if status:
            raise GitError(self._plain(said))
        return output

    def _environment(self, protocols: str) -> dict[str, str]:
        config = _CONFIG | ({} if self._proxy is None else {"http.proxy": self._proxy.url})
        told = {
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
            told[f"GIT_CONFIG_KEY_{number}"], told[f"GIT_CONFIG_VALUE_{number}"] = name, value
        return told | {name: os.environ[name] for name in _TRUST if name in os.environ}

    def _plain(self, said: bytes) -> str:
        """What it said, without our folder and our password."""
        text = said.decode("utf-8", "replace").replace(str(self.folder), "…")
        return values.printable(text if self._proxy is None else self._proxy.hide(text), _SAID_MAX).strip()


async def _exchanged(process: Process, given: bytes, most: int, take: _Take | None) -> tuple[Told, bytes]:
    """Feed it and hear it at once: whoever waits for the other would wait for ever."""
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise TransientError("Git was started without its pipes.")
    feeding = asyncio.ensure_future(_feed(process.stdin, given))
    hearing = asyncio.ensure_future(_last(process.stderr))
    try:
        output = await _first(process.stdout, most, take)
        if output.is_cut:
            return output, b""
        await feeding
        return output, await hearing
    finally:
        for task in (feeding, hearing):
            task.cancel()
        await asyncio.gather(feeding, hearing, return_exceptions=True)


async def _feed(stream: asyncio.StreamWriter, given: bytes) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # it may end before it has heard all; uvloop raises the latter
        stream.write(given)
        await stream.drain()
        stream.close()


async def _first(stream: asyncio.StreamReader, most: int, take: _Take | None) -> Told:
    content, size = bytearray(), 0
    while piece := await stream.read(_PIECE):
        size += len(piece)
        piece = piece[: len(piece) - max(0, size - most)]
        if take is None:
            content += piece
        else:
            await take(piece)
        if size > most:
            break
    return Told(bytes(content), is_cut=size > most)


async def _last(stream: asyncio.StreamReader) -> bytes:
    said = b""
    while piece := await stream.read(_PIECE):
        said = (said + piece)[-_SAID_MAX:]
    return said


async def _ended(process: Process) -> None:
    """End it, and all that it has started. It is over once its pipes are empty: what is left in them is let go."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        while stream is not None and await stream.read(_PIECE):
            pass
    await process.wait()
