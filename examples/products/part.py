"""What the five products of the demo share: a part of the play each, and the board on which all jobs are seen."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import httpx2
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.stage import FailedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from examples.stage import Stage

GOOD = ("completed", "success")
BAD = ("failed", "canceled", "cancelled", "expired", "inbound_blocked", "outbound_blocked")
STYLES: dict[str, str] = {**dict.fromkeys(GOOD, "green"), **dict.fromkeys(BAD, "red")}


@dataclass(slots=True)
class Board:
    """Where every job stands: a table that changes in a terminal, and otherwise a line for every change."""

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

    def tell(self, product: str, job: str, state: str, note: str = "") -> None:
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
            rows = sorted(self.rows.items(), key=lambda row: row[0][0])  # and within a product as they came
        for (product, job), (state, note) in rows:
            table.add_row(" ", product, job, Text(state, STYLES.get(state, "cyan")), Text(note, "dim", no_wrap=True))
        return table


@dataclass(slots=True, kw_only=True)
class Part:
    """One product, used as its clients use it."""

    name: ClassVar[str]
    stage: Stage
    board: Board

    def play(self) -> tuple[str, ...]:
        """Have something made, and tell in a few lines what came of it."""
        raise NotImplementedError

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Any:
        return self.stage.call(method, f"/{self.name}{path}", body, key=key)

    def tell(self, job: str, state: str, note: str = "") -> None:
        self.board.tell(self.name, job, state, note)

    def end_of(self, job: str, read: Callable[[], tuple[Any, str, str]]) -> Any:
        """Watch a job until it has ended well. What reads it gives the job, its state and what else is to be told."""
        found: Any = None

        def is_over() -> bool:
            nonlocal found
            found, state, note = read()
            self.tell(job, state, note)
            if state in BAD:
                raise FailedError(f"{self.name}, {job}: {state}: {found.get('error')}")
            return state in GOOD

        self.stage.wait_for(f"{self.name}, {job}", is_over)
        return found

    def keep(self, name: str, content: bytes | str) -> Path:
        """Put a result where it can be looked at."""
        path = self.stage.folder / self.name / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def kept(self, *paths: Path) -> str:
        """Where that is, in the folder of the demo."""
        return "→ " + "   ".join(str(path.relative_to(self.stage.folder)) for path in paths)

    def fetch(self, url: str) -> bytes:
        return httpx2.get(url, timeout=30).raise_for_status().content
