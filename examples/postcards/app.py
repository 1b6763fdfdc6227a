"""A small product: postcards, for five credits each."""

import math
import os
import random
import time
from pathlib import Path

from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont, ImageOps

from millpond import Job, Millpond

app = Millpond()
FOLDER = Path(os.environ.get("POSTCARDS", "postcards"))
SIZE = WIDTH, HEIGHT = 600, 400


@app.kind("postcard", price=5, stages=("sky", "hills", "writing"), expires_in="10m")
def postcard(job: Job, to: str, place: str) -> dict[str, str]:
    """Paint a postcard from a place to somebody."""
    job.stage("sky")
    chance = random.Random(f"{to}, {place}")
    hue = chance.uniform(0.5, 1.0)
    card = sky(hue, chance)
    job.stage("hills")
    for part in range(1, 5):
        hill(card, hue, part / 4, chance)
        time.sleep(0.25)  # simulates the wait for a model
        job.progress(part / 5)  # also a checkpoint: raises here if the job was canceled
    job.stage("writing")
    for words, y, size in ((f"Greetings from {place}", 316, 34), (f"for {to}", 356, 22)):
        ImageDraw.Draw(card).text((28, y), words, "white", ImageFont.load_default(size))
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{job.id}-{job.epoch}.png"  # each lease has its epoch, so no two workers write one file
    card.save(path)
    job.log(f"painted {place} for {to}")
    return {"image": path.name}


def sky(hue: float, chance: random.Random) -> Image.Image:
    ramp = Image.linear_gradient("L").resize(SIZE)
    card = ImageOps.colorize(ramp, tint(hue, 0.6, 0.45), tint(0.1, 0.35, 1.0), tint(hue + 0.1, 0.35, 0.85))
    x, y, sun = chance.randint(90, 510), chance.randint(80, 190), chance.randint(26, 42)
    for radius, light in ((sun * 3, 90), (sun, 255)):
        glow = Image.new("L", SIZE)
        ImageDraw.Draw(glow).circle((x, y), radius, light)
        glow = glow.filter(ImageFilter.GaussianBlur((radius - sun) / 2 + 1))
        card = ImageChops.screen(card, ImageOps.colorize(glow, "black", tint(0.12, 0.15, 1.0)))
    return card


def hill(card: Image.Image, hue: float, near: float, chance: random.Random) -> None:
    waves = [(n * chance.uniform(0.4, 1.6) / 90, chance.uniform(0, 6.3), 26 / n) for n in (1, 2, 4)]
    ridge = [(x, 208 + 68 * near + sum(h * math.sin(x * w + a) for w, a, h in waves)) for x in range(WIDTH)]
    ImageDraw.Draw(card).polygon([*ridge, SIZE, (0, HEIGHT)], tint(hue + 0.04, 0.3 + near / 4, 0.8 - near * 0.6))


def tint(hue: float, saturation: float, value: float) -> str:
    return f"hsv({hue % 1 * 360:.0f}, {saturation:.0%}, {value:.0%})"
