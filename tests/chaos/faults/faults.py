"""The faults. Each is applied while customers are at work, lasts for a while, and is then healed."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.faults.deployment import Deployment, Program

Fault = Callable[["Scene"], Awaitable[None]]


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
    program = scene.any_program()
    program.signal(signal.SIGKILL)
    await scene.last(0.3)


async def kill_all_processes(scene: Scene) -> None:
    for program in scene.deployment.programs.values():
        program.signal(signal.SIGKILL)
    await scene.last(0.3)


async def end_a_process(scene: Scene) -> None:
    program = scene.any_program()
    if program.process is not None:
        program.process.terminate()
    await scene.last()


async def stop_a_process(scene: Scene) -> None:
    """Long enough for its leases to run out: it goes on as if nothing had happened."""
    scene.any_program().signal(signal.SIGSTOP)
    await scene.last(2.0)


async def kill_the_database(scene: Scene) -> None:
    postgres = scene.deployment.postgres
    await postgres.stop(signal.SIGKILL)
    await scene.last(0.3)
    await postgres.start()


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
    postgres = scene.deployment.postgres
    await asyncio.to_thread(postgres.fill)
    await scene.last(1.5)
    await asyncio.to_thread(postgres.empty)
    if not postgres.is_running:
        await postgres.start()


async def block_a_log(scene: Scene) -> None:
    """Nobody reads the output of an API server."""
    program = scene.deployment.programs[scene.dice.choice(["api-1", "api-2"])]
    program.is_read.clear()
    await scene.last(2.0)


async def move_the_clocks(scene: Scene) -> None:
    """The clocks of all processes but the database's jump by up to an hour, forward or back."""
    scene.deployment.clock.write_text(str(scene.dice.uniform(-3_600, 3_600)))
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
        restart_the_database,
        stop_the_database,
        freeze_the_database,
        demote_the_database,
        fill_the_disk,
        block_a_log,
        move_the_clocks,
        cut_the_workers,
        cut_the_database,
    )
}
