"""Random trees of jobs on workers that are killed, until all have ended: `python -m tests.composition.trees`.

The handlers do what their input says: steps, children in parallel or one by one, sleeps, failures, cancels. Each worker
is a process, which is killed at random and replaced. When all roots have ended, every child must have ended once, each
step must have been recorded once, and the account must have been charged exactly what the prices say.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millpond import Job, Millpond
from millpond.engine.engine import Engine
from millpond.errors import PermanentError
from millpond.retry import Backoff
from millpond.services.canceler import canceler
from millpond.services.ensurer import ensurer
from millpond.services.expirer import expirer
from millpond.services.notifier import Notifier
from millpond.services.reaper import reaper
from millpond.services.scheduler import scheduler
from millpond.worker import Worker
from tests.databases import migrated_template, running_server

TENANT, ACCOUNT = "acme", "ann"
CREDITS = 10_000_000
PATIENCE = 300.0
app = Millpond()
SOON = Backoff(first=timedelta(milliseconds=10), jitter=0.5)
OPTIONS: Any = {"backoff": SOON, "attempts_max": 1_000, "lapses_max": 1_000, "interruptions_max": 1_000}


async def perform(job: Job, plan: dict[str, Any]) -> Any:
    total = 0
    for number, act in enumerate(plan["acts"]):
        match act["do"]:
            case "step":
                total += await job.step(f"add {number}", int, act["value"])
            case "sleep":
                await job.sleep(act["seconds"])
            case "gather":
                children = [job.child(child["kind"], {"plan": child}) for child in act["children"]]
                done = await job.gather(*children, return_exceptions=act["collects"])
                total += sum(0 if isinstance(child, Exception) else child.output for child in done)
            case "start":
                await job.child(act["child"]["kind"], {"plan": act["child"]}, is_detached=act["detached"]).start()
            case _:
                raise PermanentError("as planned")
    return total


@app.kind("free", **OPTIONS)
async def free(job: Job, plan: dict[str, Any]) -> Any:
    return await perform(job, plan)


@app.kind("priced", price=3, **OPTIONS)
async def priced(job: Job, plan: dict[str, Any]) -> Any:
    return await perform(job, plan)


@app.kind("budgeted", price=2, budget=40, **OPTIONS)
async def budgeted(job: Job, plan: dict[str, Any]) -> Any:
    return await perform(job, plan)


KINDS = ("free", "priced", "budgeted")


def tree(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    """A plan for a job. Every plan is different, or children would equal their ancestors."""
    acts: list[dict[str, Any]] = []
    for _ in range(dice.randrange(1, 4)):
        do = dice.choice(["step", "step", "sleep", "gather", "gather", "start", "fail"])
        if depth >= 3 and do in {"gather", "start"}:
            do = "step"
        if do == "step":
            acts.append({"do": do, "value": dice.randrange(100)})
        elif do == "sleep":
            acts.append({"do": do, "seconds": dice.choice([0.01, 0.3])})
        elif do == "gather":
            children = [tree(dice, depth + 1) for _ in range(dice.randrange(1, 5))]
            acts.append({"do": do, "children": children, "collects": dice.random() < 0.7})
        elif do == "start":
            acts.append({"do": do, "child": tree(dice, depth + 1), "detached": dice.random() < 0.5})
        elif dice.random() < 0.3:
            acts.append({"do": do})
    return {"kind": dice.choice(KINDS), "acts": acts, "name": dice.randrange(2**40)}


@dataclass
class Report:
    trees: int
    jobs: int
    deaths: int
    complaints: list[str]


async def run(dsn: str, *, trees: int, workers: int, deaths: int, seed: int) -> Report:
    dice = random.Random(seed)
    engine = await Engine.open(dsn, app)
    stop = asyncio.Event()
    services = [
        asyncio.create_task(service.run(stop))
        for service in (*(each(engine) for each in (canceler, ensurer, expirer, reaper, scheduler)), Notifier(engine))
    ]
    staff = [await hire(dsn) for _ in range(workers)]
    died = 0
    try:
        await engine.grant(TENANT, ACCOUNT, CREDITS)
        roots: list[Any] = []
        for _ in range(trees):
            plan = tree(dice)
            roots.append(await engine.submit(plan["kind"], {"plan": plan}, tenant=TENANT, account=ACCOUNT))
        canceled = dice.sample(roots, trees // 10)
        until = time.monotonic() + PATIENCE
        while await open_jobs(engine) and time.monotonic() < until:
            await asyncio.sleep(0.05)
            if died < deaths and dice.random() < 0.5:
                place = dice.randrange(workers)
                staff[place].send_signal(signal.SIGKILL)
                await staff[place].wait()
                staff[place] = await hire(dsn)
                died += 1
            if canceled and dice.random() < 0.3:
                job_id = canceled.pop().job_id
                await engine.cancel(TENANT, job_id)
        complaints = await account_for(engine)
        jobs = await value(engine, "select count(*) from millpond.jobs")
    finally:
        for process in staff:
            process.kill()
            await process.wait()
        stop.set()
        await asyncio.gather(*services, return_exceptions=True)
        await engine.close()
    return Report(trees, jobs, died, complaints)


async def value(engine: Engine, statement: str) -> Any:
    async with engine.db.connection() as connection:
        return await connection.fetchval(statement)


async def open_jobs(engine: Engine) -> int:
    return await value(
        engine,
        "select (select count(*) from millpond.jobs where phase <> 'ended') + (select count(*) from millpond.orphans)",
    )


async def account_for(engine: Engine) -> list[str]:
    """What is wrong when all jobs should have ended."""
    found = [str(violation) for violation in await engine.verify()]
    if left := await open_jobs(engine):
        found.append(f"{left} jobs have not ended")
    cost = await value(
        engine, "select coalesce(sum(case outcome when 'succeeded' then price else 0 end), 0) from millpond.jobs"
    )
    balance = await engine.balance(TENANT, ACCOUNT)
    if (balance.available, balance.held, balance.active) != (CREDITS - cost, 0, 0):
        found.append(f"the account is {balance}; the jobs have cost {cost}")
    unfinished = await value(
        engine,
        "select count(*) from millpond.batches b join millpond.jobs j on j.id = b.parent_id "
        "where j.outcome = 'succeeded' and b.submitted < b.total",
    )
    if unfinished:
        found.append(f"{unfinished} batches are incomplete")
    return found


async def hire(dsn: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.composition.trees", "--work", env=os.environ | {"DSN": dsn}
    )


async def work(dsn: str) -> None:
    engine = await Engine.open(dsn, app, pool_size=3)
    notifier = asyncio.create_task(Notifier(engine).run(asyncio.Event()))
    source = engine.source(name=f"w{os.getpid()}", lease=timedelta(seconds=2), heartbeat=timedelta(seconds=0.3))
    await Worker(source, app, slots=8).run(asyncio.Event())
    notifier.cancel()


async def main(options: argparse.Namespace) -> int:
    began = time.monotonic()
    with running_server() as server:
        async with migrated_template(server) as template, server.database(template) as dsn:
            report = await run(
                dsn, trees=options.trees, workers=options.workers, deaths=options.deaths, seed=options.seed
            )
    print(  # noqa: T201 - the result
        f"{report.trees} trees, {report.jobs} jobs, {report.deaths} workers killed, "
        f"{len(report.complaints)} violations, {time.monotonic() - began:.0f} s"
    )
    print("\n".join(report.complaints))  # noqa: T201 - the result
    return bool(report.complaints)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--deaths", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", action="store_true")
    given = parser.parse_args()
    if given.work:
        asyncio.run(work(os.environ["DSN"]))
    else:
        sys.exit(asyncio.run(main(given)))
