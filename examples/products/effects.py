"""Effects in the demo: pictures on ComfyUI workers that connect over HTTP, one of which is killed at work.

ComfyUI is the test double, which runs its nodes with Pillow; `--comfyui URL` uses a real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import httpx2
from examples.products.part import Part
from examples.stage import FailedError
from PIL import Image, ImageDraw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROUTE = "effects:invert"
PICTURES = {"sea.png": "#0b6e4f", "brick.png": "#c1121f", "night.png": "#1d3557"}
SIZE = (480, 320)


@dataclass(slots=True, kw_only=True)
class Effects(Part):
    name: ClassVar[str] = "effects"
    comfyui: str | None

    def play(self) -> tuple[str, ...]:
        self.start_comfyui()
        self.start_worker("gpu-1")
        videos = {picture: self.order(picture, color) for picture, color in PICTURES.items()}
        self.watch(videos, lambda states: "completed" in states and "processing" in states)
        self.stage.kill("gpu-1")
        self.start_worker("gpu-2")
        self.watch(videos, lambda states: set(states) == {"completed"})
        again = sum(job["attempts"] > 1 for job in self.call("GET", "/api/ai-jobs")["data"])
        return (
            f"effects inverted {len(videos)} pictures on ComfyUI, and a worker was killed meanwhile",
            "The files were uploaded directly to storage, by signed URLs. gpu-1 was killed with -9 at work; when its",
            f"lease had expired, gpu-2 took over: {again} done again, each paid for once.",
            self.kept(self.sheet(videos)),
        )

    def start_comfyui(self) -> None:
        if self.comfyui is not None:
            return
        words = ("-m", "tests.doubles.comfyui", "--port", "0", "--dir", str(self.stage.folder / "data" / "comfyui"))
        self.stage.run("comfyui", *words)
        log = self.stage.log_of("comfyui")
        urls = self.stage.wait_for("ComfyUI", lambda: [word for word in log.read_text().split() if "http://" in word])
        self.comfyui = urls[0]
        self.stage.http.post(f"{self.comfyui}/_double/switch", json={"slow": {"ImageInvert": 1.0}})

    def start_worker(self, name: str) -> None:
        ready = self.stage.ready
        words = ["-m", "millpond.integrations.comfyui", "--url", ready["url"], "--comfyui", str(self.comfyui)]
        self.stage.run(name, *words, "--route", ROUTE, "--name", name, MILLPOND_FLEET_SECRET=ready["fleet_secret"])
        self.report("workers", f"{name} joins", "" if name == "gpu-1" else "gpu-1 was killed with -9, at work")

    def order(self, name: str, color: str) -> str:
        """Do what a front end does: upload, then create the video, then the job."""
        picture = self.paint(name, color)
        file = {"filename": name, "mime_type": "image/png", "size": picture.stat().st_size}
        upload = self.call("POST", "/api/videos/uploads", file)
        headers = upload["upload_headers"]
        httpx2.put(upload["upload_url"], content=picture.read_bytes(), headers=headers).raise_for_status()
        video = self.call("POST", "/api/videos", {"original_file_id": upload["file"]["id"]})
        job = {"effect_id": "invert", "video_id": video["id"], "idempotency_key": name}
        self.call("POST", "/api/ai-jobs", job)
        return str(video["id"])

    def watch(self, videos: dict[str, str], until: Callable[[list[str]], bool]) -> None:
        def is_so() -> bool:
            now = {picture: self.call("GET", f"/api/videos/{video}")["status"] for picture, video in videos.items()}
            for picture, status in now.items():
                self.report(f"invert {picture}", status)
            if {"failed", "expired"} & set(now.values()):
                raise FailedError(f"a picture was not inverted; see {self.stage.folder / 'logs'}")
            return until(list(now.values()))

        self.stage.wait_for("the pictures", is_so)

    def paint(self, name: str, color: str) -> Path:
        path = self.keep(name, b"")
        picture = Image.new("RGB", SIZE, color)
        brush = ImageDraw.Draw(picture)
        brush.ellipse((40, 60, 240, 260), fill="#f8f4e3")
        brush.text((270, 140), name.partition(".")[0], fill="#f8f4e3", font_size=40)
        picture.save(path)
        return path

    def sheet(self, videos: dict[str, str]) -> Path:
        """All pictures on one sheet, before and after."""
        wide, high = SIZE[0] // 2, SIZE[1] // 2
        sheet = Image.new("RGB", (wide * len(videos), high * 2), "white")
        for number, (name, video) in enumerate(videos.items()):
            url = self.call("GET", f"/api/videos/{video}")["processed_file_url"]
            after = self.keep(f"inverted-{name}", self.fetch(url))
            for row, path in enumerate((after.with_name(name), after)):
                with Image.open(path) as picture:
                    sheet.paste(picture.convert("RGB").resize((wide, high)), (number * wide, row * high))
        path = self.keep("before-and-after.png", b"")
        sheet.save(path)
        return path
