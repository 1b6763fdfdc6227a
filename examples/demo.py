"""`make demo`: see what Penstock is for, in a minute. Two acts, each a program that can be run by itself."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    words = argparse.ArgumentParser(description="See what Penstock is for, in a minute.")
    words.add_argument("--keep", action="store_true", help="keep the first act's database, to look into it afterwards")
    words.add_argument("--comfyui", metavar="URL", help="a real ComfyUI for the second act, in the place of the double")
    given = words.parse_args()
    acts = (
        [HERE / "postcards" / "demo.py", *(["--keep"] if given.keep else [])],
        [HERE / "effects" / "demo.py", *(["--comfyui", given.comfyui] if given.comfyui else [])],
    )
    for act in acts:
        try:
            code = subprocess.run([sys.executable, *act], check=False).returncode
        except KeyboardInterrupt:  # the act was told too, and cleans up
            code = 130
        if code:
            sys.exit(code)


if __name__ == "__main__":
    main()
