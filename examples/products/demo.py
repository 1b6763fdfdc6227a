"""`make demo`, the second part: five products on one server, and a real job of each, all at once.

The server, the file server, the renderer, the workers and ComfyUI are processes of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from examples.products.actions import Actions
from examples.products.effects import Effects
from examples.products.guard import Guard
from examples.products.part import Board
from examples.products.partner import Partner
from examples.products.studio import Studio
from examples.stage import FailedError, Stage, perform

CREDITS = 1_000
COUNT = Path(__file__).with_name("count.py")
SETTINGS = {
    "MILLPOND_COMMANDS": json.dumps({"count": [sys.executable, "-u", str(COUNT)]}),
    "MILLPOND_FLEET_HEARTBEAT": "1s",
    "MILLPOND_FLEET_LEASE": "4s",
    "MILLPOND_LOG_FORMAT": "json",
}


def main() -> None:
    words = argparse.ArgumentParser(description="Runs five products on one engine, with a real job of each.")
    words.add_argument("--comfyui", metavar="URL", help="a real ComfyUI, instead of the simulated one")
    given = words.parse_args()
    perform(
        "millpond-products-", lambda folder: Demo(folder=folder, settings=SETTINGS, comfyui=given.comfyui), Demo.play
    )


@dataclass(slots=True, kw_only=True)
class Demo(Stage):
    comfyui: str | None

    def play(self) -> None:
        self.console.print("\n[bold]Millpond[/]: five products on one engine, a real job of each")
        self.start_server("--product", "all")
        url = self.ready["url"]
        self.explain(
            f"Millpond is up at {url}",
            "database, API, services, worker, file server and renderer; pages to try while this runs:",
            " ".join(f"{url}/{name}/" for name in ("effects", "studio", "guard")),
        )
        whose = f"/v1/tenants/{self.ready['tenant']}/accounts/{self.ready['account']}"
        self.call("PUT", f"{whose}/cap", {"active_max": 50}, key=self.ready["admin_key"])  # effects alone would allow 5
        self.explain("All five at once, for one account")
        results = self.play_parts()
        for lines in results:
            self.explain(*lines)
        self.settle()
        self.explain("All files are in this folder", str(self.folder))

    def play_parts(self) -> list[tuple[str, ...]]:
        board = Board(self.console)
        both = {"stage": self, "board": board}
        parts = (Actions(**both), Effects(**both, comfyui=self.comfyui), Guard(**both), Partner(**both), Studio(**both))
        with board.shown(), ThreadPoolExecutor(len(parts)) as pool:
            try:
                playing = [pool.submit(part.play) for part in parts]
                done, _ = wait(playing, return_when=FIRST_EXCEPTION)
            finally:
                self.over.set()  # after a failure or Ctrl-C, the other parts stop waiting
        for each in done:
            each.result()  # raises the error of a part
        self.over.clear()
        return [each.result() for each in playing]

    def settle(self) -> None:
        jobs = self.call("GET", "/v1/jobs?limit=200")["data"]
        spent, kinds = sum(job["captured"] for job in jobs), {job["kind"] for job in jobs}
        wallet = self.call("GET", "/v1/wallet")
        left = wallet["available"]
        self.explain(
            f"One ledger for all: {left} credits are left of {CREDITS}",
            f"{len(jobs)} jobs of {len(kinds)} kinds; {spent} credits were spent, according to the prices.",
        )
        if (left, wallet["held"]) != (CREDITS - spent, 0):
            raise FailedError("the balance of the wallet is wrong")
        self.verify()


if __name__ == "__main__":
    main()
