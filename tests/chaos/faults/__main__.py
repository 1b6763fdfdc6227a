"""Faults in a full deployment under load, and an account of every acknowledged request after each.

    make faults ARGS="--rounds 200"
    make faults ARGS="--rounds 20 --without-durability"   # shows that a loss is found

In each round customers submit and cancel jobs and trees of jobs, and schedules fire, while one fault after the other
strikes: processes are killed, ended and stopped, the database is killed, restarted, stopped, frozen and demoted, its
disk is full, a log is not read, clocks jump, wires are cut. Then everything is healed, each request is repeated until
it is acknowledged, and the customers' record is compared with jobs, children, due times, outcomes, credits, files,
webhooks and `millpond verify`.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from millpond import Engine
from millpond.engine.webhooks.vault import Vault
from millpond.outbound import Outbound
from millpond.webhooks import ENDS
from tests.chaos.faults.app import ACCOUNT, TENANT, app
from tests.chaos.faults.checks import FLAKY_KIND, Checks
from tests.chaos.faults.deployment import Deployment
from tests.chaos.faults.faults import FAULTS, Scene, kill_a_backend, kill_the_database
from tests.chaos.faults.load import Load
from tests.chaos.faults.postgres import Postgres, SmallDisk
from tests.chaos.faults.schedules import Due
from tests.doubles.receivers import Receivers, receivers

GRANT = 10**9
ROUND_SECONDS = 1_200.0
DISK_MEGABYTES, STORAGE_MEGABYTES = 4_096, 512


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds, and how large they are."""

    rounds: int
    seconds: float = 2.0
    customers: int = 6
    seed: int = 1
    faults: tuple[str, ...] = tuple(FAULTS)
    is_durable: bool = True


@dataclass(slots=True)
class Report:
    """What came of it."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    children: int = 0
    due_times: int = 0
    webhooks: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    starts: int = 0
    took: float = 0.0
    complaints: list[str] = field(default_factory=list)


async def run(plan: Plan, folder: Path) -> Report:
    """All of it, from an empty folder to the last check."""
    report, began = Report(), time.monotonic()
    disk, storage = SmallDisk(folder / "disk", DISK_MEGABYTES), SmallDisk(folder / "storage", STORAGE_MEGABYTES)
    faults = [name for name in plan.faults if not name.startswith("fill_") or (disk.is_own and storage.is_own)]
    if faults != list(plan.faults):
        _print("left out: full disks, since only root can mount a file system that may be filled")
    key = base64.b64encode(os.urandom(32)).decode()
    postgres = Postgres(disk.folder / "data", folder / "postgres.log", is_durable=plan.is_durable)
    deployment = Deployment(folder, postgres, key, disk, storage)
    try:
        await postgres.start()
        async with receivers() as receiver:
            engine = await Engine.open(postgres.dsn, app, outbound=Outbound("loopback"), vault=Vault.from_text(key))
            try:
                await _rounds(plan, faults, deployment, engine, receiver, report)
            finally:
                await engine.close()
    finally:
        postgres.thaw()
        await deployment.close()
        await postgres.stop()
        disk.close()
        storage.close()
        report.took = time.monotonic() - began
    return report


async def _rounds(
    plan: Plan, faults: list[str], deployment: Deployment, engine: Engine, receiver: Receivers, report: Report
) -> None:
    # The customers have dice of their own: how often they cast them depends on time, and the faults on the seed alone.
    dice, customers_dice = random.Random(plan.seed), random.Random(plan.seed)
    drawn = _draw(faults, plan.rounds, dice)
    await engine.grant(TENANT, ACCOUNT, GRANT)
    _, fleet_secret = await engine.access.make_key(scope="worker", actor="faults")
    _, api_key = await engine.access.make_key(scope="client", tenant=TENANT, account=ACCOUNT, actor="faults")
    _, secret = await engine.endpoints.make(TENANT, url=receiver.url("healthy", "all"))
    await engine.endpoints.make(
        TENANT, url=receiver.url("flaky", "flaky", of=4), secret=secret, kinds=[FLAKY_KIND], events=["started", *ENDS]
    )
    await deployment.start(fleet_secret)
    _, operator_key = await engine.access.make_key(scope="operator", actor="faults")
    due = Due(engine)
    schedule_id = (await due.find("report")).id
    await asyncio.to_thread(deployment.postgres.execute, "checkpoint")  # what is lost without durability is jobs
    load = Load(deployment.urls, api_key, operator_key, schedule_id, customers_dice, report.complaints)
    checks = Checks(engine.db, load, deployment, receiver, secret, GRANT, customers_dice, report.complaints, due)
    report.statuses = load.statuses
    scene = Scene(deployment, dice, plan.seconds)
    for names in ([], *drawn):  # the first round has no fault: everything is up when it has ended
        began, before = time.monotonic(), len(load.orders)
        try:
            async with asyncio.timeout(ROUND_SECONDS):
                await _round(plan, names, scene, load, checks)
        except Exception:  # noqa: BLE001 - whatever it is, the report says so
            report.complaints.append(traceback.format_exc())
        report.faults.update(names)
        state = f"{len(report.complaints)} violations" if report.complaints else "ok"
        report.jobs, report.webhooks = len(load.orders), checks.webhooks_read
        report.children, report.due_times = checks.children, due.times.total()
        report.starts = sum(program.starts for program in deployment.programs.values())
        took = time.monotonic() - began
        _print(f"{report.rounds:4} {' + '.join(names):44} {report.jobs - before:5} jobs {took:6.1f} s  {state}")
        report.rounds += 1
        if report.complaints:
            return
    await checks.webhooks(are_all_due=True)
    report.webhooks = checks.webhooks_read


def _draw(faults: list[str], rounds: int, dice: random.Random) -> list[list[str]]:
    """The faults of each round, alone or in twos; each comes once before any comes again."""
    deck: list[str] = []
    drawn: list[list[str]] = []
    for _ in range(rounds):
        drawn.append([])
        for _ in range(dice.choice([1, 1, 2])):
            deck = deck or dice.sample(faults, len(faults))
            drawn[-1].append(deck.pop())
    return drawn


async def _round(plan: Plan, names: list[str], scene: Scene, load: Load, checks: Checks) -> None:
    stop = asyncio.Event()
    await checks.due.begin()
    async with asyncio.TaskGroup() as group:
        customers = group.create_task(load.run(stop, plan.customers))
        await scene.last(0.25)
        for name in names:
            await FAULTS[name](scene)
        await scene.deployment.heal()
        keeping = group.create_task(_keep(scene.deployment))
        await scene.last(0.5)  # it recovers under load
        stop.set()
        await customers
        await load.finish()
        checks.complaints += await checks.due.end()
        await checks.settle()
        await checks.run()
        if not checks.complaints:
            await checks.webhooks(are_all_due=False)
        keeping.cancel()


async def _keep(deployment: Deployment) -> None:
    while True:
        await deployment.keep()
        await asyncio.sleep(0.2)


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201


async def _run_until_ended(plan: Plan, folder: Path) -> Report:
    """End everything too when this program is asked to end."""
    running = asyncio.ensure_future(run(plan, folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    return await running


def main() -> None:
    words = argparse.ArgumentParser(prog="make faults", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--seconds", type=float, default=2.0, help="how long a fault lasts, about")
    words.add_argument("--customers", type=int, default=6)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--fault", action="append", choices=list(FAULTS), help="only this one; repeatable")
    words.add_argument("--without-durability", action="store_true", help="acknowledge commits before they are on disk")
    words.add_argument("--keep", action="store_true", help="keep the folder with logs and files")
    given = words.parse_args()
    memory = Path("/dev/shm")  # noqa: S108 - the database need not survive the machine
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=memory if os.access(memory, os.W_OK) else None))
    folder.chmod(0o711)
    faults = tuple(given.fault or FAULTS)
    if given.without_durability:
        faults = (kill_the_database.__name__, kill_a_backend.__name__)
    plan = Plan(given.rounds, given.seconds, given.customers, given.seed, faults, not given.without_durability)
    try:
        report = asyncio.run(_run_until_ended(plan, folder))
    except (asyncio.CancelledError, KeyboardInterrupt):
        shutil.rmtree(folder, ignore_errors=True)
        sys.exit(1)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items()))
    _print(f"\n{report.rounds - 1} rounds in {report.took:.0f} s: {counts}")
    _print(f"{report.jobs} requests for jobs, {report.children} children, {report.due_times} due times of a schedule")
    _print(f"{report.webhooks} webhooks, {report.starts} starts of processes")
    _print(f"answers: {', '.join(f'{count} of {status}' for status, count in sorted(report.statuses.items()))}")
    for complaint in report.complaints[:30]:
        _print(f"violation: {complaint}")
    if given.keep or (report.complaints and not given.without_durability):
        _print(f"kept: {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    if given.without_durability:
        _print("the loss was found, as it should be" if report.complaints else "FAILED: nothing was found missing")
        sys.exit(not report.complaints)
    _print(f"{len(report.complaints)} violations")
    sys.exit(bool(report.complaints))


if __name__ == "__main__":
    main()
