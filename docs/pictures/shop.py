"""The app of the screenshots: what a small shop for ads might run."""

import asyncio

import msgspec

from millpond import Job, Millpond, PermanentError

app = Millpond()


@app.kind("ad", price=5, stages=("planning", "rendering", "saving"))
async def ad(job: Job, product: str, style: str = "plain") -> dict[str, str]:
    """Make an ad for a product."""
    await job.stage("planning")
    await job.log(f"a {style} ad for a {product}")
    if product == "boots":
        raise PermanentError("There is no photo of the product.")
    await job.stage("rendering")
    for step in range(1, 5):
        await asyncio.sleep(0.2)
        await job.progress(step / 5)
    await job.stage("saving")
    await job.log(f"saved the ad for a {product}")
    return {"headline": f"The {product}, as it should be.", "style": style}


@app.kind("caption", price=1)
async def caption(job: Job, product: str) -> dict[str, str]:
    """Write one line about a product."""
    await job.log(f"a caption for a {product}")
    return {"caption": f"Every home needs a {product}."}


@app.kind("video", price=20, stages=("filming", "cutting"))
async def video(job: Job, product: str) -> None:
    """Film a product, for as long as somebody watches."""
    await job.stage("filming")
    await job.log(f"filming a {product}")
    await job.progress(0.3)
    while True:
        await asyncio.sleep(0.1)
        await job.checkpoint()


class Choice(msgspec.Struct):
    scene: int


@app.kind("campaign", price=10, budget=80)
async def campaign(job: Job, product: str, scenes: int = 4) -> dict[str, str]:
    """Draw scenes, and ask which one is best."""
    drawn = await job.gather(*(job.child("scene", {"product": product, "n": n}) for n in range(scenes)))
    choice = await job.ask("Which scene is best?", schema=Choice, who="operator", within="2d")
    return drawn[choice.scene].output


@app.kind("scene", price=5)
async def scene(job: Job, product: str, n: int) -> dict[str, str]:
    """Draw a scene of two frames."""
    await job.gather(*(job.child("frame", {"scene": n, "n": frame}) for frame in range(2)))
    return {"title": f"{product}, scene {n}"}


@app.kind("frame")
async def frame(job: Job, scene: int, n: int) -> str:
    """Draw a frame."""
    await job.log(f"frame {n} of scene {scene}")
    return f"{scene}-{n}.png"
