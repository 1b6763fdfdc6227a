"""A process with those that it has started, and how a test waits for their end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec

from tests.acceptance.processes import until
from tests.children import Living, descendants

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.acceptance.processes import Command

STARTER = """
import json, signal, subprocess, sys
from millpond import lifeline
lifeline.stop_with_parent()
options = json.loads(sys.argv[1])
guard = lifeline.Guard()
words = guard.words(sys.argv[2:]) if options.pop("guarded", False) else sys.argv[2:]
options["env"] = lifeline.environment()
options["pass_fds"] = [*options.get("pass_fds", []), lifeline.descriptor(), guard.descriptor]
print(subprocess.Popen(words, **options).pid, flush=True)
signal.pause()
"""
"""Starts a program, tells its number, and lives until it is killed."""
MILLPOND = (sys.executable, "-m", "millpond")


def starter(words: Sequence[str | Path], **options: object) -> Sequence[str | Path]:
    return [sys.executable, "-c", STARTER, msgspec.json.encode(options).decode(), *words]


async def all_gone(*family: Living) -> None:
    assert family

    async def are_gone() -> bool:
        return not any(each.is_alive for each in family)

    await until(are_gone)


def parts_of(family: Sequence[Living], programs: Sequence[str]) -> set[str]:
    """Which of these programs they are."""
    return {each for each in programs for process in family if each in process.words}


async def family_of(command: Command, *programs: str) -> list[Living]:
    """All that a command has started, once these are among it."""

    async def are_there() -> bool:
        assert command.is_running, command.stderr
        return parts_of(descendants(command.process.pid), programs) >= set(programs)

    await until(are_there)
    return descendants(command.process.pid)
