"""One parent with many children on workers that are killed until it has ended: `python -m tests.composition.fanout`.

Three workers, beside the database or over HTTP, are killed with SIGKILL at random and started again, until the tree has
ended. Each child must have been created once and have ended once, the account must have been charged exactly what the
prices say, from the parent's budget or directly, and nothing may remain held.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import random
import sys
import tempfile
import time
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import httpx2

from millpond.engine.engine import Engine
from millpond.services.canceler import canceler
from millpond.services.expirer import expirer
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from tests.acceptance.processes import BRISK, free_port, shell
from tests.chaos.faults.deployment import until_ready
from tests.composition.fanout.app import PARENT_PRICE, app, fate
from tests.databases import migrated_template, running_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.acceptance.processes import Command, Shell

Payer = Literal["account", "budget"]

APP: Final = Path(__file__).with_name("app.py")
TENANT, ACCOUNT = "acme", "ann"
CREDITS: Final = 1_000_000
PATIENCE: Final = 300.0
FLEET: Final = {
    "MILLPOND_FLEET_LEASE": "4s",
    "MILLPOND_FLEET_HEARTBEAT": "1s",
    "MILLPOND_FLEET_MAX": "1000",
    "MILLPOND_WORKER_SILENCE": "3s",
    "MILLPOND_RATE_LIMIT": "100000",
    "MILLPOND_GRACE": "2s",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How large it is, and who pays."""

    children: int
    kills: int
    workers: int = 3
    seconds: float = 0.1
    """How long a child takes at most."""
    payer: Payer = "budget"
    is_remote: bool = False
    """Whether the workers are connected over HTTP."""
    seed: int = 1


@dataclass(slots=True)
class Report:
    """What came of it."""

    kills: int = 0
    again: int = 0
    """How often a child was handed out again, because its worker was killed."""
    parent_starts: int = 0
    charged: int = 0
    took: float = 0.0
    complaints: list[str] = field(default_factory=list)


async def run(dsn: str, folder: Path, plan: Plan) -> Report:
    """All of it, on an empty database."""
    report, dice = Report(), random.Random(plan.seed)
    engine = await Engine.open(dsn, app)
    try:
        await engine.grant(TENANT, ACCOUNT, CREDITS)
        with shell(folder, dsn) as sh:
            async with _hiring(plan, engine, sh) as hire:
                staff = [hire(number) for number in range(plan.workers)]
                began = time.monotonic()
                given = {"children": plan.children, "seconds": plan.seconds}
                parent = await engine.submit(f"paid_by_{plan.payer}", given, tenant=TENANT, account=ACCOUNT)
                await _kill_until_ended(engine, plan, dice, staff, hire, report)
                report.took = time.monotonic() - began
                await _account_for(engine, plan, parent.job_id, report)
    finally:
        await engine.close()
    return report


@asynccontextmanager
async def _hiring(plan: Plan, engine: Engine, sh: Shell) -> AsyncIterator[Callable[[int], Command]]:
    """What the workers need beside them; yields what starts one."""
    if not plan.is_remote:
        stop = asyncio.Event()
        services = (*(each(engine) for each in (canceler, expirer, reaper, scheduler)), Notifier(engine))
        running = [asyncio.create_task(service.run(stop)) for service in services]
        try:
            yield lambda number: sh.worker("--name", f"w{number}", "--slots", "8", app=APP)
        finally:
            stop.set()
            await asyncio.gather(*running)
        return
    sh.environment |= FLEET | {
        "FANOUT_FLEET": "1",
        "MILLPOND_ENCRYPTION_KEY": base64.b64encode(os.urandom(32)).decode(),
        "MILLPOND_STORAGE": str(sh.folder / "files"),
    }
    _, secret = await engine.access.make_key(scope="worker", actor="fanout")
    port = free_port()
    sh.start("serve", APP, "--role", "api,services", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    async with asyncio.timeout(PATIENCE), httpx2.AsyncClient(timeout=30) as http:
        await until_ready(http, f"{url}/readyz")

    def hire(number: int) -> Command:
        words = ("-m", "millpond.worker", APP, "--url", url, "--name", f"w{number}")
        return sh.launch(sys.executable, *words, MILLPOND_FLEET_SECRET=secret, **BRISK)

    yield hire


async def _kill_until_ended(
    engine: Engine,
    plan: Plan,
    dice: random.Random,
    staff: list[Command],
    hire: Callable[[int], Command],
    report: Report,
) -> None:
    """Kill a worker once the parent has children, and whenever another number of them, drawn at random, has ended."""
    marks = sorted(dice.sample(range(plan.children), min(plan.kills, plan.children)), reverse=True)
    if marks:
        marks[-1] = 0
    async with asyncio.timeout(PATIENCE):
        while (await _value(engine, "select count(*) from millpond.jobs where phase <> 'ended'")) > 0:
            ended = await _value(engine, "select coalesce(sum(ended), -1) from millpond.batches")
            if marks and ended >= marks[-1]:
                marks.pop()
                await asyncio.sleep(dice.uniform(0, plan.seconds))
                number = dice.randrange(plan.workers)
                staff[number].kill()
                staff[number].wait()
                staff[number] = hire(number)
                report.kills += 1
            for worker in staff:
                assert worker.is_running, worker.stderr
            await asyncio.sleep(0.01)


async def _value(engine: Engine, statement: str, *arguments: Any) -> Any:
    async with engine.db.connection() as connection:
        return await connection.fetchval(statement, *arguments)


CHILDREN: Final = """
select (j.input ->> 'n')::integer as n, j.outcome, j.captured, j.epoch,
    (
        select count(*) from millpond.events e
        where e.job_id = j.id and e.type in ('succeeded', 'failed', 'canceled', 'expired')
    ) as ends,
    (select count(*) from millpond.entries e where e.job_id = j.id and e.type = 'capture') as captures,
    (select coalesce(sum(e.outside), 0) from millpond.entries e where e.job_id = j.id) as charged
from millpond.jobs j where j.parent_id = $1
"""


async def _account_for(engine: Engine, plan: Plan, parent_id: Any, report: Report) -> None:
    """Compare what there is with what the plan says."""
    complain = report.complaints.append
    report.complaints += [str(violation) for violation in await engine.verify()]
    async with engine.db.connection() as connection:
        rows = await connection.fetch(CHILDREN, parent_id)
    created = Counter(row["n"] for row in rows)
    for n in range(plan.children):
        if created[n] != 1:
            complain(f"child {n} exists {created[n]} times")
    for row in rows:
        outcome, cost = fate(row["n"])
        is_charged = row["captures"] == (cost > 0) and row["charged"] == cost == row["captured"]
        if row["ends"] != 1 or row["outcome"] != outcome or not is_charged:
            complain(f"child {row['n']}, {outcome} for {cost}, is {dict(row)}")
    report.again = sum(row["epoch"] - 1 for row in rows)
    if (jobs := await _value(engine, "select count(*) from millpond.jobs")) != plan.children + 1:
        complain(f"there are {jobs} jobs")
    parent = await engine.read(TENANT, parent_id)
    report.parent_starts = parent.epoch
    total = sum(n for n in range(plan.children) if fate(n)[0] == "succeeded")
    if (parent.outcome, parent.output) != ("succeeded", total):
        complain(f"the parent is {parent.outcome} with {parent.output} instead of {total}: {parent.error}")
    cost = PARENT_PRICE + sum(fate(n)[1] for n in range(plan.children))
    balance = await engine.balance(TENANT, ACCOUNT)
    report.charged = CREDITS - balance.available
    if (report.charged, balance.held, balance.active) != (cost, 0, 0):
        complain(f"the account is {balance}; the tree has cost {cost}")
    left = await _value(
        engine,
        "select (select count(*) from millpond.dispatches)"
        " + (select count(*) from millpond.reservations where captured is null)"
        " + (select count(*) from millpond.budgets where closed_at is null)",
    )
    if left:
        complain(f"{left} dispatches, reservations and budgets are left")


async def _run_apart(plan: Plan) -> Report:
    with tempfile.TemporaryDirectory(prefix="fanout-") as folder, running_server() as server:
        async with migrated_template(server) as template, server.database(template) as dsn:
            return await run(dsn, Path(folder), plan)


def main() -> None:
    words = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--children", type=int, default=1_000)
    words.add_argument("--kills", type=int, default=30)
    words.add_argument("--workers", type=int, default=3)
    words.add_argument("--seconds", type=float, default=0.1, help="how long a child takes at most")
    words.add_argument("--payer", choices=("account", "budget"), default="budget")
    words.add_argument("--remote", action="store_true", help="the workers are connected over HTTP")
    words.add_argument("--seed", type=int, default=1)
    given = words.parse_args()
    plan = Plan(given.children, given.kills, given.workers, given.seconds, given.payer, given.remote, given.seed)
    report = asyncio.run(_run_apart(plan))
    place = "over HTTP" if plan.is_remote else "beside the database"
    print(  # noqa: T201 - the result
        f"{plan.children} children paid by the {plan.payer}, {plan.workers} workers {place}, seed {plan.seed}: "
        f"{report.kills} kills, {report.again} children handed out again, the parent started {report.parent_starts} "
        f"times, {report.charged} credits charged, {len(report.complaints)} violations, {report.took:.0f} s"
    )
    print("\n".join(report.complaints[:50]))  # noqa: T201 - the result
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    main()
