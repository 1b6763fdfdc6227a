"""What tests learn of the processes in which handlers run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.checks import until


async def begun(file: Path) -> dict[str, Any]:
    """What a handler has written when it has begun."""

    async def is_there() -> bool:
        return file.exists()

    await until(is_there)
    return json.loads(file.read_text())


def is_alive(pid: int) -> bool:
    """Whether it has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> None:
    async def is_gone() -> bool:
        return not is_alive(pid)

    await until(is_gone)
