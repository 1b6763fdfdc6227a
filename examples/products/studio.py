"""Studio in the demo: makes an ad from the page of a product: facts, copy, a picture, a voice and a film.

No account of a provider is needed. The local renderer is a process of its own with the HTTP API of Replicate: it
accepts predictions, renders real pictures, films and voices, and sends signed callbacks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

from examples.products.part import Part

NAMES = ("ad", "voice", "film")


@dataclass(slots=True, kw_only=True)
class Studio(Part):
    name: ClassVar[str] = "studio"

    def play(self) -> tuple[str, ...]:
        page = self.make("scrape", {"url": f"{self.stage.ready['url']}/studio/sample"})
        copy = self.make("copy", {"product_id": page["id"], "seed": 7})
        both = {"product_id": page["id"], "copy_id": copy["id"], "seed": 7}
        orders = {
            "static-ad": both | {"style": "bold"},
            "tts": {"copy_id": copy["id"]},
            "video": both | {"script": "Meet the Fell Kettle. Four minutes, and it sings."},
        }
        with ThreadPoolExecutor() as pool:
            jobs = list(pool.map(self.make, orders, orders.values()))
        files = [job["output"]["files"][0] for job in jobs]
        names = [f"{what}.{file['name'].rpartition('.')[2]}" for what, file in zip(NAMES, files, strict=True)]
        kept = [self.keep(name, self.fetch(file["url"])) for name, file in zip(names, files, strict=True)]
        facts = page["output"]
        return (
            f"studio made an ad for the {facts['title']}, {facts['price']} {facts['currency']}, from its page",
            f"“{copy['output']['headlines'][0]}”: the copy is from a small grammar, with the product's own facts.",
            "Picture, voice and film are from a renderer with the API of Replicate, which sends signed callbacks.",
            self.kept(*kept),
        )

    def make(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        job_id = self.call("POST", f"/api/generate/{what}", body)["job_id"]

        def read() -> tuple[Any, str, str]:
            job = self.call("GET", f"/api/jobs/{job_id}")
            return job, job["status"], f"for {job['credits_cost']}" if job["status"] == "completed" else ""

        return self.end_of(what, read)
