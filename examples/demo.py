"""`make demo`: a demonstration in two parts, each a program that can also be run by itself."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from millpond import lifeline

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    words = argparse.ArgumentParser(description="Runs a demonstration of about a minute.")
    words.add_argument("--keep", action="store_true", help="keep the database of the first part")
    words.add_argument("--comfyui", metavar="URL", help="a real ComfyUI for the second part, not a simulated one")
    given = words.parse_args()
    parts = (
        ["postcards", *(["--keep"] if given.keep else [])],
        ["products", *(["--comfyui", given.comfyui] if given.comfyui else [])],
    )
    for name, *options in parts:
        try:
            words = [sys.executable, "-m", f"examples.{name}.demo", *options]
            env, passed = lifeline.environment(), [lifeline.descriptor()]
            code = subprocess.run(words, cwd=ROOT, env=env, pass_fds=passed, check=False).returncode
        except KeyboardInterrupt:  # the part received the signal too, and cleans up
            code = 130
        if code:
            sys.exit(code)


if __name__ == "__main__":
    main()
