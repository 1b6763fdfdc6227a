"""A product whose jobs behave as well and as badly as jobs do. Run by real workers: ``millpond worker product.py``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from millpond import CanceledError, Millpond, PermanentError, TransientError
from millpond.retry import Backoff

app = Millpond()

SOON: dict[str, Any] = {"backoff": Backoff(first=timedelta(milliseconds=10), jitter=0)}
OFTEN: dict[str, Any] = {"lapses_max": 1_000, "interruptions_max": 1_000, "attempts_max": 1_000}


@app.kind("quick", price=2)
def quick(job: Any, number: int = 0) -> dict[str, int]:
    return {"number": number}


@app.kind("quick_async", price=2)
async def quick_async(job: Any, number: int = 0) -> dict[str, int]:
    await job.progress(0.5)
    return {"number": number}


@app.kind("waits", price=2)
async def waits(job: Any, file: str) -> str:
    """Runs until a file is there, and looks at nothing else."""
    while not Path(file).exists():
        await asyncio.sleep(0.01)
    return "done"


@app.kind("waits_plain", price=2)
def waits_plain(job: Any, file: str) -> str:
    while not Path(file).exists():
        time.sleep(0.01)
    return "done"


@app.kind("deaf", price=2)
async def deaf(job: Any) -> None:
    """Takes every request to stop for somebody else's."""
    while True:
        with suppress(BaseException):
            await asyncio.sleep(3600)


@app.kind("deaf_plain", price=2)
def deaf_plain(job: Any) -> None:
    while True:
        with suppress(BaseException):
            time.sleep(0.05)


@app.kind("heedful", price=2)
async def heedful(job: Any) -> None:
    """Would go on for ever, and asks at every step whether it may."""
    while True:
        await job.checkpoint()
        await asyncio.sleep(0.01)


@app.kind("heedful_plain", price=2)
def heedful_plain(job: Any) -> None:
    while True:
        job.progress(0.5)
        time.sleep(0.01)


@app.kind("asks", price=2)
def asks(job: Any) -> None:
    """Would rather ask than be interrupted."""
    while not job.is_canceled:
        time.sleep(0.01)
    raise CanceledError


@app.kind("limited", price=2, time_limit=0.2, attempts_max=2, **SOON)
async def limited(job: Any) -> None:
    await asyncio.sleep(3600)


@app.kind("limited_plain", price=2, time_limit=0.2, attempts_max=2, **SOON)
def limited_plain(job: Any) -> None:
    while True:
        time.sleep(0.01)


@app.kind("flaky", price=2, **SOON)
def flaky(job: Any) -> int:
    if job.attempt < 3:
        raise TransientError("Not yet.", retry_after=timedelta(milliseconds=10))
    return job.attempt


@app.kind("broken", price=2, attempts_max=2, **SOON)
def broken(job: Any) -> None:
    raise ZeroDivisionError("never works")


@app.kind("exits", price=2, attempts_max=2, **SOON)
def exits(job: Any) -> None:
    sys.exit(3)


@app.kind("exits_async", price=2, attempts_max=2, **SOON)
async def exits_async(job: Any) -> None:
    sys.exit(3)


@app.kind("exits_in_time", price=2, attempts_max=2, time_limit=60, **SOON)
async def exits_in_time(job: Any) -> None:
    sys.exit(3)


@app.kind("odd", price=2)
def odd(job: Any) -> None:
    """Says why in words that no database can hold."""
    raise PermanentError("a \x00 in it", place=Path("/tmp"), number=float("nan"), text="\x00", them={1, 2})  # noqa: S108


@app.kind("huge", price=2)
def huge(job: Any) -> str:
    return "x" * 1_000_000


@app.kind("forgetful", price=2)
async def forgetful(job: Any) -> None:
    """Forgets to await, which Python only grumbles about."""
    job.log("never sent").close()
    await job.log("sent")


@app.kind("asking", price=2, expires_in=3600)
async def asking(job: Any) -> Any:
    """Waits for somebody's answer without holding a worker."""
    if job.answer is None:
        job.park({"question": "may I?"})
    return job.answer


@app.kind("poison", price=7, lapses_max=2)
def poison(job: Any) -> None:
    """Takes its whole worker with it."""
    os.kill(os.getpid(), signal.SIGKILL)


# The mixture of the kill test: kinds that survive any number of kills.


@app.kind("sum", price=3, **OFTEN)
def sum_(job: Any, n: int) -> int:
    return n + 1


@app.kind("nap", price=3, **OFTEN)
async def nap(job: Any, n: int) -> int:
    await asyncio.sleep(0.002)
    await job.progress(0.9)
    return n + 1


@app.kind("shaky", price=3, **OFTEN, **SOON)
async def shaky(job: Any, n: int) -> int:
    if (n + job.epoch) % 3:
        raise TransientError("Once more.")
    job.capture(1)
    return n


@app.kind("ask", price=3, expires_in=3600, **OFTEN)
async def ask(job: Any, n: int) -> Any:
    if job.answer is None:
        job.park(n)
    return job.answer


@app.kind("mortal", price=3, expires_in=1.5, **OFTEN)
async def mortal(job: Any, n: int) -> None:
    """Runs longer than it may live."""
    await asyncio.sleep(60)


@app.kind("long", price=3, **OFTEN)
async def long(job: Any, n: int) -> None:
    """Runs until it is canceled."""
    while True:
        await job.checkpoint()
        await asyncio.sleep(0.02)
