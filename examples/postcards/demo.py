"""`make demo`: a hundred postcards, a worker that is killed half way, and an exact ledger.

Nothing here is simulated: the worker is a process of its own, it is killed with SIGKILL, and all that is shown is read
from the database.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from millpond import Engine, MillpondError, lifeline
from millpond.cli.apps import load_app
from millpond.engine.verify import SQL as INVARIANTS
from millpond.engine.verify import verify
from millpond.lifecycle import LIFECYCLE_EVENTS
from millpond.store.embedded import open_embedded
from millpond.store.queries import NamedQuery

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from millpond.engine.credits.ledger import Entry
    from millpond.engine.jobs.jobs import JobRecord, SubmitRequest

APP = Path(__file__).with_name("app.py")
PEOPLE = ("Ada", "Alan", "Barbara", "Donald", "Edsger", "Frances", "Grace", "Katherine", "Leslie", "Radia")
PLACES = ("Cusco", "Galway", "Hobart", "Kyoto", "Lisbon", "Oslo", "Quito", "Samarkand", "Turku", "Zanzibar")
JOBS = len(PEOPLE) * len(PLACES)
TENANT, ACCOUNT = WHO = ("acme", "mary")
CREDITS = 600
SLOTS = 8
WORKER = {"MILLPOND_LEASE": "3s", "MILLPOND_HEARTBEAT": "1s", "MILLPOND_GRACE": "2s", "MILLPOND_LOG_FORMAT": "json"}
FRAME_SECONDS = 0.1
LINE_SECONDS = 1.0
PATIENCE_SECONDS = 120.0

LEASES = NamedQuery(
    "demo.leases",
    "many",
    "select d.job_id, l.worker, extract(epoch from l.expires_at - millpond.clock())::float8 as seconds"
    " from millpond.dispatches d join millpond.leases l on l.token = d.lease_token",
)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Runs a demonstration of about a minute.")
    arguments.add_argument("--keep", action="store_true", help="keep the database")
    is_kept = arguments.parse_args().keep
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="millpond-demo-"))
    try:
        asyncio.run(run(console, folder))
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(folder)
        console.print(f"\nStopped. The worker and the database are down, and {folder} is removed.", soft_wrap=True)
        sys.exit(130)
    except MillpondError as error:
        console.print(f"\n[red]The demo failed:[/] {error}", soft_wrap=True)
        sys.exit(1)
    finally:
        if not is_kept:
            shutil.rmtree(folder / "db", ignore_errors=True)
    if is_kept:
        console.print(f"\nThe database is kept: millpond verify --data-dir {folder / 'db'}", soft_wrap=True)


async def run(console: Console, folder: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, _task().cancel)
    lifeline.stop_with_parent()
    console.print("[bold]Millpond[/]: a hundred jobs, a worker that is killed half way, and an exact ledger")
    with open_embedded(folder / "db") as postgres:
        engine = await Engine.open(postgres.dsn, load_app(str(APP)))
        demo = Demo(engine, postgres.dsn, folder, console)
        try:
            await demo.play(postgres.version)
        finally:
            demo.stop_workers()
            await engine.close()


@dataclass(frozen=True, slots=True)
class View:
    """The state of the database at one moment."""

    jobs: list[JobRecord]
    leases: dict[Any, tuple[str, float]]
    available: int
    held: int
    captured: int

    @property
    def running(self) -> list[JobRecord]:
        return [job for job in self.jobs if job.phase == "leased"]

    @property
    def ended(self) -> int:
        return sum(job.phase == "ended" for job in self.jobs)

    def states(self) -> str:
        counts = Counter(job.state for job in self.jobs)
        return " · ".join(f"{counts[state]:>3} {state}" for state in ("queued", "running", "succeeded"))

    def wallet(self) -> str:
        return f"{self.available:>3} available · {self.held:>3} held · {self.captured:>3} captured"


@dataclass(slots=True)
class Demo:
    engine: Engine
    dsn: str
    folder: Path
    console: Console
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    step: int = 0

    # The steps

    async def play(self, version: str) -> None:
        self.explain(f"PostgreSQL {version} is up", f"embedded, in {self.folder / 'db'}; nothing else is needed")
        await self.engine.grant(*WHO, amount=CREDITS, reference="welcome")
        self.explain(
            f"Mary is granted {CREDITS} credits",
            "Her wallet has two balances: the available credits, and those held for jobs.",
        )
        self.start_worker("worker-1")
        self.explain(f"worker-1 starts, with {SLOTS} slots", "It is a process of its own: millpond worker app.py")
        await self.submit()
        before = await self.watch(lambda view: view.ended >= JOBS // 2)
        self.kill_worker("worker-1")
        self.explain(
            f"kill -9 worker-1, while it runs {len(before.running)} jobs",
            "It could not report this. After 3 s without heartbeats its leases expire, and its jobs",
            "return to the queue. worker-2 starts now and runs the other jobs meanwhile.",
        )
        self.start_worker("worker-2")
        after = await self.watch(lambda view: view.ended == JOBS)
        await self.summarize(after)

    async def submit(self) -> None:
        requests: list[SubmitRequest] = [
            {
                "kind": "postcard",
                "input": {"to": to, "place": place},
                "tenant": TENANT,
                "account": ACCOUNT,
                "idempotency_key": f"{place}-{to}",
            }
            for place, to in product(PLACES, PEOPLE)
        ]
        began = time.monotonic()
        new = sum(map(_is_new, await self.engine.submit_many(requests)))
        took = time.monotonic() - began
        repeated = sum(map(_is_new, await self.engine.submit_many(requests)))
        self.explain(
            f"{new} jobs are submitted, in {took * 1000:.0f} ms",
            "Key, hold of 5 credits, job, place in the queue and first events of each",
            "are committed together or not at all. The same hundred requests once more, as from",
            f"a client that did not get the response: {repeated} new jobs.",
        )

    async def summarize(self, view: View) -> None:
        again = [job for job in view.jobs if job.epoch > 1]
        self.explain(
            f"All {view.ended} cards are painted",
            f"{len(again)} jobs were leased twice; each was paid for once. One of them:",
        )
        for event in await self.engine.events(TENANT, again[0].job_id) if again else ():
            line = f"   {event.seq:>3}  {event.at:%H:%M:%S.%f}  {event.type:<10} {_details(event.data)}"
            self.console.print(line, style="" if event.type in LIFECYCLE_EVENTS else "dim", soft_wrap=True)
        self.explain("The ledger", "Each entry adds up to zero; the total is the wallet.")
        self.console.print(ledger(await self.engine.entries(*WHO, limit=1_000)))
        violations = await verify(self.engine.db)
        for violation in violations:
            self.console.print(f"   [red]{violation}[/]")
        if violations:
            raise MillpondError(f"verify: {len(violations)} violations")
        self.console.print(f"   [bold green]verify: ok[/]  [dim]{len(INVARIANTS)} invariants hold[/]")
        sheet = contact_sheet(view.jobs, self.folder)
        self.explain("Look at the cards", f"all on one sheet   {sheet}", f"one file each      {self.folder / 'cards'}")

    def explain(self, headline: str, *explanation: str) -> None:
        self.step += 1
        self.console.print(f"\n[bold cyan]{self.step}[/]  [bold]{headline}[/]", soft_wrap=True)
        for line in explanation:
            self.console.print(f"   {line}", style="dim", soft_wrap=True)

    # Workers

    def start_worker(self, name: str) -> None:
        millpond = Path(sys.executable).with_name("millpond")
        command = [millpond, "worker", APP, "--name", name, "--slots", str(SLOTS), "--database-url", self.dsn]
        inherited = {name: text for name, text in os.environ.items() if not name.startswith("MILLPOND_")}
        environ = inherited | WORKER | {"POSTCARDS": str(self.folder / "cards")}
        with (self.folder / f"{name}.log").open("wb") as log:
            self.workers[name] = subprocess.Popen(
                command,
                env=lifeline.environment(environ),
                pass_fds=(lifeline.descriptor(),),  # the workers end with the demo, even if it is killed
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach this process alone, which then stops it
            )

    def kill_worker(self, name: str) -> None:
        self.workers[name].kill()
        self.workers[name].wait()
        self.killed.add(name)

    def stop_workers(self) -> None:
        for worker in self.workers.values():
            worker.terminate()
        for worker in self.workers.values():
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    # Watching

    async def watch(self, until: Callable[[View], bool]) -> View:
        """Show the state of the database until the condition holds."""
        self.console.print()
        if self.console.is_terminal and not self.console.is_dumb_terminal:
            return await self.watch_live(until)
        return await self.watch_plain(until)

    async def watch_live(self, until: Callable[[View], bool]) -> View:
        with Live(console=self.console, auto_refresh=False) as live:
            async for view in self.views():
                live.update(self.picture(view), refresh=True)
                if until(view):
                    live.update(self.picture(view, with_jobs=False), refresh=True)
                    return view
        raise AssertionError

    async def watch_plain(self, until: Callable[[View], bool]) -> View:
        spoke_at = 0.0
        async for view in self.views():
            is_done = until(view)
            if is_done or time.monotonic() - spoke_at > LINE_SECONDS:
                spoke_at = time.monotonic()
                self.console.print(f"   {view.states()}   |  {view.wallet()}{self.lost_leases(view)}", soft_wrap=True)
            if is_done:
                return view
        raise AssertionError

    async def views(self) -> AsyncIterator[View]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for name, worker in self.workers.items():
                if name not in self.killed and worker.poll() is not None:
                    raise MillpondError(f"{name} ended unexpectedly; see {self.folder / name}.log")
            yield await self.look()
            await asyncio.sleep(FRAME_SECONDS)
        raise MillpondError(f"The jobs did not end within {PATIENCE_SECONDS:.0f} s; see the logs in {self.folder}")

    async def look(self) -> View:
        jobs = await self.engine.list_jobs(*WHO, limit=200)
        leases = await self.engine.db.run(LEASES)
        entries = await self.engine.entries(*WHO, limit=1_000)
        return View(
            sorted(jobs, key=lambda job: job.job_id),
            {row["job_id"]: (row["worker"], row["seconds"]) for row in leases},
            entries[0].available_after,
            entries[0].held_after,
            sum(entry.outside for entry in entries if entry.type == "capture"),
        )

    def picture(self, view: View, *, with_jobs: bool = True) -> Group:
        whole = Table.grid(padding=(0, 1))
        whole.add_row("  ", "jobs", Text(view.states()))
        whole.add_row("  ", "wallet", Text(view.wallet()))
        bars = Table.grid(padding=(0, 1))
        bars.add_column(width=2)
        bars.add_column(width=23)
        bars.add_row("", "all", ProgressBar(JOBS, view.ended, width=20), f"{view.ended}/{JOBS}")
        room = max(self.console.height - 5, 0) if with_jobs else 0
        for job in view.running[:room]:
            bars.add_row("", *self.row(job, *view.leases.get(job.job_id, ("", 0.0))))
        return Group(whole, bars)

    def row(self, job: JobRecord, worker: str, seconds: float) -> tuple[Any, ...]:
        is_lost = worker in self.killed
        where = f"{worker}  {job.stage or ''}"
        if is_lost:
            where = f"{worker} was killed; lease {max(seconds, 0):.1f} s"
        return (
            Text(f"{job.input['place']} for {job.input['to']}", "red" if is_lost else ""),
            ProgressBar(1.0, job.progress, width=20, complete_style="red" if is_lost else "cyan"),
            Text(where, "red" if is_lost else "dim"),
        )

    def lost_leases(self, view: View) -> str:
        left = [seconds for worker, seconds in view.leases.values() if worker in self.killed]
        return f"   |  {len(left)} jobs of a killed worker: lease ends in {max(*left, 0):.1f} s" if left else ""


def ledger(entries: Sequence[Entry]) -> Table:
    table = Table(box=None, padding=(0, 2), show_footer=True, header_style="dim", footer_style="bold")
    table.add_column(" ", "  total")
    for name in ("available", "held", "outside"):
        total = sum(getattr(entry, name) for entry in entries)
        table.add_column(name, f"{total:+}" if total else "0", justify="right")
    table.add_column("entries", str(len(entries)), justify="right")
    for kind in ("grant", "hold", "capture", "release"):
        rows = [entry for entry in entries if entry.type == kind]
        sums = [sum(getattr(row, name) for row in rows) for name in ("available", "held", "outside")]
        table.add_row(f"  {kind}", *(f"{amount:+}" if amount else "0" for amount in sums), str(len(rows)))
    return table


def contact_sheet(jobs: Sequence[JobRecord], folder: Path) -> Path:
    wide, high, gap = 150, 100, 6
    sheet = Image.new("RGB", (10 * (wide + gap) + gap, 10 * (high + gap) + gap), "#1c1c22")
    for place, job in enumerate(jobs):
        row, column = divmod(place, 10)
        with Image.open(folder / "cards" / job.output["image"]) as card:
            small = card.resize((wide, high), Image.Resampling.LANCZOS)
        sheet.paste(small, (gap + column * (wide + gap), gap + row * (high + gap)))
    path = folder / "contact-sheet.png"
    sheet.save(path)
    return path


def _is_new(answer: Any) -> bool:
    if isinstance(answer, Exception):
        raise answer
    return not answer.is_replay


def _details(data: Any) -> str:
    """What an event contains in addition to its type."""
    match data:
        case {"progress": value}:
            return f"{value:.0%}"
        case {"stage": name}:
            return name
        case {"cause": cause, "error": {"message": message}}:
            return f"{cause}: {message}"
        case {"text": text}:
            return text
        case _:
            return ""


def _task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - for the type checker
    return task


if __name__ == "__main__":
    main()
