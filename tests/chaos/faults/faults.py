"""The faults. Each is applied while customers are at work, lasts for a while, and is then healed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2

from tests.chaos.faults.deployment import until_ready
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.chaos.faults.deployment import Deployment, Program

Fault = Callable[["Scene"], Awaitable[None]]

REQUESTS_TO_BLOCK = 50
"""Requests whose log lines do not fit into a pipe."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a fault may touch, and its chance."""

    deployment: Deployment
    dice: random.Random
    seconds: float

    def any_program(self) -> Program:
        return self.dice.choice(list(self.deployment.programs.values()))

    async def last(self, share: float = 1.0) -> None:
        await asyncio.sleep(self.seconds * share)


async def kill_a_process(scene: Scene) -> None:
    """Be it one that a program of the deployment has started."""
    pids = [pid for program in scene.deployment.programs.values() for pid in program.pids]
    if pids:
        with suppress(ProcessLookupError):
            os.kill(scene.dice.choice(pids), signal.SIGKILL)
    await scene.last(0.3)


async def kill_all_processes(scene: Scene) -> None:
    """All of the deployment; in half of the cases the database too."""
    for program in scene.deployment.programs.values():
        program.signal(signal.SIGKILL)
    if scene.dice.random() < 0.5:
        await kill_the_database(scene)
    await scene.last(0.3)


async def end_a_process(scene: Scene) -> None:
    program = scene.any_program()
    if program.process is not None:
        program.signal(signal.SIGCONT)
        program.process.terminate()
        await asyncio.to_thread(program.process.wait, PATIENCE)


async def stop_a_process(scene: Scene) -> None:
    """Long enough for its leases to run out: it goes on as if nothing had happened."""
    scene.any_program().signal(signal.SIGSTOP)
    await scene.last(2.0)


async def kill_the_database(scene: Scene) -> None:
    postgres = scene.deployment.postgres
    await postgres.stop(signal.SIGKILL)
    await scene.last(0.3)
    await postgres.start()


async def kill_a_backend(scene: Scene) -> None:
    scene.deployment.postgres.kill_backend(scene.dice)
    await scene.last()


async def restart_the_database(scene: Scene) -> None:
    await scene.deployment.postgres.stop(scene.dice.choice([signal.SIGINT, signal.SIGQUIT]))
    await scene.deployment.postgres.start()
    await scene.last(0.5)


async def stop_the_database(scene: Scene) -> None:
    await scene.deployment.postgres.stop()
    await scene.last(2.0)
    await scene.deployment.postgres.start()


async def freeze_the_database(scene: Scene) -> None:
    scene.deployment.postgres.freeze()
    await scene.last(2.0)
    scene.deployment.postgres.thaw()


async def demote_the_database(scene: Scene) -> None:
    """It answers, and only reads."""
    await scene.deployment.postgres.demote()
    await scene.last()
    await scene.deployment.postgres.promote()


async def fill_the_disk(scene: Scene) -> None:
    """PostgreSQL may end for it; it is started when there is room again."""
    postgres, disk = scene.deployment.postgres, scene.deployment.disk
    disk.fill()
    await scene.last(1.5)
    disk.empty()
    if not postgres.is_running:
        await postgres.start()


async def fill_the_storage(scene: Scene) -> None:
    """No file can be written."""
    scene.deployment.storage.fill()
    await scene.last(1.5)
    scene.deployment.storage.empty()


async def block_a_log(scene: Scene) -> None:
    """Nobody reads the output of an API server. It must answer all the same."""
    await scene.deployment.heal()
    number = scene.dice.randrange(2)
    program, url = scene.deployment.programs[f"api-{number + 1}"], scene.deployment.urls[number]
    try:
        async with asyncio.timeout(PATIENCE), httpx2.AsyncClient(timeout=PATIENCE) as http:
            await until_ready(http, f"{url}/readyz")
            program.stop_reading()
            unread = -1
            while unread != (unread := program.unread_bytes()):  # what does not fit into the pipe is not in it
                for _ in range(REQUESTS_TO_BLOCK):
                    await http.get(f"{url}/healthz")
            await scene.last()
            await until_ready(http, f"{url}/readyz")
    except TimeoutError:
        raise AssertionError(f"{program.name} does not answer while nobody reads its log") from None
    assert program.unread_bytes() > 0, "The log was not blocked."


async def move_the_clocks(scene: Scene) -> None:
    """The clock of each process but the database's jumps, forward or back, by an amount of its own."""
    for program in scene.deployment.programs.values():
        most = scene.dice.choice([0, 30, 3_600, 100_000])
        program.clock.write_text(str(scene.dice.uniform(-most, most)))
    await scene.last(1.5)


async def cut_the_workers(scene: Scene) -> None:
    wire = scene.deployment.to_server
    assert wire is not None
    scene.dice.choice([wire.cut, wire.freeze])()
    await scene.last(2.0)


async def cut_the_database(scene: Scene) -> None:
    wire = scene.deployment.to_database
    assert wire is not None
    scene.dice.choice([wire.cut, wire.freeze])()
    await scene.last(1.5)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        kill_a_process,
        kill_all_processes,
        end_a_process,
        stop_a_process,
        kill_the_database,
        kill_a_backend,
        restart_the_database,
        stop_the_database,
        freeze_the_database,
        demote_the_database,
        fill_the_disk,
        fill_the_storage,
        block_a_log,
        move_the_clocks,
        cut_the_workers,
        cut_the_database,
    )
}
