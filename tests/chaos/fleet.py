"""A fleet in trouble: workers over HTTP are killed, interrupted and paused past their leases, at work.

    python -m tests.chaos.fleet --workers 100 --jobs 10000

A third of the workers are killed with -9 and come back under their names, a third are interrupted with SIGTERM, one in
ten is stopped until its lease has run out and then goes on as if nothing had happened. In the end every job must have
ended exactly once, with the file of the attempt that won, and the ledger must be right to the credit.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import millpond
from millpond.cli.database import opened
from millpond.engine.verify import verify
from millpond.ids import text
from millpond.settings import Settings
from millpond.storage.local import Local
from millpond.store.db import Database
from millpond.store.queries import NamedQuery
from tests.children import start

APP = Path(__file__).with_name("prints.py")
PRICE = 3
PATIENCE = 1_200.0

JOBS = NamedQuery(
    "chaos.jobs",
    "many",
    "select j.id, j.state, j.epoch, j.output ->> 'sheet' as sheet, (j.output ->> 'epoch')::int as won,"
    " (select count(*) from millpond.events e where e.job_id = j.id and e.type = 'succeeded') as ends"
    " from millpond.jobs j",
)
SHEETS = NamedQuery("chaos.sheets", "many", "select id, job_id, epoch, path, stored_at from millpond.artifacts")
LEFT = NamedQuery(
    "chaos.left",
    "one",
    "select (select count(*) from millpond.dispatches) as dispatches, (select count(*) from millpond.ready) as ready",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How large it is."""

    workers: int
    jobs: int
    seconds: float = 0.1
    lease: float = 6.0
    seed: int = 1


@dataclass(slots=True)
class Report:
    """What came of it."""

    fates: Counter[str] = field(default_factory=Counter)
    took: float = 0.0
    again: int = 0
    bounced: int = 0
    complaints: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Fleet:
    """A server and its workers, each a process of its own."""

    plan: Plan
    folder: Path
    ready: dict[str, Any] = field(default_factory=dict)
    server: subprocess.Popen[bytes] | None = None
    workers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
        return inherited | {
            "MILLPOND_FLEET_LEASE": f"{self.plan.lease}s",
            "MILLPOND_FLEET_HEARTBEAT": f"{self.plan.lease / 4}s",
            "MILLPOND_FLEET_MAX": str(self.plan.workers * 3),
            "MILLPOND_WORKER_SILENCE": f"{self.plan.lease}s",
            "MILLPOND_RATE_LIMIT": "100000",
            "MILLPOND_GRACE": "1s",
            "MILLPOND_LOG_FORMAT": "json",
            "CHAOS_SECONDS": str(self.plan.seconds),
        }

    def start(self) -> None:
        report = self.folder / "ready.json"
        words = ["-m", "millpond", "up", str(APP), "--no-worker", "--port", "0"]
        words += ["--data-dir", str(self.folder / "data"), "--ready-file", str(report)]
        self.server = self._run("server", words, {})
        until = time.monotonic() + 60
        while not report.exists():
            if self.server.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self.folder / "server.log").read_text())
            time.sleep(0.05)
        self.ready = json.loads(report.read_text())

    def start_worker(self, name: str) -> None:
        words = ["-m", "millpond.worker", str(APP), "--url", self.ready["url"], "--name", name]
        self.workers[name] = self._run(name, words, {"MILLPOND_FLEET_SECRET": self.ready["fleet_secret"]})

    def _run(self, name: str, words: list[str], more: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("ab") as log:
            return start(
                [sys.executable, *words],
                env=self.environment() | more,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.workers[name].send_signal(number)

    def stop(self) -> None:
        for process in self.workers.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
        if self.server is not None:
            self.server.terminate()
            try:
                self.server.wait(20)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()

    def logged(self, event: str) -> int:
        """How often the server has logged it."""
        return (self.folder / "server.log").read_text(errors="replace").count(f'"event":"{event}"')


async def run(plan: Plan, folder: Path) -> Report:
    """All of it, from an empty folder to the last check."""
    report = Report()
    fleet = Fleet(plan, folder)
    began = time.monotonic()
    try:
        fleet.start()
        names = [f"worker-{number}" for number in range(plan.workers)]
        for name in names:
            fleet.start_worker(name)
        await _submit(fleet, plan)
        await _trouble(fleet, plan, names, report)
        report.took = time.monotonic() - began
        report.bounced = fleet.logged("lease.lost")
        await _check(folder / "data", plan, report)
    finally:
        fleet.stop()
    return report


async def _submit(fleet: Fleet, plan: Plan) -> None:
    ready = fleet.ready
    async with millpond.AsyncClient(ready["url"], ready["admin_key"]) as admin:
        await admin.grant(ready["tenant"], ready["account"], plan.jobs * PRICE, reference="chaos")
    async with millpond.AsyncClient(ready["url"], ready["client_key"], timeout=300) as client:
        requests = [{"kind": "print", "input": {"number": number}} for number in range(plan.jobs)]
        refused = [answer for answer in await client.submit_many(requests) if isinstance(answer, Exception)]
        if refused:
            raise refused[0]


async def _trouble(fleet: Fleet, plan: Plan, names: list[str], report: Report) -> None:
    """Strike one worker after the other, evenly over the run, until all jobs have ended."""
    dice = random.Random(plan.seed)
    third = plan.workers // 3
    strikes = ["killed"] * third + ["interrupted"] * third + ["paused"] * max(plan.workers // 10, 1)
    dice.shuffle(strikes)
    victims = dice.sample(names, len(names))
    wakes: list[tuple[float, str]] = []
    deadline = time.monotonic() + PATIENCE
    async with millpond.AsyncClient(fleet.ready["url"], fleet.ready["client_key"], timeout=60) as client:
        while (left := (await client.wallet()).active) or wakes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} jobs have not ended; see {fleet.folder}")
            due = int(len(strikes) * min((plan.jobs - left) / (plan.jobs * 0.85), 1.0))
            while report.fates.total() < due:
                place = report.fates.total()
                _strike(fleet, victims[place], strikes[place], wakes, plan)
                report.fates[strikes[place]] += 1
            while wakes and wakes[0][0] < time.monotonic():
                fleet.signal(wakes.pop(0)[1], signal.SIGCONT)
            _come_back(fleet)
            await asyncio.sleep(0.1)


def _strike(fleet: Fleet, name: str, fate: str, wakes: list[tuple[float, str]], plan: Plan) -> None:
    match fate:
        case "killed":
            fleet.signal(name, signal.SIGKILL)
        case "interrupted":
            fleet.signal(name, signal.SIGTERM)
        case _:
            fleet.signal(name, signal.SIGSTOP)
            wakes.append((time.monotonic() + plan.lease * 1.5, name))


def _come_back(fleet: Fleet) -> None:
    """Whoever has gone comes back under its name, as an instance that was started again does."""
    for name, process in list(fleet.workers.items()):
        if process.poll() is not None:
            fleet.start_worker(name)


async def _check(data: Path, plan: Plan, report: Report) -> None:
    settings = Settings(data_dir=data)
    with opened(settings) as dsn:
        db = await Database.open(dsn, size=2)
        try:
            await _check_jobs(db, data, plan, report)
            report.complaints += [str(violation) for violation in await verify(db)]
        finally:
            await db.close()


async def _check_jobs(db: Database, data: Path, plan: Plan, report: Report) -> None:
    jobs = await db.run(JOBS)
    files = Local(data / "files")
    sheets = {text("art", row["id"]): row for row in await db.run(SHEETS)}
    complain = report.complaints.append
    if len(jobs) != plan.jobs:
        complain(f"{len(jobs)} jobs instead of {plan.jobs}")
    for job in jobs:
        name = text("job", job["id"])
        sheet = sheets.get(job["sheet"])
        if job["state"] != "succeeded" or job["ends"] != 1:
            complain(f"{name} is {job['state']} and succeeded {job['ends']} times")
        elif sheet is None or sheet["job_id"] != job["id"] or sheet["stored_at"] is None:
            complain(f"{name} has no file of its own")
        elif not job["epoch"] == job["won"] == sheet["epoch"]:
            complain(
                f"{name} was won by {job['epoch']} and has the output of {job['won']}, the file of {sheet['epoch']}"
            )
        elif await files.read(sheet["path"]) != f"{name} {job['epoch']}".encode():
            complain(f"{name} has a file with something else in it")
        report.again += job["epoch"] > 1
    left = await db.run(LEFT)
    if left["dispatches"] or left["ready"]:
        complain(f"left over: {dict(left)}")
    wallet = await db.run(NamedQuery("chaos.wallet", "one", "select available, held, active from millpond.accounts"))
    if (wallet["available"], wallet["held"], wallet["active"]) != (1_000, 0, 0):
        complain(f"the wallet has {dict(wallet)}")


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--workers", type=int, default=100)
    words.add_argument("--jobs", type=int, default=10_000)
    words.add_argument("--seconds", type=float, default=0.5, help="how long a job takes at most")
    words.add_argument("--lease", type=float, default=15.0, help="seconds")
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--keep", action="store_true", help="keep the folder with database, files and logs")
    given = words.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="millpond-chaos-"))
    plan = Plan(given.workers, given.jobs, given.seconds, given.lease, given.seed)
    report = asyncio.run(run(plan, folder))
    fates = ", ".join(f"{count} {fate}" for fate, count in sorted(report.fates.items()))
    print(f"{plan.jobs} jobs, {plan.workers} workers ({fates}) in {report.took:.0f} s;")  # noqa: T201
    print(f"{report.again} jobs were handed out again, {report.bounced} late writes bounced.")  # noqa: T201
    for complaint in report.complaints[:50]:
        print(complaint)  # noqa: T201
    if given.keep or report.complaints:
        print(f"Kept: {folder}")  # noqa: T201
    else:
        shutil.rmtree(folder, ignore_errors=True)
    print("FAILED" if report.complaints else "exact: every job ended once, every file is the winner's, verify ok")  # noqa: T201
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    main()
