"""Shared by the five products of the demo: the base class of their parts, and the board that shows all jobs."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import httpx2
from examples.stage import FailedError
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from examples.stage import Stage
    from rich.console import Console

GOOD = ("completed", "success")
BAD = ("failed", "canceled", "cancelled", "expired", "inbound_blocked", "outbound_blocked")
STYLES: dict[str, str] = {**dict.fromkeys(GOOD, "green"), **dict.fromkeys(BAD, "red")}


@dataclass(slots=True)
class Board:
    """The state of every job: a live table in a terminal, otherwise a line for every change."""

    console: Console
    rows: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_live(self) -> bool:
        return self.console.is_terminal and not self.console.is_dumb_terminal

    def shown(self) -> contextlib.AbstractContextManager[Any]:
        if not self.is_live:
            return contextlib.nullcontext()
        return Live(get_renderable=self.table, console=self.console, refresh_per_second=8)

    def report(self, product: str, job: str, state: str, note: str = "") -> None:
        with self.lock:
            if self.rows.get((product, job)) == (state, note):
                return
            self.rows[product, job] = (state, note)
            if not self.is_live:
                line = f"   {product:<8} {job:<22} {state:<19} {note}".rstrip()
                self.console.print(Text(line, STYLES.get(state, "dim")), soft_wrap=True)

    def table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        with self.lock:
            rows = sorted(self.rows.items(), key=lambda row: row[0][0])  # in a product, by creation
        for (product, job), (state, note) in rows:
            table.add_row(" ", product, job, Text(state, STYLES.get(state, "cyan")), Text(note, "dim", no_wrap=True))
        return table


@dataclass(slots=True, kw_only=True)
class Part:
    """One product, used in the way of its clients."""

    name: ClassVar[str]
    stage: Stage
    board: Board

    def play(self) -> tuple[str, ...]:
        """Run the jobs of this product, and return a summary of a few lines."""
        raise NotImplementedError

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        return self.stage.call(method, f"/{self.name}{path}", body, key=key)

    def report(self, job: str, state: str, note: str = "") -> None:
        self.board.report(self.name, job, state, note)

    def end_of(self, job: str, read: Callable[[], tuple[Any, str, str]]) -> Any:
        """Watch a job until it has succeeded. ``read`` returns the job, its state and a note for the board."""
        found: Any = None

        def is_over() -> bool:
            nonlocal found
            found, state, note = read()
            self.report(job, state, note)
            if state in BAD:
                raise FailedError(f"{self.name}, {job}: {state}: {found.get('error')}")
            return state in GOOD

        self.stage.wait_for(f"{self.name}, {job}", is_over)
        return found

    def keep(self, name: str, content: bytes | str) -> Path:
        """Save a result to the folder of the demo."""
        path = self.stage.folder / self.name / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def kept(self, *paths: Path) -> str:
        """The paths of saved results, relative to the folder of the demo."""
        return "→ " + "   ".join(str(path.relative_to(self.stage.folder)) for path in paths)

    def fetch(self, url: str) -> bytes:
        return httpx2.get(url, timeout=30).raise_for_status().content
