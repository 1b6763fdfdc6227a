"""An app whose handlers run in processes of their own."""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from millpond import Backoff, Job, Millpond, MillpondError, PermanentError, TransientError
from millpond.worker import current_job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

app = Millpond()

ONCE: dict[str, Any] = {"run": "process", "attempts_max": 1}
QUICK: dict[str, Any] = {"run": "process", "backoff": Backoff()}


def here(file: str, **facts: Any) -> None:
    """Write that the code has got here, and in which process."""
    part = Path(f"{file}.part")
    part.write_text(json.dumps({"pid": os.getpid(), **facts}))
    part.rename(file)


# What must be killed


@app.kind("sleeps", **ONCE)
def sleeps(job: Job, file: str) -> None:
    here(file)
    time.sleep(3600)


@app.kind("sleeps_async", **ONCE)
async def sleeps_async(job: Job, file: str) -> None:
    here(file)
    time.sleep(3600)


@app.kind("computes", **ONCE)
def computes(job: Job, file: str) -> None:
    """In C, without the lock of the interpreter."""
    here(file)
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2**31 - 1)


@app.kind("matches", **ONCE)
def matches(job: Job, file: str) -> None:
    """In C, with the lock of the interpreter: no other thread of the process runs."""
    here(file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.kind("tidies", **ONCE)
def tidies(job: Job, file: str) -> None:
    here(file)
    try:
        time.sleep(3600)
    finally:
        Path(f"{file}.tidied").touch()


@app.kind("heeds", **ONCE)
def heeds(job: Job, file: str) -> None:
    here(file)
    while True:
        job.checkpoint()
        time.sleep(0.01)


@app.kind("starts_others", **ONCE)
def starts_others(job: Job, file: str) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    here(file, other=other.pid)
    time.sleep(3600)


@app.kind("late", time_limit=0.3, **ONCE)
def late(job: Job, file: str) -> None:
    here(file)
    hashlib.pbkdf2_hmac("sha256", b"word", b"salt", 2**31 - 1)


@app.kind("stalls", stall_limit=0.4, **ONCE)
def stalls(job: Job, file: str) -> None:
    here(file)
    re.match(r"(a+)+$", "a" * 60 + "b")


@app.kind("reports", stall_limit=30, **ONCE)
async def reports(job: Job) -> str:
    for n in range(20):
        await asyncio.sleep(0.01)
        await job.progress(n / 20)
    return "done"


# What ends its process


@app.kind("crashes", **ONCE)
def crashes(job: Job, how: str) -> None:
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "abort":
            os.abort()
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)


@app.kind("crashes_once", **QUICK)
def crashes_once(job: Job) -> int:
    if job.attempt == 1:
        os._exit(1)
    return job.attempt


@app.kind("leaves", **ONCE)
def leaves(job: Job) -> None:
    sys.exit(4)


# What goes well


@app.kind("pid", **ONCE)
def pid(job: Job) -> int:
    return os.getpid()


@app.kind("pid_async", **ONCE)
async def pid_async(job: Job) -> int:
    return os.getpid()


@app.kind("waits", **ONCE)
def waits(job: Job, file: str, go: str) -> int:
    here(file)
    while not Path(go).exists():
        job.checkpoint()
        time.sleep(0.01)
    return os.getpid()


@app.kind("inline")
async def inline(job: Job) -> int:
    return os.getpid()


class Order(msgspec.Struct):
    number: int
    words: str = "none"


@app.kind("ordered", **ONCE)
def ordered(job: Job, order: Order) -> dict[str, Any]:
    return {"number": order.number, "words": order.words}


@app.kind("prints", **ONCE)
def prints(job: Job) -> str:
    sys.stdout.write("x" * 100_000)
    sys.stderr.write("y" * 100_000)
    os.write(1, b"raw\n")
    return "done"


@app.kind("describes", **ONCE)
def describes(job: Job, word: str) -> dict[str, Any]:
    current = current_job()
    return {
        "word": word,
        "tenant": job.tenant,
        "account": job.account,
        "attempt": job.attempt,
        "kind": job.kind,
        "state": job.state,
        "is_current": current is not None and current.id == job.id,
    }


@app.kind("raises", run="process", attempts_max=2, backoff=Backoff())
def raises(job: Job, error: str) -> None:
    match error:
        case "permanent":
            raise PermanentError("It will never work.", hint="Give up.")
        case "transient":
            raise TransientError("Not now.")
        case _:
            raise ValueError(error)


@app.kind("warns", **ONCE)
def warns(job: Job) -> None:
    logging.getLogger("lens").warning("It is dusty.")


@app.kind("leaves_a_thread", **ONCE)
def leaves_a_thread(job: Job, go: str, file: str) -> None:
    """Its thread uses the job after its end, while the process runs another."""

    def speak() -> None:
        while not Path(go).exists():
            time.sleep(0.01)
        try:
            job.log("a ghost")
        except MillpondError as error:
            here(file, error=type(error).__name__)

    threading.Thread(target=speak, daemon=True).start()


# Every method of the job


@app.kind("does_all", stages=("one", "two"), price=5, **ONCE)
def does_all(job: Job, photo: str, path: str) -> dict[str, Any]:
    job.stage("two")
    job.progress(0.5)
    job.log("a line")
    job.log_soon("a line in the background")
    job.emit("some ")
    job.emit("text")
    job.check_cancel()
    job.checkpoint()
    job.capture(3)
    saved = job.save("words.txt", job.open(photo).decode().upper())
    copy = job.download(photo, Path(path) / "copy")
    job.upload(copy, "film.mp4")
    return {"saved": saved.id, "copy": copy.read_text(), "is_canceled": job.is_canceled}


@app.kind("does_all_async", stages=("one", "two"), price=5, **ONCE)
async def does_all_async(job: Job, photo: str, path: str) -> dict[str, Any]:
    await job.stage("two")
    await job.progress(0.5)
    await job.log("a line")
    job.log_soon("a line in the background")
    await job.emit("some ")
    await job.emit("text")
    await job.check_cancel()
    await job.checkpoint()
    job.capture(3)
    saved = await job.save("words.txt", (await job.open(photo)).decode().upper())
    copy = await job.download(photo, Path(path) / "copy")
    await job.upload(copy, "film.mp4")
    return {"saved": saved.id, "copy": copy.read_text(), "is_canceled": job.is_canceled}


@app.kind("part", run="process")
def part(job: Job, number: int) -> int:
    if number < 0:
        raise PermanentError("It is negative.")
    return number


@app.kind("composed", run="process", price=1, budget=100)
def composed(job: Job, parts: int) -> dict[str, Any]:
    first = job.step("first", os.getpid)
    done = job.gather(*(job.child("part", {"number": number}) for number in range(parts)))
    one = job.child("part", {"number": 100}).wait()
    (failed,) = job.gather(job.child("part", {"number": -1}), return_exceptions=True)
    job.sleep(0.01)
    answer = job.ask("Go on?", who="operator", schema=bool)
    return {
        "first": first,
        "numbers": [child.output for child in done],
        "one": one.output,
        "failed": failed.details["error"]["message"],
        "answer": answer,
    }


@app.kind("composed_async", run="process", price=1, budget=100)
async def composed_async(job: Job, parts: int) -> dict[str, Any]:
    first = await job.step("first", os.getpid)
    done = await job.gather(*(job.child("part", {"number": number}) for number in range(parts)))
    one = await job.child("part", {"number": 100})
    (failed,) = await job.gather(job.child("part", {"number": -1}), return_exceptions=True)
    await job.sleep(0.01)
    answer = await job.ask("Go on?", who="operator", schema=bool)
    return {
        "first": first,
        "numbers": [child.output for child in done],
        "one": one.output,
        "failed": failed.details["error"]["message"],
        "answer": answer,
    }


@app.kind("parks", run="process", expires_in="1h")
def parks(job: Job) -> Any:
    if job.answer is None:
        job.park({"asked": True})
    return [job.memo, job.answer]


@app.kind("misreads", **ONCE)
def misreads(job: Job) -> None:
    job.open("art_00000000000000000000000000")


# Resources


def note_event(text: str) -> None:
    """Append to the file that the test has named."""
    with Path(os.environ["APART_EVENTS"]).open("a") as file:
        file.write(f"{text} {os.getpid()}\n")


@app.resource
def engine_room() -> Iterator[str]:
    note_event("open engine_room")
    yield "steam"
    note_event("close engine_room")


@app.resource
async def pump(engine_room: str) -> AsyncIterator[str]:
    note_event("open pump")
    yield f"pump of {engine_room}"
    note_event("close pump")


@app.resource
def broken() -> str:
    note_event("open broken")
    if Path(os.environ["APART_EVENTS"]).read_text().count("open broken") < 2:
        raise OSError("The card is gone.")
    return "mended"


@app.resource
def fatal() -> str:
    os._exit(5)


@app.kind("pumps", **ONCE)
def pumps(job: Job, pump: str, word: str) -> dict[str, Any]:
    return {"pump": pump, "word": word, "pid": os.getpid()}


@app.kind("pumps_async", **ONCE)
async def pumps_async(job: Job, engine_room: str, pump: str, order: Order) -> dict[str, Any]:
    return {"pump": pump, "room": engine_room, "number": order.number, "pid": os.getpid()}


@app.kind("pumps_inline")
async def pumps_inline(job: Job, word: str, pump: str) -> dict[str, Any]:
    return {"pump": pump, "word": word, "pid": os.getpid()}


@app.kind("mended", **QUICK)
def mended(job: Job, broken: str) -> list[Any]:
    return [broken, job.attempt]


@app.kind("mended_inline", backoff=Backoff())
def mended_inline(job: Job, broken: str) -> list[Any]:
    return [broken, job.attempt]


@app.kind("doomed", **ONCE)
def doomed(job: Job, fatal: str) -> None: ...
