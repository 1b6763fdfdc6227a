"""The product that the dashboard is shown with: kinds that end well or badly, at once, slowly, or not by themselves."""

from __future__ import annotations

import asyncio
import struct
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from millpond import Millpond, PermanentError
from millpond.lifecycle import lifecycle
from millpond.retry import Backoff

app = Millpond()

STEPS = 8
STUBBORN = lifecycle(
    "stubborn",
    """
    *       -> pending  submitted
    pending -> working  started
    pending -> canceled canceled
    pending -> expired  expired
    pending -> failed   failed
    working -> pending  requeued
    working -> done     succeeded
    working -> failed   failed
    working -> canceled canceled
    working -> expired  expired
    failed  -> pending  retried
    """,
    ends="done=succeeded failed=failed canceled=canceled expired=expired",
)
REVIEWED = lifecycle(
    "reviewed",
    """
    *          -> reading     submitted
    reading    -> refused     blocked failed
    reading    -> asking      parked
    reading    -> writing     answered
    reading    -> expired     expired
    asking     -> writing     answered
    asking     -> expired     expired
    writing    -> withheld    blocked failed
    writing    -> delivering  delivering
    writing    -> expired     expired
    delivering -> completed   succeeded
    delivering -> failed      failed
    delivering -> expired     expired
    """,
    ends="refused=blocked withheld=blocked completed=succeeded failed=failed expired=expired",
)


@app.kind("echo")
def echo(job: Any, **anything: Any) -> dict[str, Any]:
    """Gives back what it was given."""
    return anything


@app.kind("paint", price=4, stages=("load", "denoise", "upload"))
async def paint(
    job: Any, prompt: str = "a lighthouse", width: int = 96, height: int = 64, wait_for: str = ""
) -> dict[str, Any]:
    """Paints a picture, slowly enough to be watched; until a file is there, if it is told one."""
    await job.stage("load")
    await job.log(f"loading a model for {prompt}")
    while wait_for and not Path(wait_for).exists():
        await asyncio.sleep(0.02)
    await job.stage("denoise")
    for step in range(1, STEPS + 1):
        await asyncio.sleep(0.1)
        await job.progress(step / (STEPS + 1))
    await job.log("the sky came out flat", level="warning")
    await job.stage("upload")
    made = await job.save("picture.png", picture(width, height), "image/png")
    return {"picture": made.id, "prompt": prompt}


@app.kind("narrate", attempts_max=2, backoff=Backoff(first=timedelta(milliseconds=10), jitter=0))
async def narrate(job: Any, folder: str) -> dict[str, Any]:
    """Emits what is in the files 1, 2, 3 … of a folder as they appear, until one is empty.

    The first attempt fails at a file that says so, and the second begins after it.
    """
    is_behind = job.attempt == 1
    for number in range(1, 1_000):
        path = Path(folder) / str(number)
        while not path.exists():
            await asyncio.sleep(0.02)
        text = path.read_text("utf-8")
        if text == "fail" and job.attempt == 1:
            raise RuntimeError("again")
        if not text:
            break
        if is_behind:
            await job.emit(text)
        is_behind = is_behind or text == "fail"
    return {"files": number}


@app.kind("slow", price=2, stages=("warming", "working"))
async def slow(job: Any, note: str = "", lines: int = 0) -> None:
    """Runs until it is canceled."""
    await job.stage("warming")
    for line in range(lines):
        await job.log(f"line {line}")
    await job.stage("working")
    await job.progress(0.3)
    while True:
        await asyncio.sleep(0.05)
        await job.checkpoint()


@app.kind("broken", price=3, attempts_max=2, backoff=Backoff(first=timedelta(milliseconds=10), jitter=0))
async def broken(job: Any, number: int = 7) -> None:
    """Never works."""
    await job.log(f"about to fail with {number}", level="error")
    raise ValueError(f"there are {number} bytes left, and {number + 1} are needed")


@app.kind("refused", price=3)
async def refused(job: Any, reason: str = "The picture has no faces.") -> None:
    """Fails for good at the first try."""
    raise PermanentError(reason)


@app.kind("parked", price=1, expires_in="1h")
async def parked(job: Any, question: str = "May it go out?") -> Any:
    """Waits for somebody's answer."""
    if job.answer is None:
        job.park({"question": question})
    return job.answer


@app.kind("stubborn", price=2, attempts_max=1, lifecycle=STUBBORN)
async def stubborn(job: Any, wait_for: str) -> str:
    """Fails until a file is there; a retry goes on as the same job."""
    if not Path(wait_for).exists():
        raise PermanentError("There is no file yet.")
    return "done"


@app.kind("render", price=5, runs="fleet", queue="gpu", stages=("loading", "sampling"))
async def render(job: Any, scene: str = "a harbour") -> dict[str, Any]:
    """Runs on the fleet."""
    await job.stage("loading")
    return {"scene": scene}


@app.kind("upscale", price=2, runs="fleet")
async def upscale(job: Any, factor: int = 2) -> None:
    """Runs on the fleet, on a route of its own."""


@app.kind("review", lifecycle=REVIEWED, is_open=False, expires_in="1h")
async def review(job: Any) -> None:
    """Is not submitted by clients."""


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """What is around it."""

    colour: Literal["gold", "black", "none"] = "none"
    width: Annotated[int, Meta(ge=0, le=40, description="Millimetres.")] = 4


class Layer(msgspec.Struct, forbid_unknown_fields=True):
    """Something that lies over the others."""

    text: Annotated[str, Meta(min_length=1, max_length=80)]
    opacity: Annotated[float, Meta(ge=0, le=1)] = 1.0


class Composition(msgspec.Struct, forbid_unknown_fields=True):
    """An input with all that a form must show."""

    title: Annotated[str, Meta(min_length=3, max_length=60, description="What it is called.")]
    style: Literal["ink", "oil", "pastel"] = "ink"
    copies: Annotated[int, Meta(ge=1, le=10, description="Each costs two credits.")] = 1
    is_draft: bool = False
    layers: Annotated[list[Layer], Meta(max_length=3)] = []
    frame: Frame | None = None
    photo: str | None = None
    extra: dict[str, Any] = {}


@app.kind("compose", price=lambda composition: 2 * composition.copies)
async def compose(job: Any, composition: Composition) -> dict[str, Any]:
    """Composes a picture of several layers."""
    await job.log(f"composing {composition.title}")
    return msgspec.to_builtins(composition)


@app.kind("frame", price=1)
async def frame(job: Any, n: int) -> int:
    """Draws a frame."""
    return n


@app.kind("scene", price=2)
async def scene(job: Any, n: int, frames: int = 0) -> int:
    """Draws the frames of a scene."""
    await job.gather(*(job.child("frame", {"n": frame}) for frame in range(frames)))
    return n


class Cut(msgspec.Struct):
    """What to do with the scenes."""

    scene: Annotated[int, Meta(ge=0, description="The best scene.")]
    style: Literal["fast", "slow"] = "fast"


@app.kind("film", price=5, budget=500)
async def film(job: Any, scenes: int = 2, frames: int = 0, who: str = "client") -> dict[str, Any]:
    """Makes scenes, and asks which one is best and what to call the film."""
    await job.gather(*(job.child("scene", {"n": n, "frames": frames if n == 0 else 0}) for n in range(scenes)))
    cut = await job.ask("Which scene is best?", schema=Cut, who="operator", within="2d", name="cut")
    title = await job.ask("What is it called?", who=who, name="title")
    await job.sleep("1h")
    return {"scene": cut.scene, "title": title}


def picture(width: int, height: int) -> bytes:
    """A PNG: dusk over the sea."""
    rows = b"".join(
        b"\0" + bytes(part for _ in range(width) for part in (30 + 200 * y // height, 90, 150 - 60 * y // height))
        for y in range(height)
    )

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts
