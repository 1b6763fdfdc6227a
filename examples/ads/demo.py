"""`make demo`, the third act: an ad from a product page, and a message that is filtered on its way.

No account anywhere is needed. The local renderer is a process of its own that speaks the HTTP API of Replicate: it
takes the order, paints, films and speaks for real, and calls back, signed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from examples.stage import FailedError, Stage, perform
from penstock import webhooks

ENDS = ("completed", "failed", "canceled", "expired")
MESSAGE = "Hi! I am Ada, write to ada@example.com, my card is 4111 1111 1111 1111."
ANSWER = "Thank you, Ada. Our staff key is AKIAIOSFODNN7EXAMPLE."


def main() -> None:
    settings = {"PENSTOCK_LOG_FORMAT": "json"}
    perform("penstock-ads-", lambda folder: Demo(folder=folder, settings=settings), Demo.play)


@dataclass(slots=True, kw_only=True)
class Demo(Stage):
    def play(self) -> None:
        self.console.print("\n[bold]Penstock[/]: an ad from a product page, and a message that is filtered")
        self.start_server()
        self.say(
            f"Penstock is up at {self.ready['url']}, with a renderer beside it",
            f"pages to try it by hand, while this runs: {self.ready['url']}/studio/ and {self.ready['url']}/guard/",
        )
        self.advertise()
        self.filter()
        self.verify()
        self.say("Look at the ad, hear it, see it", str(self.folder))

    # The ad

    def advertise(self) -> None:
        page = self.make("scrape", {"url": f"{self.ready['url']}/studio/sample"})
        facts = page["output"]
        self.say(f"The product page is read: {facts['title']}, {facts['price']} {facts['currency']}")
        copy = self.make("copy", {"product_id": page["id"], "seed": 7})
        self.say(
            f"Copy is written: “{copy['output']['headlines'][0]}”",
            "By a small grammar, from the product's own facts. PENSTOCK_CHAT_URL names a model that does it.",
        )
        both = {"product_id": page["id"], "copy_id": copy["id"], "seed": 7}
        orders = {
            "ad.png": self.order("static-ad", both | {"style": "bold"}),
            "voice": self.order("tts", {"copy_id": copy["id"]}),
            "film.mp4": self.order("video", both | {"script": "Meet the Fell Kettle. Four minutes, and it sings."}),
        }
        self.say(
            "A picture, a voice and a film are ordered",
            "Each is submitted to the renderer and parked until that calls back. Its word is checked first.",
        )
        done = self.watch(orders)
        for name, job in done.items():
            (file, *_) = job["output"]["files"]
            path = self.folder / (name if "." in name else f"{name}.{file['name'].rpartition('.')[2]}")
            path.write_bytes(httpx2.get(file["url"]).raise_for_status().content)
        spent = sum(job["credits_cost"] for job in (page, copy, *done.values()))
        wallet = self.call("GET", "/studio/api/credits")
        self.say(f"The wallet has {wallet['balance']} credits left of 1000", f"{spent} were spent, as the prices say.")
        if wallet["balance"] != 1_000 - spent:
            raise FailedError("the wallet is not right")

    def order(self, what: str, asked: dict[str, Any]) -> str:
        return str(self.call("POST", f"/studio/api/generate/{what}", asked)["job_id"])

    def make(self, what: str, asked: dict[str, Any]) -> dict[str, Any]:
        job_id = self.order(what, asked)
        return self.watch({what: job_id}, is_quiet=True)[what]

    def watch(self, orders: dict[str, str], *, is_quiet: bool = False) -> dict[str, dict[str, Any]]:
        told: list[str] = []
        jobs: dict[str, dict[str, Any]] = {}

        def are_done() -> bool:
            nonlocal told, jobs
            jobs = {name: self.call("GET", f"/studio/api/jobs/{job_id}") for name, job_id in orders.items()}
            now = [job["status"] for job in jobs.values()]
            if now != told and not is_quiet:
                line = " · ".join(f"{name} {status:>10}" for name, status in zip(jobs, now, strict=True))
                self.console.print(f"   {line}", style="dim", soft_wrap=True)
            told = now
            return all(status in ENDS for status in now)

        self.wait_for(", ".join(orders), are_done)
        for name, job in jobs.items():
            if job["status"] != "completed":
                raise FailedError(f"{name} is {job['status']}: {job['error']}")
        return jobs

    # The filter

    def filter(self) -> None:
        admin = self.ready["admin_key"]
        tenant = f"?tenant={self.ready['tenant']}"
        rules = (
            {"name": "No addresses", "direction": "both", "action": "redact", "matcher": {"type": "pii"}},
            {"name": "No keys", "direction": "outbound", "action": "redact", "matcher": {"type": "secrets"}},
        )
        for rule in rules:
            self.call("POST", f"/guard/v1/rules{tenant}", rule, key=admin)
        job = self.call(
            "POST",
            "/guard/v1/jobs",
            {"message_input": MESSAGE, "message_output": ANSWER, "webhook_url": f"{self.ready['url']}/inbox/demo"},
        )
        self.wait_for(
            "the filter", lambda: self.call("GET", f"/guard/v1/jobs/{job['job_id']}")["status"] == "completed"
        )
        (came,) = [each for each in self.call("GET", "/inbox.json", key=admin)["data"] if job["job_id"] in each["body"]]
        webhooks.verify(came["body"], dict(came["headers"]), job["webhook_secret"])
        told = json.loads(came["body"])["data"]
        self.say(
            "A message and its answer were filtered, and a signed webhook says so",
            f"in:  {told['inbound']['text']}",
            f"out: {told['outbound']['text']}",
        )
        (self.folder / "webhook.json").write_text(came["body"])


if __name__ == "__main__":
    main()
