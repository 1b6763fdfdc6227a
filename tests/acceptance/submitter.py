"""A customer of the kill test, in a process of its own: submits numbered jobs and writes down what it was told.

    python -m tests.acceptance.submitter <dsn> <book> <jobs>

The book is appended to, a line before every try (``try 17``) and after every answer (``ack 17 <id>``), so that one
who is killed and starts again knows where it was. Most jobs have a key; a customer without one tries again too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from millpond import lifeline
from millpond.engine.engine import Engine
from millpond.errors import MillpondError, StoreError, UnavailableError
from tests.acceptance.product import app

TENANTS = ("acme", "globex", "initech")
ACCOUNTS = ("ann", "bob")
CROWD = 40
PAUSE = 0.1


def kind_of(number: int) -> str:
    """The mixture: mostly work, some of it awkward."""
    match number % 100:
        case 7 | 57:
            return "mortal"
        case 13 | 63:
            return "long"
        case rest if rest % 10 == 3:
            return "ask"
        case rest if rest % 10 in {5, 8}:
            return "shaky"
        case rest if rest % 2:
            return "nap"
        case _:
            return "sum"


def owner_of(number: int) -> dict[str, Any]:
    return {"tenant": TENANTS[number % len(TENANTS)], "account": ACCOUNTS[number // 7 % len(ACCOUNTS)]}


def key_of(number: int) -> str | None:
    return None if number % 11 == 0 else f"k{number}"


@dataclass(slots=True)
class Book:
    """What was tried and what was answered, by number."""

    path: Path
    tries: dict[int, int] = field(default_factory=dict)
    acks: dict[int, list[UUID]] = field(default_factory=dict)

    def read(self) -> None:
        self.tries.clear()
        self.acks.clear()
        text = self.path.read_text() if self.path.exists() else ""
        for line in text[: text.rfind("\n") + 1].splitlines():  # A line may be half written when we look.
            match line.split():
                case ["try", number]:
                    self.tries[int(number)] = self.tries.get(int(number), 0) + 1
                case ["ack", number, job_id]:
                    self.acks.setdefault(int(number), []).append(UUID(job_id))
                case _:
                    raise AssertionError(line)

    def write(self, *words: Any) -> None:
        # One write and no buffer: a line is there as a whole or not at all, whatever happens to us.
        with self.path.open("ab", buffering=0) as file:
            file.write(" ".join(map(str, words)).encode() + b"\n")


async def main(dsn: str, path: str, jobs: int) -> None:
    book = Book(Path(path))
    book.read()
    engine = await opened(dsn)
    todo = [number for number in range(jobs) if number not in book.acks]
    for first in range(0, len(todo), CROWD):
        await asyncio.gather(*(submit(engine, book, number) for number in todo[first : first + CROWD]))
        await asyncio.sleep(PAUSE)
    await engine.close()


async def opened(dsn: str) -> Engine:
    while True:
        try:
            return await Engine.open(dsn, app)
        except StoreError:
            await asyncio.sleep(PAUSE)


async def submit(engine: Engine, book: Book, number: int) -> None:
    while True:
        book.write("try", number)
        try:
            submitted = await engine.submit(
                kind_of(number), {"n": number}, **owner_of(number), idempotency_key=key_of(number)
            )
        except UnavailableError:
            await asyncio.sleep(PAUSE)
        except MillpondError as error:
            book.write("refused", number, repr(error))
            os._exit(1)
        else:
            book.write("ack", number, submitted.job_id)
            return


if __name__ == "__main__":
    lifeline.stop_with_parent()
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
