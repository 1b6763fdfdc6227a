"""Runs the blocks of a page as a reader would, in a folder of their own."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.engine.engine import Engine
from millpond.store.db import connect
from millpond.store.embedded import EmbeddedPostgres
from tests.children import bound, start
from tests.docs.blocks import Block, blocks

if TYPE_CHECKING:
    import pytest

    from tests.databases import DatabaseServer

SILENT = {"ini", "json", "mermaid", "text", "toml", "yaml"}
"""Languages of which nothing can be run."""
_COMMAND_SECONDS = 60.0

_CHANGING = (
    (re.compile(r"job_[0-9A-Za-z]{26}"), "job_ID"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)?( ?m?s\b)"), "TIME"),
    (re.compile(r"PostgreSQL \d+\.\d+.*"), "PostgreSQL N"),
    (re.compile(r"\b\d+ of \d+ in use"), "N of N in use"),
    (re.compile(r"[ \t]+$", re.MULTILINE), ""),
)


def runs(page: Path) -> bool:
    """Whether it has anything that can be run."""
    return any(block.language not in SILENT for block in blocks(page))


async def run_page(page: Path, folder: Path, patch: pytest.MonkeyPatch, server: DatabaseServer | None) -> None:
    """Run its blocks in this folder, on a database of this server; without one, it has none given."""
    patch.chdir(folder)
    patch.setattr(sys, "path", [str(folder), *sys.path])
    patch.delenv("DATABASE_URL", raising=False)
    async with contextlib.AsyncExitStack() as stack:
        url = await stack.enter_async_context(server.database()) if server else None
        if url:
            patch.setenv("DATABASE_URL", url)
        session = Session(folder, url)
        stack.push_async_callback(session.close)
        for block in blocks(page):
            await session.run(block)


@dataclass(slots=True)
class Session:
    """One page, from its first block to its last."""

    folder: Path
    database_url: str | None = None
    names: dict[str, Any] = field(default_factory=dict)
    printed: str = ""
    _background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    async def run(self, block: Block) -> None:
        match block.language:
            case _ if block.remark == "not run":
                assert block.detail, f"{block.place}: a block that is not run needs a reason"
            case _ if block.file_name:
                file = self.folder / block.file_name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(block.text, "utf-8")
            case "python":
                await self._run_python(block)
            case "bash" | "console":
                self._run_shell(block)
            case "sql":
                await self._run_sql(block)
            case "text" if block.remark == "prints":
                assert steady(self.printed) == steady(block.text), f"{block.place}: it prints\n{self.printed}"
            case "remark" if block.remark == "new session":
                await self.forget()
            case "remark":
                self._stop()
            case language:
                assert language in SILENT, f"{block.place}: nobody knows how to run {language!r}"

    async def forget(self) -> None:
        """End Python: close what it has open and forget its modules."""
        for value in list(self.names.values()):
            if isinstance(value, Engine):
                await value.close()
        for value in list(self.names.values()):
            if isinstance(value, EmbeddedPostgres):
                value.stop()
        self.names.clear()
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", None) or "").startswith(str(self.folder)):
                del sys.modules[name]

    async def close(self) -> None:
        await self.forget()
        self._stop()

    # Python

    async def _run_python(self, block: Block) -> None:
        filling = "\n" * block.line  # so that a traceback tells the line of the page
        code = compile(filling + block.text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        self.names["__name__"] = "__page__"
        with contextlib.redirect_stdout(io.StringIO()) as output:
            if code.co_flags & inspect.CO_COROUTINE:
                await eval(code, self.names)  # noqa: S307 - it is our own page
            else:
                exec(code, self.names)  # noqa: S102 - it is our own page
        self.printed = output.getvalue()

    async def _run_sql(self, block: Block) -> None:
        assert self.database_url, f"{block.place}: the page has no database of its own"
        connection = await connect(self.database_url)
        try:
            await connection.execute(block.text)
        finally:
            await connection.close()

    # The shell

    def _run_shell(self, block: Block) -> None:
        if block.remark == "background until":
            self._start(block)
        elif block.language == "bash":
            self._command(block.text, block)
        else:
            self._run_console(block)

    def _run_console(self, block: Block) -> None:
        """Each line after a `$` is a command, the lines up to the next one are what it says."""
        commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        assert not commands[0], f"{block.place}: it does not begin with a command"
        for command in commands[1:]:
            line, _, expected = command.partition("\n")
            said = self._command(line, block)
            assert steady(said) == steady(expected), f"{block.place}: `{line}` says\n{said}"

    def _command(self, command: str, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            **bound(self._environment()),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_COMMAND_SECONDS,
            check=False,
            text=True,
        )
        assert done.returncode == 0, f"{block.place}: `{command.strip()}` failed:\n{done.stdout}"
        return done.stdout

    def _start(self, block: Block) -> None:
        log = self.folder / f"background-{len(self._background)}.log"
        with log.open("wb") as output:
            process = start(
                ["bash", "-c", f"exec {block.text}"],
                env=self._environment(),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._background.append(process)
        deadline = time.monotonic() + _COMMAND_SECONDS
        while block.detail not in log.read_text("utf-8"):
            assert process.poll() is None, f"{block.place}: it ended:\n{log.read_text('utf-8')}"
            assert time.monotonic() < deadline, f"{block.place}: it never said {block.detail!r}"
            time.sleep(0.05)

    def _stop(self) -> None:
        for process in self._background:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        self._background.clear()

    def _environment(self) -> dict[str, str]:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("MILLPOND_", "DATABASE_URL"))}
        given = {"DATABASE_URL": self.database_url} if self.database_url else {}
        return kept | given | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def steady(text: str) -> str:
    """Text without what is new in every run."""
    for pattern, word in _CHANGING:
        text = pattern.sub(word, text)
    return text.strip()
