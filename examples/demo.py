"""`make demo`: see what Millpond is for, in a minute. Two acts, each a program that can be run by itself."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from millpond import lifeline

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    words = argparse.ArgumentParser(description="See what Millpond is for, in a minute.")
    words.add_argument("--keep", action="store_true", help="keep the first act's database, to look into it afterwards")
    words.add_argument("--comfyui", metavar="URL", help="a real ComfyUI for the second act, in the place of the double")
    given = words.parse_args()
    acts = (
        ["postcards", *(["--keep"] if given.keep else [])],
        ["products", *(["--comfyui", given.comfyui] if given.comfyui else [])],
    )
    for name, *options in acts:
        try:
            words = [sys.executable, "-m", f"examples.{name}.demo", *options]
            env, passed = lifeline.environment(), [lifeline.descriptor()]
            code = subprocess.run(words, cwd=ROOT, env=env, pass_fds=passed, check=False).returncode
        except KeyboardInterrupt:  # the act was told too, and cleans up
            code = 130
        if code:
            sys.exit(code)


if __name__ == "__main__":
    main()
