"""Measures the start of `millpond --help`, and of `millpond up` with existing data: `python -m bench.startup`."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from bench.processes import WAIT_SECONDS, started

COMMAND = (sys.executable, "-m", "millpond")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures how long commands take to start.")
    parser.add_argument("--runs", type=int, default=15)
    runs = parser.parse_args().runs
    report("startup_help", [help_once() for _ in range(runs)][1:])
    with tempfile.TemporaryDirectory(prefix="millpond-startup-", ignore_cleanup_errors=True) as folder:
        starts = [up_once(Path(folder)) for _ in range(max(runs // 3, 2))]
    report("startup_up_cold", starts[:1])
    report("startup_up_warm", starts[1:])


def report(metric: str, seconds: list[float]) -> None:
    value = round(statistics.median(seconds) * 1000, 1)
    line = {"peer": "millpond", "version": version("millpond"), "metric": metric, "value": value, "unit": "ms"}
    print(json.dumps(line | {"settings": {"runs": len(seconds)}}), flush=True)


def help_once() -> float:
    began = time.perf_counter()
    subprocess.run([*COMMAND, "--help"], check=True, stdout=subprocess.DEVNULL, timeout=WAIT_SECONDS)
    return time.perf_counter() - began


def up_once(folder: Path) -> float:
    """The time from the command to a server that accepts requests; the server is then stopped."""
    ready = folder / "ready.json"
    began = time.perf_counter()
    words = ("up", "--data-dir", str(folder / "data"), "--port", "0", "--ready-file", str(ready))
    with started([*COMMAND, *words], stderr=subprocess.DEVNULL) as process:
        while not ready.exists():
            if process.poll() is not None or time.perf_counter() - began > WAIT_SECONDS:
                sys.exit("millpond up did not start")
            time.sleep(0.002)
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
