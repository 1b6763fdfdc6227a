"""Creates the peers' own virtual environment, `bench/.venv`, from `bench/requirements.lock`.

`python -m bench.peers.environment` prints its Python. Standard library only: it must run before
anything is installed. The environment is created again when the lock or the Python version changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.processes import BENCHMARK_SECONDS

BENCH = Path(__file__).resolve().parent.parent
FOLDER = BENCH / ".venv"
LOCK = BENCH / "requirements.lock"
PYTHON = FOLDER / "bin" / "python"
STAMP = FOLDER / "made-from"


def ensure() -> Path:
    """The Python of an environment that contains exactly the packages of the lock."""
    wanted = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()
    if not (PYTHON.exists() and STAMP.exists() and STAMP.read_text() == wanted):
        make()
        STAMP.write_text(wanted)
    return PYTHON


def make() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        run(uv, "venv", "--quiet", "--python", sys.executable, FOLDER)
        run(uv, "pip", "install", "--quiet", "--python", PYTHON, "--requirement", LOCK)
    else:
        venv.create(FOLDER, with_pip=True)
        run(PYTHON, "-m", "pip", "install", "--quiet", "--requirement", LOCK)
    # So that git ignores it, independently of the repository's .gitignore.
    (FOLDER / ".gitignore").write_text("*\n")


def run(*command: str | Path) -> None:
    # Standard output is for results, so the output of the installer goes to standard error.
    subprocess.run(command, check=True, stdout=sys.stderr, timeout=BENCHMARK_SECONDS)


if __name__ == "__main__":
    print(ensure())
