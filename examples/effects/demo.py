"""`make demo`, the second act: an effect on ComfyUI workers that come over HTTP, one of which dies at work.

Nothing here is acted: server, file server, workers and ComfyUI are processes of their own. ComfyUI is played by the
double of the tests, which runs its nodes for real with Pillow; `--comfyui URL` takes a real one instead.
"""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
from PIL import Image, ImageDraw

from examples.stage import FailedError, Stage, perform

if TYPE_CHECKING:
    from collections.abc import Callable

ROUTE = "effects:invert"
PICTURES = ("#0b6e4f", "#c1121f", "#1d3557", "#e09f3e", "#5a189a")  # as many as a user may have at once
SIZE = (480, 320)
FAST = {"PENSTOCK_FLEET_LEASE": "4s", "PENSTOCK_FLEET_HEARTBEAT": "1s", "PENSTOCK_LOG_FORMAT": "json"}


def main() -> None:
    words = argparse.ArgumentParser(description="See an effect run on ComfyUI, and its worker die.")
    words.add_argument("--comfyui", metavar="URL", help="a real ComfyUI, in the place of the double")
    given = words.parse_args()
    perform("penstock-effects-", lambda folder: Demo(folder=folder, settings=FAST, comfyui=given.comfyui), Demo.play)


@dataclass(slots=True, kw_only=True)
class Demo(Stage):
    comfyui: str | None

    def play(self) -> None:
        self.console.print("\n[bold]Penstock[/]: an effect on a fleet of ComfyUI workers, one of which dies")
        self.start_comfyui()
        self.start_server()
        self.say(
            f"Penstock is up at {self.ready['url']}",
            f"files are served by a process of their own, at {self.ready['files_url']}",
            f"a page to try it by hand, while this runs: {self.ready['url']}/effects/",
        )
        self.start_worker("gpu-1")
        videos = [self.order(number, color) for number, color in enumerate(PICTURES)]
        self.say(
            f"{len(videos)} pictures are uploaded, and the effect `invert` is ordered for each",
            "The bytes went straight to storage, by signed URLs. 5 tokens are reserved for each.",
        )
        self.watch(videos, lambda told: told.count("completed") >= 2 and "processing" in told)
        self.kill("gpu-1")
        self.say(
            "kill -9 gpu-1, at work",
            "Its lease runs out after 4 s of silence; gpu-2 joins with the fleet's secret and goes on.",
        )
        self.start_worker("gpu-2")
        self.watch(videos, lambda told: set(told) == {"completed"})
        self.tell(videos)

    def start_comfyui(self) -> None:
        if self.comfyui is not None:
            self.say(f"ComfyUI is the real one at {self.comfyui}")
            return
        told = self.folder / "comfyui.log"
        self.run("comfyui", "-m", "tests.doubles.comfyui", "--port", "0", "--dir", str(self.folder / "comfyui"))
        self.comfyui = self.wait_for("ComfyUI", lambda: _url_in(told))
        self.http.post(f"{self.comfyui}/_double/switch", json={"slow": {"ImageInvert": 1.0}})
        self.say(
            f"ComfyUI is up at {self.comfyui}",
            "It is the double of the tests, which runs its nodes with Pillow. For a real one:",
            "make demo ARGS='--comfyui http://127.0.0.1:8188'",
        )

    def start_worker(self, name: str) -> None:
        words = ["-m", "penstock.comfyui", "--url", self.ready["url"], "--comfyui", str(self.comfyui)]
        self.run(name, *words, "--route", ROUTE, "--name", name, PENSTOCK_FLEET_SECRET=self.ready["fleet_secret"])
        if name == "gpu-1":
            self.say(f"{name} joins", "It has a fleet's secret and HTTPS, and needs no more to be a worker.")

    def order(self, number: int, color: str) -> str:
        """What a front end does: upload, then video, then job."""
        picture = self.folder / f"picture-{number + 1}.png"
        _paint(picture, color, f"picture {number + 1}")
        asked = {"filename": picture.name, "mime_type": "image/png", "size": picture.stat().st_size}
        upload = self.call("POST", "/effects/api/videos/uploads", asked)
        headers = upload["upload_headers"]
        httpx2.put(upload["upload_url"], content=picture.read_bytes(), headers=headers).raise_for_status()
        video = self.call("POST", "/effects/api/videos", {"original_file_id": upload["file"]["id"]})
        job = {"effect_id": "invert", "video_id": video["id"], "idempotency_key": f"picture-{number}"}
        self.call("POST", "/effects/api/ai-jobs", job)
        return str(video["id"])

    def watch(self, videos: list[str], until: Callable[[list[str]], bool]) -> None:
        told: list[str] = []

        def is_so() -> bool:
            nonlocal told
            now = [self.call("GET", f"/effects/api/videos/{video}")["status"] for video in videos]
            if now != told:
                self.console.print("   " + " · ".join(f"{status:>10}" for status in now), style="dim", soft_wrap=True)
            told = now
            if {"failed", "expired"} & set(now):
                raise FailedError(f"not every picture worked out; see {self.folder}")
            return until(now)

        self.wait_for("the pictures", is_so)

    def tell(self, videos: list[str]) -> None:
        wallet = self.call("GET", "/effects/api/wallet")
        entries = self.call("GET", "/effects/api/wallet/transactions")["data"]
        kinds = ("JOB_RESERVE", "JOB_CONSUME", "JOB_REFUND")
        counts = "   ".join(f"{kind} {sum(entry['type'] == kind for entry in entries)}" for kind in kinds)
        again = [job for job in self.call("GET", "/effects/api/ai-jobs")["data"] if job["attempts"] > 1]
        self.say(f"All {len(videos)} pictures are done", f"{len(again)} of them by gpu-2 after gpu-1 had begun.")
        self.say(f"The wallet has {wallet['balance']} tokens left of 1000", counts)
        if wallet["balance"] != 1_000 - 5 * len(videos):
            raise FailedError("the wallet is not right")
        self.verify()
        self.say("Look at the pictures, before and after", str(self.sheet(videos)))

    def sheet(self, videos: list[str]) -> Path:
        wide, high = SIZE[0] // 2, SIZE[1] // 2
        sheet = Image.new("RGB", (wide * len(videos), high * 2), "white")
        for number, video in enumerate(videos):
            after = self.folder / f"inverted-{number + 1}.png"
            url = self.call("GET", f"/effects/api/videos/{video}")["processed_file_url"]
            after.write_bytes(httpx2.get(url).raise_for_status().content)
            for row, path in enumerate((self.folder / f"picture-{number + 1}.png", after)):
                with Image.open(path) as picture:
                    sheet.paste(picture.convert("RGB").resize((wide, high)), (number * wide, row * high))
        path = self.folder / "before-and-after.png"
        sheet.save(path)
        return path


def _paint(path: Path, color: str, text: str) -> None:
    picture = Image.new("RGB", SIZE, color)
    brush = ImageDraw.Draw(picture)
    brush.ellipse((40, 60, 240, 260), fill="#f8f4e3")
    brush.text((270, 140), text, fill="#f8f4e3", font_size=40)
    picture.save(path)


def _url_in(log: Path) -> str | None:
    """Where a program says that it serves."""
    with contextlib.suppress(StopIteration):
        return next(word for word in log.read_text().split() if word.startswith("http://"))
    return None


if __name__ == "__main__":
    main()
