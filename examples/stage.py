"""Shared code of the demo: processes that are started and stopped, requests, and output."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from rich.console import Console

from millpond import lifeline

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_SECONDS = 90.0


class FailedError(Exception):
    """The demo failed."""


@dataclass(slots=True, kw_only=True)
class Stage:
    """One part of the demo: a folder, its processes, and the server among them. Several products may use it at once."""

    folder: Path
    """The results, and the logs of the processes."""
    console: Console = field(default_factory=lambda: Console(highlight=False))
    settings: dict[str, str] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    http: httpx2.Client = field(default_factory=httpx2.Client)
    ready: dict[str, Any] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    """Set when all waiting must stop."""
    step: int = 0

    def explain(self, headline: str, *explanation: str) -> None:
        self.step += 1
        self.console.print(f"\n[bold cyan]{self.step}[/]  [bold]{headline}[/]", soft_wrap=True)
        for line in explanation:
            self.console.print(f"   {line}", style="dim", soft_wrap=True)

    def start_server(self, *options: str) -> None:
        data = str(self.folder / "data")
        file = self.folder / "logs" / "ready.json"
        words = ["-m", "millpond", "up", "--data-dir", data, "--port", "0", "--ready-file", str(file)]
        self.run("server", *words, *options)
        self.wait_for("Millpond", file.exists)
        self.ready = json.loads(file.read_text())
        self.http.headers["Authorization"] = f"Bearer {self.ready['client_key']}"

    def verify(self) -> None:
        words = [sys.executable, "-m", "millpond", "verify", "--data-dir", str(self.folder / "data")]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        if checked.returncode:
            raise FailedError(f"the ledger is wrong: {checked.stdout} {checked.stderr}")
        self.console.print("   [bold green]verify: ok[/]")

    def run(self, name: str, *words: str, **more: str) -> None:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")}
        (self.folder / "logs").mkdir(exist_ok=True)
        with self.log_of(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, *words],
                cwd=ROOT,
                env=lifeline.environment(inherited | self.settings | more),
                pass_fds=(lifeline.descriptor(),),  # it ends with this process, even if this is killed
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach this process alone, which then stops it
            )

    def log_of(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop all processes, in reverse order of their start."""
        while self.processes:
            _, process = self.processes.popitem()
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        answer = self.http.request(method, self.ready["url"] + path, json=body, headers=headers)
        if answer.is_error:
            raise FailedError(f"{method} {path}: {answer.text}")
        return answer.json()

    def wait_for(self, what: str, is_there: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            found = is_there()
            if found:
                return found
            for name, process in tuple(self.processes.items()):
                if process.poll() is not None and name in self.processes:
                    raise FailedError(f"{name} ended unexpectedly; see {self.log_of(name)}")
            if self.over.wait(0.2):
                raise FailedError(f"{what}: the wait was canceled")
        raise FailedError(f"{what}: not within {PATIENCE_SECONDS:.0f} s; see {self.folder / 'logs'}")


def perform(prefix: str, make: Callable[[Path], Stage], play: Callable[[Any], None]) -> None:
    """Run one part of the demo; all its processes are stopped at the end, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    stage = make(folder)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    lifeline.stop_with_parent()
    try:
        play(stage)
    except KeyboardInterrupt:
        stage.stop()
        shutil.rmtree(folder)
        stage.console.print(f"\nStopped. All processes are down, and {folder} is removed.", soft_wrap=True)
        sys.exit(130)
    except (FailedError, httpx2.HTTPError) as error:
        stage.console.print(f"\n[red]The demo failed:[/] {error}", soft_wrap=True)
        sys.exit(1)
    finally:
        stage.stop()
        shutil.rmtree(folder / "data", ignore_errors=True)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
