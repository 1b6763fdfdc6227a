"""Everything is killed, again and again, and nothing is lost: neither a job nor a credit."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millpond.engine.engine import Engine
from millpond.engine.verify import verify
from millpond.errors import AnswerUnavailableError, UnavailableError
from millpond.store.embedded import EmbeddedPostgres, open_embedded
from tests.acceptance.processes import Command, Shell, shell
from tests.acceptance.product import app
from tests.acceptance.submitter import ACCOUNTS, TENANTS, Book, key_of, kind_of
from tests.children import start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncpg import Record

JOBS = int(os.environ.get("KILL_JOBS", "3000"))
SEED = int(os.environ.get("KILL_SEED", "20260729"))
WORKERS = 3
POISONS = 2
BETWEEN = (100, 300)
"""How many jobs are submitted between two kills."""
GRANT = 10**6
PATIENCE = 120.0
"""For how many seconds nothing may move."""
ROOT = Path(__file__).parents[2]

OUTCOMES = {
    "ask": "succeeded",
    "long": "canceled",
    "mortal": "expired",
    "nap": "succeeded",
    "poison": "failed",
    "shaky": "succeeded",
    "sum": "succeeded",
}


@dataclass(slots=True)
class Chaos:
    """A deployment, and the hand that kills its processes."""

    sh: Shell
    data_dir: Path
    postgres: EmbeddedPostgres
    engine: Engine
    book: Book
    dice: random.Random = field(default_factory=lambda: random.Random(SEED))
    workers: list[Command] = field(default_factory=list)
    submitter: subprocess.Popen[bytes] | None = None
    kills: dict[str, int] = field(default_factory=dict)
    is_quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def keep_workers(self) -> None:
        """As a supervisor does: what has died is started again."""
        self.workers = [worker for worker in self.workers if worker.is_running]
        while len(self.workers) < WORKERS:
            self.workers.append(self.sh.worker("--slots", "20", MILLPOND_LOG_LEVEL="error"))

    def keep_submitter(self) -> bool:
        """Whether it still has something to submit."""
        if self.submitter is None or (code := self.submitter.poll()) not in {None, 0}:
            assert self.submitter is None or code == -signal.SIGKILL
            self.submitter = start(
                [sys.executable, "-m", "tests.acceptance.submitter", self.postgres.dsn, self.book.path, str(JOBS)],
                cwd=ROOT,
            )
        return self.submitter.poll() != 0

    def kill_something(self) -> None:
        if self.dice.random() < 0.25 and self.submitter is not None:
            self.submitter.kill()
            self.submitter.wait()
            self._count("submitter")
        else:
            self.dice.choice(self.workers).kill()
            self._count("worker")

    async def kill_postgres(self) -> None:
        """The server dies with all it had in memory, and comes back."""
        os.kill(self.postgres.pid, signal.SIGKILL)
        await asyncio.to_thread(self.postgres.stop)  # it does no more than to ask for the status
        self._count("postgres")
        self.postgres = await asyncio.to_thread(open_embedded, self.data_dir)

    def _count(self, what: str) -> None:
        self.kills[what] = self.kills.get(what, 0) + 1

    async def answer_and_cancel(self) -> None:
        """What customers do meanwhile: answer what was asked, and change their minds."""
        while not self.is_quiet.is_set():
            with suppress(UnavailableError):
                for row in await self.rows(
                    "select id, tenant, kind, input from millpond.jobs"
                    " where (kind = 'ask' and phase = 'parked') or (kind = 'long' and cancel_requested_at is null"
                    " and phase <> 'ended')"
                ):
                    if row["kind"] == "long":
                        await self.engine.cancel(row["tenant"], row["id"], grace=timedelta(seconds=1))
                    else:
                        with suppress(AnswerUnavailableError):
                            await self.engine.answer(row["tenant"], row["id"], row["input"])
            await asyncio.sleep(0.05)

    async def rows(self, statement: str) -> list[Record]:
        async with self.engine.db.transaction() as tx:
            return await tx.fetch(statement)

    async def left(self) -> int | None:
        """How many jobs have not ended, as far as it can be known now."""
        with suppress(UnavailableError):
            (row,) = await self.rows("select count(*) as left from millpond.dispatches")
            return row["left"]
        return None


@dataclass(slots=True)
class Pulse:
    """Whether something still moves: a busy machine is slow, and not wrong."""

    seen: object = None
    since: float = field(default_factory=time.monotonic)

    def is_still(self, now: object) -> bool:
        if now != self.seen:
            self.seen, self.since = now, time.monotonic()
        return time.monotonic() > self.since + PATIENCE


@pytest.fixture
def data_dir() -> Iterator[Path]:
    memory = Path("/dev/shm")  # noqa: S108 - as the other databases of the tests
    folder = Path(tempfile.mkdtemp(prefix="kill-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder / "data"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
async def test_whatever_is_killed_every_job_ends_once_and_every_credit_is_accounted_for(
    anyio_backend: str, data_dir: Path, tmp_path: Path
) -> None:
    """Workers, a customer and the database itself are killed with -9 while thousands of jobs run.

    JOB7: every submit that was answered is there, and nothing that was never tried. JOB8: with the faults over,
    everything ends. LED10: what was granted is available or captured.
    """
    print(f"KILL_SEED={SEED}")  # noqa: T201 - to run it again
    postgres = open_embedded(data_dir)
    with shell(tmp_path, postgres.dsn) as sh:
        engine = await Engine.open(postgres.dsn, app)
        chaos = Chaos(sh, data_dir, postgres, engine, Book(tmp_path / "book"))
        try:
            for tenant in TENANTS:
                for account in ACCOUNTS:
                    await engine.grant(tenant, account, GRANT)
            for number in range(POISONS):
                await engine.submit("poison", tenant=TENANTS[0], account=ACCOUNTS[0], idempotency_key=f"poison{number}")
            async with asyncio.TaskGroup() as customers:
                customers.create_task(chaos.answer_and_cancel())
                await rage(chaos)
                await come_to_rest(chaos)
                chaos.is_quiet.set()
            await everything_is_accounted_for(chaos)
        finally:
            if chaos.submitter is not None:
                chaos.submitter.kill()
                chaos.submitter.wait()
            await engine.close()
            for worker in chaos.workers:
                worker.close()
            chaos.postgres.stop()


async def rage(chaos: Chaos) -> None:
    """Kill until the last job is submitted; the database dies when a third and when two thirds are.

    Between two kills some jobs are submitted: on a slow machine who is killed again at once would never get to work.
    """
    deaths, next_kill, pulse = [JOBS * 2 // 3, JOBS // 3], 0, Pulse()
    chaos.keep_workers()
    while chaos.keep_submitter():
        chaos.keep_workers()
        chaos.book.read()
        submitted = len(chaos.book.acks)
        assert not pulse.is_still(submitted), "nothing is submitted any more"
        if deaths and submitted >= deaths[-1]:
            deaths.pop()
            await chaos.kill_postgres()
        elif submitted > next_kill:
            next_kill = submitted + chaos.dice.randint(*BETWEEN)
            chaos.kill_something()
        await asyncio.sleep(0.02)
    assert not deaths
    assert set(chaos.kills) == {"postgres", "submitter", "worker"}


async def come_to_rest(chaos: Chaos) -> None:
    """The faults are over, but for the jobs that kill their worker themselves."""
    pulse = Pulse()
    while (left := await chaos.left()) != 0:
        if pulse.is_still(left):
            stuck = await chaos.rows(
                "select d.job_id, d.kind, d.phase, d.epoch, d.run_at, l.worker, l.expires_at, millpond.clock() as now"
                " from millpond.dispatches d left join millpond.leases l on l.token = d.lease_token limit 20"
            )
            said = [worker.stderr[-2_000:] for worker in chaos.workers]
            raise AssertionError(f"what is left: {stuck}; the workers say: {said}")
        chaos.keep_workers()
        await asyncio.sleep(0.05)


async def everything_is_accounted_for(chaos: Chaos) -> None:
    assert await verify(chaos.engine.db) == []
    rows = await chaos.rows(
        "select id, kind, phase, outcome, captured, input->>'n' as n, (select count(*) from millpond.events e"
        " where e.job_id = j.id and e.data->>'cause' = 'lapse') as lapses from millpond.jobs j"
    )
    assert {row["phase"] for row in rows} == {"ended"}
    assert {row["kind"]: row["outcome"] for row in rows} == OUTCOMES
    assert all(row["outcome"] == OUTCOMES[row["kind"]] for row in rows)
    assert {row["captured"] for row in rows if row["outcome"] != "succeeded"} == {0}
    assert {row["lapses"] for row in rows if row["kind"] == "poison"} == {2}
    chaos.book.read()
    nothing_is_lost_or_invented(chaos.book, rows)
    await credits_are_exact(chaos, sum(row["captured"] for row in rows))
    lapses = await chaos.rows("select from millpond.events where type = 'requeued' and data->>'cause' = 'lapse'")
    assert lapses, "nobody noticed the kills"


def nothing_is_lost_or_invented(book: Book, rows: list[Record]) -> None:
    made: dict[int, set[Any]] = {}
    for row in rows:
        if row["kind"] != "poison":
            assert row["kind"] == kind_of(int(row["n"]))
            made.setdefault(int(row["n"]), set()).add(row["id"])
    assert len(rows) - sum(map(len, made.values())) == POISONS
    assert made.keys() == book.acks.keys() == set(range(JOBS))
    for number, ids in made.items():
        assert ids.issuperset(book.acks[number])
        if key_of(number) is None:
            assert len(ids) <= book.tries[number]
        else:
            assert len(ids) == 1


async def credits_are_exact(chaos: Chaos, captured: int) -> None:
    balances = [await chaos.engine.balance(tenant, account) for tenant in TENANTS for account in ACCOUNTS]
    assert sum(balance.available for balance in balances) + captured == GRANT * len(balances)
    assert {(balance.held, balance.active) for balance in balances} == {(0, 0)}
